"""The get-time server: ``python -m infinity_agents.toolsets.get_time --port 8001``."""

import argparse
import zoneinfo
from datetime import UTC, datetime
from typing import Annotated

from pydantic import Field

from ..rap.command_line import add_listening_options, told_by
from ..rap.server import ToolServer

server = ToolServer(name="get-time", description="Tells the time anywhere.")


@server.tool(
    read_only=True,
    idempotent=True,
    display_script='"Time in " + if args.timezone == () { "UTC" } else { args.timezone }',
)
def get_time(
    timezone: Annotated[str, Field(description="An IANA time zone, such as Asia/Tokyo")] = "UTC",
) -> str:
    """Tell the date and time of now in a time zone."""
    return time_in(timezone, datetime.now(UTC))


def time_in(timezone: str, moment: datetime) -> str:
    """Return ``moment`` as the clocks of ``timezone`` show it.

    Raises:
        ValueError: there is no such zone; the text names one that there is.
    """
    try:
        local = moment.astimezone(zoneinfo.ZoneInfo(timezone))
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ValueError(f"there is no time zone {timezone[:100]!r}; {_remedy(timezone)}") from error
    offset = f"{local:%z}"
    return f"{local:%Y-%m-%d %H:%M:%S %Z} ({timezone}, UTC{offset[:3]}:{offset[3:5]})"


def _remedy(timezone: str) -> str:
    wanted = timezone.strip().replace(" ", "_").casefold()
    similar = [zone for zone in sorted(zoneinfo.available_timezones()) if wanted in zone.casefold()] if wanted else []
    named = ", ".join(similar[:3]) or "Europe/Berlin, America/New_York or UTC"
    return f"use an IANA name such as {named}"


def main() -> None:
    """Serve until interrupted."""
    parser = argparse.ArgumentParser(description=server.description)
    add_listening_options(parser, 8001)
    options = parser.parse_args()
    with told_by(parser):
        server.run(host=options.host, port=options.port)


if __name__ == "__main__":
    main()
