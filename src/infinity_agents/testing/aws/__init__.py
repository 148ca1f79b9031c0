"""AWS on one machine: moto behind the rules of the services, faults at will, and whatever has to fire at its time."""

from .firing import Firing, SqsPoller
from .server import AwsStandIn, Fault, Resources

__all__ = ["AwsStandIn", "Fault", "Firing", "Resources", "SqsPoller"]
