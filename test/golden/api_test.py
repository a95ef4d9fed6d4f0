"""Test that our kubelet makes the same calls to an API server as the Go kubelet, with the same results.

Every expected difference is an entry of KNOWN with its reason. Any other difference fails a test.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from golden import api_calls, api_scenarios, cri_calls, normalize
from golden.api_calls import Call, Known, PodLife, comparable
from golden.api_scenarios import Run, Runs

_AWAY = "the machines differ"

KNOWN = [
    # The following differences are only in the form.
    Known(
        r": delete apiVersion: recorded \"meta.k8s.io/__internal\", ours \"v1\"$",
        "Go's client sends the name of an internal version, which API servers ignore",
    ),
    Known(r"^00-register node: create spec drivers: recorded null, ours \[\]$", "both mean that there is no driver"),
    # The following difference is intended.
    Known(
        r"^static-labnode: delete preconditions uid: recorded null, ours \"<uid>\"$",
        "if the static pod is gone, Go deletes whatever pod has the name of the mirror pod by then",
    ),
    # The following differences come from the hollow node.
    Known(r" node: only recorded: deletecollection .*/resourceslices\?", "a hollow node manages no dynamic resources"),
    Known(r" events: only recorded: create .*\"NodeAllocatableEnforced\"", "a hollow node limits no cgroups"),
    Known(
        r"^everything runtime: CreateContainer <main#0> config mounts\[3\] host_path: recorded .*/volume-subpaths/",
        "a hollow node makes no bind mount of a sub-path, but uses the path in the volume",
    ),
    # The following differences are calls that our kubelet makes less or more often.
    Known(
        r" reads: list .*limit=500&resourceVersion=0 200: recorded 1, ours 0$",
        "the recorded API server ended watches with initial events, so that a list and a watch followed",
    ),
    Known(
        r" reads: watch [^ ]*resourceVersion=<version>[^ ]* 200: recorded 1, ours 0$",
        "this is the watch that followed that list",
    ),
    Known(
        r"^00-register events: only recorded: patch .*\"count\": 3, .*status is now: NodeHas",
        "our kubelet computes and reports the node's first state once less",
        always=False,
    ),
    Known(
        r"^06-restart events: only ours: patch .*\"count\": 2, .*status is now: NodeHas",
        "a kubelet computes and reports the node's first state once more for a pod that it admits before it has listed "
        "the node; Go does so, too",
        always=False,
    ),
    # The following differences come from another machine.
    Known(r" node: create status capacity (ephemeral-storage|memory|cpu|hugepages-[^ ]*): ", _AWAY, always=False),
    Known(
        r" node: create status allocatable (ephemeral-storage|memory|cpu|hugepages-[^ ]*): ",
        "a hollow node reserves no resources, in Go either",
    ),
    Known(r" node: create status nodeInfo (kernelVersion|machineID|systemUUID|bootID|osImage): ", _AWAY, always=False),
    Known(
        r" node: create status daemonEndpoints kubeletEndpoint Port: recorded 10250, ours ", "the test uses a free port"
    ),
    Known(r" events: only (ours|recorded): create .*\"CgroupV1\"", _AWAY, always=False),
    # The following differences occur at random, in the recording too.
    Known(
        r"^00-register (node: create status conditions\[3\] message: recorded \"CSINode is not yet initialized\", ours "
        r"\"failed to initialize CSINode: .* timed out waiting|node: only ours: patch .*\"failed to initialize CSINode"
        r": .* timed out waiting|reads: get /api/v1/nodes/labnode 404: recorded 3, )",
        "the CSINode waits a third of a second for its node, and a busy machine takes longer to register the node",
        always=False,
    ),
    Known(
        r"^06-restart node: create status conditions\[3\] (message: .*, ours \".*(has yet to be successful|may not "
        r"have completed yet)|reason: .*, ours \"KubeletNotReady\"$|status: recorded \"True\", ours \"False\"$)",
        "the kubelet registers the node before or after its first list of the pods, in Go, too",
        always=False,
    ),
    Known(
        r"^00-register (node: only ours: patch .*\"conditions\": \[{\"message\": \"kubelet is posting ready status\", "
        r".*}\]}}$|events: only ours: patch .*\"count\": 2, .*status is now: NodeReady\"}$)",
        "two threads report that the node has become ready, and the second may not have seen yet what the first wrote, "
        "in Go, too",
        always=False,
    ),
    Known(
        r": calls: (get|patch) pods: 1 more ",
        "a kubelet sends a pod's last two statuses as one or as two, and reads the pod before each; "
        "the recorded kubelet did both, too",
        always=False,
    ),
    Known(
        r"^static-labnode: (calls: patch pods: 1 more |patch status conditions\[0\] status: recorded \"True\", ours "
        r"\"False\"$|only ours: patch .*\"conditions\": \[{\"status\": \"True\", \"type\": "
        r"\"PodReadyToStartContainers\"}\]}}$)",
        "a kubelet sends the status from before the pod's sandbox if the mirror pod exists by then, or drops it",
        always=False,
    ),
    Known(
        r"^static-labnode: calls: get pods: [2-9] more ",
        "with the statuses of others the kubelet requests that of a deleted mirror pod until housekeeping, in Go, too",
        always=False,
    ),
    Known(
        r"^static-labnode: (only ours: delete [^ ]*/static-labnode 404 |calls: delete pods: 1 more )",
        "housekeeping deletes a mirror pod without a static pod until the watch reports that it is gone, in Go, too",
        always=False,
    ),
    Known(
        r"^unhealthy( events:|: calls: (patch|create) events| .* held count:| .* (Unhealthy|BackOff): .* held: event)",
        "probes run each second from a random moment on; after 25 warnings about a pod the kubelet sends no more",
    ),
    Known(
        r"^everything: only (ours|recorded): patch (?!.*initContainerStatuses).*"
        r"\"status\": {\"containerStatuses\": .*failed to generate container",
        "the startup probe's success, which causes a sync of the pod, comes before or after the end of the first sync",
        always=False,
    ),
    Known(
        r"^everything: (patch status containerStatuses\[0\] state waiting (message: recorded null|reason: .*\"PodInit)"
        r"|only recorded: patch (?!.*initContainerStatuses).*\"PodInitializing\")",
        "a restarted kubelet still knows why a container waits; it may send that status together with the next one",
        always=False,
    ),
    Known(
        r"^no-config .* held count:|^(everything|no-config) events: only (ours|recorded): "
        r".*(already present on machine|failed to generate container|configmap ..missing.. not found)",
        "each sync of a container that cannot be created emits one",
        always=False,
    ),
    Known(
        r"^crashes( events: (only ours: patch .*Back-off restarting|patch count:) |: calls: patch events: 1 more "
        r"| .* BackOff: .* held count:)",
        "each sync of a container in its backoff emits one; a busy machine takes longer and has more syncs",
        always=False,
    ),
    Known(
        r"^everything: calls: ((patch|get) pods|(create|patch) events): [12] more ",
        "each sync of a container that cannot be created makes these calls",
        always=False,
    ),
]

_PODS = {
    "01-plain": ("plain",),
    "03-ends": ("succeeds", "fails", "crashes", "no-image", "no-config", "no-volume", "unhealthy", "deadline", "oom"),
    "04-host": ("host", "shared"),
    "05-static": ("static-labnode",),
    "06-restart": ("everything",),
}
_LIVES = [(scenario, pod) for scenario, pods in _PODS.items() for pod in pods]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return api_scenarios.run_all(tmp_path_factory.mktemp("golden"))


def _run_of(runs: Runs, scenario: str) -> Run:
    return runs.restart if scenario == "06-restart" else runs.alive


def _life(runs: Runs, scenario: str, pod: str) -> tuple[PodLife, PodLife]:
    """Return the recorded calls about a pod, and the calls of our kubelet about it."""
    recorded = api_scenarios.cut(scenario, api_calls.load(scenario))
    return api_calls.lives(recorded)[pod], api_calls.lives(_run_of(runs, scenario).calls)[pod]


def _check(differences: Iterable[str]) -> None:
    found = "\n".join(api_calls.unknown(KNOWN, differences))
    assert not found, found


@pytest.mark.parametrize(("scenario", "pod"), _LIVES)
def test_writes_about_a_pod(runs: Runs, scenario: str, pod: str) -> None:
    """Status patches, mirror pods and deletions have the recorded order, options and contents."""
    recorded, ours = _life(runs, scenario, pod)
    _check(api_calls.diff_writes(recorded.writes, ours.writes, pod))


@pytest.mark.parametrize(("scenario", "pod"), _LIVES)
def test_events_of_a_pod(runs: Runs, scenario: str, pod: str) -> None:
    """Each new event and each increased count comes in the recorded order."""
    recorded, ours = _life(runs, scenario, pod)
    _check(api_calls.diff_writes(recorded.events, ours.events, f"{pod} events"))


@pytest.mark.parametrize(("scenario", "pod"), _LIVES)
def test_no_more_calls_about_a_pod(runs: Runs, scenario: str, pod: str) -> None:
    """Our kubelet makes no more calls than the Go kubelet, and reads a pod before it patches the pod's status."""
    recorded, ours = _life(runs, scenario, pod)
    assert ours.unread() == []
    _check(_exceeded(recorded.calls, ours.calls, pod))


def _exceeded(recorded: Iterable[Call], ours: Iterable[Call], where: str) -> Iterator[str]:
    def kinds(calls: Iterable[Call]) -> Counter[str]:
        return Counter(f"{call.verb} {call.resource}" for call in calls)

    allowed = kinds(recorded)
    for kind, count in kinds(ours).items():
        if count > allowed[kind]:
            yield f"{where}: calls: {kind}: {count - allowed[kind]} more than the recorded {allowed[kind]}"


@pytest.mark.parametrize(("scenario", "pod"), _LIVES)
def test_what_the_api_server_holds(runs: Runs, scenario: str, pod: str) -> None:
    """The API server holds the recorded status of the pod, and the whole recorded mirror pod."""
    [recorded] = [p for p in normalize.pods(scenario) if p["metadata"]["name"] == pod]
    ours = _run_of(runs, scenario).pods[pod]
    if scenario != "05-static":
        recorded, ours = recorded["status"], ours["status"]
    _check(normalize.diff(comparable(recorded), comparable(ours), f"{pod} held"))


@pytest.mark.parametrize(("scenario", "pod"), _LIVES)
def test_calls_of_the_runtime_about_a_pod(runs: Runs, scenario: str, pod: str) -> None:
    """The calls to the runtime have the recorded order and contents.

    For containers that cannot be created, only the contents matter.
    """
    run = _run_of(runs, scenario)
    ours = cri_calls.conversation(run.cri, run.root_dir, pod)
    recorded = _recorded_cri(scenario, pod)
    found = normalize.diff_conversations(_in_order(recorded), _in_order(ours), cri_calls.HOLLOW)
    found += normalize.diff_conversations(_failed(recorded)[:1], _failed(ours)[:1], cri_calls.HOLLOW)
    _check(f"{pod} runtime: {line}" for line in found)


def _in_order(calls: Iterable[normalize.Call]) -> list[normalize.Call]:
    """Leave out repeated attempts, and removals at a random time, which static_pod_test checks."""
    return [call for call in calls if not (call.failed or call.method in ("RemoveContainer", "PullImage"))]


def _failed(calls: Iterable[normalize.Call]) -> list[normalize.Call]:
    return [call for call in calls if call.failed]


def _recorded_cri(scenario: str, pod: str) -> list[normalize.Call]:
    lines = normalize.load("02-everything" if scenario == "06-restart" else scenario)
    return normalize.conversations(lines).get(pod, [])


@pytest.mark.parametrize("scenario", ["01-plain", "03-ends", "04-host"])
def test_events_that_the_api_server_holds(runs: Runs, scenario: str) -> None:
    """The API server holds the recorded events, with their reason, message, type, count and all other fields."""
    text = (normalize.DATA / scenario / "events.json").read_text()
    recorded = _events(json.loads(text)["items"], scenario)
    ours = _events(runs.alive.events, scenario)
    differences = [f"{name} held: event recorded, ours none" for name in recorded.keys() - ours.keys()]
    differences += [f"{name} held: event ours, recorded none" for name in ours.keys() - recorded.keys()]
    for name in recorded.keys() & ours.keys():
        differences += normalize.diff(recorded[name], ours[name], f"{name} held")
    _check(differences)


def _events(items: Iterable[dict[str, Any]], scenario: str) -> dict[str, dict[str, Any]]:
    """Return the kubelet's events by their subject, reason and message."""
    found = {}
    for event in items:
        about = event["involvedObject"]
        if about["name"] in _PODS[scenario] and event["source"].get("component") == "kubelet":
            kept = comparable(event)
            key = f"{about['name']} {about.get('fieldPath', '')} {event['reason']}: {kept['message']}"
            found[key] = kept
    return found


def _start_of(runs: Runs, scenario: str) -> tuple[list[Call], list[Call]]:
    """Return both kubelets' calls about the node from their start until the first renewal of the lease."""
    recorded = api_calls.load(scenario)
    if scenario == "00-register":
        return _until_renewed(recorded, "create"), _until_renewed(runs.alive.calls, "create")
    restarted = runs.restart.restarted
    ours = [call for call in runs.restart.calls if call.at > restarted]
    recorded = [call for call in recorded if call.at > _RESTARTED]
    return _until_renewed(recorded, "update"), _until_renewed(ours, "update")


_RESTARTED = "2026-11-21T03:44:30.4"


def _until_renewed(calls: Iterable[Call], verb: str) -> list[Call]:
    found: list[Call] = []
    renewed = False
    for call in calls:
        if call.resource == "leases" and call.verb == verb:
            renewed = True
        if not _is_about_pods(call) and not (renewed and call.resource == "leases" and call.verb != verb):
            found.append(call)
    return found


def _is_about_pods(call: Call) -> bool:
    return "/namespaces/golden/" in call.path


_STARTS = ["00-register", "06-restart"]


@pytest.mark.parametrize("scenario", _STARTS)
def test_node_writes(runs: Runs, scenario: str) -> None:
    """The node object, its status, the CSI node and the lease have the recorded contents and order of writes."""
    recorded, ours = _start_of(runs, scenario)
    _check(api_calls.diff_writes(_writes(recorded), _writes(ours), f"{scenario} node"))


def _writes(calls: Iterable[Call]) -> list[Call]:
    """Return all writes except events, and except those that depend on the length of the run.

    These are updates of the lease after the first, and patches that report only a heartbeat.
    """
    found: list[Call] = []
    for call in calls:
        again = call.verb == "update" and any(each.verb == "update" for each in found)
        heartbeat = call.verb == "patch" and comparable(call.sent) in ({}, {"status": {}})
        if call.changes and call.resource != "events" and not again and not heartbeat:
            found.append(call)
    return found


@pytest.mark.parametrize("scenario", _STARTS)
def test_node_events(runs: Runs, scenario: str) -> None:
    recorded, ours = _start_of(runs, scenario)
    recorded, ours = ([c for c in calls if c.changes and c.resource == "events"] for calls in (recorded, ours))
    _check(api_calls.diff_writes(recorded, ours, f"{scenario} events"))


@pytest.mark.parametrize("scenario", _STARTS)
def test_node_reads(runs: Runs, scenario: str) -> None:
    """Each watch and list has the recorded query, and our kubelet makes no more gets than the Go kubelet."""
    recorded, ours = _start_of(runs, scenario)
    _check(_diff_reads(recorded, ours, f"{scenario} reads"))


def _diff_reads(recorded: Iterable[Call], ours: Iterable[Call], where: str) -> Iterator[str]:
    def reads(calls: Iterable[Call]) -> Counter[str]:
        return Counter(str(call) for call in calls if not call.changes)

    allowed, made = reads(recorded), reads(ours)
    for read in sorted(allowed | made):
        if made[read] > allowed[read] or (made[read] < allowed[read] and not read.startswith("get ")):
            yield f"{where}: {read}: recorded {allowed[read]}, ours {made[read]}"


def test_every_known_difference_is_still_there(request: pytest.FixtureRequest) -> None:
    """Every expected difference still exists. An entry of the table that no longer fits must be removed."""
    tests = [item for item in request.session.items if item.fspath == request.node.fspath]
    if len(tests) < len(_LIVES):
        pytest.skip("this test needs the results of all other tests of this file")
    assert [known.pattern for known in KNOWN if known.always and not known.seen] == []
