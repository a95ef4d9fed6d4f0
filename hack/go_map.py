"""Find where each function, type and constant of the Go kubelet is in this tree.

hack/go-map/v1.36.2.tsv and outside-v1.36.2.tsv list the declarations of Go. The tables of 1.27 list earlier
declarations, and older.tsv lists some that were gone before 1.27. A declaration is *present* when the Python package
with the same path has it under the same name in Python's spelling. hack/go-map/decisions.tsv decides about each of the
others: it is *renamed* to a given place, *absent* for a reason, or *to come* with an issue. The Go file and name there
may be patterns. The longest match counts, and an exact row counts before any pattern.
"""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import TypeGuard

ROOT = Path(__file__).resolve().parent.parent
DECLARATIONS = (ROOT / "hack/go-map/v1.36.2.tsv", ROOT / "hack/go-map/outside-v1.36.2.tsv")
DECLARATIONS_BEFORE = (ROOT / "hack/go-map/release-1.27.tsv", ROOT / "hack/go-map/outside-1.27.tsv")
DECLARATIONS_OLDER = (ROOT / "hack/go-map/older.tsv",)
DECISIONS = ROOT / "hack/go-map/decisions.tsv"

# All declarations of these Go folders must be accounted for, except those in files of other systems or with these
# marks.
SCOPE = ("pkg/kubelet", "pkg/probe", "pkg/volume", "cmd/kubelet", "k8s.io")
OTHER_SYSTEMS = {"windows", "darwin", "freebsd"}
MARKS_LEFT_OUT = {"testing", "fake", "mock", "example", "generated"}
ISSUES = {"4", "5", "6", "7"}
# These Go folders have Python folders with other paths.
_FOLDERS = {
    "pkg/kubelet": "kubelet",
    "k8s.io/apimachinery/pkg": "pkg/apimachinery",
    "k8s.io/cri-client/pkg/logs": "kubelet/kuberuntime/logs",
    "k8s.io/cri-client/pkg": "kubelet/cri/remote",
    "k8s.io/cri-streaming/pkg/streaming": "kubelet/cri/streaming",
    "k8s.io/streaming/pkg/httpstream": "pkg/apimachinery/util/httpstream",
    "k8s.io": "pkg",
}
FUNCTIONS = {"func", "method"}
KINDS = FUNCTIONS | {"type", "interface", "const-group", "field"}
STATES = ("present", "renamed", "absent", "to come")
_DUNDERS = {"string": {"__str__", "__repr__"}, "error": {"__str__", "__init__"}}


@dataclass(frozen=True, slots=True, order=True)
class Declaration:
    """Describe a declaration of Go: a function, a method, a type, an interface, a field, or a group of constants.

    `receiver` is the type of a method or field, without the asterisk; `name` has all names of a group, separated by
    commas. `only_in` is "1.27" or "1.36" for a declaration of only one of the two releases, and "older" for one of
    neither.
    """

    package: str
    file: str
    receiver: str
    name: str
    kind: str = field(default="func", compare=False)
    only_in: str = field(default="", compare=False)

    @property
    def path(self) -> str:
        return f"{self.package}/{self.file}"

    @property
    def title(self) -> str:
        """Return the name in decisions; a group of constants has the name of its first constant."""
        if self.kind == "const-group":
            return f"const {self.constants[0]}"
        return f"{self.receiver}.{self.name}" if self.receiver else self.name

    @property
    def whole_title(self) -> str:
        """Return the title, with all constants of a group."""
        return f"const {', '.join(self.constants)}" if self.kind == "const-group" else self.title

    @property
    def constants(self) -> list[str]:
        """Return the names in a group of constants."""
        return [name for name in self.name.split(",") if name != "_"]

    @property
    def is_function(self) -> bool:
        return self.kind in FUNCTIONS

    @property
    def is_gone(self) -> bool:
        """Report whether Go no longer has the declaration."""
        return self.only_in in ("1.27", "older")


@dataclass(frozen=True, slots=True)
class Decision:
    line: int
    path: str
    title: str
    kind: str
    target: str
    reason: str

    @property
    def exact(self) -> bool:
        return not any(sign in self.path + self.title for sign in "*?[")

    def fits(self, declaration: Declaration) -> bool:
        return fnmatchcase(declaration.path, self.path) and fnmatchcase(declaration.title, self.title)


@dataclass(slots=True)
class Row:
    """Hold the state of a declaration, one of STATES, and its place or the reason."""

    declaration: Declaration
    state: str
    detail: str


@dataclass(slots=True)
class Module:
    """Describe the definitions of a Python file: its top-level names, and the bases and members of each class.

    Functions without a body, such as those of protocols, are only in `declared`. `aliases` are assigned top-level names
    that are spelled like a class. `constants` are the names assigned at the top level, in enums, and in UPPER_CASE in
    other classes ("Class.NAME").
    """

    path: str
    names: set[str] = field(default_factory=set)
    bases: dict[str, list[str]] = field(default_factory=dict)
    members: dict[str, set[str]] = field(default_factory=dict)
    declared: dict[str, set[str]] = field(default_factory=dict)
    aliases: set[str] = field(default_factory=set)
    constants: list[str] = field(default_factory=list)

    def has(self, name: str) -> bool:
        """Report whether the name exists, even if it is only declared."""
        owner, _, member = name.rpartition(".")
        return self.does(name) or member in self.declared.get(owner, set())

    def does(self, name: str) -> bool:
        """Report whether the name exists and has a body."""
        owner, _, member = name.rpartition(".")
        return member in self.members.get(owner, set()) if owner else name in self.names | self.bases.keys()

    def classes(self) -> list[str]:
        """Return all classes except protocols."""
        return [cls for cls, bases in self.bases.items() if "Protocol" not in bases]


def read_all_releases() -> list[Declaration]:
    """Return the declarations of the current release and of 1.27, and some older ones that documents still mention.

    A declaration that has moved to another file, or with its package, is the same one. If a group of constants has lost
    some, the lost ones have a row.
    """
    now, before = read_declarations(DECLARATIONS), read_declarations(DECLARATIONS_BEFORE)
    older = read_declarations(DECLARATIONS_OLDER)
    there_now, there_before = _names_of(now), _names_of(before)
    new = (each if _keys(each) & there_before else replace(each, only_in="1.36") for each in now)
    gone = _left_over(before, there_now, "1.27")
    return sorted([*new, *gone, *_left_over(older, there_now | there_before, "older")])


# A _Key is a declaration's Python folder, its receiver, and its name or that of one of its constants.
_Key = tuple[str, str, str]


def _keys(declaration: Declaration) -> set[_Key]:
    names = declaration.constants if declaration.kind == "const-group" else [declaration.name]
    return {(python_folder(declaration.package), declaration.receiver, name) for name in names}


def _names_of(declarations: list[Declaration]) -> set[_Key]:
    return {key for each in declarations for key in _keys(each)}


def _left_over(declarations: list[Declaration], there: set[_Key], only_in: str) -> Iterator[Declaration]:
    """Yield the declarations that no longer exist, with only those constants of a group that no longer exist."""
    for each in declarations:
        left = {name for *_, name in _keys(each) - there}
        if each.kind == "const-group":
            each = replace(each, name=",".join(name for name in each.constants if name in left))
        if left:
            yield replace(each, only_in=only_in)


def python_folder(package: str) -> str:
    """Return the path of the Python counterpart of a Go package: a folder or, without `.py`, a file."""
    for go, python in _FOLDERS.items():
        if package == go or package.startswith(go + "/"):
            package = python + package.removeprefix(go)
            break
    return package.replace("-", "_")


def plain(name: str) -> str:
    """Return the name without what differs between the languages: case, underscores, and the ending `_locked`."""
    return name.removesuffix("_locked").replace("_", "").lower()


def read_rows(paths: tuple[Path, ...] = DECLARATIONS) -> list[list[str]]:
    return [row.split("\t") for path in paths for row in path.read_text().splitlines()[1:]]


def read_declarations(paths: tuple[Path, ...] = DECLARATIONS, scope: tuple[str, ...] = SCOPE) -> list[Declaration]:
    found = set()
    for package, file, kind, receiver, name, _, mark, goos in read_rows(paths):
        if kind not in KINDS or goos in OTHER_SYSTEMS or MARKS_LEFT_OUT & set(mark.split("+")):
            continue
        if any(package == each or package.startswith(each + "/") for each in scope):
            found.add(Declaration(package, file, re.sub(r"^\*|\[.*", "", receiver), name, kind))
    return sorted(found)


def read_decisions(path: Path = DECISIONS) -> list[Decision]:
    """Return the decisions in the order of the file. Raise ValueError for an invalid row."""
    decisions = []
    for number, text in enumerate(path.read_text().splitlines(), 1):
        if not text or text.startswith("#"):
            continue
        columns = text.split("\t")
        if len(columns) != 5:
            raise ValueError(f"{path.name}:{number}: expected 5 columns, got {len(columns)}")
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
            module.constants += [f"{node.name}.{name}" for name in _constants_of(node)]
        else:
            module.names.update(_defined([node]))
            assigned = list(_assigned([node]))
            module.constants += assigned
            module.aliases.update(name for name in assigned if _is_spelled_like_a_class(name))
    return module


def _is_declaration(node: ast.stmt) -> TypeGuard[ast.FunctionDef]:
    """Report whether a function is only declared: its body is `...` after an optional docstring."""
    if not isinstance(node, ast.FunctionDef):
        return False
    rest = node.body[1:] if ast.get_docstring(node) is not None else node.body
    return len(rest) == 1 and ast.unparse(rest[0]) == "..."


def _constants_of(node: ast.ClassDef) -> Iterator[str]:
    is_enum = any(re.search(r"(Enum|Flag)$", ast.unparse(base)) for base in node.bases)
    return (name for name in _assigned(node.body) if is_enum or name.isupper())


def _assigned(body: list[ast.stmt]) -> Iterator[str]:
    """Return the names that are assigned."""
    functions = (ast.FunctionDef, ast.ClassDef)
    return _defined([node for node in body if not isinstance(node, functions) and getattr(node, "value", True)])


def _is_spelled_like_a_class(name: str) -> bool:
    return name.lstrip("_")[:1].isupper() and not name.isupper()


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
    """Find Python files and definitions by the Go names that they mirror."""

    def __init__(self, root: Path = ROOT) -> None:
        self.root = root

    def package_of(self, package: str) -> Path:
        return self.root / python_folder(package)

    def mirrored(self, package: str, file: str) -> list[Module]:
        """Return the files that may mirror a Go file: those with the same name, or the only one of the package."""
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

    def find(self, declaration: Declaration) -> str | None:
        """Return the place ("file:Class.method") where the declaration has its own name, or None.

        All constants of a group must exist; the place is that of the first one.
        """
        own, package = (
            self.mirrored(declaration.package, declaration.file),
            self.modules(declaration.package),
        )
        match declaration.kind:
            case "type" | "interface":
                return _find_type(declaration, own + package)
            case "const-group":
                places = [_find_constant(name, own + package) for name in declaration.constants]
                return places[0] if all(places) else None
            case "field":
                return None
        if declaration.receiver:
            return _find_method(declaration, own, package)
        return _find_function(declaration, own, package)

    def has(self, target: str) -> bool:
        path, _, name = target.partition(":")
        return (self.root / path).is_file() and (not name or read_module(self.root / path, self.root).does(name))


def _find_type(declaration: Declaration, modules: list[Module]) -> str | None:
    """Return the class or alias with this name.

    If Go has both an interface and a struct with this name, a protocol counts as the interface.
    """
    name = plain(declaration.name)
    unexported_struct = declaration.kind == "type" and declaration.name[0].islower()
    for wanted in (name + "impl", name) if unexported_struct else (name, name + "impl"):
        for module in modules:
            if found := sorted(each for each in module.bases.keys() | module.aliases if plain(each) == wanted):
                return f"{module.path}:{found[0]}"
    return None


def _find_constant(name: str, modules: list[Module]) -> str | None:
    """Return the constant with this name.

    The name is that of a member (`Continue`), or consists of the names of a class and its member
    (`LoopControlContinue`).
    """
    wanted = plain(name)
    for module in modules:
        for each in module.constants:
            if wanted in (plain(each.rpartition(".")[2]), plain(each.replace(".", ""))):
                return f"{module.path}:{each}"
    return None


def _find_function(declaration: Declaration, own: list[Module], package: list[Module]) -> str | None:
    """Find a top-level function, the class that a New function creates, or a method of the mirrored file."""
    name = plain(declaration.name)
    made = name.removeprefix("new") if name.startswith("new") else None
    for module in own + package:
        if found := _pick(module.names, {name}, declaration):
            return f"{module.path}:{found}"
        for cls in module.classes():
            if made and plain(cls) in (made, made + "impl"):
                return f"{module.path}:{cls}"
    return _member({name}, declaration, _all_classes(own), [])


def _find_method(declaration: Declaration, own: list[Module], package: list[Module]) -> str | None:
    """Find a method in the class with the receiver's name or in its bases, or a function of the mirrored file.

    If no class has that name, any class of the mirrored file counts.
    """
    name = plain(declaration.name)
    receivers = {plain(declaration.receiver), plain(declaration.receiver) + "impl"}
    classes = [(module, cls) for module in own + package for cls in module.classes() if plain(cls) in receivers]
    if classes:
        found = _member({name, *_DUNDERS.get(name, ())}, declaration, classes, package)
    else:
        found = _member({name}, declaration, _all_classes(own), package)
    return found or next((f"{m.path}:{top}" for m in own if (top := _pick(m.names, {name}, declaration))), None)


def _all_classes(modules: list[Module]) -> list[tuple[Module, str]]:
    return [(module, cls) for module in modules for cls in module.classes()]


def _member(
    wanted: set[str], declaration: Declaration, classes: list[tuple[Module, str]], package: list[Module]
) -> str | None:
    """Find the first member with a wanted name in the classes, and then in those bases that the package contains."""
    while classes:
        module, cls = classes[0]
        if member := _pick(module.members[cls], wanted, declaration):
            return f"{module.path}:{cls}.{member}"
        classes = classes[1:] + [(m, name) for m in package for name in m.bases if name in module.bases[cls]]
    return None


def _pick(names: set[str], wanted: set[str], declaration: Declaration) -> str | None:
    """Return the name whose plain form is in `wanted`; constants and special methods do not count.

    If Go has both `Merge` and `merge`, they correspond to `merge` and `_merge`.
    """
    exported = declaration.name[0].isupper()
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
        """Return the rows of declarations that Go still has."""
        return [row for row in self.rows if not row.declaration.is_gone]


def build(declarations: list[Declaration], decisions: list[Decision], tree: PythonTree) -> Map:
    """Find the state of every declaration, and collect the faults of the decisions."""
    result = Map()
    used: set[int] = set()
    places = {each: tree.find(each) for each in declarations}
    # An interface and its implementation are often the same class, but two functions are never the same function.
    claims = Counter(found for each, found in places.items() if each.is_function)
    claimed: dict[str, str] = {}
    decided, patterns = _sorted_out(decisions)
    for declaration, found in places.items():
        exact = decided[declaration.path, declaration.title]
        fitting = exact + [each for each in patterns if each.fits(declaration)]
        what = f"{declaration.path} {declaration.title}"
        if len(exact) > 1:
            result.faults.append(f"{what}: decided twice, in lines {exact[0].line} and {exact[1].line}")
        used.update(each.line for each in exact)
        # If two functions could be the same Python function, a decision tells them apart.
        if found is not None and not (exact and declaration.is_function and claims[found] > 1):
            result.rows.append(Row(declaration, "present", found))
            result.faults += [
                f"{what}: the decision in line {each.line} is stale, because the declaration is in {found}"
                for each in exact
            ]
            # A function of 1.27 may have become the function that now has its place.
            if declaration.is_function and not declaration.is_gone:
                if found in claimed:
                    result.faults.append(
                        f"{what}: {found} already corresponds to {claimed[found]}; decide about this declaration"
                    )
                claimed[found] = declaration.title
            continue
        if not fitting:
            result.faults.append(f"{what}: the declaration is not present, and no decision mentions it")
            result.rows.append(Row(declaration, "", "undecided"))
            continue
        chosen = exact[0] if exact else max(fitting, key=lambda each: len(each.path) + len(each.title))
        used.add(chosen.line)
        result.rows.append(_decided(declaration, chosen))
    result.faults += [
        f"line {each.line}: no declaration needs this decision" for each in decisions if each.line not in used
    ]
    result.faults += [fault for each in decisions for fault in _faults_of(each, tree)]
    return result


def _sorted_out(decisions: list[Decision]) -> tuple[dict[tuple[str, str], list[Decision]], list[Decision]]:
    """Return the decisions on a single declaration by its path and title, and those with patterns."""
    exact: dict[tuple[str, str], list[Decision]] = defaultdict(list)
    for each in decisions:
        if each.exact:
            exact[each.path, each.title].append(each)
    return exact, [each for each in decisions if not each.exact]


def _decided(declaration: Declaration, decision: Decision) -> Row:
    match decision.kind:
        case "renamed":
            return Row(declaration, "renamed", "; ".join(filter(None, (decision.target, decision.reason))))
        case "issue":
            return Row(declaration, "to come", f"issue {decision.target}")
    return Row(declaration, decision.kind, decision.reason)


def _faults_of(decision: Decision, tree: PythonTree) -> Iterator[str]:
    where = f"line {decision.line}"
    match decision.kind:
        case "renamed":
            if not tree.has(decision.target):
                yield f"{where}: there is no {decision.target}"
        case "absent":
            if not decision.reason:
                yield f"{where}: an absent declaration needs a reason"
        case "issue":
            if decision.target not in ISSUES:
                yield f"{where}: there is no issue {decision.target!r}"
        case other:
            yield f"{where}: {other!r} is not one of renamed, absent, issue"
