"""Encode, decode, copy and compare API objects.

Go: k8s.io/apimachinery/pkg/runtime/codec.go, k8s.io/apimachinery/pkg/api/equality/semantic.go

All functions are thread-safe.
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

# `MAX_DEPTH` is the maximum nesting of JSON. No field of our types is at such a deep level, and every thread's stack is
# large enough for it.
MAX_DEPTH = 200
# An unterminated string matches up to the end of the data, so the data is scanned once and not again from each of its
# quotes.
_STRING_OR_BRACKET = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[\[\]{}]', re.DOTALL)

# The pattern matches an escape in a JSON string: a pair of surrogates, a lone surrogate, or any other escape.
_ESCAPE = re.compile(rb"\\(?:u[dD][89abAB]..\\u[dD][c-fC-F]..|(u[dD][89a-fA-F]..)|.)", re.DOTALL)

# The levels are the object, and its metadata, spec and status.
_SALVAGED_LEVELS = 2
# A message quotes at most this many characters of an invalid value.
_QUOTED = 100
# The first pattern matches the messages of msgspec that may be extended with the value. Other messages must not show
# the value, which may be part of a secret. The pattern requires a complete path, because msgspec leaves out parts of
# some paths.
_FAULT = re.compile(r"(Expected `int` [<>]= \S+|Invalid RFC3339 .*) - at `\$((?:\.[^.\[\]]+|\[\d+\])*)`")
_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d+)\]")


class DecodeError(ValueError):
    """Signal that data does not fit the requested type; the message names the path of the invalid value."""


def encode_json(obj: object, *, sort_keys: bool = False) -> bytes:
    """Return the object as JSON without absent fields.

    As in Go, invalid UTF-8 is sent as U+FFFD. A message that quotes a file's name may contain it.
    """
    encoder = _sorting_json_encoder if sort_keys else _json_encoder
    try:
        return encoder.encode(obj)
    except UnicodeEncodeError:
        return encoder.encode(_with_valid_text(to_builtins(obj)))


def as_sent(obj: T) -> T:
    """Return the object as the API server will store it.

    Return a copy if the object contains text that encode_json replaces, and the object itself otherwise.
    """
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
    """Raise ValueError if `what` is nested too deeply, and OSError if there is not enough memory to read it.

    Code that reads files runs within this context manager. A file that is nested too deeply counts as corrupt, and must
    not end the process at each start. A lack of memory says nothing about the file, which may be readable later and
    contain what is stored nowhere else.
    """
    try:
        yield
    except RecursionError as err:
        raise ValueError(f"{what} is nested too deeply") from err
    except MemoryError as err:
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM), what) from err


def decode_json(data: bytes | str, type_: type[T]) -> T:
    """Decode JSON; unknown fields are ignored, and null means absent.

    Raise DecodeError, whose text names the path of the invalid value.
    """
    try:
        return json_decoder(type_).decode(data)
    except msgspec.ValidationError as err:
        # Only data that convert reads differently, or that is invalid, gets here, so decode it again more carefully.
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
    """Return the JSON with null in place of values nested deeper than MAX_DEPTH levels.

    Return `data` itself if there are none. Go's clients do not decode an object's managedFields. A user who may change
    the object can put ten thousand levels into them, which no decoder here accepts. Without this function a list that
    contains the object could not be decoded at all.
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
    # Unbalanced brackets are not valid JSON.
    return b"".join([*parts, data[kept_from:]]) if parts and depth == 0 else data


def with_valid_text(data: bytes) -> bytes:
    """Return the JSON with U+FFFD in place of invalid UTF-8, as Go reads it, or `data` itself if it is valid.

    Go's servers pass the parameters of a ResourceClaim on unchanged, so they may contain invalid UTF-8.
    """
    text = data.decode(errors="replace").encode()
    text = _ESCAPE.sub(lambda escape: rb"\ufffd" if escape[1] else escape[0], text)
    return data if text == data else text


def salvage(data: bytes, type_: type[T]) -> T:
    """Return the decodable part of an object that decode_json refuses; other fields are left at their defaults.

    Each field of the object's metadata, spec and status is decoded separately. Raise DecodeError if nothing can be
    decoded.
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
    """Make an object from dicts, lists and scalars, such as those of a YAML reader.

    Where msgspec is stricter than Go, this function follows Go: null means absent, a time may have any year, offset and
    fraction, and base64 may contain line breaks. Raise DecodeError, whose text names the path of the invalid value.
    """
    json_decoder(type_)  # This call registers the type with msgspec; see _meeting.
    try:
        read = _shape(type_)  # type: ignore[arg-type]
        return msgspec.convert(read(builtins), type_, dec_hook=_decode_hook)
    except msgspec.ValidationError as err:
        raise DecodeError(_with_value(str(err), builtins)) from err
    except RecursionError as err:
        raise DecodeError(str(err)) from err


def to_builtins(obj: object) -> Any:
    """Return the object as dicts, lists, numbers and text, which json.dumps and yaml.dump accept."""
    return msgspec.to_builtins(obj, enc_hook=_encode_hook)


def deepcopy(obj: T) -> T:
    """Return a copy that shares no mutable data with the original."""
    try:
        return _msgpack_decoder(type(obj)).decode(_msgpack_encoder.encode(obj))  # type: ignore
    except (msgspec.MsgspecError, OverflowError, UnicodeError):
        # The object contains a value that a decoder would have refused, such as an integer of more than 64 bits. Such
        # an object can exist in memory, and copying it must not fail.
        return copy.deepcopy(obj)


def semantic_equal(a: object, b: object) -> bool:
    """Report whether two objects mean the same: None equals empty, and quantities are compared by amount."""
    # The comparison of msgspec and Python is fast, so only values that it finds different need the slower comparison
    # below.
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
    """Return the error message, with the invalid value if the message does not show it."""
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


# A reader converts values that Go accepts and msgspec would refuse. Errors in the value are left for msgspec to report.
_Reader = Callable[[object], object]

_NO_LINE_BREAKS = str.maketrans("", "", "\r\n")


@cache
def _shape(hint: Any) -> _Reader:
    """Return the reader for values of this type."""
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
    """Return the readers of a struct's fields.

    The readers are looked up only when a value arrives, because a field may have the type of its own struct.
    """
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
        return ""  # msgspec refuses this value with a message that names the field.


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


# When msgspec first uses a type, it stores what it knows of the type and its inner types before that is complete. If
# another thread uses one of these types meanwhile, the process crashes. Therefore types are registered under this lock,
# and used only after that.
_meeting = threading.Lock()


def json_decoder(type_: type[T]) -> msgspec.json.Decoder[T]:
    """Return the decoder for this type, which raises msgspec's own errors.

    All code must get its decoders here if several threads may use a type.
    """
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
    """Return the time truncated to whole seconds, as the API stores a Time."""
    return moment.replace(microsecond=0)
