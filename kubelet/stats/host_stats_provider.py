"""Measure what pods use of the node's disk besides layers and volumes: logs and /etc/hosts files.

Go: pkg/kubelet/stats/host_stats_provider.go
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Protocol

from kubelet import container as kubecontainer
from kubelet.apis.stats import v1alpha1 as statsapi
from kubelet.cadvisor.info import v2 as cadvisorapiv2
from kubelet.kuberuntime import helpers as kuberuntime
from kubelet.stats.helper import add_usage, root_fs_info_to_fs_stats
from pkg.apimachinery import types

# A block of st_blocks has this many bytes, whatever the file system's block size.
_BLOCK = 512


class HostStatsProvider(Protocol):
    """Define how the usage of the node's disk is measured. Any thread may call it, and the methods raise OSError."""

    def get_pod_log_stats(
        self, pod_namespace: str, pod_name: str, pod_uid: types.UID, root_fs_info: cadvisorapiv2.FsInfo
    ) -> statsapi.FsStats:
        """Return the usage of the pod's own logs, without those of its containers."""
        ...

    def get_pod_container_log_stats(
        self,
        pod_namespace: str,
        pod_name: str,
        pod_uid: types.UID,
        container_name: str,
        root_fs_info: cadvisorapiv2.FsInfo,
    ) -> statsapi.FsStats:
        """Return the usage of the container's logs, including those of earlier instances and rotated ones."""
        ...

    def get_pod_etc_hosts_stats(
        self, pod_uid: types.UID, root_fs_info: cadvisorapiv2.FsInfo
    ) -> statsapi.FsStats | None:
        """Return the usage of the pod's hosts file, or None if the kubelet has not created one."""
        ...


class HostStatsProviderImpl:
    """Measure at each call.

    Each file needs one stat. Go walks a file as it would walk a volume, and also reads the statistics of the file
    system, which it then does not use.
    """

    def __init__(
        self,
        os_interface: kubecontainer.OSInterface,
        pod_etc_hosts_path_func: Callable[[types.UID], str],
        pod_logs_directory: str,
    ) -> None:
        """Create a provider. pod_etc_hosts_path_func returns the path of the hosts file for a pod's UID."""
        self._os = os_interface
        self._pod_etc_hosts_path = pod_etc_hosts_path_func
        self._pod_logs_directory = pod_logs_directory

    def get_pod_log_stats(
        self, pod_namespace: str, pod_name: str, pod_uid: types.UID, root_fs_info: cadvisorapiv2.FsInfo
    ) -> statsapi.FsStats:
        directory = kuberuntime.build_pod_logs_directory(self._pod_logs_directory, pod_namespace, pod_name, pod_uid)
        return _to_fs_stats(self._file_metrics_by_dir(directory), root_fs_info)

    def get_pod_container_log_stats(
        self,
        pod_namespace: str,
        pod_name: str,
        pod_uid: types.UID,
        container_name: str,
        root_fs_info: cadvisorapiv2.FsInfo,
    ) -> statsapi.FsStats:
        directory = kuberuntime.build_container_logs_directory(
            self._pod_logs_directory, pod_namespace, pod_name, pod_uid, container_name
        )
        return _to_fs_stats(self._file_metrics_by_dir(directory), root_fs_info)

    def get_pod_etc_hosts_stats(
        self, pod_uid: types.UID, root_fs_info: cadvisorapiv2.FsInfo
    ) -> statsapi.FsStats | None:
        try:
            status = self._os.stat(self._pod_etc_hosts_path(pod_uid))
        except FileNotFoundError:
            return None
        return _to_fs_stats([status], root_fs_info)

    def _file_metrics_by_dir(self, dirname: str) -> list[os.stat_result]:
        """Return the files directly in the directory, except those that are rotated away during the call."""
        found: list[os.stat_result] = []
        for entry in self._os.read_dir(dirname):
            try:
                if not entry.is_dir(follow_symlinks=False):
                    found.append(entry.stat(follow_symlinks=False))
            except FileNotFoundError:
                continue
        return found


def _to_fs_stats(files: Iterable[os.stat_result], root_fs_info: cadvisorapiv2.FsInfo) -> statsapi.FsStats:
    result = root_fs_info_to_fs_stats(root_fs_info)
    for status in files:
        result.used_bytes = add_usage(result.used_bytes, status.st_blocks * _BLOCK)
        result.inodes_used = add_usage(result.inodes_used, 1)
        result.time = datetime.now(UTC)
    return result
