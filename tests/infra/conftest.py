"""Templates, synthesized without bundling: what is in a package is tested elsewhere."""

import aws_cdk as cdk
import pytest
from aws_cdk import assertions

import infinity_cdk  # noqa: F401 - chooses the node before the CDK starts one

CONTEXT = {
    "aws:cdk:bundling-stacks": [],
    "@aws-cdk/aws-iam:minimizePolicies": True,
    "@aws-cdk/core:checkSecretUsage": True,
}


def app_without_bundling():
    return cdk.App(context=CONTEXT)


class Synthesized:
    """A template, and what is asked of it."""

    def __init__(self, stack):
        self.template = assertions.Template.from_stack(stack).to_json()
        self.resources = self.template["Resources"]

    def of_type(self, type):
        return {name: each["Properties"] for name, each in self.resources.items() if each["Type"] == type}

    def only(self, type, prefix):
        [found] = [each for name, each in self.of_type(type).items() if name.startswith(prefix)]
        return found

    def function(self, prefix):
        return self.only("AWS::Lambda::Function", prefix)

    def statements(self, role_prefix):
        """Return what the role may do, by whatever policy."""
        [role] = [
            name
            for name, each in self.resources.items()
            if each["Type"] == "AWS::IAM::Role" and name.startswith(role_prefix)
        ]
        policies = [*self.of_type("AWS::IAM::Policy").values(), *self.of_type("AWS::IAM::ManagedPolicy").values()]
        return [
            statement
            for policy in policies
            if {"Ref": role} in policy.get("Roles", ())
            for statement in policy["PolicyDocument"]["Statement"]
        ]

    def allowed(self, role_prefix, action):
        """Return the statements that allow the role this action."""
        return [each for each in self.statements(role_prefix) if action in listed(each["Action"])]


def listed(value):
    return value if isinstance(value, list) else [value]


@pytest.fixture
def stack():
    return cdk.Stack(app_without_bundling(), "Stack")
