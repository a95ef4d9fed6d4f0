"""Run single probes of containers: over HTTP, TCP or gRPC, or with a command.

Go: pkg/probe
"""

from pkg.probe.dialer import NoSocketError
from pkg.probe.exec import probe_exec
from pkg.probe.grpc import probe_grpc
from pkg.probe.http import probe_http
from pkg.probe.probe import BrokenAnswerError, Result, resolve_container_port
from pkg.probe.tcp import probe_tcp

__all__ = [
    "BrokenAnswerError",
    "NoSocketError",
    "Result",
    "probe_exec",
    "probe_grpc",
    "probe_http",
    "probe_tcp",
    "resolve_container_port",
]
