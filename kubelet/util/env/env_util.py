"""Reads variables from a file of assignments, KEY='value', of which a shell would make the same.

Go: pkg/kubelet/util/env/env_util.go
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from pkg.util import regularfile

_BLANKS = " \t"
# Bytes that a line may have, as many as Go's scanner takes.
MAX_LINE = 64 * 1024
# DIVERGES (safer): a container's file of variables is read up to MAX_FILE bytes; what comes then is a fault.
# Go: pkg/kubelet/util/env/env_util.go, ParseEnv: has no bound.
# Why: a container could keep the kubelet reading for as long as it writes.
# Test: env_util_test.py:test_size_is_limited
MAX_FILE = 1 << 20


@dataclass(frozen=True, slots=True)
class EnvFile:
    """The assignments of a file up to its first fault; of equal names the first counts.

    Of the fault it has the text alone. The error has the frames that it has passed, with the values of this file and of
    all that their callers have read, and would keep them until garbage is collected.
    """

    values: dict[str, str]
    # The text of the first fault; "" for a file without a fault.
    fault: str
    # Bytes that were read.
    size: int

    def get(self, key: str) -> str:
        """The value of key, "" if the file does not have it. Raises the fault if that comes before it."""
        value = self.values.get(key)
        if value is None and self.fault:
            raise ValueError(self.fault)
        return value or ""


def parse_env(env_file_path: str) -> EnvFile:
    """Read the assignments of a file.

    A value stands in single quotes and may go over several lines; blank lines and comments are left out. The fault
    names the line. Raises OSError.

    Go reads up to the one variable that is asked for, and so the file anew for each of thousands.
    """
    values: dict[str, str] = {}
    fault = ""
    with _open(env_file_path) as file:
        lines = _Lines(file)
        try:
            for name, value in _assignments(lines):
                values.setdefault(name, value)
        except ValueError as err:
            fault = str(err)
        return EnvFile(values, fault, lines.size)


def _assignments(lines: _Lines) -> Iterator[tuple[str, str]]:
    for line in lines:
        text = line.lstrip(_BLANKS)
        if not text or text.startswith("#"):
            continue
        name, rest = _split(text, lines.number)
        # As a shell has it, the assignment ends before a blank.
        yield name, "" if rest.startswith((" ", "\t")) else _quoted_value(rest, lines)


def _open(path: str) -> BinaryIO:
    """Raises OSError for what is not a regular file.

    DIVERGES (safer): a pipe in the place of a container's file of variables is refused.
    Go: pkg/kubelet/util/env/env_util.go, ParseEnv: waits until somebody writes to it.
    Why: a container may have put it there, and its pod's worker would wait for ever.
    Test: env_util_test.py:test_what_is_no_file
    """
    file: BinaryIO = os.fdopen(regularfile.open_regular(path), "rb")
    return file


class _Lines:
    """The lines of a file without their ends, the number of the last one, and how many bytes were read."""

    def __init__(self, file: BinaryIO) -> None:
        self.number = 0
        self._file = file
        self.size = 0

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line = self._file.readline(MAX_LINE + 1)
        if not line:
            raise StopIteration
        self.number += 1
        self.size += len(line)
        if self.size > MAX_FILE:
            raise ValueError(f"environment variable file is larger than {MAX_FILE} bytes")
        if len(line) > MAX_LINE:
            raise ValueError(f"line {self.number} of the environment variable file is too long")
        return line.removesuffix(b"\n").removesuffix(b"\r").decode()


def _split(text: str, number: int) -> tuple[str, str]:
    """The name of the variable, and what follows its equals sign."""
    name, equals, rest = text.partition("=")
    if not equals:
        raise _fault(number, "missing '='")
    if not name.strip(_BLANKS):
        raise _fault(number, "empty variable name")
    if name != name.rstrip(_BLANKS):
        raise _fault(number, "whitespace before '=' is not allowed")
    return name, rest


def _quoted_value(rest: str, lines: _Lines) -> str:
    """What is between the quotes, of this line and as many more as it takes."""
    if not rest.startswith("'"):
        raise _fault(lines.number, "value must be enclosed in single quotes")
    first, parts, text = lines.number, [], rest[1:]
    while "'" not in text:
        parts.append(text)
        following = next(lines, None)
        if following is None:
            raise ValueError(f"invalid environment variable format starting at line {first}: unclosed single quote")
        text = following
    value, _, after = text.partition("'")
    after = after.lstrip(_BLANKS)
    if after and not after.startswith("#"):
        raise _fault(lines.number, "unexpected content after closing quote")
    return "\n".join([*parts, value])


def _fault(number: int, what: str) -> ValueError:
    return ValueError(f"invalid environment variable format at line {number}: {what}")
