"""Test volumes that need programs that the node lacks: the event names the program."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from framework.kubelet_process import KubeletProcess
from framework.pods import Manifest, pod, sleeper
from framework.waiting import wait_for

NFS = {"nfs": {"server": "127.0.0.1", "path": "/export"}}
ISCSI = {"iscsi": {"targetPortal": "127.0.0.1", "iqn": "iqn.2001-04.com.example:storage", "lun": 0}}


@pytest.fixture(scope="module")
def kubelet(new_kubelet: Callable[..., KubeletProcess]) -> KubeletProcess:
    process = new_kubelet("tools")
    process.start()
    return process


def using(name: str, volume: Manifest) -> Manifest:
    main = sleeper(volumeMounts=[{"name": "v", "mountPath": "/v"}])
    return pod(name, main, volumes=[{"name": "v", **volume}])


@pytest.mark.skipif(Path("/sbin/mount.nfs").exists(), reason="this machine can mount nfs volumes")
def test_nfs(kubelet: KubeletProcess) -> None:
    refused(kubelet, "nfs", NFS, "this node cannot mount nfs volumes: mount.nfs is not installed")


@pytest.mark.skipif(
    any(Path(directory, "iscsiadm").exists() for directory in os.environ["PATH"].split(":")),
    reason="this machine can attach iscsi volumes",
)
def test_iscsi(kubelet: KubeletProcess) -> None:
    refused(kubelet, "iscsi", ISCSI, "this node cannot attach iscsi volumes: iscsiadm is not installed")


def refused(kubelet: KubeletProcess, name: str, volume: Manifest, why: str) -> None:
    kubelet.write(using(name, volume))
    wait_for(
        f"an event with {why}",
        lambda: why in kubelet.log.read_text(errors="replace").partition('reason="FailedMount"')[2],
        timeout=180,
        describe=kubelet.end_of_log,
    )
    found = kubelet.wait_for_pod(name, lambda found: found.state().get("reason") == "ContainerCreating")
    kubelet.remove(name)
    kubelet.wait_for("the pod is gone", lambda pods: name not in pods)
    wait_for("the pod's directory is gone", lambda: found.uid not in kubelet.pod_directories(), 180, kubelet.end_of_log)
