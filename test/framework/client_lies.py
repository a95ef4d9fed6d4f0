"""Define responses that no API server would send."""

from __future__ import annotations

import datetime
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from pkg.apimachinery.api.resource import Quantity
from pkg.client_go.kubernetes import resources

_TEXT = "../nonsense\n\x00\x1b"
_DEPTH = 8
_SCALARS: Mapping[object, Any] = {
    str: _TEXT,
    bytes: "//4=",
    bool: True,
    int: -(2**31),
    float: -1e300,
    datetime.datetime: "0001-01-01T00:00:00Z",
    Quantity: "-9223372036854775807",
}
_REFUSAL = msgspec.json.encode({"kind": "Status", "status": "Failure", "code": 200, "reason": "Nonsense"})


def empty(body: bytes) -> bytes:
    """Return an object in which nothing is set, or a watch event that contains such an object."""
    event = _event(body)
    return b"{}" if event is None else msgspec.json.encode({"type": event["type"], "object": {}})


def garbage(body: bytes) -> bytes:
    """Return bytes that are not JSON."""
    return b"<html>\xff\x00 502 Bad Gateway </html>"


def status(body: bytes) -> bytes:
    """Return a refusal where the client expects an object."""
    event = _event(body)
    return _REFUSAL if event is None else msgspec.json.encode({"type": event["type"], "object": msgspec.Raw(_REFUSAL)})


def wrong_types(body: bytes) -> bytes:
    """Return the true response with every value replaced by one of another type."""
    return msgspec.json.encode(_swap(msgspec.json.decode(body)))


def _swap(value: Any) -> Any:
    match value:
        case dict():
            return {key: _swap(item) for key, item in value.items()} or [None]
        case list():
            return [None, *(_swap(item) for item in value)]
        case str():
            return -7
        case bool():
            return "yes"
        case _:
            return [[value]]


def nonsense(resource: str) -> Callable[[bytes], bytes]:
    """Return a function that keeps the object's name and versions and sets all else to nonsense of the right type."""
    known = next((each.type for each in resources.ALL if each.name == resource), None)

    def tell(body: bytes) -> bytes:
        if known is None:
            return empty(body)
        answer = msgspec.json.decode(body)
        if (event := _event(body)) is not None:
            answer = {**event, "object": _lie_about(event["object"], known)}
        elif "items" in answer:
            answer["items"] = [None, [], *(_lie_about(item, known) for item in answer["items"])]
        else:
            answer = _lie_about(answer, known)
        return msgspec.json.encode(answer)

    return tell


def _lie_about(true: Any, known: Any) -> Any:
    filled = _filled(known, _DEPTH)
    # `immutable` stays as it is because the kubelet never reads an immutable object again.
    lie = {key: value for key, value in filled.items() if key not in ("kind", "apiVersion", "metadata", "immutable")}
    return {**lie, **{key: true[key] for key in ("kind", "apiVersion", "metadata") if key in true}}


def _filled(hint: Any, depth: int) -> Any:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        return _filled(arguments[0], depth)
    if origin in (types.UnionType, typing.Union):
        return _filled(arguments[0], depth)
    if isinstance(hint, typing.NewType):
        return _filled(hint.__supertype__, depth)
    if hint in _SCALARS:
        return _SCALARS[hint]
    if origin is list:
        return [_filled(arguments[0], depth - 1)] if depth > 1 else []
    if origin is dict:
        return {_TEXT: _filled(arguments[1], depth - 1)} if depth > 1 else {}
    if depth == 0:
        return {}
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        hints = typing.get_type_hints(hint, include_extras=True)
        return {each.encode_name: _filled(hints[each.name], depth - 1) for each in msgspec.structs.fields(hint)}
    return {}


def _event(body: bytes) -> dict[str, Any] | None:
    """Return the watch event in the body, or None if the body is another response."""
    try:
        answer = msgspec.json.decode(body)
    except msgspec.DecodeError:
        return None
    return answer if isinstance(answer, dict) and answer.keys() == {"type", "object"} else None
