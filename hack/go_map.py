"""Which function of the Go kubelet is where in this one.

hack/go-map/v1.36.2.tsv and outside-v1.36.2.tsv list what Go declares, the tables of 1.27 what it declared then. A
function is *present* when the Python package of the same path has it under the same name, in Python's spelling. What
is not is decided in hack/go-map/decisions.tsv: it is *renamed* to a place that is given there, *absent* for a reason,
or *to come* with an issue. Go's file and function may be patterns there; the longest that fits counts, and a
function's own row before any pattern.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import TypeGuard

ROOT = Path(__file__).resolve().parent.parent
DECLARATIONS = (ROOT / "hack/go-map/v1.36.2.tsv", ROOT / "hack/go-map/outside-v1.36.2.tsv")
DECLARATIONS_BEFORE = (ROOT / "hack/go-map/release-1.27.tsv", ROOT / "hack/go-map/outside-1.27.tsv")
DECISIONS = ROOT / "hack/go-map/decisions.tsv"

# The Go folders whose functions must all be accounted for, and the kinds of file that are no part of the product.
SCOPE = ("pkg/kubelet", "pkg/probe", "pkg/volume", "cmd/kubelet", "k8s.io")
OTHER_SYSTEMS = {"windows", "darwin", "freebsd"}
MARKS_LEFT_OUT = {"testing", "fake", "mock", "example", "generated"}
ISSUES = {"4", "5", "6", "7"}
# Where a Go folder is here, if not in the one of the same path.
_FOLDERS = {
    "pkg/kubelet": "kubelet",
    "k8s.io/apimachinery/pkg": "pkg/apimachinery",
    "k8s.io/cri-client/pkg/logs": "kubelet/kuberuntime/logs",
    "k8s.io/cri-client/pkg": "kubelet/cri/remote",
    "k8s.io/cri-streaming/pkg/streaming": "kubelet/cri/streaming",
    "k8s.io/streaming/pkg/httpstream": "pkg/apimachinery/util/httpstream",
    "k8s.io": "pkg",
}
STATES = ("present", "renamed", "absent", "to come")
_DUNDERS = {"string": {"__str__", "__repr__"}, "error": {"__str__", "__init__"}}


@dataclass(frozen=True, slots=True, order=True)
class Function:
    """A function or method that Go declares; the receiver is its type without the asterisk.

    Both releases have most of them: `only_in` is "1.27" or "1.36" for those that one of the two has.
    """

    package: str
    file: str
    receiver: str
    name: str
    only_in: str = field(default="", compare=False)

    @property
    def path(self) -> str:
        return f"{self.package}/{self.file}"

    @property
    def title(self) -> str:
        return f"{self.receiver}.{self.name}" if self.receiver else self.name


@dataclass(frozen=True, slots=True)
class Decision:
    line: int
    path: str
    function: str
    kind: str
    target: str
    reason: str

    @property
    def exact(self) -> bool:
        return not any(sign in self.path + self.function for sign in "*?[")

    def fits(self, function: Function) -> bool:
        return fnmatchcase(function.path, self.path) and fnmatchcase(function.title, self.function)


@dataclass(slots=True)
class Row:
    """What became of one Go function: one of STATES, where it is or why not."""

    function: Function
    state: str
    detail: str


@dataclass(slots=True)
class Module:
    """What one Python file defines: the names at its top, and of each class its bases and what it defines.

    Functions without a body, as those of protocols, are in `declared` alone.
    """

    path: str
    names: set[str] = field(default_factory=set)
    bases: dict[str, list[str]] = field(default_factory=dict)
    members: dict[str, set[str]] = field(default_factory=dict)
    declared: dict[str, set[str]] = field(default_factory=dict)

    def has(self, name: str) -> bool:
        """Whether there is such a name, be it one that is only declared."""
        owner, _, member = name.rpartition(".")
        return self.does(name) or member in self.declared.get(owner, set())

    def does(self, name: str) -> bool:
        """Whether there is such a name, and a body to it."""
        owner, _, member = name.rpartition(".")
        return member in self.members.get(owner, set()) if owner else name in self.names | self.bases.keys()

    def classes(self) -> list[str]:
        """All classes that do something."""
        return [cls for cls, bases in self.bases.items() if "Protocol" not in bases]


def read_both_releases() -> list[Function]:
    """What Go declares, and what it declared in 1.27.

    A function that has moved to another file, or with its package, is the same one.
    """

    def same(function: Function) -> tuple[str, str, str]:
        return python_folder(function.package), function.receiver, function.name

    now, before = read_functions(DECLARATIONS), read_functions(DECLARATIONS_BEFORE)
    there_now, there_before = set(map(same, now)), set(map(same, before))
    new = (each if same(each) in there_before else replace(each, only_in="1.36") for each in now)
    gone = (replace(each, only_in="1.27") for each in before if same(each) not in there_now)
    return sorted([*new, *gone])


def python_folder(package: str) -> str:
    """Where the counterpart of a Go package is, from the root: a folder or, without `.py`, a file."""
    for go, python in _FOLDERS.items():
        if package == go or package.startswith(go + "/"):
            package = python + package.removeprefix(go)
            break
    return package.replace("-", "_")


def plain(name: str) -> str:
    """A name without what differs between the languages: case, underscores, and `_locked` for who holds the lock."""
    return name.removesuffix("_locked").replace("_", "").lower()


def read_rows(paths: tuple[Path, ...] = DECLARATIONS) -> list[list[str]]:
    return [row.split("\t") for path in paths for row in path.read_text().splitlines()[1:]]


def read_functions(paths: tuple[Path, ...] = DECLARATIONS, scope: tuple[str, ...] = SCOPE) -> list[Function]:
    found = set()
    for package, file, kind, receiver, name, _, mark, goos in read_rows(paths):
        if kind not in ("func", "method") or goos in OTHER_SYSTEMS or MARKS_LEFT_OUT & set(mark.split("+")):
            continue
        if any(package == each or package.startswith(each + "/") for each in scope):
            found.add(Function(package, file, re.sub(r"^\*|\[.*", "", receiver), name))
    return sorted(found)


def read_decisions(path: Path = DECISIONS) -> list[Decision]:
    """The decisions in the order of the file; raises ValueError for a row that is none."""
    decisions = []
    for number, text in enumerate(path.read_text().splitlines(), 1):
        if not text or text.startswith("#"):
            continue
        columns = text.split("\t")
        if len(columns) != 5:
            raise ValueError(f"{path.name}:{number}: want 5 columns, not {len(columns)}")
        decisions.append(Decision(number, *columns))
    return decisions


@cache
def read_module(path: Path, root: Path = ROOT) -> Module:
    module = Module(str(path.relative_to(root)))
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ClassDef):
            module.bases[node.name] = [ast.unparse(base).split("[")[0].split(".")[-1] for base in node.bases]
            module.members[node.name] = set(_defined([each for each in node.body if not _is_declaration(each)]))
            module.declared[node.name] = {each.name for each in node.body if _is_declaration(each)}
        else:
            module.names.update(_defined([node]))
    return module


def _is_declaration(node: ast.stmt) -> TypeGuard[ast.FunctionDef]:
    """Whether a function does nothing but to be declared: all that it has beside a docstring is `...`."""
    if not isinstance(node, ast.FunctionDef):
        return False
    rest = node.body[1:] if ast.get_docstring(node) is not None else node.body
    return len(rest) == 1 and ast.unparse(rest[0]) == "..."


def _defined(body: list[ast.stmt]) -> Iterator[str]:
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id
        elif isinstance(node, ast.Assign):
            yield from (target.id for target in node.targets if isinstance(target, ast.Name))
        elif isinstance(node, ast.If | ast.Try):
            yield from _defined(node.body)


class PythonTree:
    """The Python files, looked up by the Go names that they mirror."""

    def __init__(self, root: Path = ROOT) -> None:
        self.root = root

    def package_of(self, package: str) -> Path:
        return self.root / python_folder(package)

    def mirrored(self, package: str, file: str) -> list[Module]:
        """The files that may hold what a Go file declares: of the same name, or the only one of the package."""
        folder, stem = self.package_of(package), file.removesuffix(".go").replace("-", "_")
        paths = [folder / f"{stem}.py", folder / f"{stem.removesuffix('_linux')}.py"]
        if stem in (folder.name, "doc"):
            paths += [folder.with_suffix(".py"), folder / "__init__.py"]
        return [read_module(path, self.root) for path in dict.fromkeys(paths) if path.is_file()]

    def modules(self, package: str) -> list[Module]:
        folder = self.package_of(package)
        paths = [folder.with_suffix(".py"), *sorted(folder.glob("*.py"))]
        return [
            read_module(path, self.root)
            for path in paths
            if path.is_file() and path.name != "testing.py" and not path.name.endswith("_test.py")
        ]

    def find(self, function: Function) -> str | None:
        """Where the function is under its own name ("file:Class.method"), or None."""
        own, package = self.mirrored(function.package, function.file), self.modules(function.package)
        if function.receiver:
            return _find_method(function, own, package)
        return _find_function(function, own, package)

    def has(self, target: str) -> bool:
        path, _, name = target.partition(":")
        return (self.root / path).is_file() and (not name or read_module(self.root / path, self.root).does(name))


def _find_function(function: Function, own: list[Module], package: list[Module]) -> str | None:
    """At the top of a file, or the class that a New makes, or a method of the mirrored file."""
    name = plain(function.name)
    made = name.removeprefix("new") if name.startswith("new") else None
    for module in own + package:
        if found := _pick(module.names, {name}, function):
            return f"{module.path}:{found}"
        for cls in module.classes():
            if made and plain(cls) in (made, made + "impl"):
                return f"{module.path}:{cls}"
    return _member({name}, function, _all_classes(own), [])


def _find_method(function: Function, own: list[Module], package: list[Module]) -> str | None:
    """In the class that has the receiver's name or its bases (if there is none, in any class of the mirrored file),
    or a function of that file."""
    name = plain(function.name)
    receivers = {plain(function.receiver), plain(function.receiver) + "impl"}
    classes = [(module, cls) for module in own + package for cls in module.classes() if plain(cls) in receivers]
    if classes:
        found = _member({name, *_DUNDERS.get(name, ())}, function, classes, package)
    else:
        found = _member({name}, function, _all_classes(own), package)
    return found or next((f"{m.path}:{top}" for m in own if (top := _pick(m.names, {name}, function))), None)


def _all_classes(modules: list[Module]) -> list[tuple[Module, str]]:
    return [(module, cls) for module in modules for cls in module.classes()]


def _member(
    wanted: set[str], function: Function, classes: list[tuple[Module, str]], package: list[Module]
) -> str | None:
    """The first member with a wanted name, in the classes and then in those of their bases that the package has."""
    while classes:
        module, cls = classes[0]
        if member := _pick(module.members[cls], wanted, function):
            return f"{module.path}:{cls}.{member}"
        classes = classes[1:] + [(m, name) for m in package for name in m.bases if name in module.bases[cls]]
    return None


def _pick(names: set[str], wanted: set[str], function: Function) -> str | None:
    """The name that is a wanted plain one, and no constant or special method that sounds like it.

    Where Go has both `Merge` and `merge`, `merge` and `_merge` are told apart.
    """
    exported = function.name[0].isupper()
    found = [
        name
        for name in names
        if name in wanted or (plain(name) in wanted and not name.isupper() and not name.startswith("__"))
    ]
    return min(found, key=lambda name: (name.startswith("_") == exported, name), default=None)


@dataclass(slots=True)
class Map:
    rows: list[Row] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    def current(self) -> list[Row]:
        """The functions that Go still has."""
        return [row for row in self.rows if row.function.only_in != "1.27"]

    def counts(self, state: str) -> Counter[str]:
        return Counter(row.function.package for row in self.current() if row.state == state)


def build(functions: list[Function], decisions: list[Decision], tree: PythonTree) -> Map:
    """Say of every function what became of it, and collect what is wrong with the decisions."""
    result = Map()
    used: set[int] = set()
    places = {function: tree.find(function) for function in functions}
    claims = Counter(places.values())
    claimed: dict[str, str] = {}
    for function, found in places.items():
        fitting = [each for each in decisions if each.fits(function)]
        exact = [each for each in fitting if each.exact]
        what = f"{function.path} {function.title}"
        if len(exact) > 1:
            result.faults.append(f"{what}: decided twice, in lines {exact[0].line} and {exact[1].line}")
        used.update(each.line for each in exact)
        # Of two functions that could be the same one, a decision says which it is not.
        if found is not None and not (exact and claims[found] > 1):
            result.rows.append(Row(function, "present", found))
            result.faults += [f"{what}: line {each.line} is stale, it is in {found}" for each in exact]
            # A function that 1.27 had may have become one that has its place.
            if function.only_in != "1.27":
                if found in claimed:
                    result.faults.append(f"{what}: {found} is {claimed[found]} already, so decide what this is")
                claimed[found] = function.title
            continue
        if not fitting:
            result.faults.append(f"{what}: neither present nor decided")
            result.rows.append(Row(function, "", "undecided"))
            continue
        chosen = exact[0] if exact else max(fitting, key=lambda each: len(each.path) + len(each.function))
        used.add(chosen.line)
        result.rows.append(_decided(function, chosen))
    result.faults += [f"line {each.line}: no function needs it" for each in decisions if each.line not in used]
    result.faults += [fault for each in decisions for fault in _faults_of(each, tree)]
    return result


def _decided(function: Function, decision: Decision) -> Row:
    match decision.kind:
        case "renamed":
            return Row(function, "renamed", "; ".join(filter(None, (decision.target, decision.reason))))
        case "issue":
            return Row(function, "to come", f"issue {decision.target}")
    return Row(function, decision.kind, decision.reason)


def _faults_of(decision: Decision, tree: PythonTree) -> Iterator[str]:
    where = f"line {decision.line}"
    match decision.kind:
        case "renamed":
            if not tree.has(decision.target):
                yield f"{where}: there is no {decision.target}"
        case "absent":
            if not decision.reason:
                yield f"{where}: absent needs a reason"
        case "issue":
            if decision.target not in ISSUES:
                yield f"{where}: there is no issue {decision.target!r}"
        case other:
            yield f"{where}: {other!r} is none of renamed, absent, issue"
