"""Serve the benchmark's probes from a separate process: HTTP and TCP on one port, gRPC health on another.

The first line on its standard output has the two ports. For each line on its standard input, the program then writes a
line with the arrival times of each pod's HTTP probes since the line before.
"""

from __future__ import annotations

import asyncio
import collections
import json
import sys
import time
from typing import Any

import grpc

_OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"
_SERVING = b"\x08\x01"

arrivals: dict[str, list[float]] = collections.defaultdict(list)


async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Respond to a request. A TCP probe sends nothing and gets no response."""
    began = time.monotonic()
    try:
        request = await reader.readuntil(b"\r\n\r\n")
        arrivals[request.split(maxsplit=2)[1].decode()].append(began)
        writer.write(_OK)
        await writer.drain()
        # The side that closes a connection first keeps the port for a minute. This side has enough ports.
        await reader.read()
    except (asyncio.IncompleteReadError, ConnectionError):
        return
    finally:
        writer.close()


async def check(request: bytes, context: Any) -> bytes:
    return _SERVING


class Health(grpc.GenericRpcHandler):
    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        return grpc.unary_unary_rpc_method_handler(check)


async def main() -> None:
    server = await asyncio.start_server(talk, "0.0.0.0", 0, backlog=1024)
    health = grpc.aio.server()
    health.add_generic_rpc_handlers((Health(),))
    ports = server.sockets[0].getsockname()[1], health.add_insecure_port("0.0.0.0:0")
    await health.start()
    print(json.dumps(ports), flush=True)
    while await asyncio.to_thread(sys.stdin.readline):
        print(json.dumps(arrivals), flush=True)
        arrivals.clear()
    await health.stop(None)
    server.close()


if __name__ == "__main__":
    asyncio.run(main())
