"""Test the code that builds the pages on which Go stands beside Python."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

from sidebyside import calls, go_source, python_source
from sidebyside.highlight import PYTHON, Link, highlight

GO = """// Package kubelet runs pods.
package kubelet

import (
	"context"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"
	"k8s.io/utils/clock"
)

// Three words for what a worker does.
const (
	SyncPod PodWorkerState = iota
	TerminatingPod, TerminatedPod
)

var script = `
}
`

type (
	first  int
	second string
)

/*
Worker runs one pod.
*/
type worker struct {
	status Manager
	clock  clock.Clock
}

func (w *worker) run(ctx context.Context) {
	w.step()
	w.status.SetPodStatus(pod)
	kubetypes.IsStaticPod(pod) // step() in a comment
	helper("step()")
}

func helper(text string) {}
"""

PYTHON_SOURCE = '''"""Run pods."""

import queue

from lib import tools

LIMIT = 3


# The manager of statuses.
class Base:
    def step(self) -> None:
        """Make one step."""


@final
class Worker(Base):
    """Run one pod."""

    name: str

    def __init__(self, clock: tools.Clock) -> None:
        self._clock = clock

    def run(self) -> None:
        self.step()
        self._clock.now()
        tools.helper("é", self)
        other.append(1)


def main() -> None:
    Worker(None).run()
'''

TOOLS = """class Clock:
    def now(self): ...


def helper(text, worker): ...
"""


def go_file(tmp_path: Path) -> go_source.GoFile:
    path = tmp_path / "pkg/kubelet/worker.go"
    path.parent.mkdir(parents=True)
    path.write_text(GO)
    file = go_source.read(tmp_path, "pkg/kubelet/worker.go")
    assert file is not None
    return file


def test_go_file_is_cut_into_declarations_with_their_comments(tmp_path: Path) -> None:
    file = go_file(tmp_path)
    assert [piece.names for piece in file.pieces] == [
        ("SyncPod", "TerminatingPod", "TerminatedPod"),
        ("script",),
        ("first", "second"),
        ("worker",),
        ("worker.run",),
        ("helper",),
    ]
    group, worker = file.find("TerminatedPod"), file.find("worker")
    assert group is not None and worker is not None
    assert file.text(group).startswith("// Three words") and file.text(group).endswith("\n)\n")
    assert file.text(worker).startswith("/*\nWorker runs") and file.text(worker).endswith("\n}\n")
    assert file.imports["kubetypes"] == "pkg/kubelet/types"


def test_go_file_that_the_checkout_lacks_is_none(tmp_path: Path) -> None:
    assert go_source.read(tmp_path, "pkg/kubelet/none.go") is None


def test_go_calls_are_found_by_receiver_field_package_and_import(tmp_path: Path) -> None:
    file = go_file(tmp_path)
    declared = {
        ("pkg/kubelet", "worker.step"),
        ("pkg/kubelet", "manager.SetPodStatus"),
        ("pkg/kubelet", "helper"),
        ("pkg/kubelet/types", "IsStaticPod"),
    }
    piece = file.find("worker.run")
    assert piece is not None
    found = calls.GoCalls(declared).calls(file, piece)
    text = file.text(piece)
    assert [(text[call.start : call.end], call.target.name) for call in found] == [
        ("step", "worker.step"),
        ("SetPodStatus", "manager.SetPodStatus"),
        ("IsStaticPod", "IsStaticPod"),
        ("helper", "helper"),
    ]


def python_tree(tmp_path: Path) -> Path:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib/tools.py").write_text(TOOLS)
    (tmp_path / "worker.py").write_text(PYTHON_SOURCE)
    return tmp_path


def test_python_file_is_cut_into_pieces_that_are_the_whole_file(tmp_path: Path) -> None:
    file = python_source.read(python_tree(tmp_path), "worker.py")
    names = [piece.name for piece in file.pieces]
    assert names == ["", "Base", "Base.step", "Worker", "Worker.__init__", "Worker.run", "main"]
    lines = [(piece.first, piece.last) for piece in file.pieces]
    assert lines[0][0] == 1 and lines[-1][1] == len(PYTHON_SOURCE.splitlines())
    assert all(last + 1 == first for (_, last), (first, _) in pairwise(lines))
    assert file.text_of(file.pieces[1])[1].startswith("# The manager of statuses.")


def test_piece_of_a_name_that_only_its_class_knows_is_the_class(tmp_path: Path) -> None:
    file = python_source.read(python_tree(tmp_path), "worker.py")
    found = {name: file.piece_of(name) for name in ("Worker.name", "Worker.unknown", "LIMIT", "unknown")}
    assert {name: piece and piece.name for name, piece in found.items()} == {
        "Worker.name": "Worker",
        "Worker.unknown": "Worker",
        "LIMIT": "",
        "unknown": None,
    }


def test_python_calls_are_found_by_base_field_annotation_and_import(tmp_path: Path) -> None:
    root = python_tree(tmp_path)
    found = calls.PythonCalls(root, ["worker.py", "lib/tools.py"]).calls("worker.py")
    assert [(PYTHON_SOURCE[call.start : call.end], call.target) for call in found] == [
        ("step", calls.Target("worker.py", "Base.step")),
        ("now", calls.Target("lib/tools.py", "Clock.now")),
        ("helper", calls.Target("lib/tools.py", "helper")),
        ("Worker", calls.Target("worker.py", "Worker")),
        ("run", calls.Target("worker.py", "Worker.run")),
    ]


def test_highlighted_text_is_escaped_and_linked() -> None:
    text = "f(a < b)"
    found = highlight(text, PYTHON, [Link(0, 1, 'x.html#"f"', "f")])
    assert '<a href="x.html#&quot;f&quot;" title="f">f</a>' in found
    assert "&lt;" in found and "< b" not in found
