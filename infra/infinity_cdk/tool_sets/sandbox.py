"""A working copy of a repository for each thread, to edit and to run commands in."""

import shutil
import tempfile
from functools import partial
from pathlib import Path
from typing import Annotated

from aws_cdk import Duration, RemovalPolicy, aws_ec2, aws_efs, aws_lambda
from constructs import Construct

import infinity_agents
from infinity_agents.settings.tool_servers import SandboxEnvironment

from ..arguments import FUNCTION_MB, checked
from ..review import accept, accept_wildcard
from .tool_function import FunctionToolSet, ToolFunction

_MOUNTED = "/mnt/sandboxes"
_HERE = Path(__file__).parents[1]
_USER = "1000"
_LONGEST = Duration.minutes(15)


class SandboxToolSet(FunctionToolSet):
    """Tools that edit a repository and run commands in it, one working copy per thread.

    Nothing but the function confines a command: whoever may talk to the agent may run programs as this function, and
    see all sandboxes of the deployment. Its role can keep sandboxes and answer calls, and nothing else.

    The function is a container image, which Docker builds when it is deployed, and is in a network for the sake of its
    file system.

    Args:
        vpc: the network; it must reach the internet from private subnets. Without one, a network with a NAT gateway is
            made, which costs money while nobody uses it.
        jj: the file of a jj for Linux and the function's architecture, which needs no library beside it. It goes into
            the image, and keeps the versions of new sandboxes. Without it, git does.
        memory_size: in MB; processor time is in proportion.
        removal_policy: what becomes of the sandboxes when the tool set is removed.
    """

    @checked
    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        vpc: aws_ec2.IVpc | None = None,
        jj: Path | str | None = None,
        memory_size: Annotated[int, FUNCTION_MB] = 3008,
        removal_policy: RemovalPolicy = RemovalPolicy.DESTROY,
        name: str | None = None,
    ) -> None:
        super().__init__(scope, id, name=name)
        self.vpc = vpc or _network(self)
        self.files = aws_efs.FileSystem(
            self,
            "Files",
            vpc=self.vpc,
            encrypted=True,
            lifecycle_policy=aws_efs.LifecyclePolicy.AFTER_30_DAYS,
            throughput_mode=aws_efs.ThroughputMode.ELASTIC,
            removal_policy=removal_policy,
        )
        place = self.files.add_access_point(
            "Sandboxes",
            path="/sandboxes",
            create_acl=aws_efs.Acl(owner_uid=_USER, owner_gid=_USER, permissions="750"),
            posix_user=aws_efs.PosixUser(uid=_USER, gid=_USER),
        )
        server = ToolFunction(
            self,
            "Tool",
            function="sandbox_server",
            description="Sandboxes: edits repositories, and runs commands in them",
            environment=partial(SandboxEnvironment, sandbox_root=_MOUNTED, sandbox_vcs="jj" if jj else "git"),
            timeout=_LONGEST,
            memory_size=memory_size,
            code=_image(Path(jj) if jj else None),
            image=True,
            vpc=self.vpc,
            filesystem=aws_lambda.FileSystem.from_efs_access_point(place, _MOUNTED),
        )
        accept_wildcard(
            server.role, "*", "Lambda makes the function's network interfaces, and they have no names before"
        )
        self.serve(server)


def _network(scope: Construct) -> aws_ec2.Vpc:
    vpc = aws_ec2.Vpc(scope, "Network", max_azs=2, nat_gateways=1, restrict_default_security_group=False)
    # What stays within AWS does not pay for the gateway.
    vpc.add_gateway_endpoint("S3", service=aws_ec2.GatewayVpcEndpointAwsService.S3)
    vpc.add_gateway_endpoint("DynamoDb", service=aws_ec2.GatewayVpcEndpointAwsService.DYNAMODB)
    accept(
        vpc, "AwsSolutions-VPC7", "one function is in this network; flow logs are the choice of whoever passes a vpc"
    )
    return vpc


def _image(jj: Path | None) -> aws_lambda.Code:
    if jj and not jj.is_file():
        raise ValueError(f"jj is {str(jj)!r}, and there is no such file; name the program, or leave it out for git")
    context = Path(tempfile.mkdtemp(prefix="infinity-sandbox-"))
    steps = (_HERE / "images" / "sandbox.Dockerfile").read_text(encoding="utf-8")
    if jj:
        shutil.copy(jj, context / "jj")
        (context / "jj").chmod(0o755)
        steps += "COPY jj /usr/local/bin/jj\n"
    (context / "Dockerfile").write_text(steps, encoding="utf-8")
    shutil.copy(_HERE / "locks" / "tools.lock", context / "requirements.lock")
    source = Path(infinity_agents.__file__).parent
    shutil.copytree(source, context / "infinity_agents", ignore=shutil.ignore_patterns("__pycache__"))
    return aws_lambda.Code.from_asset_image(str(context))
