"""Test the measurement of what pods use of the node's disk.

Go: pkg/kubelet/stats/host_stats_provider_test.go
"""

from __future__ import annotations

from pathlib import Path

import pytest

from kubelet import container as kubecontainer
from kubelet import stats
from kubelet.stats import testing
from pkg.apimachinery import types

POD = ("ns", "pod", types.UID("uid"))


@pytest.fixture
def provider(tmp_path: Path) -> stats.HostStatsProviderImpl:
    containers = tmp_path / "logs/ns_pod_uid/c"
    containers.mkdir(parents=True)
    (tmp_path / "hosts").mkdir()
    return stats.HostStatsProviderImpl(
        kubecontainer.RealOS(), lambda uid: str(tmp_path / "hosts" / uid), str(tmp_path / "logs")
    )


def blocks(*paths: Path) -> int:
    return sum(path.lstat().st_blocks * 512 for path in paths)


def test_logs(provider: stats.HostStatsProviderImpl, tmp_path: Path) -> None:
    """Only logs directly in the directory count, because subdirectories belong to others."""
    pod = tmp_path / "logs/ns_pod_uid"
    files = [pod / "c/0.log", pod / "c/0.log.20260102-030405.gz", pod / "c/1.log"]
    for size, file in enumerate(files):
        file.write_bytes(b"x" * 5000 * (size + 1))
    (pod / "sandbox.log").write_bytes(b"x" * 100_000)
    (pod / "c/link").symlink_to(pod / "sandbox.log")
    of_container = provider.get_pod_container_log_stats(*POD, "c", testing.fs_info(0))
    assert of_container.used_bytes == blocks(*files, pod / "c/link") > 0, "the link counts as such"
    assert of_container.inodes_used == 4
    assert of_container.time is not None and of_container.time > testing.TIMESTAMP
    assert (of_container.capacity_bytes, of_container.available_bytes) == (31, 32)
    of_pod = provider.get_pod_log_stats(*POD, testing.fs_info(0))
    assert (of_pod.used_bytes, of_pod.inodes_used) == (blocks(pod / "sandbox.log"), 1)


def test_no_logs(provider: stats.HostStatsProviderImpl) -> None:
    nothing = provider.get_pod_container_log_stats(*POD, "c", testing.fs_info(0))
    assert nothing.used_bytes is None and nothing.time == testing.TIMESTAMP
    with pytest.raises(FileNotFoundError):
        provider.get_pod_container_log_stats(*POD, "other", testing.fs_info(0))


def test_etc_hosts(provider: stats.HostStatsProviderImpl, tmp_path: Path) -> None:
    assert provider.get_pod_etc_hosts_stats(types.UID("uid"), testing.fs_info(0)) is None, "the pod has one of its own"
    (tmp_path / "hosts/uid").write_text("127.0.0.1 localhost\n")
    found = provider.get_pod_etc_hosts_stats(types.UID("uid"), testing.fs_info(0))
    assert found is not None
    assert (found.used_bytes, found.inodes_used) == (blocks(tmp_path / "hosts/uid"), 1)
