"""Names, keys, values and numbers.

Go: k8s.io/apimachinery/pkg/util/validation/validation.go, pkg/api/validate/content
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from pkg.apimachinery.util.validation import field

DNS1035_LABEL_MAX_LENGTH = 63
DNS1123_LABEL_MAX_LENGTH = 63
DNS1123_SUBDOMAIN_MAX_LENGTH = 253
LABEL_VALUE_MAX_LENGTH = 63
_LABEL_KEY_MAX_LENGTH = 63
_PORT_NAME_MAX_LENGTH = 15
_MAX_ID = 2**31 - 1


def max_len_error(length: int) -> str:
    return f"must be no more than {length} characters"


def empty_error() -> str:
    return "must be non-empty"


def inclusive_range_error(low: int, high: int) -> str:
    return f"must be between {low} and {high}, inclusive"


def regex_error(msg: str, regex: str, *examples: str) -> str:
    """The message, with examples and the pattern, as the API server words it."""
    shown = "  or ".join(f"'{example}'," for example in examples)
    return f"{msg} ({f'e.g. {shown} ' if shown else ''}regex used for validation is '{regex}')"


@dataclass(slots=True, frozen=True)
class _Form:
    """A pattern and what to say about what does not match it."""

    pattern: str
    msg: str
    examples: tuple[str, ...]

    def matches(self, value: str) -> bool:
        return re.fullmatch(self.pattern, value) is not None

    def error(self) -> str:
        return regex_error(self.msg, self.pattern, *self.examples)

    def check(self, value: str, max_length: int | None = None, unit: str = "characters") -> list[str]:
        """`unit` is only how the error calls what is always counted in bytes."""
        errs = []
        if max_length is not None and len(value.encode()) > max_length:
            errs.append(f"must be no more than {max_length} {unit}")
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
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, "
    f"'_', '-' or '.', {_ENDS}",
    ("example.com",),
)
_WILDCARD_SUBDOMAIN = _Form(
    rf"\*\.{_DNS1123_SUBDOMAIN_FMT}",
    "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must "
    "consist of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character",
    ("*.example.com",),
)
_DNS1035_LABEL = _Form(
    "[a-z]([-a-z0-9]*[a-z0-9])?",
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic "
    "character, and end with an alphanumeric character",
    ("my-name", "abc-123"),
)
_C_IDENTIFIER = _Form(
    "[A-Za-z_][A-Za-z0-9_]*",
    "a valid C identifier must start with alphabetic character or '_', "
    "followed by a string of alphanumeric characters or '_'",
    ("my_name", "MY_NAME", "MyName"),
)
_PERCENT = _Form(
    "[0-9]+%", "a valid percent string must be a numeric string followed by an ending '%'", ("1%", "93%")
)
_HTTP_HEADER_NAME = _Form(
    "[-A-Za-z0-9]+", "a valid HTTP header must consist of alphanumeric characters or '-'", ("X-Header-Name",)
)
_ENV_VAR_NAME = _Form(
    "[-._a-zA-Z][-._a-zA-Z0-9]*",
    "a valid environment variable name must consist of alphabetic characters, digits, '_', '-', or '.', "
    "and must not start with a digit",
    ("my.env-name", "MY_ENV.NAME", "MyEnvName1"),
)
_CONFIG_MAP_KEY = _Form(
    "[-._a-zA-Z0-9]+",
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.'",
    ("key.name", "KEY_NAME", "key-name"),
)
_HTTP_PATH = _Form(r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+", "Invalid path", ())


def is_qualified_name(value: str) -> list[str]:
    """A label or annotation key: a name, optionally after a DNS subdomain and a slash."""
    prefix, slash, name = value.rpartition("/")
    if "/" in prefix:
        hint = " with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        return ["a valid label key " + _LABEL_KEY.error() + hint]
    errs = []
    if slash and not prefix:
        errs.append("prefix part " + empty_error())
    elif slash:
        errs += [
            f"prefix part {err}"
            for err in _DNS1123_SUBDOMAIN.check(prefix, DNS1123_SUBDOMAIN_MAX_LENGTH, "bytes")
        ]
    if not name:
        errs.append("name part " + empty_error())
    return errs + [f"name part {err}" for err in _LABEL_KEY.check(name, _LABEL_KEY_MAX_LENGTH, "bytes")]


def is_fully_qualified_name(path: field.Path | None, name: str) -> field.ErrorList:
    """A domain of at least three segments."""
    return _is_qualified_domain(path, name, 3, "three")


def is_fully_qualified_domain_name(path: field.Path | None, name: str) -> field.ErrorList:
    """A domain of at least two segments, each a label; a dot may end it."""
    name = name.removesuffix(".") or name
    errs = _is_qualified_domain(path, name, 2, "two")
    if errs:
        return errs
    for label in name.split("."):
        if label_errs := is_dns1123_label(label):
            return field.ErrorList([field.invalid(path, label, ",".join(label_errs))])
    return errs


def is_domain_prefixed_path(path: field.Path | None, value: str) -> field.ErrorList:
    """`acme.io/foo`: a DNS subdomain, a slash and an HTTP path."""
    if not value:
        return field.ErrorList([field.required(path)])
    host, _, rest = value.partition("/")
    if not host or not rest:
        detail = 'must be a domain-prefixed path (such as "acme.io/foo")'
        return field.ErrorList([field.invalid(path, value, detail)])
    errs = field.ErrorList(field.invalid(path, host, err) for err in is_dns1123_subdomain(host))
    errs.extend(field.invalid(path, rest, err) for err in _HTTP_PATH.check(rest))
    return errs


def is_valid_label_value(value: str) -> list[str]:
    return _LABEL_VALUE.check(value, LABEL_VALUE_MAX_LENGTH, "bytes")


def is_dns1123_label(value: str) -> list[str]:
    """The form of most names: pods' containers, namespaces, volumes."""
    errs = _DNS1123_LABEL.check(value, DNS1123_LABEL_MAX_LENGTH)
    if not _DNS1123_LABEL.matches(value) and _DNS1123_SUBDOMAIN.matches(value):
        errs[-1] = "must not contain dots"
    return errs


def is_dns1123_subdomain(value: str) -> list[str]:
    """Labels joined by dots: the form of pods' and nodes' names."""
    return _DNS1123_SUBDOMAIN.check(value, DNS1123_SUBDOMAIN_MAX_LENGTH)


def is_dns1123_subdomain_with_underscore(value: str) -> list[str]:
    return _UNDERSCORE_SUBDOMAIN.check(value, DNS1123_SUBDOMAIN_MAX_LENGTH)


def is_dns1035_label(value: str) -> list[str]:
    return _DNS1035_LABEL.check(value, DNS1035_LABEL_MAX_LENGTH)


def is_wildcard_dns1123_subdomain(value: str) -> list[str]:
    return _WILDCARD_SUBDOMAIN.check(value, DNS1123_SUBDOMAIN_MAX_LENGTH)


def is_c_identifier(value: str) -> list[str]:
    return _C_IDENTIFIER.check(value)


def is_valid_port_num(port: int) -> list[str]:
    return is_in_range(port, 1, 65535)


def is_in_range(value: int, low: int, high: int) -> list[str]:
    return [] if low <= value <= high else [inclusive_range_error(low, high)]


def is_valid_group_id(gid: int) -> list[str]:
    return is_in_range(gid, 0, _MAX_ID)


def is_valid_user_id(uid: int) -> list[str]:
    return is_in_range(uid, 0, _MAX_ID)


def is_valid_port_name(port: str) -> list[str]:
    """A service name of RFC 6335, in lower case."""
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


def is_valid_percent(percent: str) -> list[str]:
    return _PERCENT.check(percent)


def is_http_header_name(value: str) -> list[str]:
    return _HTTP_HEADER_NAME.check(value)


def is_env_var_name(value: str) -> list[str]:
    return _ENV_VAR_NAME.check(value) + _has_ch_dir_prefix(value)


def is_relaxed_env_var_name(value: str) -> list[str]:
    """What the operating system allows: printable ASCII but no equals sign."""
    if not value:
        return ["environment variable name " + empty_error()]
    if not value.isascii() or not value.isprintable() or "=" in value:
        return [
            "a valid environment variable name must consist only of printable ASCII characters other than '='"
        ]
    return []


def is_config_map_key(value: str) -> list[str]:
    return _CONFIG_MAP_KEY.check(value, DNS1123_SUBDOMAIN_MAX_LENGTH) + _has_ch_dir_prefix(value)


def _is_qualified_domain(path: field.Path | None, name: str, segments: int, word: str) -> field.ErrorList:
    errs = field.ErrorList()
    if not name:
        errs.append(field.required(path))
    elif domain_errs := is_dns1123_subdomain(name):
        errs.append(field.invalid(path, name, ",".join(domain_errs)))
    elif len(name.split(".")) < segments:
        detail = f"should be a domain with at least {word} segments separated by dots"
        errs.append(field.invalid(path, name, detail))
    return errs


def _has_ch_dir_prefix(value: str) -> list[str]:
    """The value may become a file name."""
    if value in (".", ".."):
        return [f"must not be '{value}'"]
    return ["must not start with '..'"] if value.startswith("..") else []
