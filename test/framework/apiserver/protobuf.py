"""Decode the binary form in which newer kubectls send the few kinds that they create themselves.

The module knows only these kinds. The server rejects all others with 415. It always responds with JSON, which the same
clients accept.

Go: k8s.io/apimachinery/pkg/runtime/serializer/protobuf/protobuf.go, the generated.proto of each API group
"""

from __future__ import annotations

import base64
import datetime
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from pkg.api.core import v1
from pkg.apimachinery.runtime import codec

from .interfaces import Object

CONTENT_TYPE = "application/vnd.kubernetes.protobuf"
_MAGIC = b"k8s\x00"

# A message maps the numbers of its fields to their names and types. A type is a message, the name of a scalar, or a
# list with the type of its items. "text map", "bytes map" and "quantity map" are maps of these. A message without a
# name adds its fields to the outer message.
_Message = dict[int, tuple[str, Any]]

# This file has the messages of a pod by their names. Their fields are as above, except that lists are written "list
# text" and messages by their names. The source is the generated.proto of 1.36's k8s.io/api/core/v1 and
# k8s.io/apimachinery/pkg/apis/meta/v1.
_POD_MESSAGES = Path(__file__).with_name("pod_messages.json")

_META: _Message = {
    1: ("name", "text"),
    2: ("generateName", "text"),
    3: ("namespace", "text"),
    5: ("uid", "text"),
    6: ("resourceVersion", "text"),
    11: ("labels", "text map"),
    12: ("annotations", "text map"),
    14: ("finalizers", ["text"]),
}
_DELETE_OPTIONS: _Message = {
    1: ("gracePeriodSeconds", "number"),
    2: ("preconditions", {1: ("uid", "text"), 2: ("resourceVersion", "text")}),
    3: ("orphanDependents", "truth"),
    4: ("propagationPolicy", "text"),
    5: ("dryRun", ["text"]),
}
_RESOURCE_ATTRIBUTES: _Message = {
    1: ("namespace", "text"),
    2: ("verb", "text"),
    3: ("group", "text"),
    4: ("version", "text"),
    5: ("resource", "text"),
    6: ("subresource", "text"),
    7: ("name", "text"),
}
_REVIEW: _Message = {
    1: ("resourceAttributes", _RESOURCE_ATTRIBUTES),
    2: ("nonResourceAttributes", {1: ("path", "text"), 2: ("verb", "text")}),
}
_BOUND_TO: _Message = {1: ("kind", "text"), 2: ("apiVersion", "text"), 3: ("name", "text"), 4: ("uid", "text")}
_TOKEN_REQUEST: _Message = {
    1: ("audiences", ["text"]),
    3: ("boundObjectRef", _BOUND_TO),
    4: ("expirationSeconds", "number"),
}
_LABEL_SELECTOR: _Message = {
    1: ("matchLabels", "text map"),
    2: ("matchExpressions", [{1: ("key", "text"), 2: ("operator", "text"), 3: ("values", ["text"])}]),
}
_KINDS: dict[str, _Message] = {
    "Namespace": {1: ("metadata", _META), 2: ("spec", {1: ("finalizers", ["text"])})},
    "ConfigMap": {
        1: ("metadata", _META),
        2: ("data", "text map"),
        3: ("binaryData", "bytes map"),
        4: ("immutable", "truth"),
    },
    "Secret": {
        1: ("metadata", _META),
        2: ("data", "bytes map"),
        3: ("type", "text"),
        4: ("stringData", "text map"),
        5: ("immutable", "truth"),
    },
    "ServiceAccount": {1: ("metadata", _META), 3: ("imagePullSecrets", [{1: ("name", "text")}])},
    "Eviction": {1: ("metadata", _META), 2: ("deleteOptions", _DELETE_OPTIONS)},
    "PodDisruptionBudget": {
        1: ("metadata", _META),
        2: (
            "spec",
            {
                1: ("minAvailable", "int or text"),
                2: ("selector", _LABEL_SELECTOR),
                3: ("maxUnavailable", "int or text"),
                4: ("unhealthyPodEvictionPolicy", "text"),
            },
        ),
    },
    "DeleteOptions": _DELETE_OPTIONS,
    "SelfSubjectAccessReview": {1: ("metadata", _META), 2: ("spec", _REVIEW)},
    "SelfSubjectReview": {1: ("metadata", _META)},
    "TokenRequest": {1: ("metadata", _META), 2: ("spec", _TOKEN_REQUEST)},
}
# Each kind with a pod template maps to its spec without the template, and to the number of the template's field.
_WORKLOADS: dict[str, tuple[_Message, int]] = {
    "Deployment": (
        {
            1: ("replicas", "number"),
            2: ("selector", _LABEL_SELECTOR),
            5: ("minReadySeconds", "number"),
            6: ("revisionHistoryLimit", "number"),
            7: ("paused", "truth"),
            9: ("progressDeadlineSeconds", "number"),
        },
        3,
    ),
    "Job": (
        {
            1: ("parallelism", "number"),
            2: ("completions", "number"),
            3: ("activeDeadlineSeconds", "number"),
            4: ("selector", _LABEL_SELECTOR),
            5: ("manualSelector", "truth"),
            7: ("backoffLimit", "number"),
            8: ("ttlSecondsAfterFinished", "number"),
            9: ("completionMode", "text"),
            10: ("suspend", "truth"),
        },
        6,
    ),
}
_TYPE: _Message = {1: ("apiVersion", "text"), 2: ("kind", "text")}


class UnknownKindError(ValueError):
    """Signal that the object's kind is not known here. The object may be valid."""


def decode(body: bytes) -> Object:
    """Return the object in a body. Raise UnknownKindError for an unknown kind, and ValueError for an invalid body."""
    if not body.startswith(_MAGIC):
        raise ValueError("the body does not begin like an encoded object")
    type_meta: Object = {}
    raw = b""
    for number, value in _fields(body[len(_MAGIC) :]):
        if number == 1:
            type_meta = _message(_bytes(value), _TYPE)
        elif number == 2:
            raw = _bytes(value)
    kind = type_meta.get("kind", "")
    if kind == "Pod":
        return type_meta | _without_zeros(_message(raw, _pod()))
    if kind in _WORKLOADS:
        fields, number = _WORKLOADS[kind]
        obj = _message(raw, {1: ("metadata", _META), 2: ("spec", {**fields, number: ("template", _pod())})})
        spec = obj.setdefault("spec", {})
        pod = _without_zeros(spec.get("template", {}))
        spec["template"] = {name: pod[name] for name in ("metadata", "spec")}
        return type_meta | obj
    if kind not in _KINDS:
        raise UnknownKindError(f"kind {kind!r} is not supported in this form")
    return type_meta | _message(raw, _KINDS[kind])


def _without_zeros(pod: Object) -> Object:
    """Remove zero values. The types of a pod know which zeros mean that a field is not set."""
    return dict(codec.to_builtins(codec.convert(pod, v1.Pod)))


@cache
def _pod() -> _Message:
    messages = json.loads(_POD_MESSAGES.read_bytes())

    def build(type_: str) -> Any:
        kind, _, item = type_.rpartition(" ")
        if kind == "list":
            return [build(item)]
        if kind == "map":
            return f"{item} map"
        if type_ not in messages:
            return type_
        return {int(number): (name, build(field)) for number, (name, field) in messages[type_].items()}

    pod: _Message = build("Pod")
    return pod


def _message(data: bytes, message: _Message) -> Object:
    obj: Object = {}
    for number, value in _fields(data):
        if number not in message:
            continue
        name, type_ = message[number]
        if isinstance(type_, list):
            obj.setdefault(name, []).append(_value(value, type_[0]))
        elif isinstance(type_, str) and type_.endswith(" map"):
            item = type_.removesuffix(" map")
            entry = _message(_bytes(value), {1: ("key", "text"), 2: ("value", item)})
            obj.setdefault(name, {})[entry.get("key", "")] = entry.get("value", "")
        elif not name:
            obj |= _value(value, type_)
        elif (decoded := _value(value, type_)) not in ("", None):
            obj[name] = decoded
    return obj


def _value(value: int | bytes, type_: Any) -> Any:
    match type_:
        case "number":
            number = _int(value)
            return number - (1 << 64) if number >= 1 << 63 else number
        case "truth":
            return bool(_int(value))
        case "text":
            return _bytes(value).decode()
        case "bytes":
            return base64.b64encode(_bytes(value)).decode()
        case "quantity":
            return _message(_bytes(value), {1: ("string", "text")}).get("string")
        case "time":
            seconds = _message(_bytes(value), {1: ("seconds", "number")}).get("seconds")
            return seconds and datetime.datetime.fromtimestamp(seconds, datetime.UTC).isoformat()
        case "int or text":
            either = _message(_bytes(value), {1: ("is text", "number"), 2: ("int", "number"), 3: ("text", "text")})
            return either.get("text", "") if either.get("is text") else either.get("int", 0)
        case _:
            return _message(_bytes(value), type_)


def _int(value: int | bytes) -> int:
    if not isinstance(value, int):
        raise ValueError("the field is not a number")
    return value


def _bytes(value: int | bytes) -> bytes:
    if not isinstance(value, bytes):
        raise ValueError("the field is not length-delimited")
    return value


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield the field numbers and values of a message: integers as they are, everything else as bytes."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        match key & 7:
            case 0:
                value, at = _varint(data, at)
                yield key >> 3, value
            case 2:
                size, at = _varint(data, at)
                if at + size > len(data):
                    raise ValueError("the body ends early")
                yield key >> 3, data[at : at + size]
                at += size
            case wire:
                raise ValueError(f"wire type {wire} is not supported")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(data):
            raise ValueError("the body ends early")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
