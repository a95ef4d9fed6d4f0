"""Small things that fit nowhere else.

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
    """Keep a socket, which its owner alone may use, while the block runs. A left-over one is replaced.

    `listen` gets the URL of the socket to make, which appears under its name when it is ready. Raises OSError.
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
        # Another kubelet may have put its own there.
        if path.exists() and path.stat().st_ino == inode:
            path.unlink()


def from_apiserver_cache(options: metav1.GetOptions) -> metav1.GetOptions:
    """The options, asking for what the API server has in memory, which spares its storage."""
    return msgspec.structs.replace(options, resource_version="0")


def is_unix_domain_socket(path: str) -> bool:
    """Whether path is a socket; raises OSError if it cannot be looked at."""
    return stat.S_ISSOCK(Path(path).stat().st_mode)


def get_nodename_for_kernel(hostname: str, host_domain_name: str, set_hostname_as_fqdn: bool | None) -> str:
    """What uname shows inside the pod; raises ValueError if the full name is too long for the kernel."""
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
    """The container at idx, or None unless the status at idx is that container's."""
    if not 0 <= idx < min(len(containers), len(statuses)):
        return None
    return containers[idx] if containers[idx].name == statuses[idx].name else None


@dataclass(slots=True)
class ResourceOpts:
    """The resources that a pod as a whole and one of its containers ask for."""

    pod_resources: v1.ResourceRequirements | None = None
    container_resources: v1.ResourceRequirements | None = None


def get_limits(res: ResourceOpts | None) -> dict[str, Quantity]:
    """The container's limits; for cpu and memory, where it has none, the pod's."""
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
    """The address of the unix socket `file`.sock in the folder `path`."""
    return f"unix://{path.rstrip('/')}/{file}.sock"


def is_cgroup2_unified_mode(root: str = CGROUP_ROOT) -> bool:
    """Whether the node has cgroups of version 2 alone (and not the hybrid, where version 1 does the work)."""
    return Path(root, "cgroup.controllers").exists()
