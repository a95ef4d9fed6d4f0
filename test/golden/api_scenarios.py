"""Run the recorded scenarios with our kubelet as a process against the test API server.

Pods have their recorded volumes, and those of tokens have the recorded names. The runtime is a fake one, whose
containers behave as in the recording.
"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import yaml
from cri_api.v1 import api_pb2 as runtimeapi
from framework.apiserver import cluster
from framework.hollow_kubelet import HollowKubelet
from framework.waiting import wait_for
from golden import api_calls, cri_calls, normalize
from golden.api_calls import Call
from google.protobuf import json_format

from kubelet.cri import errors
from kubelet.cri.remote import fake
from pkg import golang

NODE = "labnode"
NAMESPACE = "golden"
# The recorded API server adds this config map to the volumes of tokens.
_NOT_UPSTREAM = "openshift-service-ca.crt"
# A starting kubelet treats a container that has run for less than ten seconds as new.
_UNTIL_RESTART = 11.0
# The recorded run took longer here. `cut` leaves out the calls of the additional time.
_UNTIL_DELETION = 6.0
_TIMEOUT = 120.0
# These containers end by themselves, with these exit codes, after the API server has seen them run, as in the
# recording.
_EXIT_CODES = {
    ("succeeds", "c"): 0,
    ("fails", "c"): 3,
    ("crashes", "c"): 1,
    ("oom", "c"): 137,
    ("everything", "first"): 0,
    ("everything", "second"): 0,
}


@dataclass(slots=True)
class Run:
    """Hold the result of a run: the kubelet's calls, and the pods and events in the API server before the deletion."""

    calls: list[Call]
    pods: dict[str, Any]
    events: list[dict[str, Any]]
    restarted: str = ""  # `restarted` is the time at which the kubelet restarted.
    cri: list[dict[str, Any]] = field(default_factory=list)  # `cri` has the kubelet's calls to the runtime.
    root_dir: Path = Path()

    def until_pods(self) -> list[Call]:
        """Return the calls before the first pod existed."""
        first = min((call.at for life in api_calls.lives(self.calls).values() for call in life.calls), default="~")
        return [call for call in self.calls if call.at < first]


@dataclass(slots=True)
class Runs:
    """Hold two runs, each with its own node.

    `alive` has the registration, pods and static pods; `restart` has a restart of the kubelet.
    """

    alive: Run
    restart: Run


def run_all(directory: Path) -> Runs:
    """Run both scenarios concurrently, each with its own cluster. This takes half a minute."""
    with ThreadPoolExecutor(2) as pool:
        alive = pool.submit(_run, directory / "alive", _live)
        restart = pool.submit(_run, directory / "restart", _restart)
        return Runs(alive.result(), restart.result())


class _Node:
    def __init__(self, directory: Path, target: cluster.Cluster) -> None:
        self.store = target.store
        self.recorder = api_calls.Recorder(target, f"system:node:{NODE}")
        resolv_conf = directory / "resolv.conf"
        resolv_conf.write_text(cri_calls.resolv_conf())
        config = {
            "clusterDNS": ["10.96.0.10"],
            "clusterDomain": "cluster.local",
            "maxPods": 120,
            "resolvConf": str(resolv_conf),
        }
        flags = {"kubeconfig": target.node_kubeconfig(NODE), "cert-dir": directory / "pki"}
        self.kubelet = HollowKubelet(directory, NODE, config, flags)
        _script(self.kubelet.runtime)
        self._watch = self.store.watch("pods", NAMESPACE)
        self._thread = golang.go(self._end_what_is_seen, name="golden-ends")

    def end(self) -> None:
        self.kubelet.end()
        self._watch.stop()
        self._thread.join()

    def _end_what_is_seen(self) -> None:
        """End the containers that should end, once the API server reports them as running."""
        seen = set()
        for event in self._watch:
            pod, status = event.object["metadata"]["name"], event.object["status"]
            for each in [*status.get("initContainerStatuses", []), *status.get("containerStatuses", [])]:
                code = _EXIT_CODES.get((pod, each["name"]))
                if code is not None and "running" in each["state"] and each["containerID"] not in seen:
                    seen.add(each["containerID"])
                    container = each["containerID"].rpartition("/")[2]
                    self.kubelet.runtime.end_container(container, code, oom_killed=pod == "oom")

    def wait_until_ready(self) -> None:
        wait_for("the node is ready", self._ready, _TIMEOUT, lambda: self.kubelet.end_of_log())

    def _ready(self) -> bool:
        conditions = [c for node in self.store.list("nodes") for c in node["status"].get("conditions", [])]
        return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)

    def create(self, manifests: Iterable[dict[str, Any]]) -> None:
        for manifest in manifests:
            self.store.create("pods", manifest)

    def wait_for(self, name: str, what: str, condition: Callable[[dict[str, Any]], bool]) -> None:
        def look() -> bool:
            found = self.store.list("pods", NAMESPACE, field_selector=f"metadata.name={name}")
            return bool(found) and condition(found[0])

        wait_for(f"pod {name} {what}", look, _TIMEOUT, self.kubelet.end_of_log)

    def wait_until_at_end(self, name: str, result: Run) -> None:
        """Wait until a pod has reached its recorded state, and keep the pod and its events of that moment."""
        ended, settle = _ENDS.get(name, (_running, 2))
        self.wait_for(name, "reaches its recorded state", ended)
        time.sleep(settle)
        result.pods[name] = self.store.get("pods", name, NAMESPACE)
        result.events += self.store.list("events", NAMESPACE, field_selector=f"involvedObject.name={name}")

    def delete_at_end(self, name: str, result: Run) -> None:
        self.wait_until_at_end(name, result)
        self.store.delete("pods", name, NAMESPACE)

    def wait_until_gone(self) -> None:
        def names() -> list[str]:
            return [pod["metadata"]["name"] for pod in self.store.list("pods", NAMESPACE)]

        wait_for("the pods are gone", lambda: not names(), _TIMEOUT, names)

    def wait_until_forgotten(self, name: str) -> None:
        """Wait until the kubelet no longer requests a deleted pod, which it does while it has a status of the pod."""
        self.kubelet.wait_for_log("Pod is terminated and will need no more status updates", name)
        cleaned = "Clean up orphaned pod statuses"
        self.kubelet.wait_for_log(cleaned, count=len(self.kubelet.logged(cleaned)) + 2)


# All pods have environment variables for this service.
_KUBERNETES = {
    "metadata": {"name": "kubernetes", "namespace": "default"},
    "spec": {"clusterIP": "10.96.0.1", "ports": [{"name": "https", "port": 443, "protocol": "TCP"}]},
}


def _run(directory: Path, scenario: Callable[[_Node], Run]) -> Run:
    directory.mkdir()
    target = cluster.Cluster(directory / "cluster", cluster.Options(mount_tokens=True))
    with target:
        target.store.create("namespaces", {"metadata": {"name": NAMESPACE}})
        target.store.create("services", _KUBERNETES)
        node = _Node(directory, target)
        try:
            node.kubelet.server.start()
            node.kubelet.start()
            node.wait_until_ready()
            result = scenario(node)
        finally:
            node.end()
        result.calls = node.recorder.calls()
        result.cri = [json.loads(line) for line in cri_calls.recorded(node.kubelet)]
        result.root_dir = node.kubelet.root_dir
    return result


def _live(node: _Node) -> Run:
    """Run a static pod alone, as recorded, and then all other pods at once. Each is deleted in its recorded state."""
    [static] = _manifests("05-static")
    node.kubelet.write(static)
    result = Run([], {}, [])
    node.wait_until_at_end("static-labnode", result)
    node.kubelet.remove("static")
    node.wait_until_gone()
    node.wait_until_forgotten("static-labnode")
    manifests = [each for scenario in ("01-plain", "03-ends", "04-host") for each in _manifests(scenario)]
    node.create(manifests)
    names = [each["metadata"]["name"] for each in manifests]
    with ThreadPoolExecutor(len(names)) as pool:
        list(pool.map(lambda name: node.delete_at_end(name, result), names))
    node.wait_until_gone()
    return result


def _running(pod: dict[str, Any], restarts: int = 0) -> bool:
    statuses = pod["status"].get("containerStatuses", [])
    return bool(statuses) and all("running" in s["state"] and s["restartCount"] == restarts for s in statuses)


def _ended(pod: dict[str, Any], restarts: int = 0) -> bool:
    statuses = pod["status"].get("containerStatuses", [])
    return bool(statuses) and all("terminated" in s["state"] and s["restartCount"] == restarts for s in statuses)


def _final(pod: dict[str, Any]) -> bool:
    return pod["status"].get("phase") in ("Succeeded", "Failed")


def _waits(pod: dict[str, Any], reason: str) -> bool:
    statuses = pod["status"].get("containerStatuses", [])
    return any(s["state"].get("waiting", {}).get("reason") == reason for s in statuses)


# Each entry has a function that reports whether a pod has reached the state in which it was recorded 25 s after its
# creation, and the number of seconds to wait for the last events afterwards.
_ENDS: dict[str, tuple[Callable[[dict[str, Any]], bool], float]] = {
    "succeeds": (_final, 3),
    "fails": (_final, 3),
    "oom": (_final, 3),
    "deadline": (_final, 3),
    "crashes": (lambda pod: _ended(pod, restarts=2), 1),
    "no-image": (lambda pod: _waits(pod, "ImagePullBackOff"), 1),
    "no-config": (lambda pod: _waits(pod, "CreateContainerConfigError"), 1),
    # The kubelet tries the mount for the sixth time 15.5 s after the first.
    "no-volume": (lambda pod: _waits(pod, "ContainerCreating"), 17),
    "unhealthy": (lambda pod: _running(pod, restarts=3), 0.3),
    "static-labnode": (_running, 0.5),
}


def _restart(node: _Node) -> Run:
    for resource, manifest in sources("02-everything"):
        node.store.create(resource, manifest)
    node.create(_manifests("02-everything"))
    node.wait_for(
        "everything", "has started all containers that can start", lambda pod: _waits(pod, "CreateContainerError")
    )
    time.sleep(_UNTIL_RESTART)
    node.kubelet.stop()
    restarted = node.recorder.calls()[-1].at
    node.kubelet.start()
    time.sleep(_UNTIL_DELETION)
    node.wait_for("everything", "is as it was before", lambda pod: _waits(pod, "CreateContainerError"))
    held = node.store.get("pods", "everything", NAMESPACE)
    node.store.delete("pods", "everything", NAMESPACE)
    node.wait_until_gone()
    return Run([], {"everything": held}, [], restarted)


def cut(scenario: str, calls: Iterable[Call]) -> list[Call]:
    """Leave out the parts of 06-restart in which nothing new happened, because our run takes less time."""
    if scenario != "06-restart":
        return list(calls)
    gaps = (("03:44:20", "03:44:30.4"), ("03:44:36", "03:44:50"))
    return [call for call in calls if not any(start <= call.at[11:] < end for start, end in gaps)]


def _manifests(scenario: str) -> list[dict[str, Any]]:
    """Return the pods of a scenario, with the recorded API server's additions from which their containers are made."""
    documents = yaml.safe_load_all((normalize.DATA / scenario / "input.yaml").read_text())
    recorded = {each["metadata"]["name"]: each for each in normalize.pods(scenario)}
    found = []
    for pod in (each for each in documents if each["kind"] == "Pod"):
        pod["metadata"]["namespace"] = NAMESPACE
        if held := recorded.get(pod["metadata"]["name"]):
            pod["metadata"]["annotations"] = held["metadata"]["annotations"]
            _add_volumes(pod["spec"], held["spec"])
        found.append(pod)
    return found


def _add_volumes(spec: dict[str, Any], recorded: dict[str, Any]) -> None:
    """Add the recorded volumes. Those of tokens lack the part that only the recorded API server adds."""
    spec["volumes"] = recorded.get("volumes", [])
    for volume in spec["volumes"]:
        sources = volume.get("projected", {}).get("sources", [])
        sources[:] = [each for each in sources if each.get("configMap", {}).get("name") != _NOT_UPSTREAM]
    for kind in ("initContainers", "containers"):
        for container, held in zip(spec.get(kind, []), recorded.get(kind, []), strict=True):
            container["volumeMounts"] = held.get("volumeMounts", [])


def sources(scenario: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the config maps and secrets of a scenario with the names of their resources."""
    for each in yaml.safe_load_all((normalize.DATA / scenario / "input.yaml").read_text()):
        each["metadata"]["namespace"] = NAMESPACE
        if each["kind"] == "ConfigMap":
            yield "configmaps", each
        elif each["kind"] == "Secret":
            texts = each.pop("stringData")
            each["data"] = {key: base64.b64encode(text.encode()).decode() for key, text in texts.items()}
            yield "secrets", each


def _become_recorded(runtime: fake.FakeRuntime) -> None:
    """Make the runtime report the version, status and images of the recorded one."""
    answers = {line["method"]: line.get("response") for line in reversed(normalize.load("00-register"))}
    version = json_format.ParseDict(answers["Version"], runtimeapi.VersionResponse())
    runtime.name, runtime.version = version.runtime_name, version.runtime_version
    status = json_format.ParseDict(answers["Status"], runtimeapi.StatusResponse())
    runtime.handlers, runtime.features = list(status.runtime_handlers), status.features
    for image in json_format.ParseDict(answers["ListImages"], runtimeapi.ListImagesResponse()).images:
        for tag in image.repo_tags:
            runtime.images.add(tag, image_id=image.id, size=image.size)


def _script(runtime: fake.FakeRuntime) -> None:
    """Make the containers behave as in the recording."""
    _become_recorded(runtime)
    runtime.images.pull_errors["registry.k8s.io/not-there:1"] = errors.RemoteError(
        grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded"
    )
    for pod in ("plain", "deadline", "static-labnode"):
        runtime.behaviours.add(fake.Behaviour(ignore_sigterm=True), pod=pod)
    runtime.behaviours.add(fake.Behaviour(ignore_sigterm=True, exec_exit_code=1), pod="unhealthy")
    said = {"succeeds": "done\n", "fails": "broken\n"}
    for pod, name in _EXIT_CODES:
        runtime.behaviours.add(fake.Behaviour(termination_message=said.get(pod, "")), pod=pod, name=name)
    runtime.behaviours.add(fake.Behaviour(sigterm_exit_code=0), pod="everything", name="sidecar")
    runtime.behaviours.add(fake.Behaviour(ignore_sigterm=True), pod="everything", name="other")
    for attempt in range(16):
        # Each attempt had its own ID, and so the text of each event was different.
        fault = f'failed to generate container "{attempt:064x}" spec: failed to generate spec: '
        fault += 'path "/etc" is mounted on "/" but it is not a shared or slave mount'
        runtime.behaviours.add(fake.Behaviour(create_error=fault), pod="everything", name="main", times=1)
    # The calls take as long as the recorded ones, so that the statuses in between are seen.
    for method, seconds in (("RunPodSandbox", 0.3), ("CreateContainer", 0.02), ("StartContainer", 0.05)):
        runtime.faults.latency(method, seconds)
