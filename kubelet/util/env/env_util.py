"""Read variables from a file of assignments such as KEY='value', as a shell would.

Go: pkg/kubelet/util/env/env_util.go
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from pkg.util import regularfile

_BLANKS = " \t"
# A line may have this number of bytes, as with Go's scanner.
MAX_LINE = 64 * 1024
# DIVERGES (safer): the kubelet reads a container's file of variables up to MAX_FILE bytes, and rejects a larger one.
# Go: pkg/kubelet/util/env/env_util.go, ParseEnv: the Go kubelet reads a file of any size.
# Why: a container could keep the kubelet reading for as long as it writes.
# Test: env_util_test.py:test_size_is_limited
MAX_FILE = 1 << 20


@dataclass(frozen=True, slots=True)
class EnvFile:
    """Hold the assignments of a file up to its first fault; of duplicate names the first one counts.

    The object keeps only the text of the fault. The exception would keep alive the frames that it passed, with the
    values of this file and of other files that the callers have read, until the next garbage collection.
    """

    values: dict[str, str]
    # This is the text of the first fault, or "" if there is none.
    fault: str
    # `size` is the number of bytes that were read.
    size: int

    def get(self, key: str) -> str:
        """Return the value of the key, or "" if the file lacks it. Raise ValueError if a fault precedes the key."""
        value = self.values.get(key)
        if value is None and self.fault:
            raise ValueError(self.fault)
        return value or ""


def parse_env(env_file_path: str) -> EnvFile:
    """Read the assignments of a file. Raise OSError.

    A value has single quotes and may span several lines; blank lines and comments are ignored. The fault names the
    line.

    Go reads only up to the requested variable, so it reads the file again for each of possibly thousands of variables.
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
        # As in a shell, the assignment ends before a blank.
        yield name, "" if rest.startswith((" ", "\t")) else _quoted_value(rest, lines)


def _open(path: str) -> BinaryIO:
    """Open a file. Raise OSError if it is not a regular file.

    DIVERGES (safer): the kubelet rejects a pipe in place of a container's file of variables.
    Go: pkg/kubelet/util/env/env_util.go, ParseEnv: the Go kubelet waits until a process writes to the pipe.
    Why: a container may have created the pipe, and its pod's worker would wait without end.
    Test: env_util_test.py:test_what_is_no_file
    """
    file: BinaryIO = os.fdopen(regularfile.open_regular(path), "rb")
    return file


class _Lines:
    """Yield the lines of a file without their ends; count lines and bytes."""

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
    """Return the name of the variable, and the text after its equals sign."""
    name, equals, rest = text.partition("=")
    if not equals:
        raise _fault(number, "missing '='")
    if not name.strip(_BLANKS):
        raise _fault(number, "empty variable name")
    if name != name.rstrip(_BLANKS):
        raise _fault(number, "whitespace before '=' is not allowed")
    return name, rest


def _quoted_value(rest: str, lines: _Lines) -> str:
    """Return the text between the quotes, which may extend over further lines."""
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
