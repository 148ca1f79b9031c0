"""GitHub's REST API, as far as it tells of commits and their checks; it refuses requests that GitHub would refuse."""

import json
import re
from collections.abc import Callable
from urllib.parse import parse_qsl, unquote

TOKEN = "ghp_0123456789abcdef0123456789abcdef0123"


class Answer(Exception):
    def __init__(self, status, fields, headers=()):
        super().__init__(status)
        self.status, self.fields, self.headers = status, fields, dict(headers)


def not_found():
    return Answer(404, {"message": "Not Found", "documentation_url": "https://docs.github.com/rest"})


class GitHub:
    """One repository. ``next`` holds answers to be given first; ``asked`` has each path, and ``told`` what is said."""

    def __init__(self, repository):
        self.repository = repository
        self.refs, self.checks, self.runs = {}, [], []
        self.next: list[Answer | Callable[[], None]] = []
        self.asked = []

    async def __call__(self, scope, receive, send):
        if scope["type"] == "lifespan":
            await receive()
            await send({"type": "lifespan.startup.complete"})
            await receive()
            await send({"type": "lifespan.shutdown.complete"})
            return
        try:
            body = self._answered(scope)
            answer = Answer(200, body)
        except Answer as error:
            answer = error
        text = answer.fields if isinstance(answer.fields, str) else json.dumps(answer.fields)
        headers = [(name.encode(), value.encode()) for name, value in answer.headers.items()]
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        await send({"type": "http.response.body", "body": text.encode()})

    def _answered(self, scope):
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        path = scope["raw_path"].decode()
        self.asked.append(path + ("?" + scope["query_string"].decode() if scope["query_string"] else ""))
        if not headers.get("user-agent"):
            raise Answer(403, {"message": "Request forbidden by administrative rules."})
        if headers.get("x-github-api-version") != "2022-11-28":
            raise Answer(400, {"message": "the version of the API is not supported"})
        if headers.get("authorization") != f"Bearer {TOKEN}":
            raise Answer(401, {"message": "Bad credentials"})
        if self.next:
            coming = self.next.pop(0)
            if isinstance(coming, Answer):
                raise coming
            coming()
        query = dict(parse_qsl(scope["query_string"].decode()))
        if scope["method"] != "GET" or not path.lower().startswith(f"/repos/{self.repository}/".lower()):
            raise not_found()
        rest = path.split("/", 4)[4]
        if found := re.fullmatch("commits/([^/]+)/check-runs", rest):
            return self._check_runs(self._sha(unquote(found[1])), query, headers)
        if found := re.fullmatch("commits/([^/]+)", rest):
            if headers["accept"] != "application/vnd.github.sha":
                raise Answer(415, {"message": "Unsupported 'Accept' header"})
            return self._sha(unquote(found[1]))
        if rest == "actions/runs":
            runs = [run for run in self.runs if query.get("head_sha") in (None, run["head_sha"])]
            return self._page("workflow_runs", runs, query, headers)
        raise not_found()

    def _sha(self, ref):
        if ref in self.refs:
            return self.refs[ref]
        for sha in self.refs.values():
            if re.fullmatch("[0-9a-f]{7,40}", ref) and sha.startswith(ref):
                return sha
        raise Answer(422, {"message": f"No commit found for SHA: {ref}"})

    def _check_runs(self, sha, query, headers):
        if query.get("filter", "latest") not in ("latest", "all"):
            raise Answer(422, {"message": "Invalid request."})
        checks = sorted((check for check in self.checks if check["head_sha"] == sha), key=lambda check: check["id"])
        if query.get("filter", "latest") == "latest":
            checks = list({(check["check_suite"]["id"], check["name"]): check for check in checks}.values())
        return self._page("check_runs", checks, query, headers)

    def _page(self, name, found, query, headers):
        if headers["accept"] != "application/vnd.github+json":
            raise Answer(415, {"message": "Unsupported 'Accept' header"})
        size, page = min(int(query.get("per_page", 30)), 100), int(query.get("page", 1))
        return {"total_count": len(found), name: found[(page - 1) * size : page * size]}
