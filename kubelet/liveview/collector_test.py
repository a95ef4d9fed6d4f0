"""Test snapshots of a kubelet on fakes, and the handlers that serve them."""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kubelet import config, eviction, kuberuntime, liveview
from kubelet import types as kubetypes
from kubelet.activity import Activity
from kubelet.eviction import testing as evictiontesting
from kubelet.liveview import collector, evictions, handlers
from kubelet.liveview.history import MAX_TEXT_LENGTH
from kubelet.liveview.testing import ObservedKubelet
from kubelet.pod_workers import TERMINATED_POD, TERMINATING_POD, PodWorkerSnapshot
from kubelet.testing import new_pod
from pkg import golang
from pkg.api.core import v1
from pkg.apimachinery import types
from pkg.golang import http
from pkg.golang.http import testing as httptesting


@pytest.fixture
def test_kubelet(tmp_path: Path) -> Iterator[ObservedKubelet]:
    kubelet = ObservedKubelet(tmp_path)
    kubelet.kubelet.runtime_state.set_runtime_sync(kubelet.clock.monotonic())
    yield kubelet
    kubelet.close()


@pytest.fixture
def mux(test_kubelet: ObservedKubelet) -> http.ServeMux:
    made = http.ServeMux()
    liveview.install(made, test_kubelet.kubelet, test_kubelet.history)
    return made


def snapshot(kubelet: ObservedKubelet) -> dict[str, Any]:
    return collector.Collector(kubelet.kubelet, kubelet.history).snapshot()


def only_pod(kubelet: ObservedKubelet) -> dict[str, Any]:
    (found,) = snapshot(kubelet)["pods"]
    return dict(found)


def add(kubelet: ObservedKubelet, pod: v1.Pod) -> None:
    kubelet.kubelet.handle_pod_additions(kubelet.ctx, [pod])


@pytest.mark.parametrize(
    ("spoke", "who"), [(False, ": nothing from api"), (True, "")], ids=["has said nothing", "has not been listened to"]
)
def test_source_that_has_not_been_heard(test_kubelet: ObservedKubelet, spoke: bool, who: str) -> None:
    kubelet = test_kubelet.kubelet
    kubelet.sources_ready = config.SourcesImpl(lambda seen: False)
    channel = kubelet.pod_config.channel(test_kubelet.ctx, "api")
    if spoke:
        channel.send(kubetypes.PodUpdate([], kubetypes.SET, "api"))
    (problem,) = (each for each in snapshot(test_kubelet)["node"]["problems"] if each["what"] == "sources")
    assert problem["text"] == f"not all pod sources have reported yet{who}, so no pod is removed"


def test_node_without_pods(test_kubelet: ObservedKubelet) -> None:
    found = snapshot(test_kubelet)
    assert found["node"]["sentence"].startswith("The node is")
    assert found["pods"] == []
    assert [case["name"] for case in found["loop"]["cases"]] == [
        "config",
        "pleg",
        "sync",
        "liveness",
        "readiness",
        "startup",
        "container manager",
        "housekeeping",
    ]
    json.dumps(found)


def test_manifests_that_cannot_be_used(test_kubelet: ObservedKubelet, mux: http.ServeMux) -> None:
    add(test_kubelet, new_pod("a"))
    noted = test_kubelet.kubelet.pod_config.notes_of(kubetypes.FILE_SOURCE)
    noted.replace("/m/a.yaml", ["/m/a.yaml: spec.containers: Required value"])

    node = snapshot(test_kubelet)["node"]

    assert (node["state"], node["sentence"].split("; ")[-1]) == ("warning", "at least one manifest has a problem.")
    assert node["problems"][-1] == {
        "what": "manifest", "text": "/m/a.yaml: spec.containers: Required value", "serious": False
    }  # fmt: skip
    answer = httptesting.record(mux, "GET", "/debug/syncloop/manifests").json()
    assert answer == {
        "manifests": [{"origin": "/m/a.yaml", "text": "/m/a.yaml: spec.containers: Required value"}]
    }  # fmt: skip
    noted.replace("/m/\udcff.yaml", ["/m/\udcff.yaml: a name that is not text"])
    answer = httptesting.record(mux, "GET", "/debug/syncloop/manifests").json()
    assert answer["manifests"][1] == {"origin": "/m/\ufffd.yaml", "text": "/m/\ufffd.yaml: a name that is not text"}
    noted.replace("/m/\udcff.yaml", [])
    noted.replace("/m/a.yaml", [f"fault {number}" for number in range(25)])
    texts = [each["text"] for each in snapshot(test_kubelet)["node"]["problems"] if each["what"] == "manifest"]
    assert (len(texts), texts[-1]) == (21, "and 5 more, which the log lists")


def test_node_with_a_problem_of_its_own_beside_a_manifest(test_kubelet: ObservedKubelet) -> None:
    noted = test_kubelet.kubelet.pod_config.notes_of(kubetypes.FILE_SOURCE)
    noted.replace("/m/a.yaml", ["/m/a.yaml: no"])
    test_kubelet.kubelet.runtime_state.set_runtime_state(RuntimeError("container runtime not ready: no disk"))
    sentence = snapshot(test_kubelet)["node"]["sentence"]
    assert sentence.startswith("The node is unhealthy: the kubelet syncs no pods:") and sentence.endswith(
        "(and 1 more)."
    )


def test_runtime_that_is_down(test_kubelet: ObservedKubelet) -> None:
    test_kubelet.kubelet.runtime_state.set_runtime_state(RuntimeError("container runtime not ready: no disk"))
    add(test_kubelet, new_pod("a"))

    found = snapshot(test_kubelet)

    assert found["node"]["state"] == "down"
    assert "no disk" in found["node"]["sentence"]
    assert found["pods"][0]["explanation"]["cause"] == "NodeNotReady"


def test_pod_that_is_refused(test_kubelet: ObservedKubelet) -> None:
    class Refuse:
        def admit(self, attributes: object) -> Any:
            from kubelet import lifecycle

            return lifecycle.PodAdmitResult(admit=False, reason="OutOfcpu", message="too much")

    test_kubelet.kubelet.allocation_manager.add_pod_admit_handlers([Refuse()])
    add(test_kubelet, new_pod("a"))

    found = only_pod(test_kubelet)

    assert found["explanation"]["sentence"] == "This node has rejected it permanently: too much (OutOfcpu)."
    assert [line["stage"] for line in found["timeline"]][:2] == ["seen", "refused"]


def test_pod_that_starts(test_kubelet: ObservedKubelet) -> None:
    pod = new_pod("a", containers=[v1.Container(name="main", image="app:1")])
    add(test_kubelet, pod)
    uid = pod.metadata.uid
    calls = test_kubelet.history.calls

    with calls.recorded("pull_image", (uid, ""), "app:1"):
        found = only_pod(test_kubelet)

    assert found["explanation"]["cause"] == "Pulling"
    assert [(line["stage"], line["ended"] is None) for line in found["timeline"]] == [
        ("seen", False),
        ("admitted", False),
        ("pull", True),
    ]
    assert found["calls"][0]["pod"] == f"{pod.metadata.namespace}/a"


def test_worker_is_shown(test_kubelet: ObservedKubelet) -> None:
    pod = new_pod("a")
    next_step = test_kubelet.clock.now() + datetime.timedelta(seconds=10)
    test_kubelet.workers.snapshots[pod.metadata.uid] = PodWorkerSnapshot(
        pod=pod, failures=1, err="no disk", next_step=next_step, activity=Activity.WAITS_FOR_UPDATE
    )

    found = only_pod(test_kubelet)

    assert found["worker"]["failures"] == 1
    assert found["worker"]["error"] == "no disk"
    assert found["worker"]["waits_for"] == "waits to try again"
    assert found["explanation"]["sentence"] == "Its last sync failed: no disk."
    assert found["explanation"]["until"] == pytest.approx(next_step.timestamp())


def test_volumes_that_a_worker_waits_for_are_in_the_timeline(test_kubelet: ObservedKubelet) -> None:
    pod = new_pod("a")
    test_kubelet.workers.snapshots[pod.metadata.uid] = PodWorkerSnapshot(
        pod=pod, step_began=test_kubelet.clock.now(), activity=Activity.WAITS_FOR_VOLUMES
    )
    found = only_pod(test_kubelet)
    assert found["worker"]["waits_for"] == "waits for its volumes"
    assert [(line["stage"], line["ended"]) for line in found["timeline"]] == [("volumes", None)]


def test_pod_that_only_the_runtime_knows(test_kubelet: ObservedKubelet) -> None:
    test_kubelet.workers.snapshots["1"] = PodWorkerSnapshot(namespace="ns", name="a", phase=TERMINATING_POD)
    found = only_pod(test_kubelet)
    assert (found["namespace"], found["name"], found["worker"]["phase"]) == ("ns", "a", "terminating")


def test_long_error_of_a_worker_is_cut(test_kubelet: ObservedKubelet) -> None:
    pod = new_pod("a")
    test_kubelet.workers.snapshots[pod.metadata.uid] = PodWorkerSnapshot(pod=pod, failures=1, err="x" * 1_000_000)

    assert only_pod(test_kubelet)["worker"]["error"] == f"{'x' * MAX_TEXT_LENGTH}…"


def test_static_pods_of_one_name(test_kubelet: ObservedKubelet) -> None:
    first, second = new_pod("a", "1"), new_pod("a", "2")
    test_kubelet.workers.snapshots["1"] = PodWorkerSnapshot(pod=first)
    test_kubelet.workers.snapshots["2"] = PodWorkerSnapshot(pod=second, waits_to_start=True, runs_instead="1")

    found = {pod["uid"]: pod["explanation"] for pod in snapshot(test_kubelet)["pods"]}

    assert found["2"]["cause"] == "WaitsForSameName"
    assert "UID 1" in found["2"]["sentence"]
    assert found["1"]["cause"] != "WaitsForSameName"


def test_workers_are_counted(test_kubelet: ObservedKubelet) -> None:
    now = test_kubelet.clock.now()
    test_kubelet.workers.snapshots |= {
        "1": PodWorkerSnapshot(has_worker=True, step_began=now),
        "2": PodWorkerSnapshot(has_worker=True, phase=TERMINATING_POD, failures=2),
        "3": PodWorkerSnapshot(phase=TERMINATED_POD, finished=True),
    }
    assert snapshot(test_kubelet)["workers"] == {
        "sync": 1, "terminating": 1, "terminated": 0, "finished": 1, "at_work": 1, "failing": 1, "threads": 2
    }  # fmt: skip


def test_pod_that_is_gone_is_shown_for_a_while(test_kubelet: ObservedKubelet) -> None:
    pod = new_pod("a")
    add(test_kubelet, pod)
    test_kubelet.kubelet.pod_manager.remove_pod(pod)

    assert only_pod(test_kubelet)["explanation"]["state"] == "gone"
    assert list(collector._Look(test_kubelet.kubelet, test_kubelet.history).all_pods(0.0)) == []
    explained = collector.Collector(test_kubelet.kubelet, test_kubelet.history).explain_pod(pod.metadata.namespace, "a")
    assert explained is not None and explained["pods"][0]["explanation"]["state"] == "gone"


def test_last_line_of_the_log(test_kubelet: ObservedKubelet) -> None:
    pod = new_pod("a", containers=[v1.Container(name="main")], restart_policy="Never")
    meta = pod.metadata
    folder = Path(
        kuberuntime.build_container_logs_directory(
            test_kubelet.kubelet.pod_logs_directory, meta.namespace, meta.name, meta.uid, "main"
        )
    )
    folder.mkdir(parents=True)
    (folder / "0.log").write_text(
        "2026-01-01T00:00:00Z stdout F one\n2026-01-01T00:00:00Z stderr F the disk  is full\n"
    )
    add(test_kubelet, pod)
    ended = v1.ContainerState(terminated=v1.ContainerStateTerminated(exit_code=1, reason="Error"))
    status = v1.PodStatus(phase=v1.POD_FAILED, container_statuses=[v1.ContainerStatus(name="main", state=ended)])
    test_kubelet.status_manager.set_pod_status(pod, status)

    evidence = only_pod(test_kubelet)["explanation"]["evidence"]

    assert "the disk  is full" in [each["text"] for each in evidence]


@pytest.mark.parametrize(
    ("text", "line"),
    [("", ""), ("no log\n", ""), ("t stdout F \n", ""), ("t stdout P part of a line", "part of a line")],
)
def test_odd_logs(tmp_path: Path, text: str, line: str) -> None:
    (tmp_path / "0.log").write_text(text)
    assert collector._last_line(str(tmp_path / "0.log")) == line
    assert collector._last_line(str(tmp_path / "none.log")) == ""


def test_loop_is_shown(test_kubelet: ObservedKubelet) -> None:
    loop = test_kubelet.history.loop
    for case in (0, 1, 1):
        loop.took(case)
        loop.done()
    loop.took(7)

    found = snapshot(test_kubelet)["loop"]

    assert [case["count"] for case in found["cases"]] == [1, 2, 0, 0, 0, 0, 0, 1]
    assert [taken[1] for taken in found["tape"]] == [0, 1, 1]
    assert (found["last"], found["at_work"]["case"]) == ("housekeeping", "housekeeping")
    assert found["cases"][1]["capacity"] == 100 and found["cases"][2]["capacity"] is None


def test_loop_that_is_stuck(test_kubelet: ObservedKubelet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collector, "_LONG_STEP", -1.0)
    test_kubelet.history.loop.took(1)

    found = snapshot(test_kubelet)["node"]

    assert found["state"] == "down"
    assert "handling one event (pleg)" in found["sentence"]


def test_call_that_does_not_return(test_kubelet: ObservedKubelet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collector, "_LONG_CALL", -1.0)
    calls = test_kubelet.history.calls
    with calls.recorded("stop_podsandbox", ("1", "")), calls.recorded("pull_image", ("1", "")):
        problems = snapshot(test_kubelet)["node"]["problems"]
    told = [problem["text"] for problem in problems if "not answered" in problem["text"]]
    assert len(told) == 1 and "stop_podsandbox" in told[0]


def test_snapshots_are_shared(test_kubelet: ObservedKubelet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collector, "_REUSE", 1000.0)
    shared = collector.Collector(test_kubelet.kubelet, test_kubelet.history)
    assert shared.snapshot() is shared.snapshot()
    monkeypatch.setattr(collector, "_REUSE", -1.0)
    assert shared.snapshot() is not shared.snapshot()


# ---- Handlers ----


def test_page_needs_nothing_from_elsewhere(mux: http.ServeMux) -> None:
    answer = httptesting.record(mux, "GET", "/debug/syncloop")

    assert answer.status == 200
    assert answer.headers.get("Content-Type").startswith("text/html")
    assert not re.findall(r"""(?:src|href)\s*=\s*["']?(?:https?:)?//""", answer.text)
    assert "@import" not in answer.text and "innerHTML" not in answer.text
    policy = answer.headers.get("Content-Security-Policy")
    assert "default-src 'none'" in policy and policy.count("'sha256-") == 2


def test_data(mux: http.ServeMux) -> None:
    answer = httptesting.record(mux, "GET", "/debug/syncloop.json")
    assert answer.headers.get("Content-Type") == "application/json"
    assert answer.json()["node"]["name"] == "node"


def test_explain(mux: http.ServeMux, test_kubelet: ObservedKubelet) -> None:
    pod = new_pod("a")
    pod.metadata.annotations[kubetypes.CONFIG_SOURCE_ANNOTATION_KEY] = "api"
    add(test_kubelet, pod)

    answer = httptesting.record(mux, "GET", f"/debug/syncloop/explain?pod={pod.metadata.namespace}/a")
    assert [each["name"] for each in answer.json()["pods"]] == ["a"]
    node = httptesting.record(mux, "GET", "/debug/syncloop/explain").json()
    assert [each["name"] for each in node["pods"]] == ["a"]
    missing = httptesting.record(mux, "GET", "/debug/syncloop/explain?pod=ns/b")
    assert (missing.status, "knows no pod ns/b" in missing.text) == (404, True)


def test_explain_by_the_name_in_the_manifest(mux: http.ServeMux, test_kubelet: ObservedKubelet) -> None:
    pod = new_pod("job-node")
    add(test_kubelet, pod)
    for name in ("job", "job-node"):
        answer = httptesting.record(mux, "GET", f"/debug/syncloop/explain?pod={pod.metadata.namespace}/{name}")
        assert [each["name"] for each in answer.json()["pods"]] == ["job-node"]


def test_unknown_fields_of_the_manifest_are_evidence(test_kubelet: ObservedKubelet) -> None:
    pod = new_pod("a")
    add(test_kubelet, pod)
    fields = {pod.metadata.uid: ["spec.containers[0].comand"], types.UID("other"): ["spec.x"]}
    test_kubelet.kubelet.pod_config.notes_of(kubetypes.FILE_SOURCE).replace_unknown_fields(fields)

    evidence = only_pod(test_kubelet)["explanation"]["evidence"]

    assert [each["text"] for each in evidence if each["source"] == "manifest"] == [
        "spec.containers[0].comand: a pod has no such field, so the kubelet ignores it"
    ]


def test_pod_that_the_loop_has_not_taken(mux: http.ServeMux, test_kubelet: ObservedKubelet) -> None:
    pod = new_pod("a")
    source = test_kubelet.kubelet.pod_config.channel(test_kubelet.ctx, kubetypes.APISERVER_SOURCE)
    for _ in range(2):  # The second update is received after the first has been merged.
        source.send(kubetypes.PodUpdate([pod], kubetypes.SET, kubetypes.APISERVER_SOURCE))

    answer = httptesting.record(mux, "GET", f"/debug/syncloop/explain?pod={pod.metadata.namespace}/a")

    assert answer.json()["pods"][0]["explanation"]["cause"] == "Seen"


@pytest.mark.parametrize("pod", ["a", "/a", "ns/", "/"])
def test_explain_of_what_is_no_name(mux: http.ServeMux, pod: str) -> None:
    answer = httptesting.record(mux, "GET", f"/debug/syncloop/explain?pod={pod}")
    assert (answer.status, "is not of the form NAMESPACE/NAME" in answer.text) == (400, True)


def test_evictions(mux: http.ServeMux, test_kubelet: ObservedKubelet, monkeypatch: pytest.MonkeyPatch) -> None:
    manager = evictiontesting.FakeEvictionManager()
    test_kubelet.kubelet.eviction_manager = manager
    answer = httptesting.record(mux, "GET", "/debug/syncloop/evictions")
    assert (answer.status, answer.json()["sentence"]) == (200, evictions.NO_THRESHOLDS)

    def fail(ctx: golang.Context) -> eviction.Preview:
        raise OSError("the runtime is gone")

    monkeypatch.setattr(manager, "preview", fail)
    answer = httptesting.record(mux, "GET", "/debug/syncloop/evictions")
    assert (answer.status, answer.text.strip()) == (503, "the node cannot be measured: the runtime is gone")


@pytest.mark.parametrize("method", ["POST", "HEAD"])
def test_only_reading(mux: http.ServeMux, method: str) -> None:
    """The paths accept neither POST nor HEAD: a HEAD request for the stream would never end."""
    for path in liveview.PATHS:
        assert httptesting.record(mux, method, path).status == 405


def test_stream_ends_with_its_client(mux: http.ServeMux) -> None:
    ctx, cancel = golang.with_timeout(golang.background(), 0.4)
    answer = httptesting.record(mux, "GET", "/debug/syncloop/events?interval=0.25", ctx=ctx)
    cancel()

    assert answer.headers.get("Content-Type") == "text/event-stream" and answer.may_pause
    messages = answer.text.split("\n\n")
    assert len(messages) >= 2 and messages[-1] == ""
    assert all(json.loads(message.removeprefix("data: "))["node"] for message in messages[:-1])


def test_too_many_streams(mux: http.ServeMux, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handlers, "_MAX_STREAMS", 0)
    assert httptesting.record(mux, "GET", "/debug/syncloop/events").status == 503


@pytest.mark.parametrize(
    ("text", "seconds"), [("", 1.0), ("0.5", 0.5), ("0", 0.25), ("1e9", 60.0), ("nan", 0.25), ("-inf", 0.25)]
)
def test_interval(text: str, seconds: float) -> None:
    assert handlers._interval(text) == seconds


def test_interval_that_is_no_number(mux: http.ServeMux) -> None:
    assert httptesting.record(mux, "GET", "/debug/syncloop/events?interval=often").status == 400


@pytest.mark.parametrize(
    ("states", "sentence"),
    [
        ({}, "The node is healthy, and has no pods."),
        ({"gone": 1}, "The node is healthy, and has no pods."),
        ({"ready": 1}, "The node is healthy, and its pod has no problem."),
        ({"stuck": 1}, "The node is healthy; its pod has a problem."),
        ({"ready": 2, "starting": 1}, "The node is healthy, and all 3 pods are without problems."),
        ({"ready": 3, "failed": 1}, "The node is healthy; 1 of 4 pods has a problem."),
        ({"ready": 2, "stuck": 1, "refused": 1}, "The node is healthy; 2 of 4 pods have a problem."),
    ],
)
def test_sentence_on_the_node(states: dict[str, int], sentence: str) -> None:
    assert collector._node_sentence([], states) == sentence
