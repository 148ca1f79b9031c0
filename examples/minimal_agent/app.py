import aws_cdk as cdk

from infinity_cdk import GetTimeToolSet, InfinityAgent

app = cdk.App()
stack = cdk.Stack(app, "MinimalAgent")
# "demo" needs no model: `call TOOL {...}` calls a tool. Leave it away, and the agent thinks with Claude.
model_id = app.node.try_get_context("model_id") or "demo"
agent = InfinityAgent(stack, "Agent", model_id=model_id, system_prompt="Answer shortly.")
GetTimeToolSet(agent, "GetTime")
app.synth()
