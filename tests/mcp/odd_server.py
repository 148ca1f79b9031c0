"""A program that is not quite an MCP server, over stdio; its argument says what is odd about it."""

import json
import sys
import time

ODDITY = sys.argv[1]


def answered(message):
    match message["method"]:
        case "initialize":
            info = {"name": "odd", "version": "1"}
            return {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": info}
        case "tools/list":
            names = [] if ODDITY == "no tools" else ["a.b", "a/b"]
            return {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in names]}
    return {"content": [{"type": "text", "text": message["params"]["name"]}]}


sys.stderr.write("the log of an odd server\n")
sys.stderr.flush()
if ODDITY == "ends":
    sys.exit(0)
if ODDITY == "hangs":
    time.sleep(60)
for line in sys.stdin:
    if ODDITY == "junk":
        print("Loading the model… 42%", flush=True)  # noqa: T201 - that is the junk
    message = json.loads(line)
    if "id" in message:
        result = {"result": answered(message)} if message["method"] != "server/discover" else None
        answer = result or {"error": {"code": -32601, "message": "unknown"}}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer}), flush=True)  # noqa: T201 - it is stdio
