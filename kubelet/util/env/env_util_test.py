"""Test reading variables from a file of assignments."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from kubelet.util import env
from pkg.golang.testing import frames_kept_after

VALUES = {
    "leading blanks": ("   A='1'\n\t\tKEY='v'\nB='2'\n", "v"),
    "blank lines and comments": ("# c\n\nA='1'\n  # c\n\nKEY='v'\n", "v"),
    "no such key": ("A='1'\n", ""),
    "empty file": ("", ""),
    "hash in the value": ("KEY='a#b'\n", "a#b"),
    "blanks in the value": ("KEY='  a  b '\n", "  a  b "),
    "empty value": ("A='1'\nKEY=''\nB='2'\n", ""),
    "equals signs in the value": ("KEY='a=b=c'", "a=b=c"),
    "comment behind": ("KEY='a' # c\n", "a"),
    "nothing is expanded": ("KEY='$A ${HOME} $(B) `c` \\n'\n", "$A ${HOME} $(B) `c` \\n"),
    "double quotes in the value": ("KEY='{\"a\": 1}'\n", '{"a": 1}'),
    "several lines": ("A='x'\nKEY='one\n\n  two \nthree'\nB='2'\n", "one\n\n  two \nthree"),
    "not ASCII": ("KEY='中文 🌍'\n", "中文 🌍"),
    "blank before the value": ("KEY= 'a'\nA='1'\n", ""),
    "blank before another's value": ("A= true\nKEY='v'\n", "v"),
    "the first of two": ("KEY='1'\nKEY='2'\n", "1"),
    "faults after the key": ("KEY='v'\nnonsense\n", "v"),
}


@pytest.mark.parametrize(("text", "value"), VALUES.values(), ids=VALUES)
def test_values(tmp_path: Path, text: str, value: str) -> None:
    path = tmp_path / "env"
    path.write_text(text)
    assert env.parse_env(str(path)).get("KEY") == value


def test_nothing_stays_of_reading_a_file_with_a_fault(tmp_path: Path) -> None:
    path = tmp_path / "env"
    path.write_text("KEY='v'\nnonsense\n")
    assert not frames_kept_after(lambda: env.parse_env(str(path)))


# A shell interprets these assignments in another way, which a file of variables does not support.
_LIKE_NO_SHELL = {"blank before the value", "blank before another's value", "the first of two", "faults after the key"}


@pytest.mark.parametrize("name", [name for name in VALUES if name not in _LIKE_NO_SHELL])
def test_a_shell_reads_the_same(tmp_path: Path, name: str) -> None:
    text, value = VALUES[name]
    path = tmp_path / "env"
    path.write_text(text)
    script = f"unset KEY; . {path}; printf '%s' \"$KEY\""
    assert subprocess.run(["sh", "-c", script], capture_output=True, check=True).stdout.decode() == value


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("A='1'\nKEY = 'v'\n", "at line 2: whitespace before '=' is not allowed"),
        ("='v'\n", "at line 1: empty variable name"),
        ("A='1'\n\nnonsense\n", "at line 3: missing '='"),
        ("KEY=v\n", "at line 1: value must be enclosed in single quotes"),
        ("KEY=\n", "at line 1: value must be enclosed in single quotes"),
        ('KEY="v"\n', "value must be enclosed in single quotes"),
        ("KEY='a''b'", "unexpected content after closing quote"),
        ("KEY='a\nB='c'\n", "at line 2: unexpected content after closing quote"),
        ("A='1'\nKEY='a\nb\n", "starting at line 2: unclosed single quote"),
        ("A='" + "x" * 70_000, "line 1 of the environment variable file is too long"),
    ],
)
def test_faults(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "env"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        env.parse_env(str(path)).get("KEY")


@pytest.mark.parametrize("beginning", ["", "A='"], ids=["comments", "a value"])
def test_size_is_limited(tmp_path: Path, beginning: str) -> None:
    path = tmp_path / "env"
    path.write_text(beginning + f"#{'x' * 1022}\n" * 1024 + "'\n")
    with pytest.raises(ValueError, match="environment variable file is larger than 1048576 bytes"):
        env.parse_env(str(path)).get("Z")


def test_what_is_no_file(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (str(pipe), str(tmp_path), "/dev/zero"):
        with pytest.raises(OSError, match="not a regular file"):
            env.parse_env(path).get("KEY")
    with pytest.raises(FileNotFoundError):
        env.parse_env(str(tmp_path / "missing")).get("KEY")
    (tmp_path / "bytes").write_bytes(b"KEY='\xff'\n")
    with pytest.raises(ValueError, match="codec can't decode"):
        env.parse_env(str(tmp_path / "bytes")).get("KEY")
