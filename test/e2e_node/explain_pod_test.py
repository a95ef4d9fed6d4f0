"""Test what `explain pod` says about pods that are stuck for different reasons.

A fixture creates all pods at once, so that their waits overlap. Each test then waits until the kubelet names the cause.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from framework.containerd import WEB
from framework.kubelet_process import KubeletProcess
from framework.pods import Manifest, pod, shell, sleeper

NO_IMAGE = "registry.invalid/shop/reports:1.9"


def probe(**action: object) -> dict[str, object]:
    return {"periodSeconds": 1, **action}


def web(name: str, **fields: object) -> dict[str, Any]:
    return {"name": name, "image": WEB, **fields}


FAILS = {"command": ["sh", "-c", "echo no heartbeat; exit 1"]}
# Both lines go to one stream, because the runtime does not keep the order between two streams.
DATABASE = "echo starting >&2; echo 'cannot reach database db:5432' >&2; exit 1"
# The configuration makes the kernel kill only tail, and the container runs a little longer. If the container ended with
# tail, containerd up to 2.2 would sometimes miss the kernel's OOM event and report the reason Error.
HOG = "head -c 60000000 /dev/zero | tail; code=$?; sleep 2; exit $code"
VARIABLE = {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "smtp", "key": "password"}}}
MOUNT = {"volumeMounts": [{"name": "settings", "mountPath": "/settings"}]}
SETTINGS = [{"name": "settings", "configMap": {"name": "invoices-settings"}}]
NO_DIRECTORY = [{"name": "settings", "hostPath": {"path": "/no/such/directory", "type": "Directory"}}]

# Each entry is a manifest, the cause, and a regular expression for the sentence.
STUCK: list[tuple[Manifest, str, str]] = [
    (
        pod("crashes", shell(DATABASE, "app")),
        "CrashLoop",
        r"Its container app ended with exit code 1 within a second of its start, (once|\d+ times) so far; "
        r'its last output was "cannot reach database db:5432"\.',
    ),
    (
        pod("no-image", {"name": "app", "image": NO_IMAGE}),
        "ImagePull",
        rf'Its container app waits because image "{NO_IMAGE}" cannot be pulled: .*registry\.invalid.*',
    ),
    (
        pod("never-pulled", {"name": "app", "image": "docker.io/library/none:1", "imagePullPolicy": "Never"}),
        "ErrImageNeverPull",
        r'Its container app cannot start: image "docker.io/library/none:1" is not on this node, '
        r"and its pull policy is Never\.",
    ),
    (
        pod("no-image-name", {"name": "app", "image": "Not An Image"}),
        "InvalidImageName",
        r'Its container app cannot start: "Not An Image" is not a valid image name\.',
    ),
    (
        pod("no-config-map", sleeper("app", **MOUNT), volumes=SETTINGS),
        "MissingObject",
        r"It waits for its volume settings: ConfigMap invoices-settings does not exist in namespace default\.",
    ),
    (
        pod("no-directory", sleeper("app", **MOUNT), volumes=NO_DIRECTORY),
        "VolumeFailed",
        r"It waits for its volume settings: .*/no/such/directory.*",
    ),
    (
        pod("no-secret", sleeper("app", env=[VARIABLE])),
        "MissingObject",
        r"Its container app cannot be configured: Secret smtp does not exist in namespace default\.",
    ),
    (
        pod("no-program", {**sleeper("app"), "command": ["/bin/serve"]}),
        "CannotRun",
        r"Its container app cannot be started: .*/bin/serve.*no such file or directory.*",
    ),
    (
        pod("too-big", shell(HOG, "hog", resources={"limits": {"memory": "16Mi"}})),
        "OOMKilled",
        r"Its container hog was killed because it used more memory than its limit \(OOMKilled\) .*; "
        r"its limit is 16Mi\.",
    ),
    (
        pod("init-fails", sleeper("app"), initContainers=[shell("echo no such table; exit 3", "schema")]),
        "InitCrashLoop",
        r"Its init container schema ended with exit code 3 .*; its last output was \"no such table\"\.",
    ),
    (
        pod("not-started", sleeper("app", startupProbe=probe(exec=FAILS, failureThreshold=1000))),
        "StartupProbe",
        r"Its container app has not passed its startup probe yet: no heartbeat\.",
    ),
    (
        pod("not-alive", sleeper("app", livenessProbe=probe(exec=FAILS, failureThreshold=1))),
        "LivenessProbe",
        r"Its container app is killed repeatedly because its liveness probe fails: no heartbeat\.",
    ),
    (
        pod("not-ready", web("app", readinessProbe=probe(httpGet={"path": "/", "port": 81}))),
        "ReadinessProbe",
        r"Its container app runs but is not ready: its readiness probe fails: .*:81/.*connection refused.*",
    ),
    (
        pod("other-system", sleeper("app"), nodeSelector={"kubernetes.io/os": "windows"}),
        "NodeAffinity",
        r"This node has rejected it permanently: .*didn't match Pod's node affinity/selector \(NodeAffinity\)\.",
    ),
    (
        pod("fails-for-good", shell("exit 4", "app"), restartPolicy="Never"),
        "ContainerFailed",
        r"It has failed permanently: container app ended with exit code 4, and is not restarted "
        r"\(restartPolicy Never\)\.",
    ),
]


@pytest.fixture(scope="module")
def kubelet(new_kubelet: Callable[..., KubeletProcess]) -> KubeletProcess:
    process = new_kubelet("explain", {"singleProcessOOMKill": True})
    for manifest, _, _ in STUCK:
        process.write(manifest)
    process.write(pod("twice", shell("trap '' TERM; while true; do sleep 1; done", "app"), grace=40))
    process.start()
    return process


@pytest.mark.parametrize(
    ("manifest", "cause", "sentence"),
    STUCK,
    ids=lambda each: each["metadata"]["name"] if isinstance(each, dict) else "",
)
def test_cause_is_named(kubelet: KubeletProcess, manifest: Manifest, cause: str, sentence: str) -> None:
    name = manifest["metadata"]["name"]

    def named(_: object) -> dict[str, Any] | None:
        found = kubelet.explained(name)
        return (
            found
            if found is not None and found["cause"] == cause and re.fullmatch(sentence, found["sentence"])
            else None
        )

    try:
        found = kubelet.wait_for(f"{cause} of {name}", named)
    except AssertionError as err:
        raise AssertionError(f"{kubelet.explained(name)}") from err
    assert found is not None and found["evidence"], "a cause without evidence"


def test_command(kubelet: KubeletProcess) -> None:
    kubelet.wait_for(
        "the crash of the container", lambda _: (kubelet.explained("crashes") or {}).get("cause") == "CrashLoop"
    )

    done = kubelet.explain_command("pod", f"default/{kubelet.full_name('crashes')}")

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"default/{kubelet.full_name('crashes')}: ")
    for text in ("cannot reach database db:5432", "Evidence", "Worker: ", "Timeline from ", "sandbox", "█"):
        assert text in done.stdout


def test_command_about_the_node(kubelet: KubeletProcess) -> None:
    done = kubelet.explain_command("node")

    assert (done.returncode, done.stderr) == (0, "")
    assert re.search(r"The node is healthy; \d+ of \d+ pods have a problem\.", done.stdout)
    for manifest, _, _ in STUCK:
        assert f"default/{kubelet.full_name(manifest['metadata']['name'])}" in done.stdout


def test_static_pod_that_waits_for_its_predecessor(kubelet: KubeletProcess) -> None:
    kubelet.wait_for_running("twice")
    kubelet.write(pod("twice", sleeper("other"), grace=40))

    def explanations() -> dict[str, dict[str, Any]]:
        """Return the explanations of both pods once both exist.

        The old pod ends after its grace period.
        """
        found = kubelet.debug(f"/debug/syncloop/explain?pod=default/{kubelet.full_name('twice')}")
        by_cause = {each["explanation"]["cause"]: each["explanation"] for each in found["pods"]}
        return by_cause if {"WaitsForSameName", "Terminating"} <= by_cause.keys() else {}

    found = kubelet.wait_for_condition("both explanations", explanations, timeout=40)
    assert "the pod of the same name" in found["WaitsForSameName"]["sentence"]
    # After housekeeping the sentence says "being deleted" instead.
    assert found["Terminating"]["sentence"].endswith(": container app still runs (grace period 40 s).")


def test_missing_object_appears(kubelet: KubeletProcess) -> None:
    """The pod starts as soon as the missing object exists, as the explanation predicts."""
    settings = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "invoices-settings", "namespace": "default"},
        "data": {"currency": "EUR"},
    }
    kubelet.write(settings)
    kubelet.wait_for_running("no-config-map")

    def is_well() -> bool:
        found = kubelet.explained("no-config-map")
        return found is not None and (found["state"], found["sentence"]) == ("ready", "It is running and ready.")

    kubelet.wait_for_condition("no problem to explain", is_well)
