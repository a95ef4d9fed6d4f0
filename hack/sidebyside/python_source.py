"""Cut a Python file into pieces that together are the whole file: its head, functions, classes and methods.

Each piece includes the comments and empty lines above it, so that each line of the file is in exactly one piece.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Piece:
    """Describe consecutive lines of a Python file.

    `name` is "function", "Class" for the class down to its first method, "Class.method", or empty for the code between
    them. `names` has all names that the piece defines. `first` and `last` are lines, counted from 1.
    """

    name: str
    names: tuple[str, ...]
    first: int
    last: int
    docstring: str = ""


@dataclass
class PythonFile:
    """Hold a Python file's source, its syntax tree and its pieces in their order."""

    path: str
    text: str
    tree: ast.Module
    pieces: list[Piece] = field(default_factory=list)

    @cached_property
    def _by_name(self) -> dict[str, Piece]:
        found: dict[str, Piece] = {}
        for piece in self.pieces:
            for name in (piece.name, *piece.names):
                found.setdefault(name, piece)
        return found

    @cached_property
    def line_starts(self) -> list[int]:
        """Return the offset of the first character of each line, and of the line after the last one."""
        starts = [0]
        for line in self.text.split("\n"):
            starts.append(starts[-1] + len(line) + 1)
        return starts

    def text_of(self, piece: Piece) -> tuple[int, str]:
        """Return the source of a piece without the empty lines around the piece, and its offset in the file."""
        raw = self.text[self.line_starts[piece.first - 1] : self.line_starts[piece.last]]
        return self.line_starts[piece.first - 1] + len(raw) - len(raw.lstrip("\n")), raw.strip("\n")

    def piece_at(self, offset: int) -> Piece | None:
        """Return the piece that contains the character at an offset, or None after the last piece."""
        return next((piece for piece in self.pieces if offset < self.line_starts[piece.last]), None)

    def piece_of(self, name: str) -> Piece | None:
        """Return the piece that defines a name, or the class around the name, or None."""
        while name:
            if piece := self._by_name.get(name):
                return piece
            name = name.rpartition(".")[0]
        return None


@cache
def read(root: Path, path: str) -> PythonFile:
    """Return a Python file below the root. Raise SyntaxError if the file is not Python."""
    text = (root / path).read_text()
    file = PythonFile(path, text, ast.parse(text))
    file.pieces = list(_pieces(file))
    return file


@dataclass(frozen=True, slots=True)
class _Mark:
    """Describe the piece that ends at the line `last`; Piece explains the other fields."""

    name: str
    names: tuple[str, ...]
    last: int
    docstring: str = ""


def _pieces(file: PythonFile) -> Iterator[Piece]:
    first = 1
    for mark in _marks(file.tree):
        if mark.last >= first:
            yield Piece(mark.name, mark.names, first, mark.last, mark.docstring)
            first = mark.last + 1
    if first <= len(file.text.splitlines()) or not file.text:
        yield Piece("", (), first, len(file.text.splitlines()))


def _marks(tree: ast.Module) -> Iterator[_Mark]:
    others: list[ast.stmt] = []
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            if others:
                yield _mark_of_others(others)
                others = []
            yield from _marks_of(node)
        else:
            others.append(node)
    if others:
        yield _mark_of_others(others)


def _mark_of_others(nodes: list[ast.stmt]) -> _Mark:
    return _Mark("", tuple(_assigned(nodes)), nodes[-1].end_lineno or 0)


def _marks_of(node: ast.FunctionDef | ast.ClassDef) -> Iterator[_Mark]:
    docstring = ast.get_docstring(node) or ""
    if isinstance(node, ast.FunctionDef):
        yield _Mark(node.name, (node.name,), node.end_lineno or 0, docstring)
        return
    methods = [each for each in node.body if isinstance(each, ast.FunctionDef)]
    head = node.body[: node.body.index(methods[0])] if methods else node.body
    last = (head[-1].end_lineno if head else node.lineno) or 0
    fields = (f"{node.name}.{name}" for name in _assigned(node.body))
    yield _Mark(node.name, (node.name, *fields), last, docstring)
    for method in methods:
        name = f"{node.name}.{method.name}"
        yield _Mark(name, (name,), method.end_lineno or 0, ast.get_docstring(method) or "")
    if node.end_lineno != (methods[-1].end_lineno if methods else last):
        yield _Mark(node.name, (), node.end_lineno or 0)


def _assigned(nodes: list[ast.stmt]) -> Iterator[str]:
    for node in nodes:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                yield name
            case ast.If(body=body, orelse=orelse):
                yield from _assigned(body + orelse)
