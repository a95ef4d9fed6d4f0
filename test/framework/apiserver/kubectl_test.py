"""kubectl, whichever is installed, against the server."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from framework.apiserver import APIServer
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
def kubectl(api: APIServer, tmp_path: Path) -> Callable[..., str]:
    """Runs it; gives back what it printed, its errors included."""
    program = shutil.which("kubectl")
    assert program, "kubectl is missing; `hack/setup kubectl` installs it, as root on Debian"
    api.kubeconfig(tmp_path / "kubeconfig")

    def run(line: str, stdin: str = "") -> str:
        command = [program, f"--kubeconfig={tmp_path}/kubeconfig", f"--cache-dir={tmp_path}/cache", *line.split()]
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=60, check=False)
        return done.stdout + done.stderr

    return run


def test_a_day_with_kubectl(kubectl: Callable[..., str]) -> None:
    """One after the other, since each does something to what the one before left."""
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
