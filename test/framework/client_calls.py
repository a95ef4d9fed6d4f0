"""Find the kubelet's calls to the API server in its source: which file calls which method of which resource's client.

So no new call can be forgotten: client_faults.py must say how each call is tested.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from framework.containerd import ROOT
from pkg.client_go import kubernetes
from pkg.client_go.kubernetes import clientset

_PRODUCT = ("cmd", "kubelet", "pkg")
# These files are the client itself and the code that makes calls on behalf of other files.
_CLIENT = ("pkg/client_go/kubernetes", "pkg/client_go/rest")
# These methods make no request; they return another client.
_NO_CALLS = ("without_time_limits",)
METHODS = frozenset(
    name
    for name, value in vars(kubernetes.ResourceClient).items()
    if callable(value) and not name.startswith("_") and name not in _NO_CALLS
)


class Call(NamedTuple):
    """Describe a method of a resource's client and the file that calls it.

    The resource is "" for requests whose path names no resource.
    """

    caller: str
    resource: str
    method: str

    def __str__(self) -> str:
        return f"{self.resource or 'discovery'}.{self.method}-{Path(self.caller).stem}"


class Mention(NamedTuple):
    """Describe a client that a file passes on, so that the file's source does not show the calls."""

    file: str
    resource: str


@cache
def accessors() -> dict[str, str]:
    """Return the names of resources by the names of the methods that return the resources' clients."""
    found: dict[str, str] = {}
    groups: list[Any] = [each for each in vars(clientset).values() if _is_group(each)]
    for group in groups:
        made = group(lambda resource, namespace: resource)
        for name, method in vars(group).items():
            if not name.startswith("_"):
                found[name] = method(made, *([""] * (method.__code__.co_argcount - 1))).name
    return found


def _is_group(value: object) -> bool:
    base = clientset._Group
    return isinstance(value, type) and issubclass(value, base) and value is not base


def find() -> tuple[set[Call], set[Mention]]:
    """Return all calls that the source shows, and all clients that it passes on."""
    calls: set[Call] = set()
    mentions: set[Mention] = set()
    for path in _files():
        name = str(path.relative_to(ROOT))
        source = _Source(name, ast.parse(path.read_text()))
        calls |= source.calls
        mentions |= source.mentions
    return calls, mentions


def _files() -> Iterator[Path]:
    for folder in _PRODUCT:
        for path in (Path(ROOT) / folder).rglob("*.py"):
            name = str(path.relative_to(ROOT))
            if not (name.startswith(_CLIENT) or name.endswith(("_test.py", "testing.py")) or "/testing/" in name):
                yield path


class _Source:
    """Find the calls of one file: `client.core_v1.pods(ns).get(…)`, also through a variable or an attribute."""

    def __init__(self, name: str, tree: ast.Module) -> None:
        self.calls: set[Call] = set()
        self.mentions: set[Mention] = set()
        self._name = name
        self._resolved: set[ast.Attribute] = set()
        variables = dict(self._variables(tree))
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and node.attr in METHODS:
                self._resolve(node, variables)
        for node in ast.walk(tree):
            if _asks_without_resource(node):
                self.calls.add(Call(name, "", "get"))
            if isinstance(node, ast.Attribute) and _is_client(node) and node not in self._resolved:
                self.mentions.add(Mention(name, accessors()[node.attr]))

    def _variables(self, tree: ast.Module) -> Iterator[tuple[str, ast.Attribute]]:
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign) and (client := _client(node.value)) is not None:
                self._resolved.add(client)
                yield ast.unparse(node.targets[0]), client

    def _resolve(self, method: ast.Attribute, variables: dict[str, ast.Attribute]) -> None:
        client = _client(method.value)
        if client is None and variables:
            client = variables.get(ast.unparse(method.value))
        if client is not None:
            self._resolved.add(client)
            self.calls.add(Call(self._name, accessors()[client.attr], method.attr))


def _client(node: ast.AST) -> ast.Attribute | None:
    """Return `x.pods` of `x.pods(ns)`, also if the expression depends on a condition."""
    if isinstance(node, ast.IfExp):
        node = node.body
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and _is_client(node.func):
        return node.func
    return None


def _asks_without_resource(node: ast.AST) -> bool:
    """Report whether the expression requests the list of resources (`client.discovery`) or a path without one."""
    match node:
        case (
            ast.Call(func=ast.Name(id="RESTClient") | ast.Attribute(attr="RESTClient"))
            | ast.Attribute(attr="discovery")
        ):
            return True
    return False


def _is_client(node: ast.Attribute) -> bool:
    if node.attr not in accessors():
        return False
    owner = ast.unparse(node.value)
    return "_v1" in owner or owner.endswith(("core", "client"))
