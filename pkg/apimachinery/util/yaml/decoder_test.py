"""Tests of reading YAML as Kubernetes reads it."""

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
    ("08", 8.0),
    ("1e3", 1000.0),
    (".5", 0.5),
    ("1.", 1.0),
    (".", "."),
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
FAULTS: list[tuple[str, bytes | str, str]] = [
    ("not closed", "a: [1", "yaml: line 2: did not find expected ',' or ']'"),
    ("tab", "a:\n\tb: 1", "yaml: line 2: found character that cannot start any token"),
    ("two documents", "a: 1\n---\nb: 2", "the file holds several documents, expected one"),
    ("unknown alias", "a: *x", "yaml: line 1: unknown anchor 'x' referenced"),
    ("alias of itself", "a: &x [*x]", "yaml: line 1: unknown anchor 'x' referenced"),
    ("python object", "a: !!python/name:os.system x", "yaml: line 1: cannot decode `x` as a !!python/name:os.system"),
    ("tag that does not fit", "a: !!int x", "yaml: line 1: cannot decode `x` as a !!int"),
    ("not a scalar as key", "? [a]\n: b", "yaml: line 1: a map key must be a scalar"),
    ("merge of a scalar", "<<: 1", "yaml: line 1: map merge requires map or sequence of maps as the value"),
    ("zero byte", "a: \x00", "yaml: unacceptable character"),
    ("not utf-8", b"a: \xff", "yaml: unacceptable character"),
    ("billion laughs", LAUGHS, "yaml: document contains excessive aliasing"),
    ("deep flow", "[" * 200_000, "yaml: line 1: exceeded max depth of 200"),
    ("deep block", "- " * 5_000 + "x", "yaml: line 1: exceeded max depth of 200"),
]


@pytest.mark.parametrize(("data", "message"), [c[1:] for c in FAULTS], ids=[c[0] for c in FAULTS])
def test_faults(data: bytes | str, message: str) -> None:
    caught: list[yaml.YAMLError] = []

    def read() -> None:
        try:
            yaml.to_builtins(data)
        except yaml.YAMLError as err:
            caught.append(err)

    # In a thread, whose stack is small.
    golang.go(read, name="read-yaml").join(60)
    assert len(caught) == 1 and re.match(re.escape(message), str(caught[0])), caught
