"""Findings of security rules that were looked at, each with the reason why it stands."""

from aws_cdk import Acknowledgment, CfnElement, Stack, Validations
from constructs import IConstruct


def accept(construct: IConstruct, rule: str, reason: str) -> None:
    """Accept what the rule of cdk-nag, such as ``AwsSolutions-S1``, says of ``construct`` and what is in it."""
    Validations.of(construct).acknowledge(Acknowledgment(id=f"AwsSolutions::{rule}", reason=reason))


def accept_wildcard(construct: IConstruct, resource: str, reason: str) -> None:
    """Accept that a policy in ``construct`` names ``resource``, which ends in ``*``, as the rules spell it."""
    accept(construct, f"AwsSolutions-IAM5[Resource::{resource}]", reason)


def accept_framework(construct: IConstruct) -> None:
    """Accept the role and the runtime of a function that the CDK brings."""
    accept(construct, "AwsSolutions-L1", "the CDK chooses the runtime of its own function")
    accept(
        construct,
        "AwsSolutions-IAM4[Policy::arn:<AWS::Partition>:iam::aws:policy/service-role/AWSLambdaBasicExecutionRole]",
        "the CDK's own function writes its log, and the policy of AWS allows no more than that",
    )


def logical_id_of(construct: IConstruct) -> str:
    """Return the logical id of the resource that ``construct`` is, or is made of."""
    resource = construct if isinstance(construct, CfnElement) else construct.node.default_child
    if not isinstance(resource, CfnElement):
        raise TypeError(f"{construct.node.path} is no single resource")
    return str(Stack.of(construct).resolve(resource.logical_id))
