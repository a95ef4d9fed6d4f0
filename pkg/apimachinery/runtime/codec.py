"""Encoding, decoding, copying and comparing of API objects.

Go: staging/src/k8s.io/apimachinery/pkg/runtime/codec.go, pkg/api/equality/semantic.go

All functions are safe to call from any thread.
"""

from __future__ import annotations

import datetime
import threading
from functools import cache
from typing import Any, TypeVar

import msgspec

from pkg.apimachinery.api.resource import Quantity, QuantityError, parse_quantity

T = TypeVar("T")


class DecodeError(ValueError):
    """Data that does not have the shape of the asked type; the message names the path of the fault."""


def encode_json(obj: object) -> bytes:
    """The object as JSON, absent fields left out."""
    return _json_encoder.encode(obj)


def decode_json(data: bytes | str, type_: type[T]) -> T:
    """Decode JSON. Unknown fields are ignored, null means absent.

    Raises DecodeError, whose text names the path of the fault.
    """
    try:
        return json_decoder(type_).decode(data)
    except msgspec.ValidationError:
        # Only a null where a list, map or text belongs, or a real fault, comes this way: look closer.
        return convert(msgspec.json.decode(data), type_)
    except (msgspec.DecodeError, UnicodeDecodeError) as err:
        raise DecodeError(str(err)) from err


def convert(builtins: object, type_: type[T]) -> T:
    """Make an object of dicts, lists and scalars, as a YAML reader gives them.

    Raises DecodeError, whose text names the path of the fault.
    """
    json_decoder(type_)  # so that the type is known
    try:
        return msgspec.convert(_without_nulls(builtins), type_, dec_hook=_decode_hook)
    except msgspec.ValidationError as err:
        raise DecodeError(str(err)) from err


def to_builtins(obj: object) -> Any:
    """The object as dicts, lists, numbers and text, as json.dumps and yaml.dump take them."""
    return msgspec.to_builtins(obj, enc_hook=_encode_hook)


def deepcopy(obj: T) -> T:
    """A copy that shares nothing mutable with the original."""
    return _msgpack_decoder(type(obj)).decode(_msgpack_encoder.encode(obj))  # type: ignore


def semantic_equal(a: object, b: object) -> bool:
    """Whether two objects mean the same: None and empty are alike, quantities go by value."""
    if a is b or a == b:
        return True
    return _compact(a) == _compact(b)


def _compact(obj: object) -> object:
    """Comparable form without empty lists, maps and None; scalars stay as they are."""
    match obj:
        case msgspec.Struct():
            return {
                name: value for name in obj.__struct_fields__ if (value := _compact(getattr(obj, name))) is not None
            }
        case dict():
            return {key: _compact(value) for key, value in obj.items()} or None
        case list() | tuple():
            return [_compact(value) for value in obj] or None
    return obj


def _without_nulls(value: object) -> object:
    match value:
        case dict():
            return {k: _without_nulls(v) for k, v in value.items() if v is not None}
        case list():
            return [_without_nulls(v) for v in value]
    return value


def _decode_hook(type_: type, value: object) -> object:
    if type_ is Quantity and isinstance(value, str | int | float) and not isinstance(value, bool):
        try:
            return parse_quantity(str(value))
        except QuantityError as err:
            raise ValueError(f"{value!r} is not a quantity: {err}") from err
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
_msgpack_encoder = msgspec.msgpack.Encoder(enc_hook=_encode_hook)


def seconds(moment: datetime.datetime) -> datetime.datetime:
    """The moment cut to whole seconds, as the API stores a Time."""
    return moment.replace(microsecond=0)
