"""Define a minimal HTTP client for the server's own tests: it returns the code and the body of a response."""

from __future__ import annotations

import http.client
import json
import urllib.parse
from collections.abc import Generator
from types import TracebackType
from typing import Any, Self

JSON = "application/json"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"


class Client:
    """Use one persistent connection within a `with` block."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)

    def call(
        self, method: str, path: str, body: Any = None, *, content_type: str = JSON, accept: str = JSON, **query: str
    ) -> tuple[int, Any]:
        """Return the code and the decoded response."""
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        url = f"{path}?{urllib.parse.urlencode(query)}" if query else path
        headers = {"Accept": accept} | ({"Content-Type": content_type} if data is not None else {})
        self._connection.request(method, url, data, headers)
        answer = self._connection.getresponse()
        text = answer.read()
        is_json = (answer.getheader("Content-Type") or "").startswith(JSON)
        return answer.status, json.loads(text) if is_json else text

    def watch(self, path: str, *, accept: str = JSON, **query: str) -> Generator[dict[str, Any], None, None]:
        """Yield the events of a watch until it ends. The watch has its own connection."""
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=30)
        try:
            url = f"{path}?{urllib.parse.urlencode({'watch': 'true', **query})}"
            connection.request("GET", url, headers={"Accept": accept})
            answer = connection.getresponse()
            assert answer.status == 200, answer.read()
            while line := answer.readline():
                yield json.loads(line)
        finally:
            connection.close()

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
