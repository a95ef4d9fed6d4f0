"""Provide small helpers.

Go: pkg/kubelet/util/util.go, util_unix.go, util_linux.go
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from pkg.api.core import v1
from pkg.apimachinery.api.resource import Quantity
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.util import filesystem

# The kernel's nodename field holds 64 characters and a terminating NUL.
_FQDN_MAX_LEN = 64

CGROUP_ROOT = "/sys/fs/cgroup"


@contextmanager
def create_listener(endpoint: str, listen: Callable[[str], object]) -> Iterator[None]:
    """Provide a socket for its owner alone while the block runs.

    The socket replaces one that an earlier process left behind. `listen` gets the URL of the socket to create, which is
    renamed to its final name when it is ready. Raise OSError.
    """
    path = Path(endpoint.removeprefix("unix://"))
    filesystem.mkdir_all(path.parent, 0o750)
    unready = path.with_name(f".{path.name}")
    unready.unlink(missing_ok=True)
    listen(f"unix:{unready}")
    inode = unready.stat().st_ino
    try:
        unready.chmod(0o600)
        os.rename(unready, path)
        yield
    finally:
        # Another kubelet may have replaced the socket by its own.
        if path.exists() and path.stat().st_ino == inode:
            path.unlink()


def from_apiserver_cache(options: metav1.GetOptions) -> metav1.GetOptions:
    """Return the options with a request for the API server's cached version, which spares its storage."""
    return msgspec.structs.replace(options, resource_version="0")


def is_unix_domain_socket(path: str) -> bool:
    """Report whether the path is a socket. Raise OSError if it cannot be read."""
    return stat.S_ISSOCK(Path(path).stat().st_mode)


def get_nodename_for_kernel(hostname: str, host_domain_name: str, set_hostname_as_fqdn: bool | None) -> str:
    """Return the host name that uname reports in the pod. Raise ValueError if it is too long for the kernel."""
    if not host_domain_name or not set_hostname_as_fqdn:
        return hostname
    fqdn = f"{hostname}.{host_domain_name}"
    if len(fqdn) > _FQDN_MAX_LEN:
        raise ValueError(
            f"failed to construct FQDN from pod hostname and cluster domain, FQDN {fqdn} is too long "
            f"({_FQDN_MAX_LEN} characters is the max, {len(fqdn)} characters requested)"
        )
    return fqdn


def get_container_by_index(
    containers: Sequence[v1.Container], statuses: Sequence[v1.ContainerStatus], idx: int
) -> v1.Container | None:
    """Return the container at idx, or None if the status at idx belongs to another container."""
    if not 0 <= idx < min(len(containers), len(statuses)):
        return None
    return containers[idx] if containers[idx].name == statuses[idx].name else None


@dataclass(slots=True)
class ResourceOpts:
    """Hold the resources of a pod and of one of its containers."""

    pod_resources: v1.ResourceRequirements | None = None
    container_resources: v1.ResourceRequirements | None = None


def get_limits(res: ResourceOpts | None) -> dict[str, Quantity]:
    """Return the container's limits; for CPU and memory the pod's limits are the default."""
    if res is None:
        return {}
    limits = dict(res.container_resources.limits) if res.container_resources is not None else {}
    pod_limits = res.pod_resources.limits if res.pod_resources is not None else {}
    for name in (v1.RESOURCE_CPU, v1.RESOURCE_MEMORY):
        own, pods = limits.get(name), pod_limits.get(name)
        if (own is None or own.is_zero()) and pods is not None and not pods.is_zero():
            limits[name] = pods
    return limits


def local_endpoint(path: str, file: str) -> str:
    """Return the URL of the unix socket `file`.sock in the directory `path`."""
    return f"unix://{path.rstrip('/')}/{file}.sock"


def is_cgroup2_unified_mode(root: str = CGROUP_ROOT) -> bool:
    """Report whether the node has only cgroups of version 2, rather than the hybrid mode, which uses version 1."""
    return Path(root, "cgroup.controllers").exists()
