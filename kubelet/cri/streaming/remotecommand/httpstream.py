"""Find the streams that a request for exec or attach asks for.

Go: k8s.io/cri-streaming/pkg/streaming/remotecommand/httpstream.go
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pkg import klog

if TYPE_CHECKING:
    from pkg.golang import http


@dataclass(frozen=True, slots=True)
class Options:
    stdin: bool = False
    stdout: bool = False
    stderr: bool = False
    tty: bool = False


def new_options(req: http.Request) -> Options:
    """Parse the streams of the query. Raise ValueError if there is none."""
    tty = req.param("tty") == "1"
    stdin = req.param("input") == "1"
    stdout = req.param("output") == "1"
    stderr = req.param("error") == "1"
    if tty and stderr:
        klog.v(4).info_s("Access to exec with tty and stderr is not supported, bypassing stderr")
        stderr = False
    if not (stdin or stdout or stderr):
        raise ValueError("you must specify at least 1 of stdin, stdout, stderr")
    return Options(stdin, stdout, stderr, tty)
