"""Define a set of flags, and parse a command line by the rules that Kubernetes' users know.

The forms are `--flag=value`, `--flag value`, `-v4` and `-v 4`. Flags and arguments may be mixed, `--` ends the flags,
and `_` in a name means `-`.

Go: github.com/spf13/pflag (flag.go)
"""

from __future__ import annotations

import contextlib
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TextIO

from pkg.component_base.cli.flag.values import Value


class FlagError(ValueError):
    """Signal that a command line cannot be parsed."""


@dataclass(slots=True)
class Flag:
    """Describe one flag; `default_text` is its value at the time it was added."""

    name: str
    value: Value
    usage: str
    shorthand: str = ""
    deprecated: str = ""
    default_text: str = ""
    changed: bool = False


class FlagSet:
    """Hold flags by name.

    The class is not thread-safe.
    """

    def __init__(self, output: TextIO | None = None) -> None:
        self._flags: dict[str, Flag] = {}
        self._shorthands: dict[str, Flag] = {}
        self._output = output
        self.args: list[str] = []

    def __iter__(self) -> Iterator[Flag]:
        """Iterate over the flags, sorted by name."""
        return iter([self._flags[name] for name in sorted(self._flags)])

    def add(self, name: str, value: Value, usage: str, shorthand: str = "", deprecated: str = "") -> None:
        flag = Flag(name, value, usage, shorthand, deprecated, default_text=value.string())
        self._flags[name] = flag
        if shorthand:
            self._shorthands[shorthand] = flag

    def lookup(self, name: str) -> Flag | None:
        return self._flags.get(_normalize(name))

    def parse(self, arguments: list[str]) -> None:
        """Set the given flags, and collect the other arguments in `args`; raise FlagError at the first error."""
        self.args = []
        rest = list(arguments)
        while rest:
            arg = rest.pop(0)
            if arg == "--":
                self.args += rest
                return
            if arg.startswith("--"):
                self._parse_long(arg, rest)
            elif arg.startswith("-") and arg != "-":
                self._parse_short(arg, rest)
            else:
                self.args.append(arg)

    def _parse_long(self, arg: str, rest: list[str]) -> None:
        name, has_value, text = arg[2:].partition("=")
        if not name or name[0] == "-":
            raise FlagError(f"bad flag syntax: {arg}")
        flag = self.lookup(name)
        if flag is None:
            raise FlagError(f"unknown flag: --{name}")
        if not has_value:
            text = self._missing_value(flag, rest, arg)
        self._set(flag, text)

    def _parse_short(self, arg: str, rest: list[str]) -> None:
        letters = arg[1:]
        while letters:
            flag = self._shorthands.get(letters[0])
            if flag is None:
                raise FlagError(f"unknown shorthand flag: '{letters[0]}' in {arg}")
            following = letters[1:]
            if following.startswith("="):
                text, letters = following[1:], ""
            elif flag.value.no_opt_default:
                text, letters = flag.value.no_opt_default, following
            elif following:
                text, letters = following, ""
            else:
                text, letters = self._missing_value(flag, rest, f"'{letters[0]}' in {arg}"), ""
            self._set(flag, text)

    def _missing_value(self, flag: Flag, rest: list[str], shown: str) -> str:
        if flag.value.no_opt_default:
            return flag.value.no_opt_default
        if not rest:
            raise FlagError(f"flag needs an argument: {shown}")
        return rest.pop(0)

    def _set(self, flag: Flag, text: str) -> None:
        try:
            flag.value.set(text)
        except ValueError as err:
            shown = f"-{flag.shorthand}, --{flag.name}" if flag.shorthand else f"--{flag.name}"
            raise FlagError(f'invalid argument "{text}" for "{shown}" flag: {err}') from err
        if flag.deprecated and not flag.changed and self._output is not None:
            # The output may be a log on a full disk. As in Go, the flag takes effect even if the warning cannot be
            # written.
            with contextlib.suppress(OSError):
                print(f"Flag --{flag.name} has been deprecated, {flag.deprecated}", file=self._output)
        flag.changed = True

    def usages(self, width: int = 110) -> str:
        """Return the help for all flags, sorted by name."""
        return "".join(_usage(flag, width) for flag in self)


def _normalize(name: str) -> str:
    return name.replace("_", "-")


def _usage(flag: Flag, width: int) -> str:
    head = f"  -{flag.shorthand}, --{flag.name}" if flag.shorthand else f"      --{flag.name}"
    head += f" {flag.value.type}" if flag.value.type else ""
    text = flag.usage
    if flag.default_text not in ("", "false", "0", "0s", "[]"):
        quoted = f'"{flag.default_text}"' if flag.value.type == "string" else flag.default_text
        text += f" (default {quoted})"
    if flag.deprecated:
        text += f" (DEPRECATED: {flag.deprecated})"
    lines = [
        textwrap.fill(line, width, initial_indent=" " * 12, subsequent_indent=" " * 12) for line in text.splitlines()
    ]
    return "\n".join([head, *lines]) + "\n"
