"""Test the server with the installed kubectl."""

from __future__ import annotations

import re
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from framework.apiserver import APIServer, Request
from framework.apiserver.controllers import Disruption, GarbageCollector
from framework.apiserver.interfaces import Object
from framework.waiting import wait_for
from pkg import golang

_MANIFEST = """
apiVersion: v1
kind: Node
metadata: {name: n1, labels: {node-role.kubernetes.io/worker: ""}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: conf}
data: {a: "%s"}
---
apiVersion: v1
kind: Pod
metadata: {name: web, labels: {app: web}}
spec:
  nodeName: n1
  terminationGracePeriodSeconds: 5
  containers: [{name: c, image: "nginx:%s", ports: [{containerPort: 80}]}]
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{port: 80}]}
"""


@pytest.fixture
def api() -> Iterator[APIServer]:
    with APIServer() as api:
        yield api


@pytest.fixture
def disrupted() -> Iterator[tuple[APIServer, threading.Event]]:
    """Run a server with disruption budgets, and yield an event that is set when it has refused an eviction."""
    held_up = threading.Event()

    def audit(request: Request, code: int) -> None:
        if request.subresource == "eviction" and code == 429:
            held_up.set()

    with APIServer(controllers=[Disruption()], audit=audit) as api:
        yield api, held_up


@pytest.fixture
def kubectl(api: APIServer, tmp_path: Path) -> Callable[..., str]:
    """Return a function that runs kubectl and returns its output with its errors."""
    return _kubectl(api, tmp_path)


def _kubectl(api: APIServer, directory: Path) -> Callable[..., str]:
    program = shutil.which("kubectl")
    assert program, "kubectl is missing; `hack/setup kubectl` installs it, as root on Debian"
    api.kubeconfig(directory / "kubeconfig")

    def run(line: str, stdin: str = "") -> str:
        command = [program, f"--kubeconfig={directory}/kubeconfig", f"--cache-dir={directory}/cache", *line.split()]
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=60, check=False)
        return done.stdout + done.stderr

    return run


def test_a_day_with_kubectl(kubectl: Callable[..., str]) -> None:
    """Typical kubectl commands work in sequence, each on the result of those before."""
    first, second = _MANIFEST % ("1", "1.0"), _MANIFEST % ("2", "1.1")
    for line, stdin, pattern in (
        ("version", "", r"Server Version: .*v1\.36\.2"),
        ("create namespace foo", "", r"namespace/foo created"),
        ("get namespaces", "", r"NAME +STATUS +AGE\n(.*\n)*foo +Active "),
        ("run p --image=busybox -n foo", "", r"pod/p created"),
        ("create -f - -n foo", first, r"(.+ created\n){4}"),
        ("apply -f - -n foo", first, r"node/n1 (un)?changed|configured"),
        ("apply -f - -n foo", first, r"(.+ unchanged\n){4}"),
        ("apply -f - -n foo", second, r"configmap/conf configured\npod/web configured\nservice/web unchanged"),
        ("get pods -n foo -o wide", "", r"NAME +READY +STATUS .*\np +0/1 +Pending (.*\n)*web +0/1 +Pending .* n1 "),
        ("get nodes", "", r"n1 +Unknown +worker "),
        ("get all -n foo -l app=web", "", r"pod/web "),
        ("label pod web x=y -n foo", "", r"pod/web labeled"),
        ("annotate pod web x=y -n foo", "", r"pod/web annotated"),
        ("get pods -n foo -l x=y -o name", "", r"^pod/web\n$"),
        ("get pods -A --field-selector spec.nodeName=n1 -o name", "", r"^pod/web\n$"),
        ("taint node n1 a=b:NoSchedule", "", r"node/n1 tainted"),
        ("cordon n1", "", r"node/n1 cordoned"),
        ("get nodes", "", r"n1 +Unknown,SchedulingDisabled "),
        ("uncordon n1", "", r"node/n1 uncordoned"),
        ("describe node n1", "", r"Taints: +a=b:NoSchedule\n(.*\n)*Non-terminated Pods: +\(1 in total\)"),
        ("describe pod web -n foo", "", r"Image: +nginx:1\.1\n(.*\n)*Events: +<none>"),
        ('patch pod web -n foo -p {"metadata":{"labels":{"q":"r"}}}', "", r"pod/web patched"),
        (
            'patch pod web -n foo --type=json -p [{"op":"remove","path":"/metadata/labels/q"}]',
            "",
            r"pod/web patched",
        ),
        ("wait pod/web -n foo --for=condition=Ready --timeout=1s", "", r"error: timed out waiting"),
        ("get pod nope -n foo", "", r'Error from server \(NotFound\): pods "nope" not found'),
        ("auth can-i list pods", "", r"yes"),
        ("create deployment d --image=i --replicas=2 -n foo", "", r"deployment.apps/d created"),
        (
            "get deployment d -n foo -o jsonpath={.spec.replicas}{.spec.selector}{.spec.template}",
            "",
            r'^2{"matchLabels":{"app":"d"}}{"metadata":{"labels":{"app":"d"}},'
            r'"spec":{"containers":\[{"image":"i","name":"i","resources":{}}\]}}$',
        ),
        ("create job j --image=i -n foo", "", r"job.batch/j created"),
        ("get job j -n foo -o jsonpath={.spec.template.spec.containers[0].image}", "", r"^i$"),
        ("delete job j -n foo", "", r'job.batch "j" deleted'),
        ("get events -n foo", "", r"No resources found in foo namespace"),
        ("delete pod p -n foo", "", r'pod "p" deleted'),
        ("delete pod web -n foo --wait=false", "", r'pod "web" deleted'),
        ("get pods -n foo", "", r"web +0/1 +Terminating "),
        ("delete pod web -n foo --force --grace-period=0", "", r'pod "web" force deleted'),
        ("get pods -n foo", "", r"No resources found in foo namespace"),
        ("delete configmap conf -n foo", "", r'configmap "conf" deleted'),
        ("drain n1 --force", "", r"node/n1 (cordoned|drained)"),
        ("delete node n1", "", r'node "n1" deleted'),
        ("api-resources", "", r"leases .*coordination.k8s.io/v1 .*true .*Lease"),
    ):
        printed = kubectl(line, stdin)
        assert re.search(pattern, printed), f"kubectl {line} printed:\n{printed}"


def test_deleting_waits_until_the_kubelet_is_done(api: APIServer, kubectl: Callable[..., str]) -> None:
    kubectl("apply -f - -n default", _MANIFEST % ("1", "1.0"))
    watch = api.store.watch("pods", "default")

    def kubelet() -> None:
        for event in watch:
            if event.type == "MODIFIED" and event.object["metadata"].get("deletionTimestamp"):
                api.store.delete("pods", "web", "default", grace_period_seconds=0)
                return

    thread = golang.go(kubelet, name="kubelet")
    assert 'pod "web" deleted' in kubectl("delete pod web")
    thread.join()
    watch.stop()
    assert api.store.list("pods") == []


def test_drain_waits_for_a_budget(disrupted: tuple[APIServer, threading.Event], tmp_path: Path) -> None:
    api, held_up = disrupted
    kubectl = _kubectl(api, tmp_path)
    api.store.create("nodes", {"metadata": {"name": "n1"}})
    for name in ("a", "b"):
        _ready_pod(api, name, "n1")
    assert "poddisruptionbudget.policy/web created" in kubectl("create pdb web --selector=app=web --min-available=1")
    wait_for("the budget", lambda: _may_go(api, "web") == 1, 30)
    assert re.search(r"MIN AVAILABLE +MAX UNAVAILABLE +ALLOWED DISRUPTIONS .*\nweb +1 +N/A +1 ", kubectl("get pdb"))
    watch = api.store.watch("pods", "default")

    def kubelet() -> None:
        for event in watch:
            if event.type == "MODIFIED" and event.object["metadata"].get("deletionGracePeriodSeconds"):
                api.store.delete("pods", event.object["metadata"]["name"], "default", grace_period_seconds=0)

    def controller() -> None:
        """Replace a pod like a slow replica set controller."""
        held_up.wait(30)
        _ready_pod(api, "c", "n2")

    threads = [golang.go(kubelet, name="kubelet"), golang.go(controller, name="controller")]
    printed = kubectl("drain n1 --force")
    watch.stop()
    for thread in threads:
        thread.join()
    assert re.search(
        r"\(will retry after 5s\): Cannot evict pod as it would violate the pod's disruption budget", printed
    )
    assert "node/n1 drained" in printed
    assert [pod["metadata"]["name"] for pod in api.store.list("pods")] == ["c"]


def _ready_pod(api: APIServer, name: str, node: str) -> None:
    metadata = {"name": name, "namespace": "default", "labels": {"app": "web"}}
    spec = {"nodeName": node, "containers": [{"name": "c", "image": "i"}]}
    api.store.create("pods", {"metadata": metadata, "spec": spec})
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    api.store.patch("pods", name, {"status": status}, "default", subresource="status")


def _may_go(api: APIServer, budget: str) -> int:
    status: Object = api.store.get("poddisruptionbudgets", budget, "default")["status"]
    return int(status["disruptionsAllowed"])


_MISSPELT = """
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  restartPolcy: Never
  containers: [{name: c, image: nginx}]
"""


def test_kubectl_refuses_misspelt_fields(api: APIServer, kubectl: Callable[..., str]) -> None:
    assert kubectl("create -f -", _MISSPELT) == (
        'Error from server (BadRequest): error when creating "STDIN": Pod in version "v1" cannot be handled as a Pod: '
        'strict decoding error: unknown field "spec.restartPolcy"\n'
    )
    assert kubectl("create --validate=warn -f -", _MISSPELT) == (
        'pod/web created\nWarning: unknown field "spec.restartPolcy"\n'
    )
    printed = kubectl('patch pod web -p {"metadata":{"label":{}}}')
    assert 'pod/web patched (no change)\nWarning: unknown field "metadata.label"' in printed
    printed = kubectl("apply -f -", _MISSPELT)
    assert re.search(r'is invalid: patch: Invalid value: "map\[metadata:', printed)
    assert 'strict decoding error: unknown field "spec.restartPolcy"' in printed
    assert "restartPolcy" not in api.store.get("pods", "web", "default")["spec"]


_OWNED = """
apiVersion: v1
kind: ConfigMap
metadata:
  name: child
  ownerReferences: [{apiVersion: v1, kind: ConfigMap, name: owner, uid: %s, blockOwnerDeletion: true}]
"""


@pytest.mark.parametrize(("cascade", "left"), [("background", []), ("foreground", []), ("orphan", ["child"])])
def test_kubectl_deletes_what_has_dependents(tmp_path: Path, cascade: str, left: list[str]) -> None:
    with APIServer(controllers=[GarbageCollector()]) as api:
        kubectl = _kubectl(api, tmp_path)
        assert kubectl("create configmap owner") == "configmap/owner created\n"
        uid = kubectl("get configmap owner -o jsonpath={.metadata.uid}")
        assert kubectl("create -f -", _OWNED % uid) == "configmap/child created\n"
        assert 'configmap "owner" deleted' in kubectl(f"delete configmap owner --cascade={cascade}")

        def names() -> list[str]:
            return [each["metadata"]["name"] for each in api.store.list("configmaps", "default")]

        # kubectl has waited for the owner. With "foreground", that includes the child.
        assert cascade != "foreground" or names() == left
        wait_for("the child's end", lambda: names() == left, 10)
