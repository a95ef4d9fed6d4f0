"""Cut a Go file into its top-level declarations.

The file must be formatted by gofmt: a declaration then begins in the first column, and a bracket in the first column
ends it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_FUNCTION = re.compile(r"func (?:\((?:\w+ )?\*?(?P<receiver>\w+)[^)]*\) )?(?P<name>\w+)")
_TYPE = re.compile(r"type (\w+)")
_GROUP = re.compile(r"(const|var|type) \($")
_SINGLE = re.compile(r"(?:const|var) (\w+(?:, \w+)*)")
_MEMBER = re.compile(r"\t(\w+(?:, \w+)*)(?:\s|,|$)")
_IMPORT = re.compile(r'^(?:import |\t)(?:(?P<alias>[\w.]+) )?"(?P<path>[^"]+)"', re.M)


@dataclass(frozen=True, slots=True)
class Piece:
    """Describe one top-level declaration of a Go file, with the comment above it.

    `names` holds "Receiver.Name" for a method, and each name of a group. `first` and `last` are lines, counted from 1.
    """

    names: tuple[str, ...]
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class GoFile:
    """Hold a Go file's lines, its pieces in their order, and its imports: the name in the file, and the package."""

    path: str
    lines: tuple[str, ...]
    pieces: tuple[Piece, ...]
    imports: dict[str, str]

    def find(self, name: str) -> Piece | None:
        """Return the piece that declares a name, or None."""
        return next((piece for piece in self.pieces if name in piece.names), None)

    def text(self, piece: Piece) -> str:
        """Return the source of a piece, its comment included."""
        return "\n".join(self.lines[piece.first - 1 : piece.last]) + "\n"


@cache
def read(checkout: Path, path: str) -> GoFile | None:
    """Return a file of a checkout of Kubernetes, or None if the checkout lacks the file.

    A path that begins with k8s.io is below staging/src there.
    """
    file = checkout / "staging/src" / path if path.startswith("k8s.io/") else checkout / path
    if not file.is_file():
        return None
    text = file.read_text()
    lines = tuple(text.splitlines())
    return GoFile(path, lines, tuple(_pieces(lines)), _imports(text))


def _imports(text: str) -> dict[str, str]:
    found = {}
    for match in _IMPORT.finditer(text.partition("\nfunc ")[0]):
        path = match["path"]
        found[match["alias"] or re.sub(r"/v\d+$", "", path).rpartition("/")[2]] = path.removeprefix(
            "k8s.io/kubernetes/"
        )
    return found


def _pieces(lines: tuple[str, ...]) -> Iterator[Piece]:
    number = 0
    while number < len(lines):
        if re.match(r"(func|type|const|var) ", lines[number]):
            last = _end(lines, number)
            if names := tuple(_names(lines[number : last + 1])):
                yield Piece(names, _comment_above(lines, number) + 1, last + 1)
            number = last
        number += 1


def _end(lines: tuple[str, ...], first: int) -> int:
    """Return the index of a declaration's last line. A bracket in a raw string does not end the declaration."""
    if not lines[first].rstrip().endswith(("{", "(", "`")):
        return first
    raw = lines[first].count("`") % 2
    for number in range(first + 1, len(lines)):
        if not raw and lines[number][:1] in ("}", ")") and not lines[number].rstrip().endswith(("{", "(")):
            return number
        raw = (raw + lines[number].count("`")) % 2
        if not raw and lines[first].rstrip().endswith("`"):
            return number
    return len(lines) - 1


def _comment_above(lines: tuple[str, ...], first: int) -> int:
    """Return the index of the first line of the comment right above a declaration."""
    while first > 0 and lines[first - 1].startswith("//"):
        first -= 1
    if first > 0 and lines[first - 1].rstrip().endswith("*/"):
        first -= 1
        while first > 0 and not lines[first].startswith("/*"):
            first -= 1
    return first


def _names(lines: tuple[str, ...]) -> Iterator[str]:
    head = lines[0].rstrip()
    if function := _FUNCTION.match(head):
        yield ".".join(filter(None, (function["receiver"], function["name"])))
    elif _GROUP.match(head):
        for line in lines[1:]:
            if member := _MEMBER.match(line):
                yield from member[1].split(", ")
    elif declared := _TYPE.match(head) or _SINGLE.match(head):
        yield from declared[1].split(", ")
