"""A call of the API server that goes wrong, in each of nine ways; and what a unit test needs for such a call.

    CALL = Call("kubelet/secret/secret_manager.py", "secrets", "get")

    @faulty_call.cases(CALL)
    def test_call_that_gets_a_secret(call: Call, kind: Kind, tmp_path: Path) -> None:
        with FaultyCall(tmp_path, call, kind) as api:
            api.create("secrets", {"stringData": {"key": "value"}})
            api.see_recover(lambda name: read(api.client, name), "value")

The client is a real one, and asks the API server for tests. client_faults.py says which calls are tried like this, and
which in the life of a node.
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

# The object that the call is about while it goes wrong, and one about which it is right all the time.
MINE = "mine"
OTHER = "other"
_WAIT = 60.0
# Seconds after which a client that cannot wait gives up one try of a request; it makes several.
_ATTEMPT_TIMEOUT = 0.05


class Kind(StrEnum):
    """How a call goes wrong."""

    ERROR = "error"
    HANG = "hang"  # until the deadline; nothing is done
    LATE = "late"  # done, and answered after the deadline
    CUT = "cut"  # done, and the connection ends in the middle of the answer
    EMPTY = "empty"  # done, and answered by an object in which nothing is set
    NONSENSE = "nonsense"  # done, and answered by an object in which all is set to nonsense but its name
    WRONG_TYPES = "wrong-types"  # done, and answered by an object whose values are of other types
    GARBAGE = "garbage"  # done, and answered by what is no JSON
    STATUS = "status"  # done, and answered by a refusal with the code 200


_SILENT = (Kind.HANG, Kind.LATE)
# What a caller may get to see of a call that goes wrong; a ContextError says that the caller's own time is over.
_FAILURES = (apierrors.StatusError, OSError, ValueError)


def add_fault(faults: Faults, kind: Kind, resource: str, which: Filter) -> Fault:
    """Let calls of a resource, those that `which` selects, go wrong in this way until the fault ends."""
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
    """Parametrize a unit test with `call` and `kind`: each of these calls goes wrong in each way."""
    found = [pytest.param(call, kind, id=f"{call}-{kind}") for call in calls for kind in Kind]
    return pytest.mark.parametrize(("call", "kind"), found)


class FaultyCall:
    """A context manager: an API server, and a client of it one of whose calls goes wrong when that is said.

    - `cluster`, `kubeconfig`: the API server, and what the client has its address and rights from.
    - `config`, `client`: how to make a client of it, and one that there is.
    """

    def __init__(self, folder: Path, call: Call, kind: Kind) -> None:
        self.call = call
        self.kind = kind
        self.cluster = Cluster(folder / "cluster")

    def __enter__(self) -> Self:
        self.cluster.start()
        self.kubeconfig = self.cluster.admin_kubeconfig
        self.config = clientcmd.build_config_from_flags("", str(self.kubeconfig))
        # Tries of one request are not to wait for each other.
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
        """Have an object like this by both names."""
        for name in (MINE, OTHER):
            self.cluster.store.create(resource, {"metadata": {"name": name, "namespace": "default"}, **obj})

    @contextmanager
    def going_wrong(self, about: str = "") -> Iterator[Fault]:
        """The call goes wrong meanwhile, for the object `about` if that is said, and for its caller alone.

        Raises AssertionError if it was not made.
        """
        call = self.call
        selected = Filter(verb=call.method, caller=call.caller)
        if about:
            selected["name"] = about
        with add_fault(self.cluster.faults, self.kind, call.resource, selected) as fault:
            yield fault
            wait_for(f"{call} goes wrong", lambda: fault.hits, _WAIT)

    @contextmanager
    def no_waiting(self) -> Iterator[None]:
        """Clients give up a request that goes wrong soon, so that a test need not wait until they do."""
        with pytest.MonkeyPatch.context() as patches:
            patches.setattr(with_retry, "_AFTER_CUT", 0)
            if self.kind in _SILENT:
                patches.setattr(client_, "ATTEMPT_TIMEOUT", _ATTEMPT_TIMEOUT)
            yield

    def see_recover(self, ask: Callable[[str], object], right: object) -> None:
        """`ask`, for an object by its name, makes the call. It fails, or answers nonsense, while the call goes wrong.
        Meanwhile, and afterwards, others are answered; and it is answered itself once the call works again.
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
                assert not isinstance(err, golang.ContextError), "the caller is told that its own time is over"
            else:
                # Some nonsense does no harm.
                assert found != right or self.kind is Kind.NONSENSE

    def _see_others_served(self, ask: Callable[[str], object], right: object, fault: Fault) -> None:
        waiting = golang.go(ask, MINE, name="ask-for-mine")
        wait_for("somebody waits for the answer", lambda: fault.hits, _WAIT)
        assert ask(OTHER) == right
        assert waiting.is_alive()
        fault.end()
        waiting.join(_WAIT)
        assert not waiting.is_alive()
