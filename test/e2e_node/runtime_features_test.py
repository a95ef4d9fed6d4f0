"""Test features that only some runtimes have: the kubelet uses them, or reports that the runtime lacks them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import grpc
import pytest
from cri_api.v1 import api_pb2 as runtimeapi
from framework.cri import CRIClient
from framework.kubelet_process import KubeletProcess
from framework.pods import lines_of, pod, shell, sleeper, with_evidence

POLICY = {"runAsUser": 1000, "runAsGroup": 3000, "supplementalGroups": [4000], "supplementalGroupsPolicy": "Strict"}


@pytest.fixture(scope="module")
def kubelet(new_kubelet: Callable[..., KubeletProcess]) -> KubeletProcess:
    process = new_kubelet("features")
    process.start()
    return process


@pytest.fixture
def runtime(cri: CRIClient) -> runtimeapi.StatusResponse:
    """Return the runtime's own status."""
    answer: runtimeapi.StatusResponse = cri.runtime.Status(runtimeapi.StatusRequest(), timeout=60)
    return answer


def test_mount_is_read_only_all_the_way_down(
    kubelet: KubeletProcess, runtime: runtimeapi.StatusResponse, tmp_path: Path
) -> None:
    mount = {"name": "host", "mountPath": "/host", "readOnly": True, "recursiveReadOnly": "Enabled"}
    volume = {"name": "host", "hostPath": {"path": str(tmp_path)}}
    kubelet.write(pod("read-only", sleeper(volumeMounts=[mount]), volumes=[volume]))

    if any(each.features.recursive_read_only_mounts for each in runtime.runtime_handlers if not each.name):
        found = kubelet.wait_for_pod("read-only", lambda found: found.running)
        assert found.container()["volumeMounts"][0]["recursiveReadOnly"] == "Enabled"
    else:
        found = kubelet.wait_for_pod(
            "read-only", lambda found: found.state().get("reason") == "CreateContainerConfigError"
        )
        assert "not supported by the runtime" in found.state()["message"]


def test_groups_of_the_image_are_left_out(
    kubelet: KubeletProcess, runtime: runtimeapi.StatusResponse, tmp_path: Path
) -> None:
    evidence = tmp_path / "groups"
    who = shell("id -G > /evidence/groups; exec sleep 1000")
    manifest = with_evidence(pod("strict", who, securityContext=POLICY), evidence)
    evidence.chmod(0o777)
    kubelet.write(manifest)

    if runtime.features.supplemental_groups_policy:
        found = kubelet.wait_for_pod("strict", lambda found: found.running and lines_of(evidence / "groups"))
        assert found.container()["user"] == {"linux": {"uid": 1000, "gid": 3000, "supplementalGroups": [3000, 4000]}}
        assert lines_of(evidence / "groups") == ["3000 4000"]
    else:
        found = kubelet.wait_for_pod("strict", lambda found: found.phase == "Failed")
        assert found.status["reason"] == "SupplementalGroupsPolicyNotSupported"


def test_cgroup_driver_is_the_runtimes(
    new_kubelet: Callable[..., KubeletProcess], cri: CRIClient, kubelet: KubeletProcess
) -> None:
    """A wrong cgroup driver in the configuration does no harm, unless the runtime is too old to report its driver."""
    losing_support = 'kubelet_cri_losing_support{version="1.37.0"} 1'
    try:
        told = cri.runtime.RuntimeConfig(runtimeapi.RuntimeConfigRequest(), timeout=60)
    except grpc.RpcError as err:
        assert err.code() == grpc.StatusCode.UNIMPLEMENTED
        assert losing_support in kubelet.get("/metrics")
        return
    assert told.linux.cgroup_driver == runtimeapi.CGROUPFS
    misled = new_kubelet("misled", {"cgroupDriver": "systemd"})
    misled.write(pod("runs", sleeper()))
    misled.start()
    misled.wait_for_running("runs")
    assert losing_support not in misled.get("/metrics")
