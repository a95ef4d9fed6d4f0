"""The map from the Go sources: what it finds by itself, which decision counts, what it finds fault with."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import go_map
import go_map_document
import pytest
from go_map import Decision, Function

SOURCE = """
class PodWorkers(Base):
    limit: int

    def update_pod(self): pass

    def _forget_locked(self): pass


class Base:
    def stop(self): pass


class State:
    SYNC_POD = 0

    def __str__(self): pass

    def __init__(self): pass


class Syncer(Protocol):
    def sync(self): ...


class Waiter(Protocol):
    def wait(self): ...


class SyncerImpl:
    def sync(self): pass


def kill_pod_now(): pass


def get_pod_uid(): pass
"""


@pytest.fixture
def tree(tmp_path: Path) -> go_map.PythonTree:
    package = tmp_path / "kubelet/worker_pool"
    package.mkdir(parents=True)
    (package / "pod_workers.py").write_text(SOURCE)
    (package / "elsewhere.py").write_text("def helper(): ...\n")
    (package / "testing.py").write_text("def fake(): ...\n")
    (tmp_path / "kubelet/format.py").write_text("def pod(): ...\n")
    return go_map.PythonTree(tmp_path)


def function(title: str, file: str = "pod_workers.go", package: str = "pkg/kubelet/worker-pool") -> Function:
    receiver, _, name = title.rpartition(".")
    return Function(package, file, receiver, name)


def decision(kind: str, function: str = "gone", target: str = "", reason: str = "", line: int = 1) -> Decision:
    return Decision(line, "pkg/kubelet/worker-pool/pod_workers.go", function, kind, target, reason)


@pytest.mark.parametrize(
    ("title", "file", "name"),
    [
        pytest.param("killPodNow", "pod_workers.go", "kill_pod_now", id="function"),
        pytest.param("getPodUID", "pod_workers_linux.go", "get_pod_uid", id="acronym, in a file for Linux"),
        pytest.param("newPodWorkers", "pod_workers.go", "PodWorkers", id="constructor"),
        pytest.param("podWorkers.UpdatePod", "pod_workers.go", "PodWorkers.update_pod", id="method"),
        pytest.param("podWorkers.forget", "pod_workers.go", "PodWorkers._forget_locked", id="who holds the lock"),
        pytest.param("podWorkers.Stop", "pod_workers.go", "Base.stop", id="method of a base"),
        pytest.param("podWorkers.killPodNow", "pod_workers.go", "kill_pod_now", id="method that is a function"),
        pytest.param("other.UpdatePod", "pod_workers.go", "PodWorkers.update_pod", id="receiver by another name"),
        pytest.param("State.String", "pod_workers.go", "State.__str__", id="string"),
        pytest.param("syncer.Sync", "pod_workers.go", "SyncerImpl.sync", id="what an interface declares"),
        pytest.param("NewSyncer", "pod_workers.go", "SyncerImpl", id="constructor of what is an interface"),
    ],
)
def test_finds_what_has_the_same_name(tree: go_map.PythonTree, title: str, file: str, name: str) -> None:
    assert tree.find(function(title, file)) == f"kubelet/worker_pool/pod_workers.py:{name}"


def test_finds_functions_in_other_files_of_the_package_and_packages_of_one_file(tree: go_map.PythonTree) -> None:
    assert tree.find(function("helper")) == "kubelet/worker_pool/elsewhere.py:helper"
    assert tree.find(function("Pod", "format.go", "pkg/kubelet/format")) == "kubelet/format.py:pod"


@pytest.mark.parametrize(
    "title",
    [
        pytest.param("gone", id="nowhere"),
        pytest.param("fake", id="only a fake"),
        pytest.param("podWorkers.String", id="special method of another class"),
        pytest.param("other.SyncPod", id="constant that sounds like it"),
        pytest.param("waiter.Wait", id="only declared by an interface"),
        pytest.param("NewWaiter", id="an interface, which nothing can make"),
        pytest.param("init", id="no constructor"),
        pytest.param("Base.UpdatePod", id="only in a class that inherits"),
    ],
)
def test_does_not_find(tree: go_map.PythonTree, title: str) -> None:
    assert tree.find(function(title)) is None


@pytest.mark.parametrize(
    ("found", "state", "detail"),
    [
        (decision("renamed", target="kubelet/format.py:pod"), "renamed", "kubelet/format.py:pod"),
        (decision("absent", reason="Windows"), "absent", "Windows"),
        (decision("issue", target="5"), "to come", "issue 5"),
        (decision("issue", function="g*", target="5"), "to come", "issue 5"),
    ],
)
def test_decided(tree: go_map.PythonTree, found: Decision, state: str, detail: str) -> None:
    result = go_map.build([function("gone")], [found], tree)
    assert [(row.state, row.detail) for row in result.rows] == [(state, detail)]
    assert not result.faults


def test_own_row_counts_before_patterns_and_long_patterns_before_short_ones(tree: go_map.PythonTree) -> None:
    decisions = [
        decision("absent", "*", reason="any", line=1),
        decision("absent", "go*", reason="longer", line=2),
        decision("absent", "gone", reason="own", line=3),
    ]
    result = go_map.build([function("gone"), function("gonna"), function("lost")], decisions, tree)
    assert {row.function.name: row.detail for row in result.rows} == {"gone": "own", "gonna": "longer", "lost": "any"}
    assert not result.faults


@pytest.mark.parametrize(
    ("title", "decisions", "fault"),
    [
        pytest.param("gone", [], "gone: neither present nor decided", id="undecided"),
        pytest.param("killPodNow", [decision("absent", "killPodNow", reason="x")], "is stale", id="present after all"),
        pytest.param(
            "gone",
            [decision("absent", reason="x"), decision("issue", target="5", line=2)],
            "decided twice, in lines 1 and 2",
            id="twice",
        ),
        pytest.param("killPodNow", [decision("issue", "lost", "5")], "line 1: no function needs it", id="not needed"),
        pytest.param("gone", [decision("renamed", target="kubelet/format.py:no")], "there is no", id="no such name"),
        pytest.param("gone", [decision("renamed", target="kubelet/no.py")], "there is no", id="no such file"),
        pytest.param(
            "gone",
            [decision("renamed", target="kubelet/worker_pool/pod_workers.py:Waiter.wait")],
            "there is no",
            id="nothing but a declaration",
        ),
        pytest.param("gone", [decision("absent")], "absent needs a reason", id="no reason"),
        pytest.param("gone", [decision("issue", target="99")], "there is no issue '99'", id="no such issue"),
        pytest.param("gone", [decision("perhaps")], "'perhaps' is none of", id="no such kind"),
    ],
)
def test_faults(tree: go_map.PythonTree, title: str, decisions: list[Decision], fault: str) -> None:
    faults = go_map.build([function(title)], decisions, tree).faults
    assert len(faults) == 1
    assert fault in faults[0]


def test_reads_functions_for_linux_that_are_no_fakes(tmp_path: Path) -> None:
    rows = [
        "pkg/kubelet\ta.go\tfunc\t\tNew\t3\t\t",
        "pkg/kubelet\ta.go\tmethod\t*Kubelet\tRun\t3\t\tlinux",
        "pkg/kubelet\ta.go\tmethod\tcache[T]\tGet\t3\tstub\t",
        "pkg/kubelet\ta.go\ttype\t\tKubelet\t3\t\t",
        "pkg/kubelet\ta.go\tfunc\t\tFake\t3\tfake+testing\t",
        "pkg/kubelet\ta_windows.go\tfunc\t\tService\t3\t\twindows",
        "pkg/scheduler\ta.go\tfunc\t\tNew\t3\t\t",
    ]
    path = tmp_path / "go.tsv"
    path.write_text("\n".join(["header", *rows]))
    assert [each.title for each in go_map.read_functions((path,))] == ["New", "Kubelet.Run", "cache.Get"]


@pytest.mark.parametrize(
    ("package", "folder"),
    [
        ("pkg/kubelet/cm/util", "kubelet/cm/util"),
        ("pkg/kubeletter", "pkg/kubeletter"),
        ("cmd/kubelet/app", "cmd/kubelet/app"),
        ("k8s.io/client-go/tools/cache", "pkg/client_go/tools/cache"),
        ("k8s.io/apimachinery/pkg/watch", "pkg/apimachinery/watch"),
        ("k8s.io/cri-client/pkg/util", "kubelet/cri/remote/util"),
        ("k8s.io/cri-client/pkg/logs", "kubelet/kuberuntime/logs"),
    ],
)
def test_folder_of_a_go_package(tree: go_map.PythonTree, package: str, folder: str) -> None:
    assert tree.package_of(package) == tree.root / folder


def test_row_with_a_missing_column_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "decisions.tsv"
    path.write_text("# comment\n\na\tb\tabsent\t\tc\na\tb\n")
    with pytest.raises(ValueError, match=r"decisions\.tsv:4: want 5 columns, not 2"):
        go_map.read_decisions(path)


def test_document_counts_by_package_and_file(tree: go_map.PythonTree) -> None:
    functions = [function("killPodNow"), function("gone"), function("lost", "unknown.go")]
    decisions = [decision("absent", reason="x"), Decision(2, "pkg/*", "lost", "issue", "5", "")]
    text = go_map_document.document(go_map.build(functions, decisions, tree), tree)
    assert "| pkg/kubelet/worker-pool | 1 | 0 | 1 | 1 |" in text
    path = "kubelet/worker_pool/pod_workers.py"
    assert f"| `pkg/kubelet/worker-pool/pod_workers.go` | [{path}](../{path}) | 1 | 0 | 1 | 0 |" in text
    assert "unknown.go" not in text


def test_what_differs_only_in_being_exported_is_told_apart(tree: go_map.PythonTree) -> None:
    module = tree.root / "kubelet/worker_pool/merge.py"
    module.write_text("class Storage:\n    def merge(self): pass\n\n    def _merge(self): pass\n")
    assert tree.find(function("storage.Merge", "merge.go")) == "kubelet/worker_pool/merge.py:Storage.merge"
    assert tree.find(function("storage.merge", "merge.go")) == "kubelet/worker_pool/merge.py:Storage._merge"


def test_one_place_is_not_two_functions(tree: go_map.PythonTree) -> None:
    both = [function("Helper"), function("helper")]
    (fault,) = go_map.build(both, [], tree).faults
    assert "is Helper already, so decide what this is" in fault
    result = go_map.build(both, [decision("renamed", "helper", "kubelet/worker_pool/elsewhere.py:helper")], tree)
    assert not result.faults
    assert [row.state for row in result.rows] == ["present", "renamed"]


def test_functions_of_two_releases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that moved, alone or with its package, is the same; one that is gone has a row, and may share a place."""
    tables = {
        "now": [
            "pkg/kubelet\ta.go\tfunc\t\tstays",
            "pkg/kubelet\ta.go\tfunc\t\tisNew",
            "k8s.io/cri-client/pkg\tb.go\tfunc\t\tMoves",
        ],
        "before": [
            "pkg/kubelet\tb.go\tfunc\t\tstays",
            "pkg/kubelet\ta.go\tfunc\t\tisGone",
            "pkg/kubelet/cri/remote\tb.go\tfunc\t\tMoves",
        ],
    }
    for name, rows in tables.items():
        (tmp_path / name).write_text("\n".join(["header", *(f"{row}\t3\t\t" for row in rows)]))
    monkeypatch.setattr(go_map, "DECLARATIONS", (tmp_path / "now",))
    monkeypatch.setattr(go_map, "DECLARATIONS_BEFORE", (tmp_path / "before",))
    assert [(each.path, each.name, each.only_in) for each in go_map.read_both_releases()] == [
        ("k8s.io/cri-client/pkg/b.go", "Moves", ""),
        ("pkg/kubelet/a.go", "isGone", "1.27"),
        ("pkg/kubelet/a.go", "isNew", "1.36"),
        ("pkg/kubelet/a.go", "stays", ""),
    ]


def test_place_of_a_function_that_is_gone(tree: go_map.PythonTree) -> None:
    result = go_map.build([function("Helper"), replace(function("helper"), only_in="1.27")], [], tree)
    assert not result.faults
    assert [row.function.name for row in result.current()] == ["Helper"]
