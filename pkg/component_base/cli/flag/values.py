"""Parse the text of flags, and store the values in attributes of objects.

Go: github.com/spf13/pflag, k8s.io/component-base/cli/flag (map_string_string.go, langle_separated_map_string_string.go,
colon_separated_multimap_string_string.go, map_string_bool.go, configuration_map.go), pkg/util/flag/flags.go
"""

from __future__ import annotations

import csv
import ipaddress
from collections.abc import Callable
from typing import Any, Protocol

from pkg.component_base.cli.flag.duration import format_duration, parse_duration
from pkg.golang import strconv


class Value(Protocol):
    """Define the value that a flag sets; `set` raises ValueError."""

    type: str
    # `no_opt_default` is the value of a flag that is given without one, or "" if a value is required.
    no_opt_default: str

    def set(self, text: str) -> None: ...
    def string(self) -> str: ...


class Ref:
    """Refer to a field by an object and a dotted path of attributes in it."""

    def __init__(self, target: object, path: str) -> None:
        self._target, self._path = target, path.split(".")

    def _owner(self) -> Any:
        owner = self._target
        for name in self._path[:-1]:
            owner = getattr(owner, name)
        return owner

    def get(self) -> Any:
        return getattr(self._owner(), self._path[-1])

    def set(self, value: Any) -> None:
        setattr(self._owner(), self._path[-1], value)


class Scalar:
    """Hold one value; the last flag on the command line takes precedence."""

    def __init__(
        self,
        ref: Ref,
        type_name: str,
        parse: Callable[[str], Any],
        fmt: Callable[[Any], str] = str,
        no_opt_default: str = "",
    ) -> None:
        self.type, self.no_opt_default = type_name, no_opt_default
        self._ref, self._parse, self._format = ref, parse, fmt

    def set(self, text: str) -> None:
        self._ref.set(self._parse(text))

    def string(self) -> str:
        value = self._ref.get()
        return "" if value is None else self._format(value)


class Collection:
    """Hold a list or map; the first flag on the command line replaces the default, and further ones add to it."""

    no_opt_default = ""

    def __init__(
        self,
        ref: Ref,
        type_name: str,
        parse: Callable[[str], Any],
        fmt: Callable[[Any], str],
        merge: bool = False,
    ) -> None:
        self.type = type_name
        self._ref, self._parse, self._format = ref, parse, fmt
        self._keep = merge

    def set(self, text: str) -> None:
        value = self._parse(text)
        if not self._keep:
            self._ref.set(value)
        elif isinstance(value, dict):
            self._ref.set(_merged(self._ref.get(), value))
        else:
            self._ref.set([*self._ref.get(), *value])
        self._keep = True

    def string(self) -> str:
        return self._format(self._ref.get())


def _merged(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """Return both maps combined; later values take precedence, except that lists of one key are joined."""
    joined = {key: [*old[key], *val] for key, val in new.items() if key in old and isinstance(val, list)}
    return {**old, **new, **joined}


def bool_value(ref: Ref) -> Value:
    return Scalar(ref, "", parse_bool, lambda value: str(value).lower(), no_opt_default="true")


def string_value(ref: Ref) -> Value:
    return Scalar(ref, "string", str)


def int32_value(ref: Ref) -> Value:
    return Scalar(ref, "int32", lambda text: parse_int(text, -(2**31), 2**31 - 1))


def int64_value(ref: Ref) -> Value:
    return Scalar(ref, "int", lambda text: parse_int(text, -(2**63), 2**63 - 1))


def level_value(ref: Ref) -> Value:
    """Return the value of a log level."""
    return Scalar(ref, "Level", lambda text: parse_int(text, 0, 2**31 - 1, "ParseUint"))


def duration_value(ref: Ref) -> Value:
    return Scalar(ref, "duration", parse_duration, format_duration)


def ip_value(ref: Ref) -> Value:
    return Scalar(ref, "ip", _parse_ip)


def string_slice_value(ref: Ref) -> Value:
    return Collection(ref, "strings", _parse_csv, lambda values: f"[{','.join(values)}]")


def map_value(ref: Ref, separator: str = "=", split: bool = True) -> Value:
    """Return the value of key=value pairs, of which one flag may contain several unless `split` is False."""

    def parse(text: str) -> dict[str, str]:
        pairs = [pair for pair in text.split(",") if pair] if split else [text] if text else []
        return dict(_parse_pair(pair, separator) for pair in pairs)

    return Collection(ref, "mapStringString", parse, lambda value: format_map(value, separator))


def map_bool_value(ref: Ref) -> Value:
    return Collection(ref, "mapStringBool", parse_map_bool, format_map)


def multimap_value(ref: Ref) -> Value:
    """Return the value of key:value pairs in which a key may occur several times."""

    def parse(text: str) -> dict[str, list[str]]:
        result: dict[str, list[str]] = {}
        for pair in filter(None, text.split(",")):
            key, value = _parse_pair(pair, ":")
            result.setdefault(key, []).append(value)
        return result

    def fmt(value: dict[str, list[str]]) -> str:
        return ",".join(f"{key}:{item}" for key, items in sorted(value.items()) for item in items)

    return Collection(ref, "colonSeparatedMultimapStringString", parse, fmt)


def configuration_map_value(ref: Ref) -> Value:
    """Return the value of key=value pairs and bare keys, which are added to the default."""

    def parse(text: str) -> dict[str, str]:
        pairs = (pair.strip().partition("=") for pair in text.split(",") if pair)
        return {key.strip(): value.strip() for key, _, value in pairs}

    return Collection(ref, "mapStringString", parse, format_map, merge=True)


def parse_bool(text: str) -> bool:
    """Parse Go's spellings of true and false."""
    if text in ("1", "t", "T", "true", "TRUE", "True"):
        return True
    if text in ("0", "f", "F", "false", "FALSE", "False"):
        return False
    raise ValueError(f'strconv.ParseBool: parsing "{text}": invalid syntax')


def parse_int(text: str, low: int, high: int, go_name: str = "ParseInt") -> int:
    """Parse a decimal, 0x, 0o or 0b number within bounds."""
    match go_name:
        case "Atoi":
            value = strconv.atoi(text)
        case "ParseUint":
            value = strconv.parse_uint(text, 0)
        case _:
            value = strconv.parse_int(text, 0)
    if not low <= value <= high:
        raise strconv.NumError(go_name, text, "value out of range")
    return value


def parse_map_bool(text: str) -> dict[str, bool]:
    """Parse A=true,B=false."""
    result = {}
    for pair in filter(None, text.split(",")):
        key, sep, value = (part.strip() for part in pair.partition("="))
        if not sep:
            raise ValueError(f"malformed pair, expect string=bool: {pair}")
        try:
            result[key] = parse_bool(value)
        except ValueError as err:
            raise ValueError(f"invalid value of {key}: {value}, err: {err}") from err
    return result


def format_map(value: dict[str, Any], separator: str = "=") -> str:
    """Return the pairs as sorted text."""
    texts = {key: str(item).lower() if isinstance(item, bool) else str(item) for key, item in value.items()}
    return ",".join(f"{key}{separator}{text}" for key, text in sorted(texts.items()))


def _parse_pair(pair: str, separator: str) -> tuple[str, str]:
    key, sep, value = pair.partition(separator)
    if not sep:
        raise ValueError(f"malformed pair, expect string{separator}string: {pair}")
    return key.strip(), value.strip()


def _parse_ip(text: str) -> str:
    try:
        if text:
            ipaddress.ip_address(text)
    except ValueError:
        raise ValueError(f'"{text}" is not a valid IP address') from None
    return text


def _parse_csv(text: str) -> list[str]:
    return next(csv.reader([text])) if text else []
