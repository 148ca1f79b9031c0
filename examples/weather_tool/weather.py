import httpx

from infinity_agents import ToolServer

SOURCE = "https://wttr.in"
server = ToolServer(name="weather-tools")


@server.tool(read_only=True)
def get_weather(city: str) -> str:
    """Tell the weather of now in a city."""
    answer = httpx.get(f"{SOURCE}/{city}", params={"format": "4"})
    return answer.raise_for_status().text.strip()
