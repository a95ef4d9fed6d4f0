"""Find the prose of a Python file: its docstrings, its comments, and the messages that people read.

hack/verify_prose checks this prose, and hack/prose_sample draws a random sample of it for a reader.
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# Other programs generate these files.
GENERATED = re.compile(r"_pb2(_grpc)?\.pyi?$|pkg/(api/\w+|apimachinery/apis/meta)/v\w+/types\.py$")
# These comments are directives for other programs.
DIRECTIVE = re.compile(r"#(!| *(type: ignore|noqa|fmt: |ruff: |pragma: ))")
# A literal with fewer words is a name or a fragment. A URL, a path or a pattern has no spaces.
_MESSAGE_WORDS = 3
_WORD = re.compile(r"^[A-Za-z][A-Za-z'-]*[,.:;]?$")
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


class Kind(StrEnum):
    """Name the three kinds of prose."""

    DOCSTRING = "docstring"
    COMMENT = "comment"
    MESSAGE = "message"


@dataclass(frozen=True, slots=True)
class Unit:
    """Hold one docstring, one block of comment lines, or one message.

    `line` and `end` are the first and the last line in the file, counted from 1. `owner` names the function, class or
    module that a docstring documents. `text` is the prose alone, without quotes, hashes and indentation.
    """

    path: Path
    kind: Kind
    line: int
    end: int
    owner: str
    text: str


def python_files() -> list[Path]:
    """Return the Python files that git tracks, generated ones left out, in a fixed order."""
    listed = subprocess.run(["git", "ls-files", "--cached"], cwd=ROOT, check=True, capture_output=True, text=True)
    return [path for name in sorted(listed.stdout.splitlines()) if is_python(path := ROOT / name)]


def documents() -> list[Path]:
    """Return the documents that people write or read: NOTICE, and Markdown beside it and in docs, hack and test."""
    below = (path for folder in ("docs", "hack", "test") for path in sorted((ROOT / folder).rglob("*.md")))
    return [ROOT / "NOTICE", *sorted(ROOT.glob("*.md")), *below]


def is_python(path: Path) -> bool:
    """Report whether the file holds Python source that people write."""
    if path.is_symlink() or not path.is_file() or GENERATED.search(str(path)):
        return False
    if path.suffix:
        return path.suffix == ".py"
    with path.open("rb") as file:
        return re.match(rb"#!.*python", file.readline()) is not None


def is_test(path: Path) -> bool:
    """Report whether the file is a test or is only used by tests."""
    return path.name.endswith("_test.py") or path.relative_to(ROOT).parts[0] == "test"


def units(path: Path) -> list[Unit]:
    """Return the prose of a file in the order of its lines. Raise SyntaxError if the file is not Python."""
    source = path.read_text()
    tree = ast.parse(source)
    found = [*docstrings(path, tree), *field_texts(path, tree), *comments(path, source)]
    if not is_test(path):
        found += messages(path, tree)
    return sorted(found, key=lambda unit: unit.line)


def docstrings(path: Path, tree: ast.AST) -> Iterator[Unit]:
    """Yield a unit for each docstring."""
    for node in ast.walk(tree):
        if isinstance(node, _DOCUMENTED) and (text := ast.get_docstring(node)):
            statement = node.body[0]
            owner = "module" if isinstance(node, ast.Module) else node.name
            yield Unit(path, Kind.DOCSTRING, statement.lineno, statement.end_lineno or 0, owner, text)


def field_texts(path: Path, tree: ast.AST) -> Iterator[Unit]:
    """Yield a unit for each string that describes the field or constant above it."""
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if not isinstance(body, list):
            continue
        for statement in body[1:]:
            match statement:
                case ast.Expr(value=ast.Constant(value=str(text))):
                    yield Unit(path, Kind.COMMENT, statement.lineno, statement.end_lineno or 0, "", text.strip())


def comments(path: Path, source: str) -> Iterator[Unit]:
    """Yield a unit for each comment; lines of comment that follow each other in one column are one unit."""
    block: list[tokenize.TokenInfo] = []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT or DIRECTIVE.match(token.string):
            continue
        alone = token.line.strip() == token.string
        follows = block and (token.start[0] - 1, token.start[1]) == block[-1].start
        if block and not (alone and follows and block[-1].line.lstrip().startswith("#")):
            yield _comment(path, block)
            block = []
        block.append(token)
    if block:
        yield _comment(path, block)


def _comment(path: Path, block: list[tokenize.TokenInfo]) -> Unit:
    text = "\n".join(re.sub("^#+ ?", "", token.string) for token in block)
    return Unit(path, Kind.COMMENT, block[0].start[0], block[-1].start[0], "", text)


def messages(path: Path, tree: ast.AST) -> Iterator[Unit]:
    """Yield a unit for each string of several words that is not a docstring; `{}` replaces each expression in it."""
    inside: set[ast.AST] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Expr(value=ast.Constant() | ast.JoinedStr() as alone):
                inside.add(alone)
            case ast.JoinedStr(values=parts):
                inside.update(parts)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant | ast.JoinedStr) and node not in inside:
            text = _message(node)
            if sum(bool(_WORD.match(word)) for word in text.split()) >= _MESSAGE_WORDS:
                yield Unit(path, Kind.MESSAGE, node.lineno, node.end_lineno or node.lineno, "", text)


def _message(node: ast.Constant | ast.JoinedStr) -> str:
    """Return a literal's text, or an empty text if the literal is not a string."""
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
    return node.value if isinstance(node.value, str) else ""
