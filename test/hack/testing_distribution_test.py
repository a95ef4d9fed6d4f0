"""Test the package kubelet_testing that is built from this tree."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
import testing_distribution
from testing_distribution import RewriteError, needed, new_name, rewrite


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("from pkg import golang, klog\n", "from kubelet_testing.pkg import golang, klog\n"),
        ("from kubelet.cri.remote import fake\n", "from kubelet_testing.kubelet.cri.remote import fake\n"),
        ("from kubelet_cmd.kubelet.app import server", "from kubelet_testing.kubelet_cmd.kubelet.app import server"),
        ("from framework.waiting import wait_for\n", "from kubelet_testing.waiting import wait_for\n"),
        ("import pkg.klog as klog, os\n", "import kubelet_testing.pkg.klog as klog, os\n"),
        # This import is in a function, follows characters that are not ASCII, and spans several lines.
        (
            'def f() -> None:\n    "…"; from pkg import (\n        klog,\n    )\n',
            'def f() -> None:\n    "…"; from kubelet_testing.pkg import (\n        klog,\n    )\n',
        ),
        ('__name__ = "pkg.csi_spec.csi_pb2"\n', '__name__ = "kubelet_testing.pkg.csi_spec.csi_pb2"\n'),
        # The following texts import nothing of this tree.
        ("from . import pkg\nfrom .pkg import x\nimport pkgutil\n", None),
        ('"""See pkg.klog."""\nGROUP = "kubelet.config.k8s.io"\nNAME = "pkg"\n', None),
    ],
)
def test_names_of_modules_are_changed(before: str, after: str | None) -> None:
    assert rewrite(before, "x.py") == (before if after is None else after)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import pkg.klog\n", "x.py:1: `import pkg.klog` without `as` binds another name"),
        ('\nname = f"pkg.api.{group}"\n', "x.py:2: the name of a module is computed from 'pkg.api.'"),
        ('name = "pkg.api." + group\n', "x.py:1: the name of a module is computed from 'pkg.api.'"),
    ],
)
def test_what_would_not_work_is_no_distribution(text: str, message: str) -> None:
    with pytest.raises(RewriteError) as caught:
        rewrite(text, "x.py")
    assert str(caught.value) == message


def test_new_names() -> None:
    assert new_name("framework") == "kubelet_testing"
    assert new_name("framework.apiserver") == "kubelet_testing.apiserver"
    assert new_name("kubelet.kubelet") == "kubelet_testing.kubelet.kubelet"


def test_what_is_needed() -> None:
    """The distribution contains all imported modules, but no tests and no modules that only this tree's tests use."""
    modules = needed()
    assert not [name for name in modules if name.endswith("_test")]
    assert {"kubelet.cri.remote.fake.streaming", "kubelet.liveview", "pkg.api.policy.v1"} <= modules.keys()
    assert "framework.recorder" not in modules


def test_what_is_built(tmp_path: Path) -> None:
    testing_distribution.build(tmp_path)
    [package] = tmp_path.iterdir()
    for name in ("py.typed", "apiserver/pod_messages.json", "kubelet/liveview/page.html", "pkg/csi_spec/csi_pb2.pyi"):
        assert (package / name).exists()
    for path in package.rglob("*.py*"):
        assert _foreign_imports(path.read_text()) == set()


def _foreign_imports(text: str) -> set[str]:
    """Return the packages that a module imports by their names in the checkout."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found.add(str(node.module).partition(".")[0])
    return found & testing_distribution.SOURCES.keys()
