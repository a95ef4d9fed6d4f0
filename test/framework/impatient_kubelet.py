"""Run a kubelet that gives up soon on an API server, and that names the calling file in each request.

Start it with `python -m framework.impatient_kubelet FLAG...`.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from kubelet_cmd.kubelet.app import auth
from kubelet_cmd.kubelet.app.server import exit_process, new_kubelet_command

from framework import hasty_kubelet
from framework.apiserver.faults import CALLER_HEADER
from framework.containerd import ROOT
from kubelet.status import status_manager
from pkg.apimachinery.util import wait
from pkg.client_go import rest
from pkg.client_go.rest import client
from pkg.client_go.tools.cache import reflector

ATTEMPT_TIMEOUT = 2.0
WATCH_IDLE_TIMEOUT = 4.0
STATUS_TIMEOUT = 3.0
# MAX_BACKOFF is the longest time between two attempts to watch.
MAX_BACKOFF = 2.0
# The kubelet retries authentication and authorization requests with this backoff.
WEBHOOK_BACKOFF = wait.Backoff(duration=0.1, steps=5)
# The code in these directories makes calls on behalf of other files.
_PASSES_ON = ("pkg/client_go/kubernetes/", "pkg/client_go/rest/", "pkg/component_helpers/node/util/", "test/")
_REFLECTOR = "pkg/client_go/tools/"
# These directories contain threads and loops. No caller is below them on the stack.
_THREADS = ("pkg/golang/", "pkg/apimachinery/util/")
INFORMERS = "pkg/client_go/informers"


def main() -> None:
    hasty_kubelet.shorten_pauses()
    client.ATTEMPT_TIMEOUT = ATTEMPT_TIMEOUT
    client.WATCH_IDLE_TIMEOUT = WATCH_IDLE_TIMEOUT
    status_manager.SYNC_TIMEOUT = STATUS_TIMEOUT
    auth.default_auth_webhook_retry_backoff = lambda: WEBHOOK_BACKOFF
    reflector._BACKOFF = dataclasses.replace(reflector._BACKOFF, cap=MAX_BACKOFF)
    rest.RESTClient._call = naming_its_caller(rest.RESTClient._call)  # type: ignore[method-assign]
    exit_process(new_kubelet_command().execute(sys.argv[1:]))


def naming_its_caller(make: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap RESTClient._call so that each call has a header that names the calling file."""

    def make_and_name(self: rest.RESTClient, *args: Any) -> Any:
        call = make(self, *args)
        call.headers[CALLER_HEADER] = caller(sys._getframe(1))
        return call

    return make_and_name


def caller(frame: FrameType | None) -> str:
    """Return the calling file, relative to the checkout, or INFORMERS for a reflector of a shared informer."""
    while frame is not None:
        name = frame.f_code.co_filename.removeprefix(f"{ROOT}/")
        if name.startswith(f"{_REFLECTOR}record/"):
            return name
        if not name.startswith((*_PASSES_ON, _REFLECTOR, *_THREADS, "/")):
            return name
        frame = frame.f_back
    return INFORMERS


if __name__ == "__main__":
    main()
