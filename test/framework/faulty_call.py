"""Make a call to the API server fail in each of nine ways, in a unit test.

    CALL = Call("kubelet/secret/secret_manager.py", "secrets", "get")

    @faulty_call.cases(CALL)
    def test_call_that_gets_a_secret(call: Call, kind: Kind, tmp_path: Path) -> None:
        with FaultyCall(tmp_path, call, kind) as api:
            api.create("secrets", {"stringData": {"key": "value"}})
            api.see_recover(lambda name: read(api.client, name), "value")

The client is a real one and calls the tests' API server. client_faults.py says which calls fail in a unit test and
which fail on a node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest

from framework import client_lies
from framework.apiserver.cluster import Cluster
from framework.apiserver.faults import Fault, Faults, Filter
from framework.client_calls import Call
from framework.impatient_kubelet import naming_its_caller
from framework.waiting import wait_for
from pkg import golang
from pkg.apimachinery.api import errors as apierrors
from pkg.client_go import kubernetes, rest
from pkg.client_go.rest import client as client_
from pkg.client_go.rest import with_retry
from pkg.client_go.tools import clientcmd

# The call fails for the object MINE. It always succeeds for the object OTHER.
MINE = "mine"
OTHER = "other"
_WAIT = 60.0
# A client that does not wait gives up an attempt after this time, in seconds. It makes several attempts for a request.
_ATTEMPT_TIMEOUT = 0.05


class Kind(StrEnum):
    """Define how a call fails."""

    ERROR = "error"
    HANG = "hang"  # The call has no effect and gets no response before its deadline.
    LATE = "late"  # The call takes effect, but its response comes after the deadline.
    CUT = "cut"  # The call takes effect, and the connection ends in the middle of the response.
    EMPTY = "empty"  # The call takes effect, and the response is an object in which nothing is set.
    NONSENSE = "nonsense"  # The call takes effect, and in the response everything but the name is nonsense.
    WRONG_TYPES = "wrong-types"  # The call takes effect, and the values in the response have other types.
    GARBAGE = "garbage"  # The call takes effect, and the response is not JSON.
    STATUS = "status"  # The call takes effect, and the response is a refusal with the code 200.


_SILENT = (Kind.HANG, Kind.LATE)
# A failed call may raise these errors, but no ContextError, which says that the caller's own time is over.
_FAILURES = (apierrors.StatusError, OSError, ValueError)


def add_fault(faults: Faults, kind: Kind, resource: str, which: Filter) -> Fault:
    """Add a fault of this kind to the calls of a resource that `which` selects. The caller must end the fault."""
    selected: Filter = {**which, "resource": resource}
    match kind:
        case Kind.ERROR:
            return faults.status(500, **selected)
        case Kind.HANG:
            return faults.hang(**selected)
        case Kind.LATE:
            return faults.late(**selected)
        case Kind.CUT:
            return faults.cut_answers(**selected)
        case Kind.EMPTY:
            return faults.lie(client_lies.empty, **selected)
        case Kind.NONSENSE:
            return faults.lie(client_lies.nonsense(resource), **selected)
        case Kind.WRONG_TYPES:
            return faults.lie(client_lies.wrong_types, **selected)
        case Kind.GARBAGE:
            return faults.lie(client_lies.garbage, **selected)
        case Kind.STATUS:
            return faults.lie(client_lies.status, **selected)


def cases(*calls: Call) -> pytest.MarkDecorator:
    """Parametrize a unit test with `call` and `kind`, so that each of these calls fails in each way."""
    found = [pytest.param(call, kind, id=f"{call}-{kind}") for call in calls for kind in Kind]
    return pytest.mark.parametrize(("call", "kind"), found)


class FaultyCall:
    """Run an API server and a client of which one call fails on request, within a `with` block.

    - `cluster`, `kubeconfig`: the API server, and the file with its address and the client's credentials.
    - `config`, `client`: the configuration for another client, and a client.
    """

    def __init__(self, folder: Path, call: Call, kind: Kind) -> None:
        self.call = call
        self.kind = kind
        self.cluster = Cluster(folder / "cluster")

    def __enter__(self) -> Self:
        self.cluster.start()
        self.kubeconfig = self.cluster.admin_kubeconfig
        self.config = clientcmd.build_config_from_flags("", str(self.kubeconfig))
        # The client's rate limit must not delay the attempts of one request.
        self.config.qps = -1
        self.client = kubernetes.new_for_config(self.config)
        self._patches = pytest.MonkeyPatch()
        self._patches.setattr(rest.RESTClient, "_call", naming_its_caller(rest.RESTClient._call))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._patches.undo()
        self.client.close()
        self.cluster.stop()

    def create(self, resource: str, obj: Mapping[str, Any]) -> None:
        """Create an object with this content under both names."""
        for name in (MINE, OTHER):
            self.cluster.store.create(resource, {"metadata": {"name": name, "namespace": "default"}, **obj})

    @contextmanager
    def going_wrong(self, about: str = "") -> Iterator[Fault]:
        """Make the call fail within the block, only for its caller, and only for the object `about` if it is given.

        Raise AssertionError if the caller does not make the call.
        """
        call = self.call
        selected = Filter(verb=call.method, caller=call.caller)
        if about:
            selected["name"] = about
        with add_fault(self.cluster.faults, self.kind, call.resource, selected) as fault:
            yield fault
            wait_for(f"{call} fails", lambda: fault.hits, _WAIT)

    @contextmanager
    def no_waiting(self) -> Iterator[None]:
        """Make clients give up a failing request soon, so that the test does not wait for them."""
        with pytest.MonkeyPatch.context() as patches:
            patches.setattr(with_retry, "_AFTER_CUT", 0)
            if self.kind in _SILENT:
                patches.setattr(client_, "ATTEMPT_TIMEOUT", _ATTEMPT_TIMEOUT)
            yield

    def see_recover(self, ask: Callable[[str], object], right: object) -> None:
        """Check that a caller recovers from the fault.

        `ask` makes the call for the object of a name. The call fails, or returns nonsense, while the fault lasts. Calls
        for other objects succeed meanwhile and afterwards. The call itself succeeds again after the fault.
        """
        with self.going_wrong(MINE):
            self._see_go_wrong(ask, right)
            assert ask(OTHER) == right
        if self.kind in _SILENT:
            with self.going_wrong(MINE) as fault:
                self._see_others_served(ask, right, fault)
        assert ask(MINE) == right

    def _see_go_wrong(self, ask: Callable[[str], object], right: object) -> None:
        with self.no_waiting():
            try:
                found = ask(MINE)
            except _FAILURES as err:
                assert not isinstance(err, golang.ContextError), (
                    "the caller got an error that says that its own time is over"
                )
            else:
                # Some nonsense has no effect on the result.
                assert found != right or self.kind is Kind.NONSENSE

    def _see_others_served(self, ask: Callable[[str], object], right: object, fault: Fault) -> None:
        waiting = golang.go(ask, MINE, name="ask-for-mine")
        wait_for("the call waits for its response", lambda: fault.hits, _WAIT)
        assert ask(OTHER) == right
        assert waiting.is_alive()
        fault.end()
        waiting.join(_WAIT)
        assert not waiting.is_alive()
