"""Build the package `kubelet_testing` from this tree, for tests of other projects.

The package contains the API server of the tests, the hollow node, and the modules of `kubelet`, `pkg` and `cmd` that
they import. These modules are below `kubelet_testing`, because a project may have packages with the same names, and
their absolute imports are changed accordingly. All other text stays the same, so that traces and line numbers match
this tree.
"""

from __future__ import annotations

import ast
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PACKAGE = "kubelet_testing"
ROOT = Path(__file__).parent.parent
# The keys are the import names of the packages, the values their folders in this tree.
SOURCES = {"kubelet": "kubelet", "pkg": "pkg", "kubelet_cmd": "cmd", "framework": "test/framework"}
# Users import these modules.
ENTRANCES = ("framework", "framework.apiserver.cluster", "framework.hollow_node", "framework.pytest_plugin")
# The tree imports the modules of these packages by computed names, which no search for imports finds.
PUT_TOGETHER = ("pkg.api",)


class RewriteError(ValueError):
    """Signal that a module would not work below `kubelet_testing`; the message has the place and the reason."""


@dataclass(frozen=True)
class Module:
    """Describe a module; `name` is its dotted name in this tree."""

    name: str
    path: Path

    @property
    def is_package(self) -> bool:
        return self.path.stem == "__init__"

    @property
    def package(self) -> str:
        return self.name if self.is_package else self.name.rpartition(".")[0]


def find_module(name: str) -> Module | None:
    """Return the module with this name, or None if this tree has none."""
    top, *rest = name.split(".")
    if top not in SOURCES:
        return None
    path = ROOT.joinpath(SOURCES[top], *rest)
    for candidate in (path / "__init__.py", path.with_suffix(".py")):
        if candidate.is_file():
            return Module(name, candidate)
    return None


def new_name(name: str) -> str:
    """Return the module's name in the distribution."""
    top, _, rest = name.partition(".")
    return ".".join(filter(None, (PACKAGE, "" if top == "framework" else top, rest)))


def imported(module: Module) -> Iterator[str]:
    """Yield the modules that a module imports anywhere in its text."""
    for node in ast.walk(ast.parse(module.path.read_text())):
        match node:
            case ast.Import():
                yield from (alias.name for alias in node.names)
            case ast.ImportFrom():
                base = _base(module, node)
                yield base
                yield from (f"{base}.{alias.name}" for alias in node.names)


def _base(module: Module, node: ast.ImportFrom) -> str:
    if not node.level:
        return node.module or ""
    parents = module.package.split(".")
    parents = parents[: len(parents) - node.level + 1]
    return ".".join([*parents, *filter(None, [node.module])])


def needed() -> dict[str, Module]:
    """Return all modules of the distribution by their names in this tree."""
    found: dict[str, Module] = {}
    waiting = [*ENTRANCES, *_put_together()]
    while waiting:
        name = waiting.pop()
        if not name or name in found:
            continue
        # The import of a module imports its package first.
        waiting.append(name.rpartition(".")[0])
        if (module := find_module(name)) is not None:
            found[name] = module
            waiting += imported(module)
    return dict(sorted(found.items()))


def _put_together() -> Iterator[str]:
    for name in PUT_TOGETHER:
        directory = ROOT.joinpath(*name.split("."))
        for path in directory.rglob("*.py"):
            if not path.stem.endswith(("_test", "conftest")):
                yield ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def rewrite(text: str, where: str) -> str:
    """Return the text of a module with the new names of imported modules. Raise RewriteError."""
    tree = ast.parse(text)
    in_formatted = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    edits: list[tuple[int, int, str, str]] = []
    for node in ast.walk(tree):
        match node:
            case ast.ImportFrom(module=str(name), level=0) if _is_ours(name):
                edits.append((node.lineno, node.col_offset, f"from {name} ", f"from {new_name(name)} "))
            case ast.Import():
                edits += [_edit_import(alias, where) for alias in node.names if _is_ours(alias.name)]
            case ast.Constant(value=str(name)) if "." in name and find_module(name.rstrip(".")):
                if id(node) in in_formatted or name.endswith("."):
                    raise RewriteError(f"{where}:{node.lineno}: the name of a module is computed from {name!r}")
                # A generated module contains its own name, for example.
                edits.append((node.lineno, node.col_offset + 1, name, new_name(name)))
    return _apply(text, edits, where)


def _is_ours(name: str) -> bool:
    return name.partition(".")[0] in SOURCES


def _edit_import(alias: ast.alias, where: str) -> tuple[int, int, str, str]:
    if alias.asname is None:
        raise RewriteError(f"{where}:{alias.lineno}: `import {alias.name}` without `as` binds another name")
    return alias.lineno, alias.col_offset, alias.name, new_name(alias.name)


def _apply(text: str, edits: list[tuple[int, int, str, str]], where: str) -> str:
    # The columns of the syntax tree count bytes.
    lines = text.encode().splitlines(keepends=True)
    for line, column, old, new in sorted(edits, reverse=True):
        before, after = lines[line - 1][:column], lines[line - 1][column:]
        if not after.startswith(old.encode()):
            raise RewriteError(f"{where}:{line}: expected {old!r} in {after.decode()!r}")
        lines[line - 1] = before + new.encode() + after.removeprefix(old.encode())
    return b"".join(lines).decode()


def build(directory: Path) -> None:
    """Write the package into a directory, and replace an earlier one."""
    shutil.rmtree(directory / PACKAGE, ignore_errors=True)
    modules = needed()
    for module in modules.values():
        for source in filter(Path.exists, (module.path, module.path.with_suffix(".pyi"))):
            target = _target(directory, module.package, source)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(rewrite(source.read_text(), str(source.relative_to(ROOT))))
    packages = {module.package for module in modules.values()}
    for source, package in _data_files():
        if package in packages:
            shutil.copyfile(source, _target(directory, package, source))
    (directory / PACKAGE / "py.typed").touch()


def _target(directory: Path, package: str, source: Path) -> Path:
    return directory.joinpath(*new_name(package).split("."), source.name)


def _data_files() -> Iterator[tuple[Path, str]]:
    """Yield the files that MANIFEST.in names, with their packages."""
    for line in (ROOT / "MANIFEST.in").read_text().splitlines():
        path = ROOT / line.removeprefix("include ")
        for top, directory in SOURCES.items():
            if path.is_relative_to(ROOT / directory):
                yield path, ".".join([top, *path.parent.relative_to(ROOT / directory).parts])
