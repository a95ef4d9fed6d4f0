"""Test that YAML is read as Kubernetes reads it."""

from __future__ import annotations

import re
from typing import Any

import pytest

from pkg import golang
from pkg.apimachinery.util import yaml

SCALARS: list[tuple[str, Any]] = [
    ("text", "text"),
    ("2024-01-01", "2024-01-01"),
    ("2024-01-01T00:00:00Z", "2024-01-01T00:00:00Z"),
    ("12:30", "12:30"),
    ("1.2.3", "1.2.3"),
    ("100m", "100m"),
    ("'12'", "12"),
    ('"true"', "true"),
    ("12", 12),
    ("+12", 12),
    ("-12", -12),
    ("1_000", 1000),
    ("0644", 0o644),
    ("0o644", 0o644),
    ("0x1F", 31),
    ("-0b11", -3),
    ("0o17", 15),
    ("017", 15),
    ("0b_11", 3),
    ("-0x1f", -31),
    ("08", 8),
    ("0x", "0x"),
    ("0xg", "0xg"),
    ("١", "١"),
    ("1__0", 10),
    ("_1", "_1"),
    ("9223372036854775807", 2**63 - 1),
    ("18446744073709551615", 2**64 - 1),
    ("-9223372036854775809", -9223372036854775808),
    ("18446744073709551616", 18446744073709551616),
    ("99999999999999999999999", 1e23),
    ("9" * 5000, "9" * 5000),
    ("0x" + "f" * 5000, "0x" + "f" * 5000),
    ("1e999999999", "1e999999999"),
    ("1e3", 1000),
    ("1.5e3", 1500),
    ("1e21", 1e21),
    ("1e-7", 1e-7),
    ("1_0.5", 10.5),
    (".5", 0.5),
    ("._5", "._5"),
    ("+.5", 0.5),
    ("1.", 1),
    ("-0.0", 0),
    (".", "."),
    ("+", "+"),
    ("12:30:45", "12:30:45"),
    ("190:20:30.15", "190:20:30.15"),
    ("2001-12-14 21:59:43.10", "2001-12-14 21:59:43.10"),
    ("infinity", "infinity"),
    ("nan", "nan"),
    ("true", True),
    ("yes", True),
    ("Off", False),
    ("tRUE", "tRUE"),
    ("NULL", None),
    ("nULL", "nULL"),
    ("!!str yes", "yes"),
    ("!!bool yes", True),
    ("!!null ~", None),
    ("!!int '12'", 12),
    ("!!binary aGk=", "hi"),
    ("!!binary /w==", "\ufffd"),
    ("! 12", "12"),
    ("!!python/name:os.system x", "x"),
    ("<<", "<<"),
    ("y", True),
    ("No", False),
    ("on", True),
    ("nO", "nO"),
    ("~", None),
    ("", None),
    ("!!str 12", "12"),
    ("!!int 12", 12),
    ("!!float 12", 12),
    ("!custom x", "x"),
    ("!!timestamp 2024-01-01", "2024-01-01"),
]


@pytest.mark.parametrize(("text", "value"), SCALARS)
def test_scalars(text: str, value: Any) -> None:
    got = yaml.to_builtins(f"key: {text}")["key"]
    assert got == value and type(got) is type(value)


DOCUMENTS: list[tuple[str, bytes | str, Any]] = [
    ("nothing", "", None),
    ("only a comment", "# hello", None),
    ("json", '{"a": [1, "\\u00e9\\t", null]}', {"a": [1, "é\t", None]}),
    ("an empty second document", "a: 1\n---\n", {"a": 1}),
    ("an empty first document", "---\n---\na: 1\n", {"a": 1}),
    ("utf-16", "a: é".encode("utf-16"), {"a": "é"}),
    ("keys become text", "1: a\ntrue: b\n1.5: c", {"1": "a", "true": "b", "1.5": "c"}),
    ("the last of equal keys counts", "a: 1\na: 2", {"a": 2}),
    ("json with escapes of two halves", '{"a": "\\ud83d\\ude00"}', {"a": "\U0001f600"}),
    ("json with whole floats", '{"a": [1.0, 1e2, 1.5]}', {"a": [1, 100, 1.5]}),
    ("yaml that begins like json", "{a: yes, b: [1,]}", {"a": True, "b": [1]}),
    ("text in json stays text", '{"a": "yes", "b": "2024-01-01"}', {"a": "yes", "b": "2024-01-01"}),
    ("what is merged late wins", "a: &a {x: 1}\nb: {x: 3, <<: *a}", {"a": {"x": 1}, "b": {"x": 1}}),
    ("merge keys", "a: &a {x: 1, y: 2}\nb: {<<: *a, x: 3}", {"a": {"x": 1, "true": 2}, "b": {"true": 2, "x": 3}}),
    ("the first of merged maps counts", "{<<: [{a: 1}, {a: 2, b: 3}]}", {"a": 1, "b": 3}),
    ("aliases", "a: &a [1]\nb: *a", {"a": [1], "b": [1]}),
    ("block text", "a: |\n  x\n  y\n", {"a": "x\ny\n"}),
]


@pytest.mark.parametrize(("data", "value"), [c[1:] for c in DOCUMENTS], ids=[c[0] for c in DOCUMENTS])
def test_documents(data: bytes | str, value: Any) -> None:
    assert yaml.to_builtins(data) == value


LAUGHS = "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"a{i}: &a{i} [{','.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 9)
)
LONG_TEXT = f"a: &a {'x' * 1_000_000}\nb: &b [*a, *a, *a]\nc: [*b, *b, *b]\n"
LONG_TAGS = f"%TAG !a! {'x' * 1_000_000}\n---\n[{', '.join(['!a!b c'] * 11)}]\n"
DIRECTIVES = "".join(f"%TAG !a{i}! x\n" for i in range(101)) + "---\na\n"
LONG_KEYS = f"a: &a\n  ? {'x' * 1_000_000}\n  : 1\nb: [{', '.join(['*a'] * 11)}]\n"
FAULTS: list[tuple[str, bytes | str, str]] = [
    ("not closed", "a: [1", "yaml: line 2: did not find expected ',' or ']'"),
    ("tab", "a:\n\tb: 1", "yaml: line 2: found character that cannot start any token"),
    ("two documents", "a: 1\n---\nb: 2", "the file holds several documents, expected one"),
    ("unknown alias", "a: *x", "yaml: line 1: unknown anchor 'x' referenced"),
    ("alias of itself", "a: &x [*x]", "yaml: line 1: unknown anchor 'x' referenced"),
    ("infinite", "a: .inf", "yaml: line 1: JSON has no value for `.inf`"),
    ("not a number", "a: .NaN", "yaml: line 1: JSON has no value for `.NaN`"),
    ("number as boolean", "a: !!bool 1", "yaml: line 1: cannot decode `1` as a !!bool"),
    ("boolean as number", "a: !!int yes", "yaml: line 1: cannot decode `yes` as a !!int"),
    ("bad base64", "a: !!binary x", "yaml: line 1: !!binary value contains invalid base64 data"),
    ("null as key", "~: b", "yaml: line 1: a map key must be text, a number or a boolean"),
    ("lone half in json", '{"a": "\\ud800"}', "yaml: line 1: found invalid Unicode character escape code"),
    ("deep json", '{"a":' + "[" * 500 + "]" * 500 + "}", "json: exceeded max depth of 200"),
    ("very deep json", '{"a":' + "[" * 100_000 + "]" * 100_000 + "}", "yaml: line 1: exceeded max depth of 200"),
    ("many values in json", '{"a": [' + "0," * 1_000_000 + "0]}", "json: the document holds more than 1000000 values"),
    ("tag that does not fit", "a: !!int x", "yaml: line 1: cannot decode `x` as a !!int"),
    ("not a scalar as key", "? [a]\n: b", "yaml: line 1: a map key must be text, a number or a boolean"),
    ("merge of a scalar", "<<: 1", "yaml: line 1: map merge requires map or sequence of maps as the value"),
    ("zero byte", "a: \x00", "yaml: unacceptable character"),
    ("not utf-8", b"a: \xff", "yaml: unacceptable character"),
    ("billion laughs", LAUGHS, "yaml: document contains excessive aliasing"),
    ("long text again and again", LONG_TEXT, "yaml: document contains excessive aliasing"),
    ("long keys again and again", LONG_KEYS, "yaml: document contains excessive aliasing"),
    ("long tags again and again", LONG_TAGS, "yaml: document contains too much text in tags"),
    ("many tag directives", DIRECTIVES, "yaml: more than 100 %TAG directives"),
    ("many tag directives in bytes", DIRECTIVES.encode(), "yaml: more than 100 %TAG directives"),
    ("many tag directives in utf-16", DIRECTIVES.encode("utf-16"), "yaml: more than 100 %TAG directives"),
    ("deep flow", "[" * 200_000, "yaml: line 1: exceeded max depth of 200"),
    ("deep block", "- " * 5_000 + "x", "yaml: line 1: exceeded max depth of 200"),
]


def test_tag_directives() -> None:
    directives = "".join(f"%TAG !a{i}! tag:yaml.org,2002:\n" for i in range(100))
    assert yaml.to_builtins(directives + "---\n[!a0!str 1, !a99!int 2]\n") == ["1", 2]


@pytest.mark.parametrize("encoding", [None, "utf-8", "utf-16"])
@pytest.mark.parametrize("line_end", ["\n", "\r", "\r\n", "\x85", "\u2028", "\u2029"])
def test_tag_directives_count_where_a_line_starts(line_end: str, encoding: str | None) -> None:
    def encoded(text: str) -> bytes | str:
        return text.encode(encoding) if encoding is not None else text

    assert yaml.to_builtins(encoded(f"- a %TAG b{line_end}" * 101)) == ["a %TAG b"] * 101
    with pytest.raises(yaml.YAMLError, match="more than 100 %TAG directives"):
        yaml.to_builtins(encoded(DIRECTIVES.replace("\n", line_end)))


def test_text_of_many_aliases() -> None:
    found = yaml.to_builtins(f"a: &a {'x' * 1_000_000}\nb: [{', '.join(['*a'] * 10)}]\n")
    assert len(found["b"]) == 10 and set(found["b"]) == {found["a"]}


@pytest.mark.parametrize(("data", "message"), [c[1:] for c in FAULTS], ids=[c[0] for c in FAULTS])
def test_faults(data: bytes | str, message: str) -> None:
    caught: list[yaml.YAMLError] = []

    def read() -> None:
        try:
            yaml.to_builtins(data)
        except yaml.YAMLError as err:
            caught.append(err)

    # The document is read in a thread, which has a small stack.
    golang.go(read, name="read-yaml").join(60)
    assert len(caught) == 1 and re.match(re.escape(message), str(caught[0])), caught


@pytest.mark.parametrize("text", [text for text, value in SCALARS if not text.startswith("!")])
def test_dumped_text_is_read_as_text(text: str) -> None:
    for quoted in (text, text.strip("'\"")):
        assert yaml.to_builtins(yaml.dump({"key": quoted, "list": [quoted]})) == {"key": quoted, "list": [quoted]}


def test_duplicates_are_told_with_their_lines() -> None:
    duplicates: list[tuple[str, int]] = []
    yaml.to_builtins("a: 1\nb: &b {a: 1}\na: 2\nc: {a: 1, <<: *b}", duplicates)
    assert duplicates == [("a", 3), ("a", 4)]
