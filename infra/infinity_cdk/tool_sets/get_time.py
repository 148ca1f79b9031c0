"""The time anywhere."""

from constructs import Construct

from ..arguments import checked
from .tool_function import FunctionToolSet, ToolFunction


class GetTimeToolSet(FunctionToolSet):
    """A tool that tells the time in any time zone."""

    @checked
    def __init__(self, scope: Construct, id: str, *, name: str | None = None) -> None:
        super().__init__(scope, id, name=name)
        self.serve(ToolFunction(self, "Tool", function="get_time", description="Tells the time in any time zone"))
