"""Test the map from the Go sources: the search for declarations, the choice of decisions, and the reported faults."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import go_map
import go_map_document
import pytest
from go_map import Decision, Declaration

SOURCE = """
class PodWorkers(Base):
    limit: int

    def update_pod(self): pass

    def _forget_locked(self): pass


class Base:
    def stop(self): pass


class State:
    SYNC_POD = 0
    grace = 2

    empty: int

    def __str__(self): pass

    def __init__(self): pass


class UpdateType(enum.StrEnum):
    Create = "create"
    KILL = "kill"


KillFunc = Callable[[], None]
_RETRIES = 2
Limit = 3
sync_target = 4
Unset: int


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


def function(title: str, file: str = "pod_workers.go", package: str = "pkg/kubelet/worker-pool") -> Declaration:
    receiver, _, name = title.rpartition(".")
    return Declaration(package, file, receiver, name)


def declared(kind: str, name: str) -> Declaration:
    return Declaration("pkg/kubelet/worker-pool", "pod_workers.go", "", name, kind)


def decision(kind: str, title: str = "gone", target: str = "", reason: str = "", line: int = 1) -> Decision:
    return Decision(line, "pkg/kubelet/worker-pool/pod_workers.go", title, kind, target, reason)


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
    ("kind", "name", "found"),
    [
        pytest.param("type", "PodWorkers", "PodWorkers", id="class"),
        pytest.param("type", "podWorkers", "PodWorkers", id="unexported"),
        pytest.param("interface", "Waiter", "Waiter", id="protocol"),
        pytest.param("interface", "Syncer", "Syncer", id="protocol that has an implementation"),
        pytest.param("type", "syncer", "SyncerImpl", id="implementation of a protocol"),
        pytest.param("type", "killFunc", "KillFunc", id="alias"),
        pytest.param("const-group", "SyncPod", "State.SYNC_POD", id="constant of a class"),
        pytest.param("const-group", "retries", "_RETRIES", id="constant of a file"),
        pytest.param("const-group", "Limit", "Limit", id="plain name"),
        pytest.param("const-group", "Create", "UpdateType.Create", id="member of an enum"),
        pytest.param("const-group", "UpdateTypeKill", "UpdateType.KILL", id="member with the name of its enum"),
        pytest.param("const-group", "_,SyncPod,retries", "State.SYNC_POD", id="group"),
    ],
)
def test_finds_types_and_constants(tree: go_map.PythonTree, kind: str, name: str, found: str) -> None:
    assert tree.find(declared(kind, name)) == f"kubelet/worker_pool/pod_workers.py:{found}"


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        pytest.param("type", "gone", id="nowhere"),
        pytest.param("type", "Retries", id="constant that sounds like a type"),
        pytest.param("type", "syncTarget", id="variable that sounds like a type"),
        pytest.param("type", "KillPodNow", id="function that sounds like a type"),
        pytest.param("const-group", "SyncPod,gone", id="group that lacks one"),
        pytest.param("const-group", "grace", id="attribute of a class"),
        pytest.param("const-group", "empty", id="field of a class"),
        pytest.param("const-group", "Unset", id="name without a value"),
        pytest.param("const-group", "killPodNow", id="function that sounds like a constant"),
        pytest.param("field", "limit", id="field, of which nothing is looked for"),
    ],
)
def test_does_not_find_types_and_constants(tree: go_map.PythonTree, kind: str, name: str) -> None:
    assert tree.find(declared(kind, name)) is None


def test_group_of_constants_is_decided_by_its_first_name(tree: go_map.PythonTree) -> None:
    group = declared("const-group", "_,first,second")
    result = go_map.build([group], [decision("absent", "const first", reason="Windows")], tree)
    assert not result.faults
    assert [(row.declaration.title, row.state) for row in result.rows] == [("const first", "absent")]
    assert group.whole_title == "const first, second"


def test_class_that_is_an_interface_and_its_type_is_one_place(tree: go_map.PythonTree) -> None:
    both = [declared("interface", "PodWorkers"), declared("type", "podWorkers"), function("newPodWorkers")]
    result = go_map.build(both, [], tree)
    assert not result.faults
    assert {row.state for row in result.rows} == {"present"}
    result = go_map.build(both, [decision("absent", "newPodWorkers", reason="x")], tree)
    assert ["is stale" in fault for fault in result.faults] == [True]


@pytest.mark.parametrize(
    ("found", "state", "detail"),
    [
        (decision("renamed", target="kubelet/format.py:pod"), "renamed", "kubelet/format.py:pod"),
        (decision("absent", reason="Windows"), "absent", "Windows"),
        (decision("issue", target="5"), "to come", "issue 5"),
        (decision("issue", title="g*", target="5"), "to come", "issue 5"),
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
    assert {row.declaration.name: row.detail for row in result.rows} == {
        "gone": "own",
        "gonna": "longer",
        "lost": "any",
    }
    assert not result.faults


@pytest.mark.parametrize(
    ("title", "decisions", "fault"),
    [
        pytest.param("gone", [], "gone: the declaration is not present, and no decision mentions it", id="undecided"),
        pytest.param("killPodNow", [decision("absent", "killPodNow", reason="x")], "is stale", id="present after all"),
        pytest.param(
            "gone",
            [decision("absent", reason="x"), decision("issue", target="5", line=2)],
            "decided twice, in lines 1 and 2",
            id="twice",
        ),
        pytest.param(
            "killPodNow", [decision("issue", "lost", "5")], "line 1: no declaration needs this", id="not needed"
        ),
        pytest.param("gone", [decision("renamed", target="kubelet/format.py:no")], "there is no", id="no such name"),
        pytest.param("gone", [decision("renamed", target="kubelet/no.py")], "there is no", id="no such file"),
        pytest.param(
            "gone",
            [decision("renamed", target="kubelet/worker_pool/pod_workers.py:Waiter.wait")],
            "there is no",
            id="nothing but a declaration",
        ),
        pytest.param("gone", [decision("absent")], "an absent declaration needs a reason", id="no reason"),
        pytest.param("gone", [decision("issue", target="99")], "there is no issue '99'", id="no such issue"),
        pytest.param("gone", [decision("perhaps")], "'perhaps' is not one of", id="no such kind"),
    ],
)
def test_faults(tree: go_map.PythonTree, title: str, decisions: list[Decision], fault: str) -> None:
    faults = go_map.build([function(title)], decisions, tree).faults
    assert len(faults) == 1
    assert fault in faults[0]


def test_reads_what_is_for_linux_and_no_fake(tmp_path: Path) -> None:
    rows = [
        "pkg/kubelet\ta.go\tfunc\t\tNew\t3\t\t",
        "pkg/kubelet\ta.go\tmethod\t*Kubelet\tRun\t3\t\tlinux",
        "pkg/kubelet\ta.go\tmethod\tcache[T]\tGet\t3\tstub\t",
        "pkg/kubelet\ta.go\ttype\t\tKubelet\t3\t\t",
        "pkg/kubelet\ta.go\tconst-group\t\tperiod,limit\t3\t\t",
        "pkg/kubelet\ta.go\tstruct\t\tUnknown\t3\t\t",
        "pkg/kubelet\ta.go\tfunc\t\tFake\t3\tfake+testing\t",
        "pkg/kubelet\ta_windows.go\tfunc\t\tService\t3\t\twindows",
        "pkg/scheduler\ta.go\tfunc\t\tNew\t3\t\t",
    ]
    path = tmp_path / "go.tsv"
    path.write_text("\n".join(["header", *rows]))
    assert [each.title for each in go_map.read_declarations((path,))] == [
        "Kubelet",
        "New",
        "const period",
        "Kubelet.Run",
        "cache.Get",
    ]


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
    with pytest.raises(ValueError, match=r"decisions\.tsv:4: expected 5 columns, got 2"):
        go_map.read_decisions(path)


def test_document_counts_by_package_and_file(tree: go_map.PythonTree) -> None:
    functions = [function("killPodNow"), function("gone"), function("lost", "unknown.go")]
    decisions = [decision("absent", reason="x"), Decision(2, "pkg/*", "lost", "issue", "5", "")]
    text = go_map_document.document(go_map.build(functions, decisions, tree), tree)
    assert "| pkg/kubelet/worker-pool | 1 | 0 | 1 | 1 |  |" in text
    path = "kubelet/worker_pool/pod_workers.py"
    assert f"| `pkg/kubelet/worker-pool/pod_workers.go` | [{path}](../{path}) | 1 | 0 | 1 | 0 |  |" in text
    assert "unknown.go" not in text


def test_document_counts_types_and_constants_beside_functions(tree: go_map.PythonTree) -> None:
    """Types do not count as functions, and a Go file with only types has the Python file of those types."""
    types = [declared("type", "podWorkers"), declared("const-group", "SyncPod"), declared("interface", "lost")]
    elsewhere = replace(declared("type", "Base"), file="types.go")
    decisions = [decision("absent", "lost", reason="x")]
    text = go_map_document.document(go_map.build([*types, elsewhere, function("killPodNow")], decisions, tree), tree)
    assert "| pkg/kubelet/worker-pool | 1 | 0 | 0 | 0 | 3 of 4 |" in text
    path = "kubelet/worker_pool/pod_workers.py"
    assert f"| `pkg/kubelet/worker-pool/types.go` | [{path}](../{path}) | 0 | 0 | 0 | 0 | 1 of 1 |" in text


def test_what_differs_only_in_being_exported_is_told_apart(tree: go_map.PythonTree) -> None:
    module = tree.root / "kubelet/worker_pool/merge.py"
    module.write_text("class Storage:\n    def merge(self): pass\n\n    def _merge(self): pass\n")
    assert tree.find(function("storage.Merge", "merge.go")) == "kubelet/worker_pool/merge.py:Storage.merge"
    assert tree.find(function("storage.merge", "merge.go")) == "kubelet/worker_pool/merge.py:Storage._merge"


def test_one_place_is_not_two_functions(tree: go_map.PythonTree) -> None:
    both = [function("Helper"), function("helper")]
    (fault,) = go_map.build(both, [], tree).faults
    assert "already corresponds to Helper; decide about this declaration" in fault
    result = go_map.build(both, [decision("renamed", "helper", "kubelet/worker_pool/elsewhere.py:helper")], tree)
    assert not result.faults
    assert [row.state for row in result.rows] == ["present", "renamed"]


@pytest.fixture
def releases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Write the tables with rows of the current Go release, of 1.27, and of older releases."""

    def write(now: Sequence[str], before: Sequence[str], older: Sequence[str] = ()) -> None:
        names = ("DECLARATIONS", "DECLARATIONS_BEFORE", "DECLARATIONS_OLDER")
        for name, rows in zip(names, (now, before, older), strict=True):
            (tmp_path / name).write_text("\n".join(["header", *(f"{row}\t3\t\t" for row in rows)]))
            monkeypatch.setattr(go_map, name, (tmp_path / name,))

    return write


def test_functions_of_two_releases(releases: Callable[..., None]) -> None:
    """A moved function is the same one; a function that is gone has a row, and may share a place."""
    releases(
        now=[
            "pkg/kubelet\ta.go\tfunc\t\tstays",
            "pkg/kubelet\ta.go\tfunc\t\tisNew",
            "k8s.io/cri-client/pkg\tb.go\tfunc\t\tMoves",
        ],
        before=[
            "pkg/kubelet\tb.go\tfunc\t\tstays",
            "pkg/kubelet\ta.go\tfunc\t\tisGone",
            "pkg/kubelet/cri/remote\tb.go\tfunc\t\tMoves",
        ],
    )
    assert [(each.path, each.name, each.only_in) for each in go_map.read_all_releases()] == [
        ("k8s.io/cri-client/pkg/b.go", "Moves", ""),
        ("pkg/kubelet/a.go", "isGone", "1.27"),
        ("pkg/kubelet/a.go", "isNew", "1.36"),
        ("pkg/kubelet/a.go", "stays", ""),
    ]


def test_constants_of_two_releases(releases: Callable[..., None]) -> None:
    """A group of constants that has grown or was divided is the same one.

    The constants that a group has lost have a row.
    """
    releases(
        now=[
            "pkg/kubelet\ta.go\tconst-group\t\tfirst,isNew",
            "pkg/kubelet\tb.go\tconst-group\t\tsecond",
            "pkg/kubelet\tc.go\tconst-group\t\tother",
        ],
        before=["pkg/kubelet\ta.go\tconst-group\t\tfirst,_,isGone,second,isLost"],
    )
    assert [(each.path, each.name, each.only_in) for each in go_map.read_all_releases()] == [
        ("pkg/kubelet/a.go", "first,isNew", ""),
        ("pkg/kubelet/a.go", "isGone,isLost", "1.27"),
        ("pkg/kubelet/b.go", "second", ""),
        ("pkg/kubelet/c.go", "other", "1.36"),
    ]


def test_what_is_older(releases: Callable[..., None], tree: go_map.PythonTree) -> None:
    """An older declaration has a row unless a release has it, needs a decision, and does not count."""
    releases(
        now=["pkg/kubelet/worker-pool\tpod_workers.go\tfunc\t\tkillPodNow"],
        before=["pkg/kubelet/worker-pool\tpod_workers.go\tfunc\t\twas127"],
        older=[
            "pkg/kubelet/worker-pool\tpod_workers.go\tmethod\t*Kubelet\tpodKiller",
            "pkg/kubelet/worker-pool\tpod_workers.go\tfield\t*Kubelet\tpodKillingCh",
            "pkg/kubelet/worker-pool\tpod_workers.go\tfunc\t\twas127",
        ],
    )
    found = go_map.read_all_releases()
    assert [(each.title, each.only_in) for each in found] == [
        ("killPodNow", "1.36"),
        ("was127", "1.27"),
        ("Kubelet.podKiller", "older"),
        ("Kubelet.podKillingCh", "older"),
    ]
    decisions = [
        decision("absent", "Kubelet.podKill*", reason="workers end pods"),
        decision("absent", "was127", reason="x", line=2),
    ]
    result = go_map.build(found, decisions, tree)
    assert not result.faults
    assert [row.declaration.title for row in result.current()] == ["killPodNow"]


def test_older_names_lead_somewhere() -> None:
    found = go_map.build(go_map.read_all_releases(), go_map.read_decisions(), go_map.PythonTree())
    older = {row.declaration.whole_title: row for row in found.rows if row.declaration.only_in == "older"}
    titles = {"Kubelet.podKiller", "Kubelet.containerRefManager", "dockerService", "const RESTORE"}
    assert titles <= older.keys()
    assert all(row.detail for row in older.values())


def test_place_of_a_function_that_is_gone(tree: go_map.PythonTree) -> None:
    result = go_map.build([function("Helper"), replace(function("helper"), only_in="1.27")], [], tree)
    assert not result.faults
    assert [row.declaration.name for row in result.current()] == ["Helper"]
