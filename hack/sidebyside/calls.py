"""Find which definition each call in a source file calls, in Python and in Go.

Both finders work without running or type-checking the code. They follow imports, receivers, annotations and fields, and
then fall back on a name that only one type has. A call that could be several things has no target.
"""

from __future__ import annotations

import ast
import io
import queue
import re
import socket
import threading
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from sidebyside import go_source, python_source


@dataclass(frozen=True, slots=True)
class Target:
    """Name a definition: a file or Go package path, and "name" or "Class.name" in it. A module has an empty name."""

    path: str
    name: str


@dataclass(frozen=True, slots=True)
class Call:
    """Hold the position of a called name in a text, as offsets of characters, and the definition that it calls."""

    start: int
    end: int
    target: Target


# ---- Python ----

# A method with one of these names may belong to a standard type.
_LIBRARY_TYPES = (
    dict, list, set, tuple, str, bytes, int, float, memoryview, datetime, Path, io.TextIOWrapper, io.BufferedReader,
    queue.Queue, socket.socket, threading.Thread, threading.Event, threading.Condition, re.Pattern, re.Match,
)  # fmt: skip
_LIBRARY_METHODS = {name for kind in _LIBRARY_TYPES for name in dir(kind)}


@dataclass(slots=True)
class _Class:
    node: ast.ClassDef
    methods: dict[str, ast.FunctionDef]
    # The dict maps each field to the expression of its type.
    fields: dict[str, ast.expr]

    @property
    def is_protocol(self) -> bool:
        return any("Protocol" in ast.unparse(base) for base in self.node.bases)


@dataclass(slots=True)
class _Module:
    functions: dict[str, ast.FunctionDef] = field(default_factory=dict)
    classes: dict[str, _Class] = field(default_factory=dict)
    # The dict maps each imported name to a module and to the name in it; the name in it is empty for a module itself.
    imports: dict[str, tuple[str, str]] = field(default_factory=dict)
    stars: list[str] = field(default_factory=list)
    values: set[str] = field(default_factory=set)


class PythonCalls:
    """Find the targets of calls in the Python files of a tree."""

    def __init__(self, root: Path, paths: Iterable[str]) -> None:
        self._root = root
        self._modules = {path: _read(path, python_source.read(root, path).tree) for path in paths}
        self._calls: dict[str, list[Call]] = {}
        owners: dict[str, list[Target]] = defaultdict(list)
        for path, module in self._modules.items():
            for name, cls in module.classes.items():
                if not cls.is_protocol and not path.endswith("testing.py") and "fake" not in path:
                    for method in cls.methods:
                        owners[method].append(Target(path, f"{name}.{method}"))
        self._only_owner = {
            name: found[0] for name, found in owners.items() if len(found) == 1 and name not in _LIBRARY_METHODS
        }

    def calls(self, path: str) -> list[Call]:
        """Return the calls in a file whose target is known, in the order of the text."""
        if path not in self._calls:
            self._calls[path] = self._find_calls(path)
        return self._calls[path]

    def _find_calls(self, path: str) -> list[Call]:
        file = python_source.read(self._root, path)
        found = []
        for scope, func in _called_in(file.tree):
            target = self._target(path, scope, func)
            if target is None or not target.name:
                continue
            # ast counts columns in bytes of UTF-8.
            line, column = func.end_lineno or 0, func.end_col_offset or 0
            text = file.text[file.line_starts[line - 1] : file.line_starts[line]]
            end = file.line_starts[line - 1] + len(text.encode()[:column].decode())
            name = func.attr if isinstance(func, ast.Attribute) else func.id
            found.append(Call(end - len(name), end, target))
        return sorted(found, key=lambda each: each.start)

    def _target(self, path: str, scope: _Scope, func: ast.expr) -> Target | None:
        match func:
            case ast.Name(id=name):
                return self._definition(path, name)
            case ast.Attribute(value=value, attr=name):
                if (found := self._static(path, func)) is not None:
                    return found
                owner = self._type_of(path, scope, value)
                if owner is not None:
                    return self._method(owner, name)
                return None if self._is_foreign(path, value) else self._only_owner.get(name)
        return None

    def _definition(self, path: str, name: str, depth: int = 0) -> Target | None:
        """Return the definition of a top-level name of a module, even if the module imports that name."""
        module = self._modules.get(path)
        if module is None or depth > 8:
            return None
        if name in module.functions or name in module.classes:
            return Target(path, name)
        if name in module.imports:
            source, attribute = module.imports[name]
            if not attribute:
                return self._module_target(source)
            inner = self._module_target(f"{source}.{attribute}")
            outer = self._module_target(source)
            return inner or (outer and self._definition(outer.path, attribute, depth + 1))
        for source in module.stars:
            if (outer := self._module_target(source)) and (found := self._definition(outer.path, name, depth + 1)):
                return found
        return None

    def _module_target(self, dotted: str) -> Target | None:
        base = dotted.replace(".", "/")
        path = next((each for each in (f"{base}.py", f"{base}/__init__.py") if each in self._modules), None)
        return Target(path, "") if path else None

    def _static(self, path: str, expression: ast.expr) -> Target | None:
        """Return the definition that `module.name` or `Class.name` refers to, or None for any other expression."""
        match expression:
            case ast.Name(id=name):
                return self._definition(path, name)
            case ast.Attribute(value=value, attr=name):
                owner = self._static(path, value)
                if owner is None:
                    return None
                return self._method(owner, name) if owner.name else self._definition(owner.path, name)
        return None

    def _is_foreign(self, path: str, value: ast.expr) -> bool:
        """Report whether a value comes from a library, whose methods may have the names of methods in this tree."""
        while isinstance(value, ast.Attribute | ast.Call):
            value = value.value if isinstance(value, ast.Attribute) else value.func
        if not isinstance(value, ast.Name):
            return True
        module = self._modules[path]
        return value.id in module.imports and self._definition(path, value.id) is None

    def _class(self, target: Target | None) -> _Class | None:
        module = self._modules.get(target.path) if target else None
        return module.classes.get(target.name) if module and target else None

    def _lineage(self, target: Target, depth: int = 0) -> Iterator[Target]:
        """Yield a class and then its bases."""
        cls = self._class(target)
        if cls is None or depth > 8:
            return
        yield target
        for base in cls.node.bases:
            while isinstance(base, ast.Subscript):
                base = base.value
            if found := self._static(target.path, base):
                yield from self._lineage(found, depth + 1)

    def _method(self, owner: Target, name: str) -> Target | None:
        for each in self._lineage(owner):
            cls = self._class(each)
            if cls and name in cls.methods:
                return Target(each.path, f"{each.name}.{name}")
        return None

    def _type_of(self, path: str, scope: _Scope, value: ast.expr, depth: int = 0) -> Target | None:
        """Return the class of a value, or None if annotations and calls of classes do not show it."""
        if depth > 6:
            return None
        match value:
            case ast.Name(id="self" | "cls") if scope.cls is not None:
                return Target(path, scope.cls.name)
            case ast.Name(id=name):
                known = scope.local(name)
                return self._type_from(path, scope, known, depth) if known is not None else None
            case ast.Attribute(value=inner, attr=name):
                owner = self._type_of(path, scope, inner, depth + 1)
                for each in self._lineage(owner) if owner else ():
                    cls = self._class(each)
                    if cls and name in cls.fields:
                        return self._type_from(each.path, _Scope(cls.node, None), cls.fields[name], depth)
            case ast.Call(func=func):
                return self._result_of(path, scope, func, depth)
        return None

    def _result_of(self, path: str, scope: _Scope, func: ast.expr, depth: int) -> Target | None:
        target = self._target(path, scope, func)
        if target is None or self._class(target):
            return target
        module = self._modules[target.path]
        owner, _, name = target.name.rpartition(".")
        function = module.classes[owner].methods.get(name) if owner else module.functions.get(name)
        if function is None or function.returns is None:
            return None
        return self._type_from(target.path, _Scope(None, None), function.returns, depth + 1)

    def _type_from(self, path: str, scope: _Scope, expression: ast.expr, depth: int) -> Target | None:
        """Return the class that an annotation, or the value of an assignment, names."""
        if depth > 6:
            return None
        match expression:
            case ast.Constant(value=str(text)):
                return self._type_from(path, scope, ast.parse(text, mode="eval").body, depth + 1)
            case ast.BinOp(left=left, op=ast.BitOr(), right=right):
                return self._type_from(path, scope, left, depth) or self._type_from(path, scope, right, depth)
            case ast.Subscript(value=value):
                return self._type_from(path, scope, value, depth + 1)
            case ast.Call():
                return self._type_of(path, scope, expression, depth + 1)
            case ast.Name() | ast.Attribute():
                found = self._static(path, expression)
                return found if self._class(found) else self._type_of(path, scope, expression, depth + 1)
        return None


@dataclass(slots=True)
class _Scope:
    """Hold the class and the function around a call."""

    cls: ast.ClassDef | None
    function: ast.FunctionDef | None

    def local(self, name: str) -> ast.expr | None:
        """Return the annotation of a parameter, or the first value that the function assigns to a name."""
        if self.function is None:
            return None
        arguments = self.function.args
        for each in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]:
            if each.arg == name:
                return each.annotation
        for node in ast.walk(self.function):
            match node:
                case ast.Assign(targets=[ast.Name(id=assigned)], value=value) if assigned == name:
                    return None if isinstance(value, ast.Constant) or _mentions(value, name) else value
                case ast.AnnAssign(target=ast.Name(id=assigned), annotation=annotation) if assigned == name:
                    return annotation
        return None


def _mentions(value: ast.expr, name: str) -> bool:
    return any(isinstance(node, ast.Name) and node.id == name for node in ast.walk(value))


def _read(path: str, tree: ast.Module) -> _Module:
    module = _Module()
    package = Path(path).parent
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                for each in names:
                    module.imports[each.asname or each.name.partition(".")[0]] = (
                        each.name if each.asname else each.name.partition(".")[0],
                        "",
                    )
            case ast.ImportFrom(module=source, names=names, level=level):
                base = package
                for _ in range(level - 1):
                    base = base.parent
                dotted = ".".join(filter(None, [".".join(base.parts) if level else "", source or ""]))
                for each in names:
                    if each.name == "*":
                        module.stars.append(dotted)
                    else:
                        module.imports[each.asname or each.name] = (dotted, each.name)
    for statement in tree.body:
        if isinstance(statement, ast.FunctionDef):
            module.functions[statement.name] = statement
        elif isinstance(statement, ast.ClassDef):
            module.classes[statement.name] = _read_class(statement)
    return module


def _read_class(node: ast.ClassDef) -> _Class:
    methods = {each.name: each for each in node.body if isinstance(each, ast.FunctionDef)}
    fields: dict[str, ast.expr] = {}
    for method in methods.values():
        annotations = {each.arg: each.annotation for each in method.args.args if each.annotation}
        if any(ast.unparse(each).endswith("property") for each in method.decorator_list) and method.returns:
            fields[method.name] = method.returns
        for inner in ast.walk(method):
            match inner:
                case ast.Assign(targets=[ast.Attribute(value=ast.Name(id="self"), attr=name)], value=value):
                    kind = annotations.get(value.id) if isinstance(value, ast.Name) else value
                    if kind is not None and not isinstance(kind, ast.Constant):
                        fields.setdefault(name, kind)
                case ast.AnnAssign(target=ast.Attribute(value=ast.Name(id="self"), attr=name), annotation=kind):
                    fields[name] = kind
    for each in node.body:
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
            fields[each.target.id] = each.annotation
    return _Class(node, methods, fields)


def _called_in(tree: ast.Module) -> Iterator[tuple[_Scope, ast.Name | ast.Attribute]]:
    def visit(node: ast.AST, scope: _Scope) -> Iterator[tuple[_Scope, ast.Name | ast.Attribute]]:
        for child in ast.iter_child_nodes(node):
            inner = scope
            if isinstance(child, ast.ClassDef):
                inner = _Scope(child, None)
            elif isinstance(child, ast.FunctionDef) and scope.function is None:
                inner = _Scope(scope.cls, child)
            elif isinstance(child, ast.Call) and isinstance(child.func, ast.Name | ast.Attribute):
                yield scope, child.func
            yield from visit(child, inner)

    yield from visit(tree, _Scope(None, None))


# ---- Go ----

_GO_CALL = re.compile(r"(?<![\w.])((?:\w+\.)*)(\w+)\(")
_GO_QUIET = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|`[^`]*`', re.S)
_GO_RECEIVER = re.compile(r"^func \((\w+) \*?(\w+)", re.M)
# A method with one of these names may belong to a type outside the map.
_GO_LIBRARY_METHODS = {"String", "Error", "Observe", "Inc", "Dec", "Done", "Err", "Value", "Len", "Close", "Enabled"}
_GO_TYPED = re.compile(r"(\w+) +\*?((?:\w+\.)?[A-Za-z]\w*)")


class GoCalls:
    """Find the targets of calls in Go sources, among the declarations that the map lists."""

    def __init__(self, declared: Iterable[tuple[str, str]]) -> None:
        """Create a finder; `declared` has the package path and "name" or "Receiver.name" of each declaration."""
        self._declared = set(declared)
        self._by_package: dict[tuple[str, str], list[Target]] = defaultdict(list)
        self._everywhere: dict[str, list[Target]] = defaultdict(list)
        for package, name in sorted(self._declared):
            if "." in name:
                method = name.rpartition(".")[2]
                self._by_package[package, method].append(Target(package, name))
                self._everywhere[method].append(Target(package, name))

    def calls(self, file: go_source.GoFile, piece: go_source.Piece) -> list[Call]:
        """Return the calls in a piece whose target is known; offsets count from the beginning of the piece."""
        text = _GO_QUIET.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), file.text(piece))
        package = file.path.rpartition("/")[0]
        receiver = _GO_RECEIVER.search(text)
        types = self._types(file, text, receiver[2] if receiver else "")
        found = []
        for match in _GO_CALL.finditer(text):
            if text[max(0, match.start() - 5) : match.start()] == "func ":
                continue
            chain = match[1].split(".")[:-1]
            target = self._target(package, file.imports, chain, match[2], receiver, types)
            if target is not None:
                found.append(Call(match.start(2), match.end(2), target))
        return found

    def _types(self, file: go_source.GoFile, text: str, receiver: str) -> dict[str, str]:
        """Return the types of parameters, and of the receiver's fields as far as this file declares them."""
        types: dict[str, str] = {}
        if declared := file.find(receiver) if receiver else None:
            types.update(_GO_TYPED.findall(_GO_QUIET.sub(" ", file.text(declared)).partition("{")[2]))
        head = next((line for line in text.split("\n") if line.startswith("func ")), "")
        types.update(_GO_TYPED.findall(head))
        return types

    def _target(
        self,
        package: str,
        imports: dict[str, str],
        chain: list[str],
        name: str,
        receiver: re.Match[str] | None,
        types: dict[str, str],
    ) -> Target | None:
        if not chain:
            return Target(package, name) if (package, name) in self._declared else None
        if chain[0] in imports:
            path = imports[chain[0]]
            return Target(path, name) if len(chain) == 1 and (path, name) in self._declared else None
        if receiver and chain == [receiver[1]] and (package, f"{receiver[2]}.{name}") in self._declared:
            return Target(package, f"{receiver[2]}.{name}")
        kind = types.get(chain[-1], "")
        if kind:
            owner, _, base = kind.rpartition(".")
            home = imports.get(owner, "") if owner else package
            if (home, f"{base}.{name}") in self._declared:
                return Target(home, f"{base}.{name}")
            return _only(self._by_package[home, name])
        if name in _GO_LIBRARY_METHODS:
            return None
        found = _only(self._everywhere[name])
        return found if found and found.path in (package, *imports.values()) else None


def _only(targets: list[Target]) -> Target | None:
    return targets[0] if len(targets) == 1 else None
