"""Encode profiles in the format of pprof and other viewers: a gzipped protobuf message.

Go: github.com/google/pprof/proto/profile.proto, runtime/pprof/proto.go

The message is encoded by hand, because only a few of its fields are needed and a kubelet does not ship the protobuf
compiler.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

# These are the field numbers of the message Profile.
_SAMPLE_TYPE, _SAMPLE, _LOCATION, _FUNCTION, _STRING_TABLE = 1, 2, 4, 5, 6
_TIME_NANOS, _DURATION_NANOS, _PERIOD_TYPE, _PERIOD = 9, 10, 11, 12


@dataclass(frozen=True, slots=True)
class Frame:
    function: str
    file: str
    line: int


# The innermost frame comes first.
Stack = tuple[Frame, ...]


@dataclass(frozen=True, slots=True)
class ValueType:
    type: str
    unit: str


@dataclass(slots=True)
class Profile:
    """Hold for each stack as many values as there are value types."""

    value_types: tuple[ValueType, ...]
    samples: Mapping[Stack, tuple[int, ...]]
    # The unit is nanoseconds.
    time: int = 0
    duration: int = 0
    period_type: ValueType | None = None
    period: int = 0


def encode(profile: Profile) -> bytes:
    """Return the profile in pprof's format."""
    return gzip.compress(_Encoder().encode(profile))


@dataclass(slots=True)
class _Encoder:
    # These dicts assign each object its number: 0 is the empty string; functions and locations start at 1.
    _strings: dict[str, int] = field(default_factory=lambda: {"": 0})
    _functions: dict[tuple[str, str], int] = field(default_factory=dict)
    _locations: dict[Frame, int] = field(default_factory=dict)

    def encode(self, profile: Profile) -> bytes:
        parts = [_message(_SAMPLE_TYPE, self._value_type(each)) for each in profile.value_types]
        for stack, values in profile.samples.items():
            sample = _packed(1, [self._location(frame) for frame in stack]) + _packed(2, values)
            parts.append(_message(_SAMPLE, sample))
        parts += [_message(_LOCATION, self._encode_location(frame)) for frame in self._locations]
        parts += [_message(_FUNCTION, self._encode_function(key)) for key in self._functions]
        parts += [_number(_TIME_NANOS, profile.time), _number(_DURATION_NANOS, profile.duration)]
        if profile.period_type is not None:
            parts.append(_message(_PERIOD_TYPE, self._value_type(profile.period_type)))
            parts.append(_number(_PERIOD, profile.period))
        parts += [_message(_STRING_TABLE, text.encode(errors="replace")) for text in self._strings]
        return b"".join(parts)

    def _value_type(self, value_type: ValueType) -> bytes:
        return _number(1, self._string(value_type.type)) + _number(2, self._string(value_type.unit))

    def _string(self, text: str) -> int:
        return self._strings.setdefault(text, len(self._strings))

    def _function(self, frame: Frame) -> int:
        return self._functions.setdefault((frame.function, frame.file), len(self._functions) + 1)

    def _location(self, frame: Frame) -> int:
        self._function(frame)
        return self._locations.setdefault(frame, len(self._locations) + 1)

    def _encode_location(self, frame: Frame) -> bytes:
        line = _number(1, self._function(frame)) + _number(2, frame.line)
        return _number(1, self._locations[frame]) + _message(4, line)

    def _encode_function(self, key: tuple[str, str]) -> bytes:
        name, file = map(self._string, key)
        return _number(1, self._functions[key]) + _number(2, name) + _number(3, name) + _number(4, file)


def _varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def _number(tag: int, number: int) -> bytes:
    return _varint(tag << 3) + _varint(number)


def _message(tag: int, content: bytes) -> bytes:
    return _varint(tag << 3 | 2) + _varint(len(content)) + content


def _packed(tag: int, numbers: Iterable[int]) -> bytes:
    return _message(tag, b"".join(map(_varint, numbers)))
