"""Test command-line flags.

Go: github.com/spf13/pflag/flag_test.go, and the tests of k8s.io/component-base/cli/flag
"""

from __future__ import annotations

import errno
import io
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from pkg.component_base.cli import flag as cliflag


@dataclass
class _Inner:
    name: str = "old"


@dataclass
class _Target:
    number: int = 0
    on: bool = False
    level: int = 0
    wait: float = 0.0
    items: list[str] = field(default_factory=lambda: ["default"])
    pairs: dict[str, str] = field(default_factory=lambda: {"a": "default"})
    below: dict[str, str] = field(default_factory=dict)
    headers: dict[str, list[str]] = field(default_factory=dict)
    gates: dict[str, bool] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=lambda: {"kept": "yes"})
    unsplit: dict[str, str] = field(default_factory=dict)
    address: str = "0.0.0.0"
    inner: _Inner = field(default_factory=_Inner)


_FLAGS: dict[str, tuple[str, Callable[[cliflag.Ref], cliflag.Value]]] = {
    "number": ("number", cliflag.int32_value),
    "on": ("on", cliflag.bool_value),
    "wait": ("wait", cliflag.duration_value),
    "some-items": ("items", cliflag.string_slice_value),
    "pairs": ("pairs", cliflag.map_value),
    "below": ("below", lambda ref: cliflag.map_value(ref, "<")),
    "headers": ("headers", cliflag.multimap_value),
    "gates": ("gates", cliflag.map_bool_value),
    "labels": ("labels", cliflag.configuration_map_value),
    "unsplit": ("unsplit", lambda ref: cliflag.map_value(ref, split=False)),
    "address": ("address", cliflag.ip_value),
    "inner-name": ("inner.name", cliflag.string_value),
}


def _flag_set(target: _Target, output: io.StringIO | None = None) -> cliflag.FlagSet:
    fs = cliflag.FlagSet(output)
    for name, (path, make_value) in _FLAGS.items():
        fs.add(name, make_value(cliflag.Ref(target, path)), f"usage of {name}")
    fs.add("v", cliflag.level_value(cliflag.Ref(target, "level")), "verbosity", shorthand="v")
    fs.add("old", cliflag.string_value(cliflag.Ref(target, "inner.name")), "old", deprecated="use --inner-name")
    return fs


@pytest.mark.parametrize(
    ("args", "attribute", "value"),
    [
        (["--number=3"], "number", 3),
        (["--number", "3"], "number", 3),
        (["--number", "-3"], "number", -3),
        (["--number=0x10"], "number", 16),
        (["--number=1", "--number=2"], "number", 2),
        (["--on"], "on", True),
        (["--on=false"], "on", False),
        (["--on=T"], "on", True),
        (["-v4"], "level", 4),
        (["-v", "4"], "level", 4),
        (["-v=4"], "level", 4),
        (["--v=4"], "level", 4),
        (["--wait=1m30s"], "wait", 90.0),
        (["--some-items=a,b"], "items", ["a", "b"]),
        (["--some_items=a"], "items", ["a"]),
        (["--some-items=a", "--some-items=b"], "items", ["a", "b"]),
        (['--some-items="a,b",c'], "items", ["a,b", "c"]),
        (["--some-items="], "items", []),
        (["--pairs=b=1,c=2"], "pairs", {"b": "1", "c": "2"}),
        (["--pairs=b=1", "--pairs=c=2"], "pairs", {"b": "1", "c": "2"}),
        (["--pairs="], "pairs", {}),
        (["--below=memory.available<1Gi"], "below", {"memory.available": "1Gi"}),
        (["--headers=a:b,a:c", "--headers=a:d,x:y:z"], "headers", {"a": ["b", "c", "d"], "x": ["y:z"]}),
        (["--gates=A=true,B=0"], "gates", {"A": True, "B": False}),
        (["--labels=a=b,c"], "labels", {"kept": "yes", "a": "b", "c": ""}),
        (["--unsplit=a=b,c"], "unsplit", {"a": "b,c"}),
        (["--address=::1"], "address", "::1"),
    ],
)
def test_parse(args: list[str], attribute: str, value: object) -> None:
    target = _Target()
    _flag_set(target).parse(args)
    assert getattr(target, attribute) == value


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--x"], "unknown flag: --x"),
        (["--x=1"], "unknown flag: --x"),
        (["-x"], "unknown shorthand flag: 'x' in -x"),
        (["--=1"], "bad flag syntax: --=1"),
        (["---x"], "bad flag syntax: ---x"),
        (["--number"], "flag needs an argument: --number"),
        (["-v"], "flag needs an argument: 'v' in -v"),
        (
            ["--number=abc"],
            'invalid argument "abc" for "--number" flag: strconv.ParseInt: parsing "abc": invalid syntax',
        ),
        (
            ["--number=2147483648"],
            'invalid argument "2147483648" for "--number" flag: '
            'strconv.ParseInt: parsing "2147483648": value out of range',
        ),
        (
            ["-v=-1"],
            'invalid argument "-1" for "-v, --v" flag: strconv.ParseUint: parsing "-1": invalid syntax',
        ),
        (
            ["--on=maybe"],
            'invalid argument "maybe" for "--on" flag: strconv.ParseBool: parsing "maybe": invalid syntax',
        ),
        (["--pairs=a"], 'invalid argument "a" for "--pairs" flag: malformed pair, expect string=string: a'),
        (
            ["--below=a=1"],
            'invalid argument "a=1" for "--below" flag: malformed pair, expect string<string: a=1',
        ),
        (["--gates=A"], 'invalid argument "A" for "--gates" flag: malformed pair, expect string=bool: A'),
        (
            ["--address=1.2.3"],
            'invalid argument "1.2.3" for "--address" flag: "1.2.3" is not a valid IP address',
        ),
        (["--wait=5"], 'invalid argument "5" for "--wait" flag: time: missing unit in duration "5"'),
    ],
)
def test_parse_refuses(args: list[str], message: str) -> None:
    with pytest.raises(cliflag.FlagError) as caught:
        _flag_set(_Target()).parse(args)
    assert str(caught.value) == message


def test_arguments_are_collected() -> None:
    target = _Target()
    fs = _flag_set(target)
    fs.parse(["one", "--on", "two", "--", "--number=3"])
    assert fs.args == ["one", "two", "--number=3"]
    assert target.on
    assert target.number == 0


def test_nested_field_is_set() -> None:
    target = _Target()
    _flag_set(target).parse(["--inner-name=new"])
    assert target.inner.name == "new"


def test_deprecated_flag_warns_once() -> None:
    output = io.StringIO()
    _flag_set(_Target(), output).parse(["--old=1", "--old=2"])
    assert output.getvalue() == "Flag --old has been deprecated, use --inner-name\n"


def test_deprecated_flag_counts_where_nobody_can_be_told() -> None:
    class OnFullDisk(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

    target = _Target()
    _flag_set(target, OnFullDisk()).parse(["--old=new"])
    assert target.inner.name == "new"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("number", "      --number int32\n            usage of number\n"),
        ("some-items", "      --some-items strings\n            usage of some-items (default [default])\n"),
        ("v", "  -v, --v Level\n            verbosity\n"),
        ("old", '      --old string\n            old (default "old") (DEPRECATED: use --inner-name)\n'),
    ],
)
def test_usages(name: str, expected: str) -> None:
    usages: Any = _flag_set(_Target()).usages()
    assert expected in usages
