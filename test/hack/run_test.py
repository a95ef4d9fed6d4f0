"""Test the checks of `make run` and `make cluster` before the start, and the files that they keep."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from framework.containerd import ROOT
from framework.scripts import load_script


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Provide the script as a module with its own run directory and examples."""
    module: Any = load_script("run")
    (tmp_path / "examples").mkdir()
    monkeypatch.setattr(module, "ROOT", tmp_path)
    for name in ("RUN_DIR", "MANIFESTS", "COPIED", "KUBELET_PROCESS"):
        monkeypatch.setattr(module, name, tmp_path / getattr(module, name).relative_to(ROOT))
    yield module


def files(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir()}


def copy(run: Any, hollow: bool = False, **examples: str) -> dict[str, str]:
    """Start with these examples, and return the manifests."""
    for name, text in examples.items():
        (run.ROOT / "examples" / f"{name}.yaml").write_text(text)
    run.RUN_DIR.mkdir(exist_ok=True)
    run.copy_examples(hollow)
    return files(run.MANIFESTS)


def test_what_the_user_changed_stays(run: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert copy(run, a="1", b="2", c="3") == {"a.yaml": "1", "b.yaml": "2", "c.yaml": "3"}
    (run.MANIFESTS / "a.yaml").write_text("mine")
    (run.MANIFESTS / "b.yaml").unlink()
    (run.MANIFESTS / "own.yaml").write_text("own")
    capsys.readouterr()

    assert copy(run, a="new", b="new", c="new") == {"a.yaml": "mine", "c.yaml": "new", "own.yaml": "own"}
    said = capsys.readouterr().out
    assert f"keeping {run.MANIFESTS / 'a.yaml'}, which you changed" in said
    assert f"keeping {run.MANIFESTS / 'b.yaml'}, which you deleted" in said
    assert said.count("keeping") == 2


def test_on_the_hollow_runtime_no_example_is_left_that_wants_answers(run: Any) -> None:
    both = {"a.yaml": "1", "web.yaml": "httpGet"}
    assert copy(run, a="1", web="httpGet") == both
    assert copy(run, hollow=True) == {"a.yaml": "1"}
    assert copy(run) == both
    (run.MANIFESTS / "web.yaml").write_text("mine")
    assert copy(run, hollow=True)["web.yaml"] == "mine"


def test_second_run_is_refused_before_anything_is_written(run: Any) -> None:
    run.RUN_DIR.mkdir()
    run.containerd.record_process(run.KUBELET_PROCESS, os.getpid())
    before = files(run.RUN_DIR)
    with pytest.raises(
        run.RunError, match=f"another run is active in this checkout; its kubelet is process {os.getpid()}"
    ):
        run.refuse_second_run()
    with pytest.raises(run.RunError, match="another run is active"), run.only_run():
        raise AssertionError("it has begun")
    assert files(run.RUN_DIR) == {**before, "lock": ""}


def test_second_run_is_refused_while_the_first_starts(run: Any) -> None:
    with run.only_run(), pytest.raises(run.RunError, match="starting or ending"), run.only_run():
        raise AssertionError("it has begun")
    with run.only_run():
        pass


@pytest.mark.parametrize("target", ["run", "cluster"])
def test_advice_without_root_names_the_target(run: Any, monkeypatch: pytest.MonkeyPatch, target: str) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(run.RunError) as caught:
        run.check_machine("containerd", target)
    assert f"`sudo make {target}`, or `make {target} RUNTIME=hollow`" in str(caught.value)


class Refusal(grpc.RpcError):
    def details(self) -> str:
        return "container is in starting state, can't be removed"


class Runtime:
    """Refuse to remove a sandbox a number of times."""

    def __init__(self, refusals: int) -> None:
        self.refusals = refusals
        self.removed: list[str] = []

    def remove_sandbox(self, sandbox: str) -> None:
        if self.refusals:
            self.refusals -= 1
            raise Refusal
        self.removed.append(sandbox)


def test_sandbox_is_removed_once_its_container_has_started(run: Any) -> None:
    runtime = Runtime(2)
    run.remove_sandbox(runtime, "s")
    assert runtime.removed == ["s"]


def test_sandbox_that_cannot_be_removed_is_named(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "STOP_TIMEOUT", 0.0)
    with pytest.raises(run.RunError, match="the sandbox s cannot be removed: container is in starting state"):
        run.remove_sandbox(Runtime(9), "s")


def test_pods_of_a_runtime_that_is_gone_do_not_keep_the_rest(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    endpoint = tmp_path / "endpoint"
    endpoint.write_text(f"unix://{tmp_path}/gone.sock")
    monkeypatch.setattr(run, "FOREIGN_ENDPOINT", endpoint)
    run.remove_pods()
    assert f"unix://{tmp_path}/gone.sock does not answer" in capsys.readouterr().out
