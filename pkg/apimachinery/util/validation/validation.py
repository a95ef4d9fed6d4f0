"""Validate names, keys, values and numbers.

Go: k8s.io/apimachinery/pkg/util/validation/validation.go, k8s.io/apimachinery/pkg/api/validate/content
"""

from __future__ import annotations

import re
from dataclasses import dataclass

DNS1123_LABEL_MAX_LENGTH = 63
DNS1123_SUBDOMAIN_MAX_LENGTH = 253
LABEL_VALUE_MAX_LENGTH = 63
_LABEL_KEY_MAX_LENGTH = 63
_PORT_NAME_MAX_LENGTH = 15
_MAX_ID = 2**31 - 1
# `MAX_MATCHED_LENGTH` is the maximum number of characters that is matched against a pattern. For a name of many labels
# a match takes a hundred bytes of memory for each character, and no other thread runs meanwhile.
MAX_MATCHED_LENGTH = 64 << 10


def max_len_error(length: int) -> str:
    return f"must be no more than {length} characters"


def empty_error() -> str:
    return "must be non-empty"


def inclusive_range_error(low: int, high: int) -> str:
    return f"must be between {low} and {high}, inclusive"


def regex_error(msg: str, regex: str, *examples: str) -> str:
    """Return the message with examples and the pattern, in the words of the API server."""
    shown = "  or ".join(f"'{example}'," for example in examples)
    return f"{msg} ({f'e.g. {shown} ' if shown else ''}regex used for validation is '{regex}')"


@dataclass(slots=True, frozen=True)
class _Form:
    """Hold a pattern and the error for text that does not match it."""

    pattern: str
    msg: str
    examples: tuple[str, ...]

    def matches(self, value: str) -> bool:
        return len(value) <= MAX_MATCHED_LENGTH and re.fullmatch(self.pattern, value) is not None

    def error(self) -> str:
        return regex_error(self.msg, self.pattern, *self.examples)

    def check(self, value: str, max_length: int | None = None, unit: str = "characters") -> list[str]:
        """Return the errors for a value.

        The length is always counted in bytes; `unit` only says what the error calls them.
        """
        errs = []
        if max_length is not None and len(value.encode()) > max_length:
            errs.append(f"must be no more than {max_length} {unit}")
        if len(value) > MAX_MATCHED_LENGTH:
            return errs or [f"must be no more than {MAX_MATCHED_LENGTH} {unit}"]
        if not self.matches(value):
            errs.append(self.error())
        return errs


_ENDS = "and must start and end with an alphanumeric character"
_LABEL_KEY_FMT = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_LABEL_KEY = _Form(
    _LABEL_KEY_FMT,
    f"must consist of alphanumeric characters, '-', '_' or '.', {_ENDS}",
    ("MyName", "my.name", "123-abc"),
)
_LABEL_VALUE = _Form(
    f"({_LABEL_KEY_FMT})?",
    f"a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', {_ENDS}",
    ("MyValue", "my_value", "12345"),
)
_DNS1123_LABEL_FMT = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_DNS1123_LABEL = _Form(
    _DNS1123_LABEL_FMT,
    f"a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', {_ENDS}",
    ("my-name", "123-abc"),
)
_DNS1123_SUBDOMAIN_FMT = rf"{_DNS1123_LABEL_FMT}(\.{_DNS1123_LABEL_FMT})*"
_DNS1123_SUBDOMAIN = _Form(
    _DNS1123_SUBDOMAIN_FMT,
    f"a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', {_ENDS}",
    ("example.com",),
)
_UNDERSCORE_LABEL_FMT = "_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?"
_UNDERSCORE_SUBDOMAIN = _Form(
    rf"{_UNDERSCORE_LABEL_FMT}(\.{_UNDERSCORE_LABEL_FMT})*",
    f"a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or '.', {_ENDS}",
    ("example.com",),
)
_HTTP_HEADER_NAME = _Form(
    "[-A-Za-z0-9]+", "a valid HTTP header must consist of alphanumeric characters or '-'", ("X-Header-Name",)
)
_CONFIG_MAP_KEY = _Form(
    "[-._a-zA-Z0-9]+",
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.'",
    ("key.name", "KEY_NAME", "key-name"),
)


def is_qualified_name(value: str) -> list[str]:
    """Validate a label or annotation key: a name, optionally preceded by a DNS subdomain and a slash."""
    prefix, slash, name = value.rpartition("/")
    if "/" in prefix:
        hint = " with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        return ["a valid label key " + _LABEL_KEY.error() + hint]
    errs = []
    if slash and not prefix:
        errs.append("prefix part " + empty_error())
    elif slash:
        errs += [
            f"prefix part {err}" for err in _DNS1123_SUBDOMAIN.check(prefix, DNS1123_SUBDOMAIN_MAX_LENGTH, "bytes")
        ]
    if not name:
        errs.append("name part " + empty_error())
    return errs + [f"name part {err}" for err in _LABEL_KEY.check(name, _LABEL_KEY_MAX_LENGTH, "bytes")]


def is_valid_label_value(value: str) -> list[str]:
    return _LABEL_VALUE.check(value, LABEL_VALUE_MAX_LENGTH, "bytes")


def is_dns1123_label(value: str) -> list[str]:
    """Validate the form of most names, such as those of containers, namespaces and volumes."""
    errs = _DNS1123_LABEL.check(value, DNS1123_LABEL_MAX_LENGTH)
    if not _DNS1123_LABEL.matches(value) and _DNS1123_SUBDOMAIN.matches(value):
        errs[-1] = "must not contain dots"
    return errs


def is_dns1123_subdomain(value: str) -> list[str]:
    """Validate labels joined by dots, the form of the names of pods and nodes."""
    return _DNS1123_SUBDOMAIN.check(value, DNS1123_SUBDOMAIN_MAX_LENGTH)


def is_dns1123_subdomain_with_underscore(value: str) -> list[str]:
    return _UNDERSCORE_SUBDOMAIN.check(value, DNS1123_SUBDOMAIN_MAX_LENGTH)


def is_valid_port_num(port: int) -> list[str]:
    return is_in_range(port, 1, 65535)


def is_in_range(value: int, low: int, high: int) -> list[str]:
    return [] if low <= value <= high else [inclusive_range_error(low, high)]


def is_valid_group_id(gid: int) -> list[str]:
    return is_in_range(gid, 0, _MAX_ID)


def is_valid_user_id(uid: int) -> list[str]:
    return is_in_range(uid, 0, _MAX_ID)


def is_valid_port_name(port: str) -> list[str]:
    """Validate a lower-case service name as defined in RFC 6335."""
    errs = []
    if len(port.encode()) > _PORT_NAME_MAX_LENGTH:
        errs.append(max_len_error(_PORT_NAME_MAX_LENGTH))
    if not re.fullmatch("[-a-z0-9]+", port):
        errs.append("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)")
    if not re.search("[a-z]", port):
        errs.append("must contain at least one letter (a-z)")
    if "--" in port:
        errs.append("must not contain consecutive hyphens")
    if port.startswith("-") or port.endswith("-"):
        errs.append("must not begin or end with a hyphen")
    return errs


def is_http_header_name(value: str) -> list[str]:
    return _HTTP_HEADER_NAME.check(value)


def is_relaxed_env_var_name(value: str) -> list[str]:
    """Validate what the operating system allows: printable ASCII without an equals sign."""
    if not value:
        return ["environment variable name " + empty_error()]
    if not value.isascii() or not value.isprintable() or "=" in value:
        return ["a valid environment variable name must consist only of printable ASCII characters other than '='"]
    return []


def is_config_map_key(value: str) -> list[str]:
    return _CONFIG_MAP_KEY.check(value, DNS1123_SUBDOMAIN_MAX_LENGTH) + _has_ch_dir_prefix(value)


def _has_ch_dir_prefix(value: str) -> list[str]:
    """Return the errors for a value that would be unsafe as a file name."""
    if value in (".", ".."):
        return [f"must not be '{value}'"]
    return ["must not start with '..'"] if value.startswith("..") else []
