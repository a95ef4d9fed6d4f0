"""Define how calls fail, for the tests of the runtime, of plugins and of the API server."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from enum import StrEnum
from typing import Any, Protocol, TypeVar

import grpc
from google.protobuf.descriptor import FieldDescriptor

from framework.apiserver.errors import ApiError
from kubelet.cri.remote import fake
from kubelet.cri.remote.fake.faults import Match


class Kind(StrEnum):
    """Define how a call fails."""

    ERROR = "error"
    HANG = "hang"  # The call has no effect and gets no response before its deadline.
    LATE = "late"  # The call takes effect, but its response comes after the deadline.
    EMPTY = "empty"  # The response is a message in which nothing is set.
    NONSENSE = "nonsense"  # The response is a message full of nonsense values.


class Case(Protocol):
    """Define what the functions here need from a case. Several cases share a node."""

    # `failure` says why the case has failed. It is empty if the case has not failed.
    failure: str


@contextmanager
def noting(*cases: Case) -> Iterator[None]:
    """Record an error of the block as the failure of these cases, and continue with the other cases."""
    try:
        yield
    except (AssertionError, ApiError, OSError) as err:
        for case in cases:
            case.failure = case.failure or str(err) or repr(err)


C = TypeVar("C", bound=Case)


def each(cases: Sequence[C], step: Callable[[C], object]) -> None:
    """Run a step of each case. An error fails only the step's own case."""
    for case in cases:
        with noting(case):
            step(case)


def side_by_side(cases: Sequence[C], step: Callable[[C], object]) -> None:
    """Run a step of all cases at the same time. An error fails only the step's own case."""
    with ThreadPoolExecutor(len(cases)) as pool:
        list(pool.map(lambda case: each([case], step), cases))


def add_fault(
    faults: fake.Faults, method: str, kind: Kind, sandbox: str = "", match: Match | None = None
) -> fake.Fault:
    """Make the calls of a method fail: all, those about one sandbox if its pod's name is given, or those that match."""
    which: Any = {"sandbox": sandbox, "match": match}
    match kind:
        case Kind.ERROR:
            return faults.fail(method, "a fault of the test", code=grpc.StatusCode.INTERNAL, **which)
        case Kind.HANG:
            return faults.hang(method, **which)
        case Kind.LATE:
            return faults.hang(method, **which, answer=True)
        case Kind.EMPTY:
            return faults.lie(method, lambda response: type(response)(), **which)
        case Kind.NONSENSE:
            return faults.lie(method, nonsense, **which)


def nonsense(message: Any, depth: int = 5) -> Any:
    """Return a message of the same type in which each field has an absurd value.

    Maps of messages keep their keys, because receivers refuse other keys at once. Fields named `error` stay empty.
    """
    made = type(message)()
    for field in message.DESCRIPTOR.fields:
        if _is_map_of_messages(field):
            for key, value in getattr(message, field.name).items():
                getattr(made, field.name)[key].CopyFrom(nonsense(value, depth - 1))
        elif field.name != "error":
            _fill(made, field, depth)
    return made


def _is_map_of_messages(field: FieldDescriptor) -> bool:
    if field.message_type is None or not field.message_type.GetOptions().map_entry:
        return False
    value = field.message_type.fields_by_name["value"]
    return bool(value.type == value.TYPE_MESSAGE)


def _fill(message: Any, field: FieldDescriptor, depth: int) -> None:
    if field.type == field.TYPE_MESSAGE:
        _fill_message(message, field, depth)
    elif field.is_repeated:
        getattr(message, field.name).append(_SCALARS[field.type])
    else:
        setattr(message, field.name, _SCALARS[field.type])


def _fill_message(message: Any, field: FieldDescriptor, depth: int) -> None:
    part = getattr(message, field.name)
    assert field.message_type is not None
    if field.message_type.GetOptions().map_entry:
        part[_TEXT] = _SCALARS[field.message_type.fields_by_name["value"].type]
    elif depth > 0 and field.is_repeated:
        item = part.add()
        item.CopyFrom(nonsense(item, depth - 1))
    elif depth > 0:
        part.CopyFrom(nonsense(part, depth - 1))


_TEXT = "../nonsense\n\x00\x1b"
_SCALARS: Mapping[int, Any] = {
    FieldDescriptor.TYPE_STRING: _TEXT,
    FieldDescriptor.TYPE_BYTES: b"\xff\xfe",
    FieldDescriptor.TYPE_BOOL: True,
    FieldDescriptor.TYPE_ENUM: 99,
    FieldDescriptor.TYPE_INT32: -(2**31),
    FieldDescriptor.TYPE_INT64: -(2**63),
    FieldDescriptor.TYPE_UINT32: 2**32 - 1,
    FieldDescriptor.TYPE_UINT64: 2**64 - 1,
    FieldDescriptor.TYPE_DOUBLE: float("nan"),
    FieldDescriptor.TYPE_FLOAT: float("nan"),
}
