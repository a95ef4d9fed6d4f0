"""Test that the runtime manager makes the same calls to a runtime as the Go kubelet, pod by pod.

docs/divergences.md lists the intended differences.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from golden import runtime_replay
from golden.runtime_replay import Replay

from kubelet import cm
from kubelet.cri.remote import fake
from kubelet.kuberuntime import kuberuntime_container_linux
from kubelet.prober import results as proberesults
from pkg import golang

MakeReplay = Callable[[str, str], Replay]


@pytest.fixture
def make_replay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MakeReplay:
    # The recorded machine had cgroup v1 and two sizes of huge pages.
    monkeypatch.setattr(cm, "is_cgroup2_unified_mode", lambda: False)
    monkeypatch.setattr(kuberuntime_container_linux, "huge_page_sizes", lambda: ["2MB", "1GB"])
    return lambda scenario, name: Replay(scenario, name, tmp_path)


def check(replay: Replay, methods: set[str] | None = None) -> None:
    recorded = runtime_replay.recorded_conversation(replay.scenario, replay.pod.metadata.name)
    ours = replay.conversation()
    if methods is not None:
        recorded = [call for call in recorded if call.method in methods]
        ours = [call for call in ours if call.method in methods]
    assert runtime_replay.differences(recorded, ours) == ""


# The kubelet, not the runtime manager, removes dead containers.
LIFE = {
    "RunPodSandbox", "CreateContainer", "StartContainer", "StopContainer", "StopPodSandbox",
    "ImageStatus", "PullImage",
}  # fmt: skip


@pytest.mark.parametrize(("scenario", "name"), [("01-plain", "plain"), ("04-host", "host"), ("04-host", "shared")])
def test_pod_that_runs_until_it_is_deleted(make_replay: MakeReplay, scenario: str, name: str) -> None:
    replay = make_replay(scenario, name)
    replay.sync()
    replay.kill()
    check(replay, LIFE)


@pytest.mark.parametrize("name", ["succeeds", "fails", "oom"])
def test_pod_that_ends(make_replay: MakeReplay, name: str) -> None:
    replay = make_replay("03-ends", name)
    replay.sync()
    replay.clock.step(1)
    if name == "oom":
        replay.runtime.end_container(replay.runtime.container(name, "c").id, 137, oom_killed=True)
    replay.kill()
    check(replay, LIFE)


def test_pod_past_its_deadline(make_replay: MakeReplay) -> None:
    replay = make_replay("03-ends", "deadline")
    replay.sync()
    replay.kill()
    check(replay, LIFE)


def test_pod_that_crashes(make_replay: MakeReplay) -> None:
    replay = make_replay("03-ends", "crashes")
    replay.sync()
    replay.clock.step(1.5)
    replay.sync()
    replay.clock.step(1.5)
    replay.sync()  # The container now waits for its backoff.
    replay.clock.step(10)
    replay.sync()
    replay.clock.step(1.5)
    replay.kill()
    check(replay, LIFE)


def test_pod_that_is_unhealthy(make_replay: MakeReplay) -> None:
    replay = make_replay("03-ends", "unhealthy")
    replay.sync()
    for wait in (0, 0, 10):
        replay.clock.step(2)
        replay.probed("c", replay.liveness, proberesults.FAILURE)
        replay.sync()
        replay.clock.step(wait)
        replay.sync()
    replay.kill()
    check(replay, LIFE)


def test_pod_without_its_image(make_replay: MakeReplay) -> None:
    replay = make_replay("03-ends", "no-image")
    replay.sync()
    replay.clock.step(5)
    replay.sync()
    replay.clock.step(9)
    replay.sync()
    replay.kill()
    check(replay, LIFE)


def test_pod_without_its_configuration(make_replay: MakeReplay) -> None:
    replay = make_replay("03-ends", "no-config")
    replay.sync()
    replay.clock.step(5)
    replay.sync()
    replay.kill()
    check(replay, LIFE)


def test_pod_with_everything(make_replay: MakeReplay) -> None:
    replay = make_replay("02-everything", "everything")
    behaviours = replay.runtime.behaviours
    # The recorded machine could not mount /etc as the container requires.
    behaviours.add(fake.Behaviour(create_error='path "/etc" is mounted on "/"'), name="main")
    behaviours.add(fake.Behaviour(ignore_sigterm=True), name="other")
    replay.sync()
    replay.sync()
    replay.probed("sidecar", replay.startup, proberesults.SUCCESS)
    for _ in range(5):
        replay.clock.step(1)
        replay.sync()
    thread = golang.go(replay.kill, name="pod-killer")
    replay.wait_for_stops(2)
    replay.clock.step(5)
    thread.join(30)
    assert not thread.is_alive()
    check(replay, LIFE)
