"""Serve probes of containers: respond as the path of the request demands, and log each request with its time.

    python -m framework.witness CERTIFICATE KEY

The program serves HTTP on port 8080, HTTPS on 8443, and gRPC's health service on 9090. For each request it writes a
line to its standard output: the machine's uptime in seconds, and the request as a JSON object. The response depends on
the path and on the number of earlier requests for exactly that path:

    /ok/...                200
    /status/N/...          N
    /from/N/...            500, and 200 from the Nth time on
    /between/N/M/...       500 from the Nth time to the Mth, else 200
    /slow/N/...            200, after N seconds
    /redirect?to=URL       302
    /unless/NAME           200 until a request for /set/NAME

The health service reports "" and services whose names begin with "good" as serving, and those whose names begin with
"bad" as not serving. All other services are unknown.
"""

from __future__ import annotations

import json
import os
import signal
import ssl
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import grpc

HTTP, HTTPS, GRPC = 8080, 8443, 9090

_lock = threading.Lock()
_asked: Counter[str] = Counter()
_set: set[str] = set()


def tell(**what: object) -> None:
    """Write a whole line under the lock."""
    with _lock:
        print(f"{time.clock_gettime(time.CLOCK_BOOTTIME):.2f} {json.dumps(what)}", flush=True)


def status_of(path: str) -> int:
    """Return the status for a path."""
    with _lock:
        _asked[path] += 1
        times = _asked[path]
    match path.split("/")[1:]:
        case ["status", number, *_]:
            return int(number)
        case ["from", first, *_]:
            return 200 if times >= int(first) else 500
        case ["between", first, last, *_]:
            return 500 if int(first) <= times <= int(last) else 200
        case ["slow", seconds, *_]:
            time.sleep(float(seconds))
        case ["unless", name]:
            return 500 if name in _set else 200
        case ["set", name]:
            _set.add(name)
    return 200


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        url = urlsplit(self.path)
        scheme = "https" if isinstance(self.connection, ssl.SSLSocket) else "http"
        tell(scheme=scheme, path=url.path, headers=[list(each) for each in self.headers.items()])
        if url.path == "/redirect":
            self.send_response(302)
            self.send_header("Location", parse_qs(url.query)["to"][0])
        else:
            self.send_response(status_of(url.path))
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore the error: a probe that has waited long enough closes the connection early."""


class Health(grpc.GenericRpcHandler):
    """Serve grpc.health.v1.Health/Check.

    Its messages have one field each, so plain bytes suffice to read and write them.
    """

    def service(self, handler_call_details: Any) -> Any:
        if handler_call_details.method == "/grpc.health.v1.Health/Check":
            return grpc.unary_unary_rpc_method_handler(self._check)
        return None

    def _check(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        service = request[2:].decode()
        headers = [[name, str(value)] for name, value in context.invocation_metadata()]
        tell(scheme="grpc", path=service, headers=headers)
        if service == "" or service.startswith("good"):
            return b"\x08\x01"
        if service.startswith("bad"):
            return b"\x08\x02"
        return context.abort(grpc.StatusCode.NOT_FOUND, "unknown service")


def main() -> None:
    # The first process of a container ignores signals for which it has no handler.
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(sys.argv[1], sys.argv[2])
    secure = Server(("", HTTPS), Handler)
    secure.socket = context.wrap_socket(secure.socket, server_side=True, do_handshake_on_connect=False)
    threading.Thread(target=secure.serve_forever, name="https", daemon=True).start()
    health = grpc.server(ThreadPoolExecutor(max_workers=4))
    health.add_generic_rpc_handlers((Health(),))
    health.add_insecure_port(f"0.0.0.0:{GRPC}")
    health.start()
    # This server starts last, because the tests take its response as a sign that the others listen, too.
    Server(("", HTTP), Handler).serve_forever()


if __name__ == "__main__":
    main()
