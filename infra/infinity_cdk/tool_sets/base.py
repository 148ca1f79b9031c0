"""What every tool set is."""

import abc

import jsii
from constructs import Construct

from ..agent import InfinityAgent
from ..arguments import checked


class ToolSet(Construct, metaclass=jsii.JSIIAbstractClass):
    """The tools of one server. Made inside of an agent, it is that agent's; see ``InfinityAgent.add_tool_set``.

    A subclass makes what it needs, and calls ``join`` last.

    Attributes:
        name: the tool set's id in tokens and messages, unique in its agent; by default the construct's id.
    """

    @checked
    def __init__(self, scope: Construct, id: str, *, name: str | None = None) -> None:
        super().__init__(scope, id)
        self.name = name or id

    @abc.abstractmethod
    def bind(self, agent: InfinityAgent) -> None:
        """Give ``agent`` the tools: register the server, and grant what each of the two needs of the other."""

    def join(self) -> None:
        """Give the agent around this construct, if there is one, the tools."""
        agent = agent_around(self)
        if agent is not None:
            agent.add_tool_set(self)


def agent_around(construct: Construct) -> InfinityAgent | None:
    """Return the innermost agent that ``construct`` is in."""
    around = [scope for scope in construct.node.scopes if isinstance(scope, InfinityAgent)]
    return around[-1] if around else None
