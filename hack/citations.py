"""Collect the Go names that docstrings cite, and find those that Go does not declare.

A citation begins a line, or follows a sentence or an opening bracket. It ends at a full stop, a semicolon or the end of
the paragraph:

    Go: pkg/kubelet/pleg/generic.go, (*GenericPLEG).Relist
    Go: k8s.io/client-go/rest/client.go, request.go (Request.Watch)
    Go: pkg/kubelet/cri/remote in 1.27
    Go: http.ReadResponse
    Go: newRuntimeVersion
    Go: none; there each package has its own

A word with a slash or the ending `.go` is a file or package; a file without a folder is in the folder of the previous
path. A word with a capital letter or a dot is a symbol, and so are the first word and each word that stands alone
between commas or brackets. A symbol belongs to the file or package before it, to a package that it names itself, or
else to a file that this docstring or an enclosing one cites.

Go's names are in the tables of hack/go-map; cited-v1.36.2.tsv has those that the map leaves out. Another check covers
the records of docs/divergences.md.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import go_map

ROOT = Path(__file__).resolve().parent.parent
CITED = ROOT / "hack/go-map/cited-v1.36.2.tsv"
SOURCES = ("kubelet", "cmd", "pkg")
_CITATION = re.compile(r"(?:^|(?<=[.!?)]\s)|(?<=\())Go: (.+?)(?=\.(?:[\s)]|\Z)|;|\Z)", re.M | re.S)
_BEFORE = " in 1.27"
# A Key is a path and a name that it declares; the name is empty for the file or package itself.
Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Docstring:
    """Hold the docstring of a module, class or function.

    `name` is "Class.method", and empty for the module. `around` holds the enclosing docstrings.
    """

    path: str
    name: str
    text: str
    around: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Cited:
    """Represent a cited file, package or symbol; `place` is empty for a symbol that follows no path."""

    place: str
    symbol: str = ""
    before: bool = False


# ---- The citations ----


def collect(root: Path = ROOT) -> Iterator[Docstring]:
    """Yield all docstrings with citations."""
    for source in SOURCES:
        for path in sorted((root / source).rglob("*.py")):
            text = path.read_text()
            if "Go: " in text:
                yield from _docstrings(str(path.relative_to(root)), ast.parse(text))


def _docstrings(path: str, node: ast.AST, name: str = "", around: tuple[str, ...] = ()) -> Iterator[Docstring]:
    if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
        text = ast.get_docstring(node) or ""
        name = name if isinstance(node, ast.Module) else f"{name}.{node.name}".lstrip(".")
        if "Go: " in text:
            yield Docstring(path, name, text, around)
            around = (*around, text)
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt):
            yield from _docstrings(path, child, name, around)


def sentences(text: str) -> Iterator[str]:
    """Yield the text after each `Go: `, on one line."""
    for paragraph in re.split(r"\n\s*\n", text):
        if "DIVERGES" not in paragraph:
            yield from (" ".join(found[1].split()) for found in _CITATION.finditer(paragraph))


def parse(sentence: str, folder: str = "", packages: Collection[str] = ()) -> Iterator[Cited]:
    """Yield the citations of a sentence.

    `folder` is the folder of its first file; `packages` are the packages without a slash, such as `os`.
    """
    place, place_before, first = "", False, True
    for item in re.split(r"[,()]", re.sub(r"\(\*(\w+)\)\.", r"\1.", sentence)):
        before = item.strip().endswith(_BEFORE)
        words = [word.rstrip(".") for word in re.findall(r"[\w.*/-]+", item.strip().removesuffix(_BEFORE))]
        for word in words:
            if first and word == "none":
                return
            alone, first = first or len(words) == 1, False
            if "/" in word or word.endswith(".go") or (alone and word in packages):
                place = f"{folder}/{word}" if word.endswith(".go") and "/" not in word else word
                folder, place_before = folder_of(place), before
                yield Cited(place, before=before)
            elif alone or re.search(r"[A-Z]|\w\.\w", word):
                yield Cited(place, word, before or place_before)


def folder_of(place: str) -> str:
    return place.rpartition("/")[0] if place.endswith(".go") else place


# ---- The declarations of Go ----


@dataclass(slots=True)
class Declared:
    """Hold the names ("Type.Method") by package and file. `folders` contain packages directly or further below."""

    packages: dict[str, dict[str, set[str]]] = field(default_factory=dict)
    folders: set[str] = field(default_factory=set)

    def add(self, package: str, file: str, names: Iterable[str]) -> None:
        self.packages.setdefault(package, {}).setdefault(file, set()).update(names)
        parts = package.split("/")
        self.folders.update("/".join(parts[:length]) for length in range(1, len(parts) + 1))

    def find(self, cited: Cited) -> set[Key]:
        """Return the declarations that the citation may mean, or an empty set if Go has no such name."""
        if not cited.symbol:
            there = cited.place in self.folders or any(self._files(cited.place))
            return {(cited.place, "")} if there else set()
        names = [
            (f"{package}/{file}", name)
            for package, file in self._files(cited.place)
            for name in self.packages[package][file]
        ]
        exact = {each for each in names if each[1] == cited.symbol}
        return exact or {each for each in names if each[1].endswith(f".{cited.symbol}")}

    def _files(self, place: str) -> Iterator[tuple[str, str]]:
        """Yield the file with this path, or the files of the package."""
        folder, _, file = place.rpartition("/")
        if file in self.packages.get(folder, ()):
            yield folder, file
        yield from ((place, each) for each in self.packages.get(place, ()))


def read_map(paths: tuple[Path, ...] = go_map.DECLARATIONS) -> Declared:
    declared = Declared()
    for package, file, kind, receiver, name, *_ in go_map.read_rows(paths):
        owner = re.sub(r"^\*|\[.*", "", receiver)
        names = name.split(",") if kind == "const-group" else [f"{owner}.{name}" if owner else name]
        declared.add(package, file, names)
    return declared


def read_cited(path: Path = CITED) -> Declared:
    """Read the names that the map leaves out. A row without a file stands for a package that is cited as a whole."""
    declared = Declared()
    for package, file, names in go_map.read_rows((path,)):
        declared.add(package, file, filter(None, names.split(",")))
    return declared


@dataclass(slots=True)
class Tables:
    """Hold the Go names of the map, of the table of citations, and of release 1.27.

    `used` collects the names of the table of citations that a docstring needs.
    """

    now: Declared = field(default_factory=read_map)
    cited: Declared = field(default_factory=read_cited)
    before: Declared = field(default_factory=lambda: read_map(go_map.DECLARATIONS_BEFORE))
    used: set[Key] = field(default_factory=set)

    def has(self, cited: Cited) -> bool:
        if cited.before:
            return bool(self.before.find(cited))
        if self.now.find(cited):
            return True
        found = self.cited.find(cited)
        self.used |= found
        return bool(found)

    def named(self, cited: Cited) -> Iterator[Cited]:
        """Yield the readings of `http.ReadResponse` as a symbol of a package `http`, the shortest path first."""
        package, _, symbol = cited.symbol.partition(".")
        for path in sorted([*self.now.packages, *self.cited.packages], key=len):
            if symbol and path.rpartition("/")[2] == package:
                yield replace(cited, place=path, symbol=symbol)

    def unneeded(self) -> Iterator[str]:
        for package, files in self.cited.packages.items():
            for file, names in files.items():
                path = f"{package}/{file}".rstrip("/")
                yield from (f"{path} {name}" for name in sorted(names or {""}) if (path, name) not in self.used)


# ---- The faults ----


def faults(root: Path = ROOT, tables: Tables | None = None) -> list[str]:
    tables = tables or Tables()
    found = [f"{each.path} {each.name}: {fault}" for each in collect(root) for fault in _faults_of(each, tables)]
    return found + [f"{CITED.name}: no docstring needs {each}".rstrip() for each in tables.unneeded()]


def _faults_of(docstring: Docstring, tables: Tables) -> Iterator[str]:
    places: list[Cited] = []
    for text in docstring.around:
        places += [each for sentence in _parsed(text, places, tables) for each in sentence if not each.symbol]
    for sentence in _parsed(docstring.text, places, tables):
        places += [each for each in sentence if not each.symbol]
        yield from (fault for each in sentence if (fault := _fault(each, places, tables)))


def _parsed(text: str, places: list[Cited], tables: Tables) -> Iterator[list[Cited]]:
    packages = [each for each in tables.cited.packages if "/" not in each]
    for sentence in sentences(text):
        yield list(parse(sentence, folder_of(places[0].place) if places else "", packages))


def _fault(cited: Cited, places: list[Cited], tables: Tables) -> str:
    if not cited.symbol:
        return "" if tables.has(cited) else f"Go has no file or package {cited.place}"
    around = [replace(each, symbol=cited.symbol, before=each.before or cited.before) for each in places]
    meant = [cited] if cited.place else around
    if any(tables.has(each) for each in [*meant, *tables.named(cited)]):
        return ""
    where = " or ".join(dict.fromkeys(each.place for each in meant))
    return f"Go declares no {cited.symbol} in {where}" if where else f"the docstring cites no file of {cited.symbol}"
