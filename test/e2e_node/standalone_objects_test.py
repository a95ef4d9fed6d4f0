"""Test config maps, secrets and claims in the manifest folder of a standalone node, beside the pods that use them."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from framework.containerd import ROOT
from framework.cri import CRIClient
from framework.kubelet_process import KubeletProcess
from framework.pods import Manifest, lines_of, pod, shell, sleeper
from framework.registry import PASSWORD, USER, Registry
from framework.waiting import wait_for

# This is less than the resync period of a minute, so no resync can hide a missed change.
SOON = 45.0


@pytest.fixture(scope="module")
def kubelet(new_kubelet: Callable[..., KubeletProcess]) -> KubeletProcess:
    process = new_kubelet("objects", {"fileCheckFrequency": "1h", "syncFrequency": "1h"})
    process.start()
    return process


def config_map(name: str, **data: str) -> Manifest:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def secret(name: str, **data: str) -> Manifest:
    encoded = {key: base64.b64encode(value.encode()).decode() for key, value in data.items()}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "data": encoded}


def claim(name: str, **spec: Any) -> Manifest:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, **spec}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": spec}


def volume(name: str, path: Path) -> Manifest:
    spec = {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "hostPath": {"path": str(path)}}
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": spec}


def put(kubelet: KubeletProcess, name: str, *documents: Manifest) -> None:
    """Write several documents to one file. The kubelet never sees a part of the file."""
    unfinished = kubelet.manifests / f".{name}"
    unfinished.write_text("\n---\n".join(json.dumps(document) for document in documents))
    unfinished.rename(kubelet.manifests / f"{name}.yaml")


def drop(kubelet: KubeletProcess, name: str) -> None:
    (kubelet.manifests / f"{name}.yaml").unlink()


def using(name: str, container: dict[str, Any], **volumes: dict[str, Any]) -> Manifest:
    """Return a pod whose container mounts each volume in a directory of the volume's name."""
    mounts = [{"name": each, "mountPath": f"/{each}"} for each in volumes]
    listed = [{"name": each, **source} for each, source in volumes.items()]
    return pod(name, container | {"volumeMounts": mounts}, volumes=listed)


def running(kubelet: KubeletProcess, cri: CRIClient, name: str) -> Callable[[str], str]:
    """Wait until the pod runs, and return a function that runs a command in its container and returns the output."""
    (found,) = kubelet.wait_for_running(name)
    (container,) = cri.running_containers(found.name)

    def run(command: str) -> str:
        answer = cri.exec(container.id, "sh", "-c", command)
        return str((answer.stdout + answer.stderr).decode())

    return run


def told(kubelet: KubeletProcess, *texts: str) -> None:
    """Wait for an event with all these texts in one line of the log."""
    wait_for(
        f"an event with {texts}",
        lambda: any(
            "Event occurred" in line and all(text in line for text in texts)
            for line in kubelet.log.read_text(errors="replace").replace('\\"', '"').splitlines()
        ),
        timeout=SOON,
        describe=kubelet.end_of_log,
    )


def test_example(kubelet: KubeletProcess, cri: CRIClient) -> None:
    (kubelet.manifests / "example.yaml").write_bytes((ROOT / "examples/objects.yaml").read_bytes())
    run = running(kubelet, cri, "site")
    # The pod's server may not listen yet.
    wait_for("the page", lambda: run("wget -qO- http://127.0.0.1:8080/") == "<h1>It works</h1>\n", SOON)
    data = kubelet.root_dir / "standalone-volumes/default/site-data"
    assert (data / "starts").read_text() == "hello change-me\n"
    assert (data / "starts").stat().st_uid == 1000
    drop(kubelet, "example")
    kubelet.wait_for("the pod is gone", lambda pods: "site" not in pods)
    assert (data / "starts").exists()


def test_example_of_volumes(kubelet: KubeletProcess, cri: CRIClient) -> None:
    example = (ROOT / "examples/volumes.yaml").read_text()
    manifest = kubelet.manifests / "volumes.yaml"
    manifest.write_text(example)
    run = running(kubelet, cri, "volumes")
    assert run("cat /config/words/greeting; stat -Lc ' %a %g' /config/words/greeting") == "hello 440 2000\n"
    assert run("cat /about/labels /about/memory") == 'app="volumes"32'
    assert run("stat -fc %T /scratch; cat /settings.ini") == "tmpfs\n[main]\nanswer = 42\n"
    starts = kubelet.root_dir / f"standalone-volumes/default/volumes-diary/{kubelet.full_name('volumes')}/starts"
    wait_for("the pod's diary", lambda: lines_of(starts), SOON)
    assert f"started on {Path('/etc/hostname').read_text().strip()}" in starts.read_text()
    manifest.write_text(example.replace("greeting: hello", "greeting: good day").replace("answer = 42", "answer = 43"))
    wait_for("the new greeting", lambda: run("cat /config/words/greeting") == "good day", SOON, kubelet.end_of_log)
    assert run("cat /settings.ini") == "[main]\nanswer = 42\n"
    drop(kubelet, "volumes")
    kubelet.wait_for("the pod is gone", lambda pods: "volumes" not in pods)


def test_files_follow_and_variables_stay(kubelet: KubeletProcess, cri: CRIClient) -> None:
    put(kubelet, "follow-objects", config_map("follow", a="1", b="1"), secret("follow", s="1"))
    container = sleeper(envFrom=[{"configMapRef": {"name": "follow"}}])
    both = {"sources": [{"configMap": {"name": "follow"}}, {"secret": {"name": "follow"}}]}
    volumes: dict[str, Any] = {"map": {"configMap": {"name": "follow"}}, "both": {"projected": both}}
    put(kubelet, "follow", using("follow", container, **volumes))
    run = running(kubelet, cri, "follow")
    assert run("cat /map/a /map/b /both/a /both/s; echo $a") == "11111\n"
    put(kubelet, "follow-objects", config_map("follow", a="2", c="2"), secret("follow", s="2"))
    wait_for(
        "the new content in the running container",
        lambda: run("cat /map/a /map/c /both/a /both/c /both/s; ls /map") == "22222a\nc\n",
        timeout=SOON,
        describe=kubelet.end_of_log,
    )
    assert run("echo $a") == "1\n"


def test_pod_waits_for_its_objects(kubelet: KubeletProcess, cri: CRIClient) -> None:
    reference = {"configMapKeyRef": {"name": "late", "key": "a"}}
    put(kubelet, "waits", pod("waits", sleeper(env=[{"name": "A", "valueFrom": reference}])))
    kubelet.wait_for_pod("waits", lambda found: found.state().get("reason") == "CreateContainerConfigError")
    put(kubelet, "late", config_map("late", a="here"))
    assert running(kubelet, cri, "waits")("echo $A") == "here\n"


def test_object_whose_file_is_gone_is_deleted(kubelet: KubeletProcess, cri: CRIClient) -> None:
    put(kubelet, "gone-secret", secret("gone", a="1"))
    put(kubelet, "first", using("first", sleeper(), s={"secret": {"secretName": "gone"}}))
    run = running(kubelet, cri, "first")
    drop(kubelet, "gone-secret")
    put(kubelet, "second", using("second", sleeper(), s={"secret": {"secretName": "gone"}}))
    told(kubelet, "second-objects", "FailedMount", 'secret "gone" not found')
    assert run("cat /s/a") == "1", "a running pod lost its volume's content"
    put(kubelet, "gone-secret", secret("gone", a="2"))
    assert running(kubelet, cri, "second")("cat /s/a") == "2"


def test_claims(kubelet: KubeletProcess, cri: CRIClient, tmp_path: Path) -> None:
    named = claim("by-annotation")
    named["metadata"]["annotations"] = {"volume.podman.io/device": str(tmp_path / "annotated")}
    (tmp_path / "annotated").mkdir()
    (tmp_path / "declared").mkdir()
    put(
        kubelet,
        "claims",
        claim("own"),
        named,
        claim("declared", volumeName="disk"),
        volume("disk", tmp_path / "declared"),
        using(
            "claims",
            shell("for d in own annotated declared; do echo $d > /$d/file; done; exec sleep 1000"),
            own={"persistentVolumeClaim": {"claimName": "own"}},
            annotated={"persistentVolumeClaim": {"claimName": "by-annotation"}},
            declared={"persistentVolumeClaim": {"claimName": "declared"}},
        ),
    )
    running(kubelet, cri, "claims")
    # A running container may not have written its files yet.
    wait_for("the last file", lambda: lines_of(tmp_path / "declared/file"), SOON)
    assert (kubelet.root_dir / "standalone-volumes/default/own/file").read_text() == "own\n"
    assert (tmp_path / "annotated/file").read_text() == "annotated\n"
    assert (tmp_path / "declared/file").read_text() == "declared\n"


def test_claim_that_is_nowhere(kubelet: KubeletProcess) -> None:
    missing = using("lost", sleeper(), data={"persistentVolumeClaim": {"claimName": "nowhere"}})
    put(kubelet, "lost", missing)
    told(kubelet, "lost-objects", "FailedMount", 'persistentvolumeclaim "nowhere" not found')


def test_bad_document_names_file_and_field(kubelet: KubeletProcess, cri: CRIClient) -> None:
    bad = secret("bad")
    bad["data"] = {"key": "not base64!"}
    put(kubelet, "bad", bad, pod("beside-bad", sleeper()))
    told(kubelet, "FailedValidation", "bad.yaml: document 1: invalid Secret bad: data[key]: illegal base64 data")
    kubelet.wait_for_running("beside-bad")


def test_what_only_an_api_server_has_is_refused(kubelet: KubeletProcess) -> None:
    put(kubelet, "account", pod("account", sleeper(), serviceAccountName="me"))
    told(kubelet, "FailedValidation", "account.yaml", "static pods may not reference serviceaccounts")


def test_pull_secret(kubelet: KubeletProcess, cri: CRIClient, tmp_path: Path) -> None:
    registry = Registry(tmp_path, password=True)
    registry.start()
    try:
        image = registry.push("private/busybox", "1.0", test="objects")
        put(kubelet, "pulls", pod("pulls", sleeper(image=image), imagePullSecrets=[{"name": "registry"}]))
        kubelet.wait_for_pod("pulls", lambda found: "Image" in str(found.state().get("reason")))
        auths = {"auths": {registry.host: {"username": USER, "password": PASSWORD}}}
        pull_secret = secret("registry", **{".dockerconfigjson": json.dumps(auths)})
        put(kubelet, "registry", pull_secret | {"type": "kubernetes.io/dockerconfigjson"})
        running(kubelet, cri, "pulls")
    finally:
        registry.stop()


def test_restart_of_the_kubelet_is_nothing_to_the_pod(kubelet: KubeletProcess, cri: CRIClient) -> None:
    volumes = {"map": {"configMap": {"name": "stays"}}, "data": {"persistentVolumeClaim": {"claimName": "stays"}}}
    put(kubelet, "stays", config_map("stays", a="1"), claim("stays"), using("stays", sleeper(), **volumes))
    run = running(kubelet, cri, "stays")
    before = kubelet.pods()["stays"]
    kubelet.kill()
    put(kubelet, "stays", config_map("stays", a="2"), claim("stays"), using("stays", sleeper(), **volumes))
    kubelet.start()
    wait_for(
        "the new content",
        lambda: run("cat /map/a") == "2",
        timeout=SOON,
        describe=kubelet.end_of_log,
    )
    after = kubelet.pods()["stays"]
    assert (after.uid, after.container_id(), after.restarts()) == (before.uid, before.container_id(), 0)
