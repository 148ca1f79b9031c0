"""AWS on one machine: moto behind the rules of the services, faults at will, and whatever has to fire at its time."""

from .event_source import SqsEventSource, sqs_event
from .firing import Firing, SqsPoller
from .lambda_runtime import FunctionUrl, LambdaFunction, LambdaService, Reply, request_event
from .server import AwsStandIn, Fault, Resources

__all__ = [
    "AwsStandIn",
    "Fault",
    "Firing",
    "FunctionUrl",
    "LambdaFunction",
    "LambdaService",
    "Reply",
    "Resources",
    "SqsEventSource",
    "SqsPoller",
    "request_event",
    "sqs_event",
]
