"""Put the pieces of each Python file beside the Go declarations that they correspond to.

The map of hack/go_map.py decides what corresponds. Each Go declaration has one place in the site: beside its Python
counterpart; else on the page of the Python file that mirrors its Go file; else on the page of its Go package.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from functools import cached_property

import citations
import divergences
import go_map
import go_map_document
from modules import ROOT, modules

from sidebyside import calls, python_source

FOLDER = "code"


@dataclass(frozen=True, slots=True)
class Place:
    """Name a place in the site: a page, without `.html`, and an anchor on it."""

    page: str
    anchor: str = ""


@dataclass(slots=True)
class Pair:
    """Hold one row of a page: a piece of the Python file, and the Go declarations that it corresponds to.

    Either side may be empty; `why` then gives the reason. `callers` are the paths and names of the functions that call
    the piece. `elsewhere` names the Python file and the definition of a Go declaration whose counterpart is on another
    page.
    """

    piece: python_source.Piece | None
    go: list[go_map.Row] = field(default_factory=list)
    why: str = ""
    records: list[divergences.Divergence] = field(default_factory=list)
    callers: list[tuple[str, str]] = field(default_factory=list)
    elsewhere: tuple[str, str] | None = None


@dataclass(slots=True)
class Page:
    """Hold the content of the page of one Python file."""

    path: str
    go_paths: list[str]
    pairs: list[Pair]
    only_in_go: list[Pair]


def page_name(path: str) -> str:
    """Return the name of the page that shows a file of the tree."""
    return f"{FOLDER}/{path.removesuffix('.py')}"


def package_page(package: str) -> str:
    """Return the name of the page that lists the declarations of a Go package."""
    return f"{FOLDER}/go/{package}"


def go_names(row: go_map.Row) -> list[str]:
    """Return the names that a row of the map has in the Go source."""
    declaration = row.declaration
    names = declaration.constants if declaration.kind == "const-group" else [declaration.name]
    return [f"{declaration.receiver}.{name}" if declaration.receiver else name for name in names]


def go_anchor(row: go_map.Row) -> str:
    """Return the anchor of a Go declaration. It contains the file, because two files may declare the same name."""
    return f"go-{row.declaration.file}-{go_names(row)[0]}"


class Site:
    """Find every page, and the place of each Python definition and each Go declaration."""

    def __init__(self) -> None:
        self.paths = [str(path.relative_to(ROOT)) for path in modules()]
        self.tree = go_map.PythonTree()
        self.map = go_map.build(go_map.read_all_releases(), go_map.read_decisions(), self.tree)
        self.rows = self.map.current()
        self._records: dict[str, list[divergences.Divergence]] = defaultdict(list)
        for record in divergences.collect():
            if isinstance(record, divergences.Divergence):
                self._records[record.path].append(record)
        self._rows_at = self._rows_by_piece()
        self._mirror = self._mirrors()
        self._rows_mirrored: dict[str, list[go_map.Row]] = defaultdict(list)
        for row in self.rows:
            if (mirror := self._mirror.get(row.declaration.path)) is not None:
                self._rows_mirrored[mirror].append(row)
        self._known = set(self.paths)

    def file(self, path: str) -> python_source.PythonFile:
        """Return a Python file, cut into pieces."""
        return python_source.read(ROOT, path)

    def page(self, path: str) -> Page:
        """Return the content of the page of a Python file."""
        file = self.file(path)
        pairs = [self._pair(file, piece) for piece in file.pieces]
        here = {id(row) for pair in pairs for row in pair.go}
        rest = [
            Pair(None, [row], why=row.detail, elsewhere=target_of(row))
            for row in self._rows_mirrored[path]
            if id(row) not in here
        ]
        shown = [row.declaration.path for pair in pairs for row in pair.go]
        mirrored = [go for go, python in self._mirror.items() if python == path]
        return Page(path, list(dict.fromkeys([*mirrored, *shown])), pairs, rest)

    def place_of(self, path: str, name: str) -> Place | None:
        """Return the place of a Python definition, or None if no page shows it."""
        if path not in self._known:
            return None
        piece = self.file(path).piece_of(name) if name else None
        if name and piece is None:
            return None
        return Place(page_name(path), anchor_of(piece) if piece else "")

    def place_of_short_name(self, name: str) -> Place | None:
        """Return the place of a name in a picture, or None if the name is ambiguous.

        If several definitions have the name, the only one in the kubelet's own files counts.
        """
        found = self._short_names.get(name, [])
        own = [place for place in found if place.page.startswith(f"{FOLDER}/kubelet/kubelet")]
        for places in (own, found):
            if len(places) == 1:
                return places[0]
        return None

    @cached_property
    def _short_names(self) -> dict[str, list[Place]]:
        """Return the places of each name that is spelled like a class or has an underscore, except those of fakes."""
        found: dict[str, list[Place]] = defaultdict(list)
        for path in self.paths:
            if path.endswith("testing.py") or "/fake" in path:
                continue
            for piece in self.file(path).pieces:
                short = piece.name.rpartition(".")[2]
                if piece.names and ("_" in short.strip("_") or short[:1].isupper()):
                    for name in {piece.name, short}:
                        found[name].append(Place(page_name(path), anchor_of(piece)))
        return found

    def place_of_row(self, row: go_map.Row) -> Place:
        """Return the place of a Go declaration."""
        target, mirror = target_of(row), self._mirror.get(row.declaration.path)
        if target is not None and self._piece_at(*target) is not None:
            page = page_name(target[0])
        elif mirror is not None:
            page = page_name(mirror)
        else:
            page = package_page(row.declaration.package)
        return Place(page, go_anchor(row))

    def records_of(self, path: str) -> list[divergences.Divergence]:
        """Return the divergence records of a Python file."""
        return self._records[path]

    @cached_property
    def python_calls(self) -> calls.PythonCalls:
        """Return the finder of Python calls."""
        return calls.PythonCalls(ROOT, self.paths)

    @cached_property
    def go_calls(self) -> calls.GoCalls:
        """Return the finder of Go calls."""
        return calls.GoCalls((row.declaration.package, name) for row in self.rows for name in go_names(row))

    @cached_property
    def go_places(self) -> dict[tuple[str, str], Place]:
        """Return the place of each Go declaration by its package and name."""
        return {(row.declaration.package, name): self.place_of_row(row) for row in self.rows for name in go_names(row)}

    @cached_property
    def _callers(self) -> dict[tuple[str, str], list[tuple[str, str]]]:
        """Return, for each (path, name) that is called, the paths and names of the functions that call it."""
        found: dict[tuple[str, str], set[tuple[str, str]]] = defaultdict(set)
        for path in self.paths:
            file = self.file(path)
            for call in self.python_calls.calls(path):
                caller = file.piece_at(call.start)
                if caller and caller.name and (path, caller.name) != (call.target.path, call.target.name):
                    found[call.target.path, call.target.name].add((path, caller.name))
        return {target: sorted(callers) for target, callers in found.items()}

    def _pair(self, file: python_source.PythonFile, piece: python_source.Piece) -> Pair:
        rows = self._rows_at.get((file.path, piece.first), [])
        records = [each for each in self._records[file.path] if _piece_of_record(file, each) is piece]
        pair = Pair(piece, rows, records=records)
        if not rows and piece.name and is_function(piece):
            pair.why = _why_only_python(piece)
            pair.callers = self._callers.get((file.path, piece.name), [])
        return pair

    def _piece_at(self, path: str, name: str) -> python_source.Piece | None:
        return self.file(path).piece_of(name) if path.endswith(".py") else None

    def _rows_by_piece(self) -> dict[tuple[str, int], list[go_map.Row]]:
        found: dict[tuple[str, int], list[go_map.Row]] = defaultdict(list)
        for row in self.rows:
            if (target := target_of(row)) is None:
                continue
            path, name = target
            piece = self._piece_at(path, f"{name}.__init__") if row.declaration.is_function else None
            if piece is None or not piece.name.endswith("__init__"):
                piece = self._piece_at(path, name)
            if piece is not None:
                found[path, piece.first].append(row)
        return found

    def _mirrors(self) -> dict[str, str]:
        """Return the Python file that mirrors each Go file that has one."""
        files: dict[str, list[go_map.Row]] = defaultdict(list)
        for row in self.rows:
            files[row.declaration.path].append(row)
        mirrors = {}
        for path, rows in files.items():
            package, _, file = path.rpartition("/")
            if found := go_map_document.counterpart(package, file, rows, self.tree):
                mirrors[path] = found
        return mirrors


def target_of(row: go_map.Row) -> tuple[str, str] | None:
    """Return the Python file and the name that a Go declaration has become, or None if it is absent."""
    if row.state not in ("present", "renamed"):
        return None
    path, _, name = row.detail.partition(";")[0].partition(":")
    return path, name


def note_of(row: go_map.Row) -> str:
    """Return the note that a decision adds to the new place of a renamed declaration."""
    return row.detail.partition("; ")[2] if row.state == "renamed" else ""


def anchor_of(piece: python_source.Piece) -> str:
    """Return the anchor of a piece: its name, or the number of its first line."""
    return piece.name or f"line-{piece.first}"


def is_function(piece: python_source.Piece) -> bool:
    """Report whether a piece is one function or method, and not a class or the code between definitions."""
    return piece.names == (piece.name,) and bool(piece.name) and not piece.name.rpartition(".")[2][:1].isupper()


def _piece_of_record(file: python_source.PythonFile, record: divergences.Divergence) -> python_source.Piece | None:
    """Return the piece in which a divergence record stands; a record without a name is at the top of the file."""
    return file.piece_of(record.name) if record.name else file.pieces[0]


def _why_only_python(piece: python_source.Piece) -> str:
    for sentence in citations.sentences(piece.docstring):
        if not sentence.startswith("none"):
            return f"Part of Go's {sentence}."
    return "Go has no function of its own for this."
