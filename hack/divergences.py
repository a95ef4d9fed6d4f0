"""Collect the records of deliberate differences from the Go kubelet from comments and docstrings.

A record is a paragraph of five parts, of which the first three labels begin a line:

    # DIVERGES (safer): what this kubelet does.
    # Go: pkg/kubelet/pleg/generic.go, (*GenericPLEG).Relist: what the Go kubelet does.
    # Why: a reason that an operator of a cluster would accept.
    # Test: generic_test.py:test_that_shows_it

The kind in the brackets is one of KINDS. A preference names the setting that turns it on: `(preference: --flag)`. A Go
file is a path in the Kubernetes tree, or an import path and a file. A test's file is relative to the folder of the code
or to the root; several tests have commas between them.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import go_map

ROOT = Path(__file__).resolve().parent.parent
DOCUMENT = ROOT / "docs/divergences.md"
SOURCES = ("kubelet", "cmd", "pkg")
# The document explains each kind with these words.
KINDS = {
    "platform": "Python, or the machines that this kubelet runs on, require it.",
    "fault of Go": "The behaviour of the Go kubelet is a fault.",
    "safer": "The difference shows only when something fails, hangs or demands too much.",
    "preference": "A setting turns the difference on; it is off by default.",
}
# The document's text above this line is written by hand.
MARKER = "<!-- From here on written by hack/update-divergences. -->"
_TITLES = {"kubelet": "The kubelet", "cmd": "The programs", "pkg": "Imported packages"}
_SIGN = re.compile(r"\bDIVERGES\b")
_RECORD = re.compile(
    r"DIVERGES \((?P<kind>[^:)]*)(?:: (?P<setting>[^)]+))?\): (?P<here>.+?)"
    r" Go: (?P<go_file>\S+\.go), (?P<go_symbol>[^:]+): (?P<go>.+?)"
    r" Why: (?P<why>.+?)"
    r" Test: (?P<tests>.+)"
)


@dataclass(frozen=True, slots=True)
class Divergence:
    """Hold a record: its file, the code that it describes ("Class.method", or empty for a file), and its parts."""

    path: str
    name: str
    kind: str
    setting: str
    here: str
    go_file: str
    go_symbol: str
    go: str
    why: str
    tests: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Malformed:
    """Hold a text that has the label of a record but not its form."""

    path: str
    name: str
    text: str


def collect(root: Path = ROOT) -> list[Divergence | Malformed]:
    """Return all divergences, ordered by file and line."""
    files = [path for source in SOURCES for path in sorted((root / source).rglob("*.py"))]
    return [
        parse(str(path.relative_to(root)), name, text)
        for path in files
        if not path.name.endswith("_test.py")
        for name, text in in_source(path.read_text())
    ]


def parse(path: str, name: str, text: str) -> Divergence | Malformed:
    found = _RECORD.fullmatch(text)
    if found is None:
        return Malformed(path, name, text)
    parts = found.groupdict(default="")
    tests = tuple(parts.pop("tests").rstrip(".").split(", "))
    return Divergence(path, name, **parts, tests=tests)


def in_source(source: str) -> Iterator[tuple[str, str]]:
    """Yield the name and the text of each divergence in a file."""
    if not _SIGN.search(source):
        return
    lines, tree = source.splitlines(), ast.parse(source)
    for number, line in enumerate(lines):
        if _SIGN.search(line):
            yield _name_at(tree, number + 1), _text_from(lines, number)


def _text_from(lines: list[str], number: int) -> str:
    """Return the record from its label to the end of the comment, or of the paragraph in a docstring."""
    before, sign, after = lines[number].partition("DIVERGES")
    in_comment = "#" in before
    words = [sign + after]
    ended = not in_comment and '"""' in after
    for line in lines[number + 1 :]:
        text = line.strip()
        if ended or (not text.startswith("#") if in_comment else not text) or _SIGN.search(text):
            break
        words.append(text.lstrip("# ") if in_comment else text)
        ended = not in_comment and '"""' in text
    return re.sub(r"\s+", " ", " ".join(words).replace('"""', "")).strip()


def _name_at(tree: ast.Module, line: int) -> str:
    """Return the name of the class and function around a line, or else of the definition directly below."""
    names: list[str] = []
    body: list[ast.stmt] = tree.body
    while True:
        around = next((node for node in _definitions(body) if _first(node) <= line <= (node.end_lineno or 0)), None)
        if around is None:
            break
        names.append(around.name)
        body = around.body
    if names or line <= (tree.body[0].end_lineno or 0):  # The line is in the module's docstring.
        return ".".join(names)
    below = next((node for node in tree.body if node.lineno > line), None)
    match below:
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
            return name
        case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
            return name
    return ""


def _definitions(body: list[ast.stmt]) -> Iterator[ast.FunctionDef | ast.ClassDef]:
    return (node for node in body if isinstance(node, ast.FunctionDef | ast.ClassDef))


def _first(node: ast.FunctionDef | ast.ClassDef) -> int:
    return min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])


# ---- The faults of records ----


def faulty(divergences: list[Divergence | Malformed], below: tuple[str, ...] = ()) -> list[str]:
    """Return the faults of the records below these folders, or of all records."""
    return [
        f"{each.path} {each.name}: {fault}"
        for each in divergences
        if not below or each.path.startswith(below)
        for fault in faults(each)
    ]


def faults(divergence: Divergence | Malformed, root: Path = ROOT) -> Iterator[str]:
    match divergence:
        case Malformed(text=text):
            yield f"expected `DIVERGES (kind): … Go: file.go, function: … Why: … Test: …`, got: {text}"
        case Divergence():
            yield from _faults_of_kind(divergence)
            yield from _faults_of_go(divergence)
            for test in divergence.tests:
                if _test_path(divergence, test, root) is None:
                    yield f"there is no test {test}"


def _faults_of_kind(divergence: Divergence) -> Iterator[str]:
    if divergence.kind not in KINDS:
        yield f"{divergence.kind!r} is not a kind; the kinds are {', '.join(KINDS)}"
    elif (divergence.kind == "preference") != bool(divergence.setting):
        yield "a preference, and no other kind, must name the setting that turns it on"


def _faults_of_go(divergence: Divergence) -> Iterator[str]:
    declared = go_symbols()
    if divergence.go_file in declared:
        if divergence.go_symbol not in declared[divergence.go_file]:
            yield f"{divergence.go_file} of Go does not declare {divergence.go_symbol}"
    elif divergence.go_file.startswith(("pkg/kubelet/", "cmd/kubelet/", "pkg/probe/", "pkg/volume/", "pkg/util/")):
        yield f"Go has no file {divergence.go_file}"


@cache
def go_symbols() -> dict[str, set[str]]:
    """Return the declarations of each Go file, written as in Go: `(*GenericPLEG).Relist`."""
    declared: dict[str, set[str]] = {}
    for package, file, kind, receiver, name, *_ in go_map.read_rows(go_map.DECLARATIONS[:1]):
        names = name.split(",") if kind.endswith("-group") else [_written(receiver, name)]
        declared.setdefault(f"{package}/{file}", set()).update(names)
    return declared


def _written(receiver: str, name: str) -> str:
    receiver = re.sub(r"\[.*", "", receiver)
    if not receiver:
        return name
    return f"({receiver}).{name}" if receiver.startswith("*") else f"{receiver}.{name}"


def _test_path(divergence: Divergence, test: str, root: Path) -> str | None:
    """Return the path of the file that contains the test, or None if no file contains the test."""
    file, _, name = test.partition(":")
    for path in ((root / divergence.path).parent / file, root / file):
        if path.is_file() and re.search(rf"^\s*def {re.escape(name.rpartition('.')[2])}\(", path.read_text(), re.M):
            return str(path.relative_to(root))
    return None


# ---- The document ----


def render(divergences: list[Divergence | Malformed]) -> str:
    """Return the generated part of the document."""
    lines = [MARKER, "", *_counts(divergences), ""]
    for source in SOURCES:
        lines += [f"## {_TITLES[source]}", ""]
        for each in divergences:
            if each.path.startswith(source + "/"):
                lines += _rendered(each)
        lines.append("")
    return "\n".join(lines)


def _counts(divergences: list[Divergence | Malformed]) -> Iterator[str]:
    numbers = Counter(each.kind for each in divergences if isinstance(each, Divergence))
    yield "| kind | records | what it means |"
    yield "| --- | ---: | --- |"
    for kind, meaning in KINDS.items():
        yield f"| {kind} | {numbers[kind]} | {meaning} |"


def _rendered(divergence: Divergence | Malformed) -> Iterator[str]:
    name = f" `{divergence.name}`" if divergence.name else ""
    place = f"[{divergence.path}](../{divergence.path}){name}"
    match divergence:
        case Malformed(text=text):
            yield f"- {place}: {text}"
        case Divergence():
            setting = f", with `{divergence.setting}`" if divergence.setting else ""
            tests = (f"`{test.partition(':')[2]}` in {test.partition(':')[0]}" for test in divergence.tests)
            yield f"- {place}, **{divergence.kind}**{setting}: {divergence.here}"
            yield f"  - Go, `{divergence.go_symbol}` in {divergence.go_file}: {divergence.go}"
            yield f"  - Why: {divergence.why}"
            yield f"  - Test: {', '.join(tests)}"


def updated(document: str, divergences: list[Divergence | Malformed]) -> str:
    """Return the document with a new generated part. Raise ValueError if the document lacks the marker."""
    by_hand, marker, _ = document.partition(MARKER)
    if not marker:
        raise ValueError(f"the document lacks the line {MARKER}")
    return by_hand + render(divergences)
