"""A model behind the chat completions protocol. In the midst of a story it stands still until it is told to go on."""

import argparse
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

STORY = "Once upon a time there was an agent that never forgot a thing. " * 6 + "\n\n```python\nprint('the end')\n```\n"
GO = threading.Event()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.0"

    def do_GET(self):
        self._json(200, {"object": "list", "data": [{"id": "slow", "object": "model", "created": 0, "owned_by": "t"}]})

    def do_POST(self):
        if self.path in ("/hold", "/go"):
            (GO.clear if self.path == "/hold" else GO.set)()
            self._json(200, {})
            return
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if asked["model"] != "slow":
            self._json(
                404, {"error": {"message": f"The model {asked['model']!r} does not exist", "code": "model_not_found"}}
            )
            return
        said = next(m["content"] for m in reversed(asked["messages"]) if m["role"] == "user")
        said = said if isinstance(said, str) else " ".join(part.get("text", "") for part in said)
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        words = (STORY if "story" in said else f"You said: {said}").split(" ")
        for number, word in enumerate(words):
            if "story" in said and number == len(words) // 2:
                GO.wait(60)
            self._chunk({"content": word + " "})
        self._chunk({}, finish_reason="stop")
        self.wfile.write(b"data: [DONE]\n\n")

    def _chunk(self, delta, finish_reason=None):
        choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
        chunk = {"id": "c", "object": "chat.completion.chunk", "created": 0, "model": "slow", "choices": [choice]}
        self.wfile.write(f"data: {json.dumps(chunk)}\n\n".encode())
        self.wfile.flush()

    def _json(self, status, fields):
        body = json.dumps(fields).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=0)
    server = ThreadingHTTPServer(("127.0.0.1", parser.parse_args().port), Handler)
    server.daemon_threads = True
    print(f"speaking at http://127.0.0.1:{server.server_address[1]}", flush=True)
    server.serve_forever()
