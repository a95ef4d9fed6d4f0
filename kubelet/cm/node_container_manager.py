"""Compute the node's allocatable resources, and limit pods, system daemons and Kubernetes daemons to their shares.

Go: pkg/kubelet/cm/node_container_manager_linux.go
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kubelet import events
from kubelet import types as kubetypes
from kubelet.cm.cgroup_manager import CgroupManager
from kubelet.cm.container_manager import NodeConfig
from kubelet.cm.helpers import MEMORY_MIN, hard_eviction_reservation, huge_page_limits, milli_cpu_to_shares
from kubelet.cm.types import CgroupName, ResourceConfig, quoted
from pkg import features, golang, klog
from pkg.api.core import v1
from pkg.apimachinery.api import resource
from pkg.apimachinery.api.resource import Quantity

if TYPE_CHECKING:
    from pkg.client_go.tools import record

PIDS = "pid"
_RETRY_PERIOD = 60.0  # seconds
_ZERO = resource.new_quantity(0)


class NodeContainerManager:
    """Limit the cgroup above all pods, and the cgroups that the configuration names for reserved resources."""

    def __init__(
        self,
        config: NodeConfig,
        cgroup_manager: CgroupManager,
        cgroup_root: CgroupName,
        get_capacity: Callable[[], dict[str, Quantity]],
        get_internal_capacity: Callable[[], dict[str, Quantity]],
        get_shared_cpus: Callable[[], str],
        recorder: record.EventRecorder,
    ) -> None:
        """Create the manager.

        `get_internal_capacity` also returns what no pod can request. `get_shared_cpus` returns "" if a manager assigns
        cores.
        """
        self._config = config
        self._cgroup_manager = cgroup_manager
        self._cgroup_root = cgroup_root
        self._get_capacity = get_capacity
        self._get_internal_capacity = get_internal_capacity
        self._get_shared_cpus = get_shared_cpus
        self._recorder = recorder
        self._node_ref = v1.ObjectReference(api_version="v1", kind="Node", name=config.node_name)

    def create_node_allocatable_cgroups(self) -> None:
        """Create the cgroup above all pods. Raise OSError if the kernel refuses."""
        if self._cgroup_manager.exists(self._cgroup_root):
            return
        config = self._get_cgroup_config(self._node_allocatable(), compressible_only=False)
        try:
            self._cgroup_manager.create(self._cgroup_root, config)
        except OSError as err:
            klog.error_s(err, "Failed to create cgroup", cgroupName=list(self._cgroup_root))
            raise

    def _node_allocatable(self) -> dict[str, Quantity]:
        """Return the limit of all pods together; without enforcement, the limit is the whole node.

        The cgroup gets this limit in either case, because a new cgroup's default CPU shares would starve the pods.
        """
        config, capacity = self._config, self._get_internal_capacity()
        enforced = kubetypes.NODE_ALLOCATABLE_ENFORCEMENT_KEY in config.enforce_node_allocatable
        return self._absolute(capacity) if config.cgroups_per_qos and enforced else capacity

    def enforce_node_allocatable_cgroups(self, ctx: golang.Context) -> None:
        """Limit all pods together, and where the configuration asks for it the reserved cgroups too.

        Raise ValueError or OSError if a reserved cgroup cannot be limited.
        """
        config = self._config
        klog.v(4).info_s("Attempting to enforce Node Allocatable", config=sorted(config.enforce_node_allocatable))
        if self._cgroup_root:
            # Pods may already use more than the new limit. The kernel then takes time to reclaim memory, or refuses the
            # limit until the kubelet has evicted pods, so this work has a thread.
            golang.go(self._enforce_node_allocatable, ctx, name="node-allocatable")
        system = ("system", "System", config.system_reserved_cgroup_name, config.system_reserved)
        kube = ("kube", "Kube", config.kube_reserved_cgroup_name, config.kube_reserved)
        for key, (who, title, name, reserved), compressible in (
            (kubetypes.SYSTEM_RESERVED_ENFORCEMENT_KEY, system, False),
            (kubetypes.KUBE_RESERVED_ENFORCEMENT_KEY, kube, False),
            (kubetypes.SYSTEM_RESERVED_COMPRESSIBLE_ENFORCEMENT_KEY, system, True),
            (kubetypes.KUBE_RESERVED_COMPRESSIBLE_ENFORCEMENT_KEY, kube, True),
        ):
            if key in config.enforce_node_allocatable:
                self._enforce_reserved(who, title, name, reserved, compressible)

    def _update_node_allocatable(self) -> bool:
        """Set the limit of all pods together, and report whether that succeeded."""
        try:
            config = self._get_cgroup_config(self._node_allocatable(), compressible_only=False)
            self._cgroup_manager.update(self._cgroup_root, config)
        except Exception as err:
            # Pods run without the limit until an attempt succeeds; the node's event gives the reason.
            message = f"Failed to update Node Allocatable Limits {quoted(self._cgroup_root)}: {err}"
            klog.warning_s(message)
            self._warn(message)
            return False
        self._tell("Updated Node Allocatable limit across pods")
        return True

    def _enforce_node_allocatable(self, ctx: golang.Context) -> None:
        while not self._update_node_allocatable():
            if ctx.wait(_RETRY_PERIOD):
                return

    def _enforce_reserved(
        self, who: str, title: str, name: str, reserved: dict[str, Quantity], compressible: bool
    ) -> None:
        part = " compressible" if compressible else ""
        klog.v(2).info_s(f"Enforcing {who} reserved{part} on cgroup", cgroupName=name, limits=reserved)
        try:
            self.enforce_existing_cgroup(name, reserved, compressible)
        except (OSError, ValueError) as err:
            message = f'Failed to enforce {title} Reserved{part.title()} Cgroup Limits on "{name}": {err}'
            self._warn(message)
            raise ValueError(message) from err
        self._tell(f"Updated limits on {who} reserved cgroup {name}")

    def enforce_existing_cgroup(self, name: str, reserved: dict[str, Quantity], compressible_only: bool) -> None:
        """Limit a cgroup that another program created. Raise ValueError if it does not exist, or OSError."""
        cgroup = self._cgroup_manager.cgroup_name(name)
        if not reserved:
            raise ValueError(f"{quoted(cgroup)} cgroup is not configured properly")
        config = self._get_cgroup_config(reserved, compressible_only)
        if features.feature_gate.enabled(features.MEMORY_QOS) and config.memory is not None:
            config.unified[MEMORY_MIN] = str(config.memory)
        klog.v(4).info_s(
            "Enforcing limits on cgroup",
            cgroupName=list(cgroup),
            cpuShares=config.cpu_shares,
            memory=config.memory,
            pidsLimit=config.pids_limit,
        )
        self._cgroup_manager.validate(cgroup)
        self._cgroup_manager.update(cgroup, config)

    def _get_cgroup_config(self, amounts: dict[str, Quantity], compressible_only: bool) -> ResourceConfig:
        """Return the limits for a cgroup, with all shared cores in its cpuset.

        systemd removes the cpuset controller from a slice that sets no cores. The kubelet would then find the cgroup
        incomplete, and would not start again.
        """
        config = get_cgroup_config_internal(amounts, compressible_only)
        config.cpuset = self._get_shared_cpus()
        return config

    # ---- Amounts ----

    def get_node_allocatable_absolute(self) -> dict[str, Quantity]:
        """Return the capacity minus the reserved resources. It includes what the eviction thresholds keep free."""
        return self._absolute(self._get_capacity())

    def _absolute(self, capacity: dict[str, Quantity]) -> dict[str, Quantity]:
        config = self._config
        result = {}
        for name, quantity in capacity.items():
            left = quantity
            for reserved in (config.system_reserved, config.kube_reserved):
                if name in reserved:
                    left = left.sub(reserved[name])
            # A reservation can exceed the capacity; a negative amount has no meaning.
            result[name] = left if left.sign() >= 0 else _ZERO
        return result

    def get_node_allocatable_reservation(self) -> dict[str, Quantity]:
        """Return the part of the capacity that the scheduler must not allocate to pods.

        This part is the sum of the reservations and of what the eviction thresholds keep free.
        """
        config, capacity = self._config, self._get_capacity()
        evicted = hard_eviction_reservation(config.hard_eviction_thresholds, capacity)
        result: dict[str, Quantity] = {}
        for kept in (config.system_reserved, config.kube_reserved, evicted):
            for name, quantity in kept.items():
                if name in capacity:
                    result[name] = result[name].add(quantity) if name in result else quantity
        return {name: quantity for name, quantity in result.items() if not quantity.is_zero()}

    def validate_node_allocatable(self) -> None:
        """Raise ValueError if the reservation of a resource exceeds its capacity."""
        capacity = self._get_capacity()
        faults = [
            f'Resource "{name}" has a reservation of {reserved} but capacity of {capacity[name]}. '
            "Expected capacity >= reservation."
            for name, reserved in self.get_node_allocatable_reservation().items()
            if capacity[name].cmp(reserved) < 0
        ]
        if faults:
            raise ValueError(f"invalid Node Allocatable configuration. {' '.join(faults)}")

    def _tell(self, message: str) -> None:
        self._recorder.event(
            self._node_ref, v1.EVENT_TYPE_NORMAL, events.SUCCESSFUL_NODE_ALLOCATABLE_ENFORCEMENT, message
        )

    def _warn(self, message: str) -> None:
        self._recorder.event(self._node_ref, v1.EVENT_TYPE_WARNING, events.FAILED_NODE_ALLOCATABLE_ENFORCEMENT, message)


def get_cgroup_config_internal(amounts: dict[str, Quantity], compressible_only: bool) -> ResourceConfig:
    """Return the limits for resource amounts; `compressible_only` leaves out all but CPU shares."""
    config = ResourceConfig()
    if v1.RESOURCE_CPU in amounts:
        config.cpu_shares = milli_cpu_to_shares(amounts[v1.RESOURCE_CPU].milli_value())
    if compressible_only:
        return config
    if v1.RESOURCE_MEMORY in amounts:
        config.memory = amounts[v1.RESOURCE_MEMORY].value()
    if PIDS in amounts:
        config.pids_limit = amounts[PIDS].value()
    config.huge_page_limit = huge_page_limits(amounts)
    return config
