"""What an agent's template says: each rule of the services that somebody's product broke on."""

import json
import re
from dataclasses import fields
from pathlib import Path

import aws_cdk as cdk
import pytest
from aws_cdk import aws_lambda, aws_secretsmanager, aws_sns

from infinity_agents.settings import leading, queueing, tool_servers
from infinity_agents.settings.stacks import AgentOutputs
from infinity_agents.wire.keys import Keyring
from infinity_cdk import GetTimeToolSet, InfinityAgent, RapToolSet
from tests.infra.conftest import Synthesized, app_without_bundling, listed

SNAPSHOT = Path(__file__).with_name("logical_ids.json")
STATEFUL = {
    "AWS::SQS::Queue",
    "AWS::DynamoDB::GlobalTable",
    "AWS::DSQL::Cluster",
    "AWS::S3::Bucket",
    "AWS::SecretsManager::Secret",
    "AWS::Scheduler::ScheduleGroup",
}
ENVIRONMENTS = {
    "AgentLeaderFunction": leading.LeaderEnvironment,
    "AgentReceiverFunction": queueing.ReceiverEnvironment,
    "AgentPublicReceiverFunction": queueing.ReceiverEnvironment,
    "AgentTimersRelayFunction": queueing.RelayEnvironment,
    "AgentKeeperFunction": leading.KeeperEnvironment,
    "AgentMigrationMigrateFunction": leading.MigrateEnvironment,
    "AgentGetTimeToolServerFunction": tool_servers.ToolServerEnvironment,
    "AgentGetTimeToolFailuresFunction": tool_servers.ToolFailuresEnvironment,
}
"""The settings of each function of ours."""

NEVER_SET = {"DATABASE_URL", "CALLBACK_SECRET", "SYSTEM_PROMPT_PATH", "TOOLS_CONFIG_PATH", "TOOLS_CONFIG"}
"""The other way to say what a deployed agent is told."""


def everything(stack):
    """Make an agent with everything that one can have."""
    agent = InfinityAgent(
        stack,
        "Agent",
        system_prompt="Be kind.",
        public_receiver=True,
        alarm_topic=aws_sns.Topic.from_topic_arn(stack, "Topic", "arn:aws:sns:eu-central-1:123456789012:alarms"),
    )
    GetTimeToolSet(agent, "GetTime")
    RapToolSet(agent, "Partner", server_url="https://tools.example.com", call_timeout=cdk.Duration.minutes(2))
    token = aws_secretsmanager.Secret.from_secret_complete_arn(
        stack, "Token", "arn:aws:secretsmanager:eu-central-1:123456789012:secret:token-AbCdEf"
    )
    RapToolSet(agent, "Closed", server_url="https://closed.example.com", auth=token)
    RapToolSet(agent, "Weather", handler=function_of_somebody(stack, "Weather"))
    return agent


def function_of_somebody(stack, id):
    return aws_lambda.Function(
        stack,
        id,
        code=aws_lambda.Code.from_inline("def handler(event, context): ..."),
        handler="index.handler",
        runtime=aws_lambda.Runtime.PYTHON_3_13,
    )


@pytest.fixture(scope="session")
def whole():
    stack = cdk.Stack(app_without_bundling(), "Stack")
    everything(stack)
    return Synthesized(stack)


# -------------------------------------------------------------------------------------------------------- queues


def test_a_message_in_hand_stays_invisible_for_six_invocations(whole):
    mappings = whole.of_type("AWS::Lambda::EventSourceMapping").values()
    assert len(mappings) == 2
    for mapping in mappings:
        queue = whole.resources[mapping["EventSourceArn"]["Fn::GetAtt"][0]]["Properties"]
        function = whole.resources[mapping["FunctionName"]["Ref"]]["Properties"]
        assert queue["VisibilityTimeout"] == 6 * function["Timeout"]
        assert mapping["FunctionResponseTypes"] == ["ReportBatchItemFailures"]
        assert mapping["BatchSize"] <= 10
        assert "MaximumBatchingWindowInSeconds" not in mapping


def test_the_input_queue_keeps_the_order_of_each_thread_and_limits_none_by_another(whole):
    queue = whole.only("AWS::SQS::Queue", "AgentInputQueue")
    assert queue["FifoQueue"]
    assert queue["DeduplicationScope"] == "messageGroup"
    assert queue["FifoThroughputLimit"] == "perMessageGroupId"
    assert queue["ContentBasedDeduplication"]
    assert whole.only("AWS::SQS::Queue", "AgentInputDeadLetters")["FifoQueue"]


def test_every_queue_is_encrypted_takes_only_tls_and_has_dead_letters(whole):
    policies = whole.of_type("AWS::SQS::QueuePolicy").values()
    for name, queue in whole.of_type("AWS::SQS::Queue").items():
        assert queue["SqsManagedSseEnabled"], name
        assert "QueueName" not in queue
        assert ("RedrivePolicy" in queue) == ("DeadLetters" not in name)
        [policy] = [each for each in policies if each["Queues"] == [{"Ref": name}]]
        denied = [each for each in policy["PolicyDocument"]["Statement"] if each["Effect"] == "Deny"]
        assert any(each["Condition"] == {"Bool": {"aws:SecureTransport": "false"}} for each in denied)


def test_the_leader_parks_before_the_queue_does(whole):
    tries = int(whole.function("AgentLeader")["Environment"]["Variables"]["MAX_RECEIVE_COUNT"])
    redrive = whole.only("AWS::SQS::Queue", "AgentInputQueue")["RedrivePolicy"]["maxReceiveCount"]
    assert 10 <= tries < redrive <= tries + 10


def test_schedules_go_to_the_standard_queue_and_only_in_our_name(whole):
    statements = whole.statements("AgentTimersSchedulerRole")
    queues = {resource["Fn::GetAtt"][0] for each in statements for resource in listed(each["Resource"])}
    assert {re.sub("[0-9A-F]{8}$", "", name) for name in queues} == {
        "AgentTimersDelayQueue",
        "AgentTimersDelayDeadLetters",
    }
    assert not any("FifoQueue" in whole.resources[name]["Properties"] for name in queues)
    [trust] = whole.only("AWS::IAM::Role", "AgentTimersSchedulerRole")["AssumeRolePolicyDocument"]["Statement"]
    assert set(trust["Condition"]) == {"StringEquals", "ArnEquals"}
    [passing] = whole.allowed("AgentLeaderRole", "iam:PassRole")
    assert passing["Condition"] == {"StringEquals": {"iam:PassedToService": "scheduler.amazonaws.com"}}


# ----------------------------------------------------------------------------------------------------- functions


def test_nothing_on_a_cycle_is_cut(whole):
    for name in [name for name in ENVIRONMENTS if "Migrate" not in name] + ["Weather"]:
        assert whole.function(name)["RecursiveLoop"] == "Allow", name


def test_no_name_is_ours_to_take(whole):
    named = {
        "AWS::Lambda::Function": "FunctionName",
        "AWS::SQS::Queue": "QueueName",
        "AWS::DynamoDB::GlobalTable": "TableName",
        "AWS::S3::Bucket": "BucketName",
        "AWS::SecretsManager::Secret": "Name",
        "AWS::Scheduler::ScheduleGroup": "Name",
        "AWS::IAM::Role": "RoleName",
        "AWS::Logs::LogGroup": "LogGroupName",
    }
    for name, resource in whole.resources.items():
        assert named.get(resource["Type"]) not in resource.get("Properties", ()), name


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_a_function_is_told_what_its_settings_read(whole, name):
    variables = whole.function(name)["Environment"]["Variables"]
    environment = ENVIRONMENTS[name]
    known = {field.name.upper() for field in fields(environment)}
    assert set(variables) == known - NEVER_SET
    told = {
        key: value if isinstance(value, str) else f"arn:aws:x:{key}" if key.endswith("_ARN") else f"https://x/{key}"
        for key, value in variables.items()
    }
    assert environment.read(told).written() == told


def test_every_function_of_ours_has_settings(whole):
    ours = {
        name for name, each in whole.of_type("AWS::Lambda::Function").items() if "infinity_agents" in each["Handler"]
    }
    assert len(ours) == len(ENVIRONMENTS)
    for name in ours:
        assert re.sub("[0-9A-F]{8}$", "", name) in ENVIRONMENTS


def test_functions_come_after_the_schema_and_the_tools(whole):
    for name, resource in whole.resources.items():
        if re.fullmatch("Agent(Leader|Keeper)Function[0-9A-F]{8}", name):
            first = {re.sub("[0-9A-F]{8}$", "", each) for each in resource["DependsOn"]}
            assert {"AgentMigrationSchema", "AgentToolsConfigItem"} <= first


# ---------------------------------------------------------------------------------------------------- permissions


@pytest.mark.parametrize(
    ("role", "target"),
    [
        ("AgentLeaderRole", "AgentGetTimeToolServerFunction"),
        ("AgentLeaderRole", "Weather"),
        ("AgentGetTimeToolServerRole", "AgentReceiverFunction"),
        ("AgentGetTimeToolFailuresRole", "AgentReceiverFunction"),
        ("WeatherServiceRole", "AgentReceiverFunction"),
    ],
)
def test_who_calls_a_signed_url_has_both_permissions(whole, role, target):
    def reaches(statement):
        return any(each.get("Fn::GetAtt", [""])[0].startswith(target) for each in listed(statement["Resource"]))

    assert any(reaches(each) for each in whole.allowed(role, "lambda:InvokeFunctionUrl"))
    via_url = [each for each in whole.allowed(role, "lambda:InvokeFunction") if reaches(each)]
    assert [each["Condition"] for each in via_url] == [{"Bool": {"lambda:InvokedViaFunctionUrl": "true"}}]


def test_urls_take_iam_but_for_the_public_one(whole):
    for name, url in whole.of_type("AWS::Lambda::Url").items():
        assert url["AuthType"] == ("NONE" if "Public" in name else "AWS_IAM")
    anyone = [each for each in whole.of_type("AWS::Lambda::Permission").values() if each["Principal"] == "*"]
    assert {each["Action"] for each in anyone} == {"lambda:InvokeFunctionUrl", "lambda:InvokeFunction"}
    assert all("Public" in each["FunctionName"]["Fn::GetAtt"][0] for each in anyone)


def test_the_leader_may_invoke_its_model_wherever_the_profile_routes_to(whole):
    [invoking] = whole.allowed("AgentLeaderRole", "bedrock:InvokeModelWithResponseStream")
    profile = "global.anthropic.claude-sonnet-4-6"
    arns = {json.dumps(each).split("bedrock:")[1].rstrip('"]}') for each in invoking["Resource"]}
    assert arns == {
        '", {"Ref": "AWS::Region"}, ":", {"Ref": "AWS::AccountId"}, ":inference-profile/' + profile,
        "*::foundation-model/anthropic.claude-sonnet-4-6",
        "::foundation-model/anthropic.claude-sonnet-4-6",
    }


def test_only_the_migration_is_the_databases_admin(whole):
    assert whole.allowed("AgentMigrationMigrateRole", "dsql:DbConnectAdmin")
    for role in ("AgentLeaderRole", "AgentKeeperRole"):
        assert whole.allowed(role, "dsql:DbConnect")
        assert not whole.allowed(role, "dsql:DbConnectAdmin")
    schema = whole.only("Custom::InfinitySchema", "Agent")
    assert schema["Role"] == whole.function("AgentLeader")["Environment"]["Variables"]["DSQL_DB_USER"]
    assert len(schema["IamRoleArns"]) == 2


def test_a_missing_value_is_not_taken_for_a_forbidden_one(whole):
    for role in ("AgentLeaderRole", "AgentReceiverRole", "AgentGetTimeToolServerRole"):
        assert whole.allowed(role, "s3:ListBucket")
    assert not any(whole.allowed("AgentKeeperRole", f"s3:{action}") for action in ("ListBucket", "GetObject"))


def test_no_policy_of_ours_allows_everything(whole):
    for kind in ("AWS::IAM::Policy", "AWS::IAM::ManagedPolicy"):
        for name, policy in whole.of_type(kind).items():
            for statement in policy["PolicyDocument"]["Statement"]:
                assert "*" not in listed(statement["Resource"]), name
                assert not any(action.endswith(":*") for action in listed(statement["Action"])), name


def test_the_callback_secret_is_spelt_as_the_functions_read_it(whole):
    join = whole.only("AWS::SecretsManager::Secret", "AgentCallbackSecret")["SecretString"]["Fn::Join"][1]
    assert join[0] == "k1:{{resolve:secretsmanager:"
    generated = whole.only("AWS::SecretsManager::Secret", "AgentCallbackKey")["GenerateSecretString"]
    assert generated["ExcludePunctuation"] is True
    assert Keyring.parse("k1:" + "a" * generated["PasswordLength"]).keys


def test_nothing_has_cloudformation_put_the_first_callback_key_in_place_of_later_ones(whole):
    stack = cdk.Stack(app_without_bundling(), "Stack")
    everything(stack)
    cdk.Tags.of(stack).add("team", "support")
    tagged = Synthesized(stack)
    assert tagged.only("AWS::DynamoDB::GlobalTable", "AgentState") != whole.only(
        "AWS::DynamoDB::GlobalTable", "AgentState"
    )
    secret = tagged.only("AWS::SecretsManager::Secret", "AgentCallbackSecret")
    # What is not these two words for words, in whatever release, makes CloudFormation write the secret anew.
    assert secret == {
        "Description": "The keys that sign callbacks and timers: keyid:secret, several by comma, the first signs",
        "SecretString": {
            "Fn::Join": [
                "",
                ["k1:{{resolve:secretsmanager:", {"Ref": "AgentCallbackKey1D3E95C2"}, ":SecretString:::}}"],
            ]
        },
    }


# --------------------------------------------------------------------------------------------------------- tools


def test_the_tools_configuration_is_what_the_leader_reads(whole):
    written = config_of(whole)
    assert [each["id"] for each in written["tool_sets"]] == ["GetTime", "Partner", "Closed", "Weather"]
    by_name = {each["id"]: each for each in written["tool_sets"]}
    assert by_name["Partner"] == {
        "type": "toolset_server",
        "server_url": "https://tools.example.com",
        "id": "Partner",
        "auth": "none",
        "call_timeout": 120,
    }
    assert by_name["Closed"]["auth"] == {
        "bearer_secret_arn": "arn:aws:secretsmanager:eu-central-1:123456789012:secret:token-AbCdEf"
    }
    assert by_name["Weather"]["auth"] == "sigv4"
    assert whole.allowed("AgentLeaderRole", "secretsmanager:GetSecretValue")


def config_of(synthesized):
    """Return the tools configuration that the template writes; what only a deployment knows is a name."""
    create = synthesized.only("Custom::InfinityToolsConfig", "Agent")["Create"]
    parts = [create] if isinstance(create, str) else create["Fn::Join"][1]
    put = json.loads("".join(each if isinstance(each, str) else "https://deployed" for each in parts))
    item = put["parameters"]["Item"]
    assert item["sk"] == {"S": "config"}
    key = synthesized.function("AgentLeader")["Environment"]["Variables"]["TOOLS_CONFIG_DDB_KEY"]
    assert item["pk"] == {"S": key}
    assert put["physicalResourceId"] == {"id": key}
    return json.loads(item["config"]["S"])


@pytest.mark.slow
def test_forty_tool_sets_are_one_resource_and_fit_in_their_policies(stack):
    agent = InfinityAgent(stack, "Agent", monitoring=False)
    for number in range(40):
        RapToolSet(agent, f"Tools{number}", handler=function_of_somebody(stack, f"Function{number}"))
    made = Synthesized(stack)
    assert len(made.of_type("Custom::InfinityToolsConfig")) == 1
    assert len(config_of(made)["tool_sets"]) == 40
    longest = f"arn:aws:lambda:ap-southeast-1:123456789012:function:{'x' * 64}"
    policies = made.of_type("AWS::IAM::ManagedPolicy").values()
    assert 1 < len(policies) <= 10
    reached = set()
    for policy in policies:
        text = json.dumps(policy["PolicyDocument"], separators=(",", ":"))
        reached |= set(re.findall(r"Function\d+", text))
        assert len(re.sub(r'{"Fn::GetAtt":\[[^]]*\]}', f'"{longest}"', text)) <= 6144
    assert len(reached) == 40


@pytest.mark.slow
def test_an_imported_handler_is_let_in_and_what_cannot_be_set_is_said(stack):
    from aws_cdk import assertions, aws_iam

    agent = InfinityAgent(stack, "Agent", monitoring=False)
    arn = "arn:aws:lambda:eu-central-1:123456789012:function:theirs"
    role = aws_iam.Role.from_role_arn(stack, "Role", "arn:aws:iam::123456789012:role/theirs")
    with_role = aws_lambda.Function.from_function_attributes(stack, "WithRole", function_arn=arn, role=role)
    RapToolSet(agent, "WithRole", handler=with_role)
    RapToolSet(agent, "Alone", handler=aws_lambda.Function.from_function_arn(stack, "Alone", f"{arn}2"))
    made = Synthesized(stack)
    reached = {
        arn for each in made.allowed("AgentLeaderRole", "lambda:InvokeFunctionUrl") for arn in listed(each["Resource"])
    }
    assert reached == {arn, f"{arn}2"}
    assert (
        len([each for each in made.of_type("AWS::Lambda::Url").values() if arn in str(each["TargetFunctionArn"])]) == 2
    )
    assert "theirs" in made.only("AWS::IAM::Policy", "AgentRapAccess")["Roles"]
    told = assertions.Annotations.from_stack(stack)
    like = assertions.Match.string_like_regexp
    assert len(told.find_warning("/Stack/Agent/WithRole", like("put-function-recursion"))) == 1
    assert len(told.find_warning("/Stack/Agent/Alone", like("from_function_attributes"))) == 1


@pytest.mark.slow
def test_tools_in_another_stack_make_no_cycle():
    app = app_without_bundling()
    tools, agents = cdk.Stack(app, "Tools"), cdk.Stack(app, "Agents")
    agent = InfinityAgent(agents, "Agent")
    agent.add_tool_set(GetTimeToolSet(tools, "GetTime"))
    RapToolSet(agent, "Weather", handler=function_of_somebody(tools, "Weather"))
    app.synth()
    assert [each.node.id for each in agents.dependencies] == ["Tools"]
    assert not tools.dependencies


@pytest.mark.slow
def test_two_agents_in_one_stack_are_strangers():
    stack = cdk.Stack(app_without_bundling(), "Stack")
    for name in ("First", "Second"):
        GetTimeToolSet(InfinityAgent(stack, name, monitoring=False), "GetTime")
    made = Synthesized(stack)
    for name, resource in made.resources.items():
        other = {"First": "Second", "Second": "First"}.get(re.match("First|Second|", name).group())
        assert other is None or f'"{other}' not in json.dumps(resource), name
    outputs = {key: f"{key} value" for key in made.template["Outputs"]}
    assert AgentOutputs.read(outputs, "First").input_queue_url == "FirstInputQueueUrl value"
    assert AgentOutputs.read(outputs, "Second").database_endpoint == "SecondDatabaseEndpoint value"


# ---------------------------------------------------------------------------------------------------- what changes


def stateful(synthesized):
    return {name: each.get("Properties") for name, each in synthesized.resources.items() if each["Type"] in STATEFUL}


def test_logical_ids_are_what_they_were(whole):
    ids = {name: each["Type"] for name, each in sorted(whole.resources.items())}
    assert ids == json.loads(SNAPSHOT.read_text()), "if that is meant, write the new ids to logical_ids.json"


@pytest.mark.slow
def test_neither_another_tool_set_nor_another_name_replaces_what_holds_state(whole):
    stack = cdk.Stack(app_without_bundling(), "Renamed", stack_name="another")
    agent = everything(stack)
    RapToolSet(agent, "More", server_url="https://more.example.com")
    more = Synthesized(stack)
    assert stateful(more) == stateful(whole)
    gone = set(whole.resources) - set(more.resources)
    assert {whole.resources[name]["Type"] for name in gone} <= {"AWS::Lambda::Permission"}


def test_what_holds_state_outlives_the_stack(whole):
    for name, each in whole.resources.items():
        if each["Type"] in STATEFUL - {"AWS::Scheduler::ScheduleGroup"} and "Claims" not in name:
            assert each["DeletionPolicy"] == "Retain", name
    assert whole.only("AWS::DSQL::Cluster", "Agent")["DeletionProtectionEnabled"] is True
    table = whole.only("AWS::DynamoDB::GlobalTable", "AgentState")
    assert table["Replicas"][0]["DeletionProtectionEnabled"] is True
    assert table["Replicas"][0]["PointInTimeRecoverySpecification"] == {"PointInTimeRecoveryEnabled": True}
    assert table["TimeToLiveSpecification"] == {"AttributeName": "ttl", "Enabled": True}
    assert table["BillingMode"] == "PAY_PER_REQUEST"


def test_the_outputs_are_those_that_the_command_line_reads(whole):
    outputs = {key: f"{key} value" for key in whole.template["Outputs"]}
    assert AgentOutputs.read(outputs).written("Agent") == outputs


# ------------------------------------------------------------------------------------------------------- choices


@pytest.mark.slow
def test_a_leader_that_starts_from_a_snapshot_is_read_from_its_version(stack):
    InfinityAgent(stack, "Agent", snap_start=True, monitoring=False)
    made = Synthesized(stack)
    assert made.function("AgentLeader")["SnapStart"] == {"ApplyOn": "PublishedVersions"}
    [alias] = made.of_type("AWS::Lambda::Alias")
    mapping = made.only("AWS::Lambda::EventSourceMapping", "AgentLeader")
    assert mapping["FunctionName"]["Fn::Join"][1][1] == ":live"
    assert {"Ref": alias} in mapping["FunctionName"]["Fn::Join"][1][0]["Fn::Select"][1]["Fn::Split"]


@pytest.mark.slow
def test_a_database_that_exists_is_used(stack):
    from infinity_cdk import DsqlDatabase

    arn = "arn:aws:dsql:eu-central-1:123456789012:cluster/abc"
    InfinityAgent(
        stack, "Agent", database=DsqlDatabase(endpoint="abc.dsql.eu-central-1.on.aws", arn=arn), model_id="demo"
    )
    made = Synthesized(stack)
    assert not made.of_type("AWS::DSQL::Cluster")
    [connecting] = made.allowed("AgentLeaderRole", "dsql:DbConnect")
    assert connecting["Resource"] == arn
    assert not made.allowed("AgentLeaderRole", "bedrock:InvokeModelWithResponseStream")


def test_alarms_tell_the_topic_and_say_what_to_do(whole):
    alarms = whole.of_type("AWS::CloudWatch::Alarm")
    functions = ("Leader", "Receiver", "Relay", "Keeper", "PublicReceiver")
    names = {re.sub("^AgentMonitoring|[0-9A-F]{8}$", "", name) for name in alarms}
    assert names == {
        *("InputDeadLetters", "OutputDeadLetters", "DelayDeadLetters", "OldestMessage"),
        *(f"{name}{what}" for name in functions for what in ("Errors", "Throttles")),
    }
    for alarm in alarms.values():
        assert alarm["AlarmActions"] == ["arn:aws:sns:eu-central-1:123456789012:alarms"]
        assert "docs/runbook.md" in alarm["AlarmDescription"]
        assert alarm["TreatMissingData"] == "notBreaching"


def test_the_dashboard_shows_what_the_leader_tells(whole):
    from infinity_agents.aws.telemetry import NAMESPACE

    body = json.dumps(whole.only("AWS::CloudWatch::Dashboard", "Agent"))
    for metric in ("Slices", "FailedSlices", "InputTokens", "OutputTokens", "CachedTokens", "RoundTrips", "Parked"):
        assert f'\\"{NAMESPACE}\\",\\"{metric}\\",\\"service\\"' in body, metric


@pytest.mark.slow
def test_monitoring_is_off_by_choice(stack):
    agent = InfinityAgent(stack, "Agent", monitoring=False)
    made = Synthesized(stack)
    assert agent.monitoring is None
    assert not made.of_type("AWS::CloudWatch::Alarm")
    assert not made.of_type("AWS::CloudWatch::Dashboard")


# -------------------------------------------------------------------------------------------------------- mistakes


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"batch_size": 11}, "batch_size is 11 and must be 1 to 10 messages"),
        ({"batch_size": 0}, "batch_size is 0"),
        ({"max_concurrency": 1}, "max_concurrency is 1 and must be 2 to 1000"),
        ({"slice_timeout": cdk.Duration.minutes(20)}, "slice_timeout is 1200 and must be 30 to 900 seconds"),
        ({"memory_size": 64}, "memory_size is 64"),
        ({"message_retention": cdk.Duration.days(15)}, "message_retention is 1296000"),
        ({"receiver_concurrency": 0}, "or None for no limit"),
        ({"model_id": "arn:aws:bedrock:eu-central-1:1:application-inference-profile/x"}, "name in model_arns"),
    ],
)
def test_a_wrong_value_is_named_with_the_remedy(stack, wrong, said):
    with pytest.raises(ValueError, match=re.escape(said)):
        InfinityAgent(stack, "Agent", **wrong)


@pytest.fixture(scope="module")
def agent():
    return InfinityAgent(cdk.Stack(app_without_bundling(), "Stack"), "Agent", monitoring=False)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({}, "needs handler= (a Lambda function) or server_url="),
        ({"server_url": "http://tools.example.com"}, "must be an https URL"),
        ({"server_url": "https://tools.example.com?x=1"}, "must be an https URL without query"),
        (
            {"server_url": "https://abc.lambda-url.eu-central-1.on.aws/", "auth": "sigv4"},
            "nothing lets the agent call the function behind",
        ),
        ({"server_url": "https://x.example.com", "name": "a b"}, "pass name="),
        ({"server_url": "https://x.example.com", "call_timeout": cdk.Duration.days(400)}, "call_timeout is 34560000"),
    ],
)
def test_a_wrong_tool_set_is_named_with_the_remedy(agent, request, wrong, said):
    with pytest.raises(ValueError, match=re.escape(said)):
        RapToolSet(agent, f"Tools{abs(hash(request.node.name))}", **wrong)


def test_two_tool_sets_of_one_name_are_refused(agent):
    RapToolSet(agent, "Once", server_url="https://x.example.com", name="same")
    with pytest.raises(ValueError, match="has a tool set named 'same' already"):
        RapToolSet(agent, "Twice", server_url="https://y.example.com", name="same")
