"""Build the names of the links in /var/log/containers, which log collectors follow.

Go: pkg/kubelet/kuberuntime/legacy.go
"""

from __future__ import annotations

import os

from kubelet import container as kubecontainer

LEGACY_CONTAINER_LOGS_DIR = "/var/log/containers"
LEGACY_LOG_SUFFIX = "log"

_EXT4_MAX_FILE_NAME_LEN = 255
# The runtime finds a container even by this many characters of its ID.
_SHORTEST_CONTAINER_ID = 6


def legacy_log_symlink(container_id: str, container_name: str, pod_name: str, pod_namespace: str) -> str:
    """Return the path of a container's link."""
    full_name = kubecontainer.build_pod_full_name(pod_name, pod_namespace)
    return log_symlink(LEGACY_CONTAINER_LOGS_DIR, full_name, container_name, container_id)


def get_container_id_from_legacy_log_symlink(link: str) -> str:
    """Return the container ID in the name of a link. Raise ValueError if there is none."""
    id_with_suffix = link.rsplit("-", 1)[-1]
    suffix = f".{LEGACY_LOG_SUFFIX}"
    if not id_with_suffix.endswith(suffix):
        raise ValueError(f'"{link}" doesn\'t end with "{suffix}"')
    container_id = id_with_suffix.removesuffix(suffix)
    if len(container_id) < _SHORTEST_CONTAINER_ID:
        raise ValueError(f'container Id "{container_id}" is too short')
    return container_id


def log_symlink(container_logs_dir: str, pod_full_name: str, container_name: str, container_id: str) -> str:
    """Return the path of a link, with its name cut to the length limit of ext4."""
    suffix = f".{LEGACY_LOG_SUFFIX}"
    name = f"{pod_full_name}_{container_name}-{container_id}"
    return os.path.join(container_logs_dir, name[: _EXT4_MAX_FILE_NAME_LEN - len(suffix)] + suffix)
