"""Test which names, numbers and addresses are valid, and the errors for the others."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pkg.apimachinery.util import validation
from pkg.apimachinery.util.validation import field

Check = Callable[[str], list[str]]

GOOD: list[tuple[Check, list[str]]] = [
    (validation.is_dns1123_label, ["a", "ab", "abc", "a1", "a-1", "a--1--2--b", "0", "01", "1a", "a" * 63]),
    (validation.is_dns1123_subdomain, ["a", "a.b", "a-1.b-2", "0.1", "1.a.2", "a" * 253]),
    (validation.is_dns1123_subdomain_with_underscore, ["_a._b", "a_b.c", "a.b"]),
    (
        validation.is_qualified_name,
        ["simple", "now-with-dashes", "1-starts-with-num", "1234", "a/b", "a.b/C_d.e"],
    ),
    (validation.is_qualified_name, ["a" * 63, "a" * 253 + "/b", "a." * 126 + "a/" + "b" * 63]),
    (validation.is_valid_label_value, ["", "simple", "now-with-dashes", "1", "A_b.c", "a" * 63]),
    (validation.is_valid_port_name, ["telnet", "re-mail-ck", "pop3", "a", "a-1", "1-a", "a-1-b-2-c"]),
    (validation.is_http_header_name, ["X-Header", "A-1"]),
    (validation.is_relaxed_env_var_name, ["1A", "a b", "!#$%"]),
    (validation.is_config_map_key, ["a", "A.b_c-d", ".a", "a" * 253]),
]
BAD: list[tuple[Check, list[str]]] = [
    (validation.is_dns1123_label, ["", "A", "aBc", "a.b", "-a", "a-", "a_b", "a ", "a\n", "é", "a" * 64]),
    (validation.is_dns1123_subdomain, ["", "A", "a..b", ".a", "a.", "a.-b", "a_b", "a\n", "a" * 254]),
    (validation.is_dns1123_subdomain_with_underscore, ["a_", "A", "__a"]),
    (
        validation.is_qualified_name,
        ["", "/a", "a/", "a/b/c", "-a", "a_", "é", "A/b", "a" * 64, "a" * 254 + "/b"],
    ),
    (validation.is_valid_label_value, ["-a", "a-", "a b", "a/b", "a\n", "a" * 64, "é"]),
    (validation.is_valid_port_name, ["", "longerthan15chars", "0", "-a", "a-", "a--b", "A", "a_b", "a."]),
    (validation.is_http_header_name, ["", "a b", "a_b", "a:"]),
    (validation.is_relaxed_env_var_name, ["", "a=b", "a\n", "é"]),
    (validation.is_config_map_key, ["", ".", "..", "..a", "a b", "a/b", "a" * 254]),
]


def _cases(table: list[tuple[Check, list[str]]]) -> list[object]:
    return [
        pytest.param(check, value, id=f"{check.__name__}-{value[:20]!a}-{len(value)}")
        for check, values in table
        for value in values
    ]


@pytest.mark.parametrize(("check", "value"), _cases(GOOD))
def test_valid(check: Check, value: str) -> None:
    assert check(value) == []


def test_no_pattern_is_compared_with_very_long_text() -> None:
    longest = "a" * validation.MAX_MATCHED_LENGTH
    assert validation.is_http_header_name(longest) == []
    assert validation.is_http_header_name(longest + "a") != []


@pytest.mark.parametrize(("check", "value"), _cases(BAD))
def test_not_valid(check: Check, value: str) -> None:
    assert check(value) != []


@pytest.mark.parametrize(
    ("errs", "expected"),
    [
        (validation.is_dns1123_label("a.b"), ["must not contain dots"]),
        (
            validation.is_dns1123_label("A" * 64),
            [
                "must be no more than 63 characters",
                "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and "
                "must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', "
                "regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')",
            ],
        ),
        (validation.is_valid_label_value("a" * 64), ["must be no more than 63 bytes"]),
        (validation.is_qualified_name("/a"), ["prefix part must be non-empty"]),
        (validation.is_qualified_name("a" * 64), ["name part must be no more than 63 bytes"]),
        (validation.is_valid_port_num(0), ["must be between 1 and 65535, inclusive"]),
        (validation.is_in_range(5, 1, 5), []),
        (validation.is_valid_user_id(-1), ["must be between 0 and 2147483647, inclusive"]),
        (validation.is_valid_group_id(2**31), ["must be between 0 and 2147483647, inclusive"]),
        (validation.is_config_map_key("..a"), ["must not start with '..'"]),
        (validation.regex_error("bad", "x+"), "bad (regex used for validation is 'x+')"),
    ],
)
def test_messages(errs: list[str] | str, expected: list[str] | str) -> None:
    assert errs == expected


@pytest.mark.parametrize(
    ("value", "error", "strict_error", "canonical_error"),
    [
        pytest.param("1.2.3.4", "", "", "", id="v4"),
        pytest.param("::1", "", "", "", id="v6"),
        pytest.param("FE80:0:0::abc", "", "", 'canonical form ("fe80::abc")', id="v6 otherwise written"),
        pytest.param("010.002.003.004", "", "leading 0s", "leading 0s", id="leading zeros"),
        pytest.param("0.0.0.0", "", "", "", id="zeros alone"),
        pytest.param("::ffff:1.2.3.4", "", "IPv4-mapped", "IPv4-mapped", id="mapped"),
        pytest.param("1.2.3", "valid IP", "valid IP", "valid IP", id="too short"),
        pytest.param("1.2.3.256", "valid IP", "valid IP", "valid IP", id="octet too large"),
        pytest.param("fe80::1%eth0", "valid IP", "valid IP", "valid IP", id="zone"),
        pytest.param("", "valid IP", "valid IP", "valid IP", id="empty"),
        pytest.param("node", "valid IP", "valid IP", "valid IP", id="name"),
    ],
)
def test_ip(value: str, error: str, strict_error: str, canonical_error: str) -> None:
    path = field.Path("ip")
    for errs, expected in (
        (validation.is_valid_ip_for_legacy_field(path, value, False), error),
        (validation.is_valid_ip_for_legacy_field(path, value, True), strict_error),
        (validation.is_valid_ip_for_legacy_field(path, value, True, [value]), ""),
    ):
        assert len(errs) == (1 if expected else 0), (errs, expected)
        assert not errs or expected in str(errs[0])


def test_a_long_header_name_is_refused_for_its_length() -> None:
    name = "x" * (validation.MAX_MATCHED_LENGTH + 1)
    assert validation.is_http_header_name(name) == ["must be no more than 65536 characters"]
