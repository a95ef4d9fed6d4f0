"""Test that no finalizer takes a lock.

A garbage collection may start at any allocation, even while the thread holds the lock of all channels or another lock.
A finalizer that needs this lock then waits forever for its own thread, and soon all other threads wait too.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

# These generators clean up when they are collected. Each is listed with its clean-up action, which takes no lock.
HARMLESS = {
    "pkg/util/filetree.py:_entries": "closes a directory",
    "pkg/util/filetree.py:walk": "closes descriptors",
    "pkg/volume/util/fs/fs.py:_statuses": "suppresses an error",
    "pkg/volume/volume_linux.py:walk_deep": "closes descriptors",
}


def sources(*words: str) -> Iterator[tuple[str, ast.Module]]:
    """Yield the modules whose text contains one of the words, because parsing all modules takes long."""
    for package in ("cmd", "kubelet", "pkg"):
        for path in sorted((ROOT / package).rglob("*.py")):
            if path.name.endswith("_test.py") or path.name in ("testing.py", "conftest.py"):
                continue
            text = path.read_text()
            if any(word in text for word in words):
                yield str(path.relative_to(ROOT)), ast.parse(text)


def is_context_manager(function: ast.FunctionDef) -> bool:
    """Report whether the function is a context manager, which the `with` statement closes."""
    return any(ast.unparse(each).split(".")[-1] == "contextmanager" for each in function.decorator_list)


def cleans_up(nodes: list[ast.stmt] | list[ast.ExceptHandler], guarded: bool = False) -> bool:
    """Report whether these statements yield at a place where closing the generator runs more code."""
    return any(_cleans_up(node, guarded) for node in nodes)


def _cleans_up(node: ast.AST, guarded: bool) -> bool:
    match node:
        case ast.FunctionDef() | ast.Lambda() | ast.ClassDef():
            return False
        case ast.Yield() | ast.YieldFrom() if guarded:
            return True
        case ast.With():
            guarded = True
        case ast.Try():
            inner = guarded or bool(node.finalbody) or any(map(_catches_all, node.handlers))
            in_try = cleans_up([*node.body, *node.orelse], inner) or cleans_up(node.handlers, inner)
            return in_try or cleans_up(node.finalbody, guarded)
    return any(_cleans_up(child, guarded) for child in ast.iter_child_nodes(node))


def _catches_all(handler: ast.ExceptHandler) -> bool:
    return handler.type is None or ast.unparse(handler.type) in ("BaseException", "GeneratorExit")


def test_no_generator_cleans_up_when_it_is_collected() -> None:
    found = {
        f"{path}:{node.name}"
        for path, tree in sources("yield")
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and not is_context_manager(node) and cleans_up(node.body)
    }
    assert found == set(HARMLESS)


def test_no_object_has_a_finalizer() -> None:
    """No class of the product defines a finalizer or registers one.

    A weak set and a weak dictionary are harmless, because they only drop an entry.
    """
    found = [
        f"{path}:{node.lineno}"
        for path, tree in sources("__del__", "weakref", "gc.callbacks")
        for node in ast.walk(tree)
        if (isinstance(node, ast.FunctionDef) and node.name == "__del__")
        or (
            isinstance(node, ast.Attribute) and ast.unparse(node) in ("weakref.finalize", "weakref.ref", "gc.callbacks")
        )
    ]
    assert found == []


def test_what_is_found() -> None:
    def found(body: str) -> bool:
        function = ast.parse(f"def f():\n {body}").body[0]
        assert isinstance(function, ast.FunctionDef)
        return cleans_up(function.body)

    assert found("with lock: yield 1")
    assert found("try: yield 1\n finally: close()")
    assert found("try:\n  yield 1\n except BaseException:\n  close()")
    assert found("for each in x:\n  with each:\n   yield from each")
    assert not found("try:\n  yield 1\n except OSError:\n  close()")
    assert not found("with lock: x = 1\n yield x")
    assert not found("with lock:\n  def g(): yield 1")
