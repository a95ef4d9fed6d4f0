"""Encoding, decoding, copying and comparing of API objects.

Go: k8s.io/apimachinery/pkg/runtime/codec.go, k8s.io/apimachinery/pkg/api/equality/semantic.go

All functions are safe to call from any thread.
"""

from __future__ import annotations

import contextlib
import copy
import datetime
import errno
import os
import re
import threading
import types
import typing
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, TypeVar

import msgspec

from pkg import golang
from pkg.apimachinery.api.resource import Quantity, QuantityError, parse_quantity

T = TypeVar("T")

# Levels of JSON that are decoded. No field of ours is on so deep a level, and no stack is too small for them.
MAX_DEPTH = 200
# A string that does not end goes to the end of the data: it is looked through once, and not from each of its quotes.
_STRING_OR_BRACKET = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[\[\]{}]', re.DOTALL)

# An escape in a string of JSON: a pair of surrogates, one that is alone, or any other.
_ESCAPE = re.compile(rb"\\(?:u[dD][89abAB]..\\u[dD][c-fC-F]..|(u[dD][89a-fA-F]..)|.)", re.DOTALL)

# An object, and its metadata, spec and status.
_SALVAGED_LEVELS = 2
# How much of a faulty value a message quotes.
_QUOTED = 100
# A message of msgspec that may quote the value, which of a secret it must not; and the path that it names, if that
# has no part that msgspec leaves out.
_FAULT = re.compile(r"(Expected `int` [<>]= \S+|Invalid RFC3339 .*) - at `\$((?:\.[^.\[\]]+|\[\d+\])*)`")
_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d+)\]")


class DecodeError(ValueError):
    """Data that does not have the shape of the asked type; the message names the path of the fault."""


def encode_json(obj: object, *, sort_keys: bool = False) -> bytes:
    """The object as JSON, absent fields left out.

    As in Go, what is no valid text, as in a message that quotes a file's name, is sent as U+FFFD.
    """
    encoder = _sorting_json_encoder if sort_keys else _json_encoder
    try:
        return encoder.encode(obj)
    except UnicodeEncodeError:
        return encoder.encode(_with_valid_text(to_builtins(obj)))


def as_sent(obj: T) -> T:
    """The object as the API server will have it: itself, or a copy if it has text that encode_json replaces."""
    try:
        _json_encoder.encode(obj)
    except UnicodeEncodeError:
        return decode_json(encode_json(obj), type(obj))
    return obj


def _with_valid_text(value: object) -> object:
    match value:
        case str():
            return golang.to_valid_utf8(value)
        case dict():
            return {_with_valid_text(key): _with_valid_text(item) for key, item in value.items()}
        case list() | tuple():
            return [_with_valid_text(item) for item in value]
    return value


@contextlib.contextmanager
def reading(what: str) -> Iterator[None]:
    """Raise ValueError if `what`, which is read within, is nested too deeply, and OSError if memory is short.

    For files: the first is as bad as a broken one, and must not end the process at each start. The second says nothing
    of the file, which may tell tomorrow what nothing else does.
    """
    try:
        yield
    except RecursionError as err:
        raise ValueError(f"{what} is nested too deeply") from err
    except MemoryError as err:
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM), what) from err


def decode_json(data: bytes | str, type_: type[T]) -> T:
    """Decode JSON. Unknown fields are ignored, null means absent.

    Raises DecodeError, whose text names the path of the fault.
    """
    try:
        return json_decoder(type_).decode(data)
    except msgspec.ValidationError as err:
        # Only what convert reads otherwise, or a real fault, comes this way: look closer.
        return convert(_json_builtins(data, err), type_)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as err:
        raise DecodeError(str(err)) from err


def _json_builtins(data: bytes | str, first_err: Exception) -> Any:
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        # The first error names the field.
        raise DecodeError(str(first_err)) from first_err


def without_depths(data: bytes) -> bytes:
    """The JSON with null in place of what is nested more than MAX_DEPTH levels deep; `data` itself without such.

    Go's clients do not look into an object's managedFields. A user who may change the object may put ten thousand
    levels into them, which no decoder here takes. Then a list with this object could not be decoded at all.
    """
    parts: list[bytes] = []
    kept_from = depth = 0
    for match in _STRING_OR_BRACKET.finditer(data):
        if data[match.start()] in b"[{":
            depth += 1
            if depth == MAX_DEPTH + 1:
                parts += data[kept_from : match.start()], b"null"
        elif data[match.start()] in b"]}":
            if depth == MAX_DEPTH + 1:
                kept_from = match.end()
            depth -= 1
    # What is not balanced is no JSON.
    return b"".join([*parts, data[kept_from:]]) if parts and depth == 0 else data


def with_valid_text(data: bytes) -> bytes:
    """The JSON with U+FFFD in place of what is no text, as Go reads it; `data` itself without such.

    Go's servers pass on the parameters of a ResourceClaim as somebody wrote them.
    """
    text = data.decode(errors="replace").encode()
    text = _ESCAPE.sub(lambda escape: rb"\ufffd" if escape[1] else escape[0], text)
    return data if text == data else text


def salvage(data: bytes, type_: type[T]) -> T:
    """As much as can be decoded of an object that decode_json refuses, other fields being as if they were not there.

    Of the object's metadata, spec and status each field counts by itself. Raises DecodeError if nothing can be.
    """
    found: T = _salvage(data, type_, _SALVAGED_LEVELS)
    return found


def _salvage(data: bytes, hint: Any, levels: int) -> Any:
    try:
        return decode_json(data, hint)
    except DecodeError:
        if levels == 0 or not (isinstance(hint, type) and issubclass(hint, msgspec.Struct)):
            raise
    raw_fields = decode_json(data, dict[str, msgspec.Raw])
    hints = typing.get_type_hints(hint, include_extras=True)
    values = {}
    for field in msgspec.structs.fields(hint):
        if field.encode_name in raw_fields:
            with contextlib.suppress(DecodeError):
                raw = bytes(raw_fields[field.encode_name])
                values[field.name] = _salvage(raw, hints[field.name], levels - 1)
    return hint(**values)


def convert(builtins: object, type_: type[T]) -> T:
    """Make an object of dicts, lists and scalars, as a YAML reader gives them.

    Where msgspec is stricter than Go, this reads as Go does: null means absent, a time may have any year, offset
    and fraction, and base64 may be broken into lines. Raises DecodeError, whose text names the path of the fault.
    """
    json_decoder(type_)  # so that the type is known
    try:
        read = _shape(type_)  # type: ignore[arg-type]
        return msgspec.convert(read(builtins), type_, dec_hook=_decode_hook)
    except msgspec.ValidationError as err:
        raise DecodeError(_with_value(str(err), builtins)) from err
    except RecursionError as err:
        raise DecodeError(str(err)) from err


def to_builtins(obj: object) -> Any:
    """The object as dicts, lists, numbers and text, as json.dumps and yaml.dump take them."""
    return msgspec.to_builtins(obj, enc_hook=_encode_hook)


def deepcopy(obj: T) -> T:
    """A copy that shares nothing mutable with the original."""
    try:
        return _msgpack_decoder(type(obj)).decode(_msgpack_encoder.encode(obj))  # type: ignore
    except (msgspec.MsgspecError, OverflowError, UnicodeError):
        # The object holds what a decoder would have refused, such as an integer of more than 64 bits. It is in
        # memory all the same, and a copy must not fail because of it.
        return copy.deepcopy(obj)


def semantic_equal(a: object, b: object) -> bool:
    """Whether two objects mean the same: None and empty are alike, quantities go by value."""
    # The comparison of msgspec and Python is fast, so that only what it finds different is looked at more closely.
    if a is b or a == b:
        return True
    match a, b:
        case (msgspec.Struct(), msgspec.Struct()) if type(a) is type(b):
            return all(semantic_equal(getattr(a, name), getattr(b, name)) for name in a.__struct_fields__)
        case (dict(), dict()):
            return a.keys() == b.keys() and all(semantic_equal(value, b[key]) for key, value in a.items())
        case (list() | tuple(), list() | tuple()):
            return len(a) == len(b) and all(map(semantic_equal, a, b))
    return _is_empty(a) and _is_empty(b)


def _is_empty(obj: object) -> bool:
    return obj is None or (isinstance(obj, dict | list | tuple) and not obj)


def _with_value(message: str, builtins: object) -> str:
    """The message of a fault, with the value if it does not say what that is."""
    match = _FAULT.fullmatch(message)
    if match is None:
        return message
    value: Any = builtins
    try:
        for name, index in _STEP.findall(match[2]):
            value = value[name] if name else value[int(index)]
        return f"{match[1]}, got {str(value)[:_QUOTED]} - at `${match[2]}`"
    except (KeyError, IndexError, TypeError, ValueError):
        return message


# Reads a value as Go does where msgspec would refuse it; what is wrong with the value is for msgspec to tell.
_Reader = Callable[[object], object]

_NO_LINE_BREAKS = str.maketrans("", "", "\r\n")


@cache
def _shape(hint: Any) -> _Reader:
    """The reader of values of the type that the hint stands for."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        return _shape(args[0])
    if origin in (types.UnionType, typing.Union):
        return _shape(next((arg for arg in args if arg is not types.NoneType), object))
    if origin in (list, dict):
        item = _shape(args[-1])
        return _read_list(item) if origin is list else _read_dict(item)
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return _read_struct(hint)
    if hint is datetime.datetime:
        return _read_time
    if hint is bytes:
        return _read_base64
    return _without_nulls


def _read_struct(type_: type[msgspec.Struct]) -> _Reader:
    def read(value: object) -> object:
        if not isinstance(value, dict):
            return value
        readers = _field_readers(type_)
        return {k: readers.get(k, _without_nulls)(v) for k, v in value.items() if v is not None}

    return read


@cache
def _field_readers(type_: type[msgspec.Struct]) -> dict[str, _Reader]:
    """Looked up when a value comes, and no sooner: a struct's fields may be of its own type."""
    hints = typing.get_type_hints(type_, include_extras=True)
    return {field.encode_name: _shape(hints[field.name]) for field in msgspec.structs.fields(type_)}


def _read_list(item: _Reader) -> _Reader:
    return lambda value: [item(v) for v in value] if isinstance(value, list) else value


def _read_dict(item: _Reader) -> _Reader:
    def read(value: object) -> object:
        if not isinstance(value, dict):
            return value
        return {k: item(v) for k, v in value.items() if v is not None}

    return read


def _read_time(value: object) -> object:
    try:
        return golang.parse_rfc3339(value) if isinstance(value, str) else value
    except ValueError:
        return ""  # which msgspec refuses, and its message names the field


def _read_base64(value: object) -> object:
    return value.translate(_NO_LINE_BREAKS) if isinstance(value, str) else value


def _without_nulls(value: object) -> object:
    match value:
        case dict():
            return {k: _without_nulls(v) for k, v in value.items() if v is not None}
        case list():
            return [_without_nulls(v) for v in value]
    return value


def _decode_hook(type_: type, value: object) -> object:
    if type_ is Quantity and isinstance(value, str | int | float) and not isinstance(value, bool):
        text = str(value)
        try:
            return parse_quantity(text)
        except QuantityError as err:
            raise ValueError(f"{text[:_QUOTED]!r} is not a quantity: {err}") from err
    raise ValueError(f"Expected `{type_.__name__}`, got `{type(value).__name__}`")


def _encode_hook(value: object) -> object:
    if isinstance(value, Quantity):
        return str(value)
    raise NotImplementedError(f"cannot encode {type(value).__name__}")


# When msgspec meets a type it notes what it knows of it, and of the types within, before it knows all. Another thread
# that uses one of them meanwhile crashes the process. So types are met under this lock, and used only after that.
_meeting = threading.Lock()


def json_decoder(type_: type[T]) -> msgspec.json.Decoder[T]:
    """What decodes this type and raises msgspec's own errors. To be used for all types, wherever threads may meet."""
    return _json_decoder(type_)  # type: ignore[arg-type]


@cache
def _json_decoder(type_: type[Any]) -> msgspec.json.Decoder[Any]:
    with _meeting:
        return msgspec.json.Decoder(type_, dec_hook=_decode_hook)


@cache
def _msgpack_decoder(type_: type[Any]) -> msgspec.msgpack.Decoder[Any]:
    with _meeting:
        return msgspec.msgpack.Decoder(type_, dec_hook=_decode_hook)


_json_encoder = msgspec.json.Encoder(enc_hook=_encode_hook)
_sorting_json_encoder = msgspec.json.Encoder(enc_hook=_encode_hook, order="sorted")
_msgpack_encoder = msgspec.msgpack.Encoder(enc_hook=_encode_hook)


def seconds(moment: datetime.datetime) -> datetime.datetime:
    """The moment cut to whole seconds, as the API stores a Time."""
    return moment.replace(microsecond=0)
