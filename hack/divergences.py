"""Where this kubelet differs from Go's on purpose: collects the `DIVERGES:` comments and docstrings of the code."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
DOCUMENT = ROOT / "docs/divergences.md"
SOURCES = ("kubelet", "cmd", "pkg")
# What stands above this line in the document is written by hand.
MARKER = "<!-- From here on written by hack/update-divergences. -->"
_SIGN = "DIVERGES:"
_TITLES = {"kubelet": "The kubelet", "cmd": "The programs", "pkg": "What the kubelet imports"}


class Divergence(NamedTuple):
    """One of them: the file, from the root, what it is about ("Class.method", or empty), and why."""

    path: str
    name: str
    text: str


def collect(root: Path = ROOT) -> list[Divergence]:
    """All divergences, in the order of the files and of the lines in them."""
    files = [path for source in SOURCES for path in sorted((root / source).rglob("*.py"))]
    return [
        Divergence(str(path.relative_to(root)), name, text)
        for path in files
        if not path.name.endswith("_test.py")
        for name, text in in_source(path.read_text())
    ]


def in_source(source: str) -> Iterator[tuple[str, str]]:
    """Name and text of each divergence in one file."""
    if _SIGN not in source:
        return
    lines, tree = source.splitlines(), ast.parse(source)
    for number, line in enumerate(lines):
        if _SIGN in line:
            yield _name_at(tree, number + 1), _text_from(lines, number)


def _text_from(lines: list[str], number: int) -> str:
    """What follows the sign, up to the end of the comment, or of the paragraph in a docstring."""
    words = [lines[number].split(_SIGN, 1)[1]]
    in_comment = "#" in lines[number].split(_SIGN)[0]
    ended = not in_comment and '"""' in words[0]
    for line in lines[number + 1 :]:
        text = line.strip()
        if ended or (not text.startswith("#") if in_comment else not text):
            break
        words.append(text.lstrip("# ") if in_comment else text)
        ended = not in_comment and '"""' in text
    return re.sub(r"\s+", " ", " ".join(words).replace('"""', "")).strip()


def _name_at(tree: ast.Module, line: int) -> str:
    """The class and function around a line, or else what is defined right below it."""
    names: list[str] = []
    body: list[ast.stmt] = tree.body
    while True:
        around = next((node for node in _definitions(body) if _first(node) <= line <= (node.end_lineno or 0)), None)
        if around is None:
            break
        names.append(around.name)
        body = around.body
    if names or line <= (tree.body[0].end_lineno or 0):  # the module's docstring
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


def render(divergences: list[Divergence]) -> str:
    """The generated part of the document."""
    lines = [MARKER, ""]
    for source in SOURCES:
        lines += [f"## {_TITLES[source]}", ""]
        for each in divergences:
            if each.path.startswith(source + "/"):
                name = f" `{each.name}`" if each.name else ""
                lines.append(f"- [{each.path}](../{each.path}){name}: {each.text}")
        lines.append("")
    return "\n".join(lines)


def updated(document: str, divergences: list[Divergence]) -> str:
    """The document with its generated part made anew. Raises ValueError if that part has no beginning."""
    by_hand, marker, _ = document.partition(MARKER)
    if not marker:
        raise ValueError(f"the document lacks the line {MARKER}")
    return by_hand + render(divergences)
