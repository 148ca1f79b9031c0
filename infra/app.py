"""Deploys the example agent: `cdk deploy` in the project's directory runs this file."""

import os
import sys
from pathlib import Path

import aws_cdk as cdk

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples" / "example_agent"))

from agent import ExampleAgent

app = cdk.App()
stack = cdk.Stack(app, app.node.try_get_context("stack") or "ExampleAgent")
ExampleAgent(stack, "Agent", environ=os.environ)
app.synth()
