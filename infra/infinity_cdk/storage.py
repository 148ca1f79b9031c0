"""What an agent remembers, and where."""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from aws_cdk import CustomResource, Duration, RemovalPolicy, aws_dsql, aws_dynamodb, aws_iam, aws_s3, custom_resources
from aws_cdk.aws_lambda import Architecture
from aws_cdk.aws_logs import RetentionDays
from constructs import Construct

import infinity_agents
from infinity_agents.settings.leading import MigrateEnvironment

from .arguments import ARN, Spelt, check_fields
from .functions import RuntimeFunction
from .review import accept, accept_framework, accept_wildcard, logical_id_of

DATABASE_USER = "infinity_agent"
"""The role in the database that the functions act as: it reads and writes the tables, and changes none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DsqlDatabase:
    """An Aurora DSQL cluster: the host to connect to, and its ARN. Each agent needs one of its own."""

    endpoint: Annotated[str, Spelt(r"[A-Za-z0-9][A-Za-z0-9.-]*", "a host, without https:// and path")]
    arn: Annotated[str, ARN]

    def __post_init__(self) -> None:
        check_fields(self)


def dsql_cluster(
    scope: Construct, id: str, *, deletion_protection: bool, removal_policy: RemovalPolicy
) -> DsqlDatabase:
    """Make a cluster of one region."""
    cluster = aws_dsql.CfnCluster(scope, id, deletion_protection_enabled=deletion_protection)
    cluster.apply_removal_policy(removal_policy)
    return DsqlDatabase(endpoint=cluster.attr_endpoint, arn=cluster.attr_resource_arn)


def keyed_table(
    scope: Construct, id: str, *, deletion_protection: bool, removal_policy: RemovalPolicy
) -> aws_dynamodb.TableV2:
    """Make a table with the keys that all tables of ours have, billed for what is used."""
    return aws_dynamodb.TableV2(
        scope,
        id,
        partition_key=aws_dynamodb.Attribute(name="pk", type=aws_dynamodb.AttributeType.STRING),
        sort_key=aws_dynamodb.Attribute(name="sk", type=aws_dynamodb.AttributeType.STRING),
        time_to_live_attribute="ttl",
        billing=aws_dynamodb.Billing.on_demand(),
        point_in_time_recovery_specification=aws_dynamodb.PointInTimeRecoverySpecification(
            point_in_time_recovery_enabled=True
        ),
        deletion_protection=deletion_protection,
        removal_policy=removal_policy,
    )


def private_bucket(
    scope: Construct, id: str, *, removal_policy: RemovalPolicy, expiration: Duration | None = None
) -> aws_s3.Bucket:
    """Make a bucket that nobody outside the account reaches, and only over TLS.

    What has no ``expiration`` is kept where keeping is cheaper once it is a month old.
    """
    kept = [aws_s3.Transition(storage_class=aws_s3.StorageClass.INFREQUENT_ACCESS, transition_after=Duration.days(30))]
    bucket = aws_s3.Bucket(
        scope,
        id,
        encryption=aws_s3.BucketEncryption.S3_MANAGED,
        block_public_access=aws_s3.BlockPublicAccess.BLOCK_ALL,
        object_ownership=aws_s3.ObjectOwnership.BUCKET_OWNER_ENFORCED,
        enforce_ssl=True,
        removal_policy=removal_policy,
        lifecycle_rules=[
            aws_s3.LifecycleRule(
                abort_incomplete_multipart_upload_after=Duration.days(1),
                expiration=expiration,
                transitions=None if expiration else kept,
            )
        ],
    )
    accept(
        bucket,
        "AwsSolutions-S1",
        "only our own roles reach the bucket, and its keys are hashes: an access log would tell nothing",
    )
    return bucket


def grant_blobs(bucket: aws_s3.Bucket, role: aws_iam.Role, *actions: str) -> None:
    """Let ``role`` do this with the values in ``bucket``; and list them, or S3 says forbidden of what is missing."""
    role.add_to_policy(aws_iam.PolicyStatement(actions=list(actions), resources=[bucket.arn_for_objects("blobs/*")]))
    role.add_to_policy(aws_iam.PolicyStatement(actions=["s3:ListBucket"], resources=[bucket.bucket_arn]))
    accept_wildcard(role, f"<{logical_id_of(bucket)}.Arn>/blobs/*", "the keys of values are their hashes")


class Migration(Construct):
    """Brings the schema up to date at each deployment that changes it, and lets ``roles`` use the database.

    Attributes:
        function: the function that does it.
        resource: depend on this to come after it.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        database: DsqlDatabase,
        roles: list[aws_iam.Role],
        architecture: Architecture,
        log_retention: RetentionDays,
    ) -> None:
        super().__init__(scope, id)
        migrate = RuntimeFunction(
            self,
            "Migrate",
            function="migrate",
            description="Brings the schema of the agent's database up to date",
            environment=MigrateEnvironment(dsql_cluster_endpoint=database.endpoint, dsql_db_user="admin"),
            timeout=Duration.minutes(14),
            memory_size=512,
            architecture=architecture,
            log_retention=log_retention,
        )
        migrate.role.add_to_policy(aws_iam.PolicyStatement(actions=["dsql:DbConnectAdmin"], resources=[database.arn]))
        self.function = migrate.function
        provider = custom_resources.Provider(self, "Provider", on_event_handler=self.function)
        accept_framework(provider)
        accept_wildcard(
            provider,
            f"<{logical_id_of(self.function)}.Arn>:*",
            "the provider framework may invoke any version of this one function",
        )
        self.resource = CustomResource(
            self,
            "Schema",
            resource_type="Custom::InfinitySchema",
            service_token=provider.service_token,
            properties={
                "Role": DATABASE_USER,
                "IamRoleArns": [role.role_arn for role in roles],
                "Migrations": _migrations_hash(),
            },
        )
        self.resource.node.add_dependency(migrate)


def _migrations_hash() -> str:
    """Return what changes whenever the resource has something to do."""
    place = Path(infinity_agents.__file__).parent / "adapters" / "dsql"
    files = [*sorted((place / "migrations").glob("*.sql")), place / "sql" / "role.sql"]
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()[:32]
