"""Set the parts of a node's status, one setter for each part.

Go: pkg/kubelet/nodestatus/setters.go
"""

from __future__ import annotations

import datetime
import functools
import platform
from collections.abc import Callable, Sequence
from ipaddress import ip_address
from typing import NamedTuple

from kubelet import cadvisor, cm, events
from kubelet import container as kubecontainer
from kubelet.errors import NotReadyError
from pkg import features, golang, klog
from pkg.api.core import v1
from pkg.apimachinery.api import resource
from pkg.apimachinery.util import errors as utilerrors
from pkg.apimachinery.util.net import IPAddress
from pkg.apis.core.v1 import helper as v1helper
from pkg.component_base import version
from pkg.golang import net

# The name service gets this time, in seconds, to resolve the node's name. Go leaves the timeout to its resolver.
LOOKUP_TIMEOUT = 10.0
# This timeout applies after a lookup that timed out. It is short because without an API server the sync loop may be the
# caller.
SILENT_LOOKUP_TIMEOUT = 1.0
# The status contains at most this many names of an image.
MAX_NAMES_PER_IMAGE_IN_NODE_STATUS = 5
# An external cloud provider reads the node's addresses from this annotation.
ANNOTATION_ALPHA_PROVIDED_IP_ADDR = "alpha.kubernetes.io/provided-node-ip"

GOOS = "linux"
_GO_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64", "armv7l": "arm", "i686": "386"}

# A Setter changes the node in place. It may raise an error after it has set only some of its fields, which stay set.
Setter = Callable[[golang.Context, v1.Node], None]
NowFunc = Callable[[], datetime.datetime]
# An ErrorsFunc returns a problem, or None.
ErrorsFunc = Callable[[], Exception | None]
RecordEventFunc = Callable[[str, str], None]


def goarch() -> str:
    """Return Go's name of the machine's architecture."""
    machine = platform.machine()
    return _GO_ARCHITECTURES.get(machine, machine)


# ---- Addresses ----


def node_address(
    node_ips: Sequence[IPAddress],
    validate_node_ip_func: Callable[[IPAddress], None],
    hostname: str,
    external_cloud_provider: bool,
    resolve_address_func: Callable[[IPAddress | None], IPAddress],
) -> Setter:
    """Set the addresses: those of --node-ip, or those of the node's name, or that of the default route.

    An unspecified address selects its IP family. validate_node_ip_func raises ValueError for an unusable address.
    """
    specified = [ip for ip in node_ips[:2] if not ip.is_unspecified]
    node_ip = node_ips[0] if node_ips else None
    first_specified = node_ip is not None and not node_ip.is_unspecified
    names = _NameService()

    def set_addresses(ctx: golang.Context, node: v1.Node) -> None:
        _validate(node_ips, validate_node_ip_func)
        if external_cloud_provider and first_specified:
            provided = ",".join(str(ip) for ip in specified)
            node.metadata.annotations[ANNOTATION_ALPHA_PROVIDED_IP_ADDR] = provided
        else:
            node.metadata.annotations.pop(ANNOTATION_ALPHA_PROVIDED_IP_ADDR, None)
        if external_cloud_provider and node.status.addresses:
            return  # Addresses that the cloud provider has set take precedence.
        if external_cloud_provider and node_ip is None:
            node.status.addresses = _addresses([], hostname)
        elif len(specified) == 2:
            node.status.addresses = _addresses(specified, hostname)
        else:
            address = node_ip if node_ip is not None and first_specified else None
            if address is None:
                found = functools.partial(names.look_up, ctx, node.metadata.name)
                address = _find_address(node, found, node_ip, validate_node_ip_func, hostname, resolve_address_func)
            node.status.addresses = _addresses([address], hostname)

    return set_addresses


def _validate(node_ips: Sequence[IPAddress], validate_node_ip_func: Callable[[IPAddress], None]) -> None:
    for what, ip in zip(("nodeIP", "secondaryNodeIP"), node_ips, strict=False):
        if ip.is_unspecified:
            continue
        try:
            validate_node_ip_func(ip)
        except ValueError as err:
            raise ValueError(f"failed to validate {what}: {err}") from err
        klog.v(4).info_s("Using node IP" if what == "nodeIP" else "Using secondary node IP", IP=str(ip))


def _addresses(ips: Sequence[IPAddress], hostname: str) -> list[v1.NodeAddress]:
    addresses = [v1.NodeAddress(type=v1.NODE_INTERNAL_IP, address=str(ip)) for ip in ips]
    return [*addresses, v1.NodeAddress(type=v1.NODE_HOST_NAME, address=hostname)]


def _find_address(
    node: v1.Node,
    look_up: Callable[[], list[IPAddress]],
    node_ip: IPAddress | None,
    validate_node_ip_func: Callable[[IPAddress], None],
    hostname: str,
    resolve_address_func: Callable[[IPAddress | None], IPAddress],
) -> IPAddress:
    """Return a usable address. Raise ValueError if the machine has none. The function may query the name service."""
    try:
        return ip_address(hostname)
    except ValueError:
        pass  # The hostname is nearly always a name and not an address.
    usable = []
    for ip in look_up():
        try:
            validate_node_ip_func(ip)
        except ValueError:
            continue
        usable.append(ip)
    preferred = node_ip.version if node_ip is not None else 4
    for ip in sorted(usable, key=lambda ip: ip.version != preferred):
        return ip
    try:
        return resolve_address_func(node_ip)
    except ValueError as err:
        raise ValueError(f"can't get ip address of node {node.metadata.name}. error: {err}") from err


class _NameService:
    """Resolve names. After a timeout the next lookup has a short timeout, until the name service responds again."""

    def __init__(self) -> None:
        self._is_silent = False

    def look_up(self, ctx: golang.Context, name: str) -> list[IPAddress]:
        """Return the addresses of the name in the name service's order without duplicates, or none after a timeout."""
        limited, cancel = golang.with_timeout(ctx, SILENT_LOOKUP_TIMEOUT if self._is_silent else LOOKUP_TIMEOUT)
        self._is_silent = False
        try:
            return list(dict.fromkeys(ip_address(info[4][0]) for info in net.lookup_host(limited, name, 0)))
        except TimeoutError:
            self._is_silent = True
            return []
        # A UnicodeError means that DNS cannot have such a name, for example one of 64 characters.
        except (OSError, UnicodeError):
            return []
        finally:
            cancel()


# ---- The machine ----


def machine_info(
    node_name: str,
    max_pods: int,
    pods_per_core: int,
    machine_info_func: Callable[[], cadvisor.MachineInfo],
    capacity_func: Callable[[bool], dict[str, resource.Quantity]],
    device_plugin_resource_capacity_func: Callable[[], cm.DevicePluginResourceCapacity],
    node_allocatable_reservation_func: Callable[[], dict[str, resource.Quantity]],
    record_event_func: Callable[[str, str, str], None],
    local_storage_capacity_isolation: bool,
) -> Setter:
    """Set the machine's ids, its swap, its capacity, and the allocatable resources.

    Resources that others have added to the capacity stay. A changed boot id is recorded as an event once.
    """
    rebooted = False

    def note_boot(node: v1.Node, boot_id: str) -> None:
        nonlocal rebooted
        if node.status.node_info.boot_id not in ("", boot_id) and not rebooted:
            rebooted = True
            message = f"Node {node_name} has been rebooted, boot id: {boot_id}"
            record_event_func(v1.EVENT_TYPE_WARNING, events.NODE_REBOOTED, message)
        node.status.node_info.boot_id = boot_id

    def set_machine(ctx: golang.Context, node: v1.Node) -> None:
        device_plugin_allocatable: dict[str, resource.Quantity] = {}
        try:
            info = machine_info_func()
        except OSError as err:
            klog.error_s(err, "Error getting machine info")
            node.status.capacity |= {
                v1.RESOURCE_CPU: resource.new_milli_quantity(0),
                v1.RESOURCE_MEMORY: resource.must_parse("0Gi"),
                v1.RESOURCE_PODS: resource.new_quantity(max_pods),
            }
        else:
            node.status.node_info.machine_id = info.machine_id
            node.status.node_info.system_uuid = info.system_uuid
            note_boot(node, info.boot_id)
            if features.feature_gate.enabled(features.NODE_SWAP) and info.swap_capacity != 0:
                node.status.node_info.swap = v1.NodeSwapStatus(capacity=info.swap_capacity)
            pods = min(info.num_cores * pods_per_core, max_pods) if pods_per_core > 0 else max_pods
            _set_capacity(node, info, pods, capacity_func(local_storage_capacity_isolation))
            device_plugin_allocatable = _set_device_capacity(node, device_plugin_resource_capacity_func())
        _set_allocatable(node, node_allocatable_reservation_func(), device_plugin_allocatable)

    return set_machine


def _set_capacity(
    node: v1.Node, info: cadvisor.MachineInfo, pods: int, initial_capacity: dict[str, resource.Quantity]
) -> None:
    capacity = node.status.capacity
    capacity |= cadvisor.capacity_from_machine_info(info)
    capacity[v1.RESOURCE_PODS] = resource.new_quantity(pods)
    if v1.RESOURCE_EPHEMERAL_STORAGE in initial_capacity:
        capacity[v1.RESOURCE_EPHEMERAL_STORAGE] = initial_capacity[v1.RESOURCE_EPHEMERAL_STORAGE]


def _set_device_capacity(node: v1.Node, devices: cm.DevicePluginResourceCapacity) -> dict[str, resource.Quantity]:
    """Set the capacity of devices, and return the allocatable devices."""
    capacity = node.status.capacity
    for name, quantity in devices.capacity.items():
        if name not in capacity or capacity[name].cmp(quantity) != 0:
            klog.v(2).info_s("Updated capacity for device plugin", plugin=name, capacity=quantity.value())
        capacity[name] = quantity
    for name in devices.removed:
        # The value is zero, because an absent resource belongs to the cluster and not to a device plugin.
        klog.v(2).info_s("Set capacity for removed resource to 0 on device removal", device=name)
        capacity[name] = resource.new_quantity(0)
    return devices.allocatable


def _set_allocatable(
    node: v1.Node, reservation: dict[str, resource.Quantity], device_plugin_allocatable: dict[str, resource.Quantity]
) -> None:
    """Set the allocatable resources: the capacity minus reservations, healthy devices, and memory minus huge pages."""
    capacity, allocatable = node.status.capacity, node.status.allocatable
    for name in list(allocatable):
        if name not in capacity and v1helper.is_extended_resource_name(name):
            del allocatable[name]
    for name, quantity in capacity.items():
        allocatable[name] = _less(quantity, reservation.get(name, resource.new_quantity(0, quantity.format)))
    for name, quantity in device_plugin_allocatable.items():
        if name not in allocatable or allocatable[name].cmp(quantity) != 0:
            klog.v(2).info_s("Updated allocatable", device=name, allocatable=quantity.value())
        allocatable[name] = quantity
    for name, quantity in capacity.items():
        if v1helper.is_huge_page_resource_name(name):
            allocatable[v1.RESOURCE_MEMORY] = _less(allocatable[v1.RESOURCE_MEMORY], quantity)


def _less(quantity: resource.Quantity, taken: resource.Quantity) -> resource.Quantity:
    """Return the difference, or zero if it is negative."""
    left = quantity.sub(taken)
    return left if left.sign() >= 0 else resource.Quantity(0, left.format)


def version_info(
    version_info_func: Callable[[], cadvisor.VersionInfo],
    runtime_type_func: Callable[[], str],
    runtime_version_func: Callable[[golang.Context], kubecontainer.Version],
) -> Setter:
    """Set the versions of kernel, operating system, runtime and kubelet."""

    def set_versions(ctx: golang.Context, node: v1.Node) -> None:
        try:
            info = version_info_func()
        except OSError as err:
            raise OSError(f"error getting version info: {err}") from err
        node_info = node.status.node_info
        node_info.kernel_version = info.kernel_version
        node_info.os_image = info.container_os_version
        try:
            runtime_version = str(runtime_version_func(ctx))
        except golang.Canceled:
            raise
        except Exception as err:
            # The Ready condition shows any problem of the runtime that causes the error.
            klog.v(4).info_s("Unable to get the version of the container runtime", err=err)
            runtime_version = "Unknown"
        node_info.container_runtime_version = f"{runtime_type_func()}://{runtime_version}"
        node_info.kubelet_version = str(version.get())
        # The field is deprecated, so a value from an older kubelet is cleared.
        node_info.kube_proxy_version = ""

    return set_versions


def daemon_endpoints(endpoints: v1.NodeDaemonEndpoints) -> Setter:
    """Set the port of the kubelet's server."""

    def set_endpoints(ctx: golang.Context, node: v1.Node) -> None:
        node.status.daemon_endpoints = v1.deepcopy(endpoints)

    return set_endpoints


def images(node_status_max_images: int, image_list_func: Callable[[], list[kubecontainer.Image]]) -> Setter:
    """Set the images. image_list_func returns the largest first, and node_status_max_images -1 means all of them."""

    def set_images(ctx: golang.Context, node: v1.Node) -> None:
        found = image_list_func()
        if node_status_max_images > -1:
            found = found[:node_status_max_images]
        node.status.images = [
            v1.ContainerImage(
                names=[*image.repo_digests, *image.repo_tags][:MAX_NAMES_PER_IMAGE_IN_NODE_STATUS],
                size_bytes=image.size,
            )
            for image in found
        ]

    return set_images


def go_runtime() -> Setter:
    """Set the operating system and the architecture."""

    def set_platform(ctx: golang.Context, node: v1.Node) -> None:
        node.status.node_info.operating_system = GOOS
        node.status.node_info.architecture = goarch()

    return set_platform


def node_features(features_getter: Callable[[], kubecontainer.RuntimeFeatures | None]) -> Setter:
    """Set the features of the runtime that do not depend on the handler."""

    def set_features(ctx: golang.Context, node: v1.Node) -> None:
        found = features_getter()
        if found is not None:
            node.status.features = v1.NodeFeatures(supplemental_groups_policy=found.supplemental_groups_policy)

    return set_features


def runtime_handlers(fn: Callable[[], list[kubecontainer.RuntimeHandler]]) -> Setter:
    """Set the runtime's handlers and their features."""

    def set_handlers(ctx: golang.Context, node: v1.Node) -> None:
        node.status.runtime_handlers = [
            v1.NodeRuntimeHandler(
                name=handler.name,
                features=v1.NodeRuntimeHandlerFeatures(
                    recursive_read_only_mounts=handler.supports_recursive_read_only_mounts,
                    user_namespaces=handler.supports_user_namespaces,
                ),
            )
            for handler in fn()
        ]

    return set_handlers


# ---- Conditions ----


def ready_condition(
    now_func: NowFunc,
    runtime_errors_func: ErrorsFunc,
    network_errors_func: ErrorsFunc,
    storage_errors_func: ErrorsFunc,
    cm_status_func: Callable[[], cm.Status],
    node_shutdown_manager_errors_func: ErrorsFunc,
    record_event_func: RecordEventFunc,
    local_storage_capacity_isolation: bool,
) -> Setter:
    """Set the condition Ready. The capacity must have been set before.

    A new Ready condition is appended, because other versions of the control plane need it to be the last one
    (kubernetes/kubernetes issue 16961).
    """
    required = [v1.RESOURCE_CPU, v1.RESOURCE_MEMORY, v1.RESOURCE_PODS]
    if local_storage_capacity_isolation:
        required.append(v1.RESOURCE_EPHEMERAL_STORAGE)

    def set_ready(ctx: golang.Context, node: v1.Node) -> None:
        now = _seconds(now_func())
        errs: list[Exception | None] = [
            runtime_errors_func(),
            network_errors_func(),
            storage_errors_func(),
            node_shutdown_manager_errors_func(),
        ]
        if missing := [name for name in required if name not in node.status.capacity]:
            errs.append(NotReadyError(f"missing node capacity for resources: {', '.join(missing)}"))
        new = _new_ready_condition(now, utilerrors.new_aggregate(errs))
        if (soft := cm_status_func().soft_requirements) is not None:
            new.message = f"{new.message}. WARNING: {soft}"
        index, old = _find_condition(node, v1.NODE_READY)
        if old is None:
            node.status.conditions.append(new)
            return
        if old.status == new.status:
            new.last_transition_time = old.last_transition_time
        node.status.conditions[index] = new
        if old.status == new.status:
            return
        if new.status == v1.CONDITION_TRUE:
            record_event_func(v1.EVENT_TYPE_NORMAL, events.NODE_READY)
        else:
            record_event_func(v1.EVENT_TYPE_NORMAL, events.NODE_NOT_READY)
            klog.info_s("Node became not ready", node=klog.kobj(node), condition=new)

    return set_ready


def _new_ready_condition(now: datetime.datetime, err: Exception | None) -> v1.NodeCondition:
    return v1.NodeCondition(
        type=v1.NODE_READY,
        status=v1.CONDITION_TRUE if err is None else v1.CONDITION_FALSE,
        reason="KubeletReady" if err is None else "KubeletNotReady",
        message="kubelet is posting ready status" if err is None else str(err),
        last_heartbeat_time=now,
        last_transition_time=now,
    )


class _Words(NamedTuple):
    reason: str
    message: str
    event: str


def memory_pressure_condition(
    now_func: NowFunc, pressure_func: Callable[[], bool], record_event_func: RecordEventFunc
) -> Setter:
    """Set the condition MemoryPressure."""
    return _pressure_condition(
        v1.NODE_MEMORY_PRESSURE,
        now_func,
        pressure_func,
        record_event_func,
        _Words(
            "KubeletHasInsufficientMemory", "kubelet has insufficient memory available", "NodeHasInsufficientMemory"
        ),
        _Words("KubeletHasSufficientMemory", "kubelet has sufficient memory available", "NodeHasSufficientMemory"),
    )


def pid_pressure_condition(
    now_func: NowFunc, pressure_func: Callable[[], bool], record_event_func: RecordEventFunc
) -> Setter:
    """Set the condition PIDPressure."""
    return _pressure_condition(
        v1.NODE_PID_PRESSURE,
        now_func,
        pressure_func,
        record_event_func,
        _Words("KubeletHasInsufficientPID", "kubelet has insufficient PID available", "NodeHasInsufficientPID"),
        _Words("KubeletHasSufficientPID", "kubelet has sufficient PID available", "NodeHasSufficientPID"),
    )


def disk_pressure_condition(
    now_func: NowFunc, pressure_func: Callable[[], bool], record_event_func: RecordEventFunc
) -> Setter:
    """Set the condition DiskPressure."""
    return _pressure_condition(
        v1.NODE_DISK_PRESSURE,
        now_func,
        pressure_func,
        record_event_func,
        _Words("KubeletHasDiskPressure", "kubelet has disk pressure", "NodeHasDiskPressure"),
        _Words("KubeletHasNoDiskPressure", "kubelet has no disk pressure", "NodeHasNoDiskPressure"),
    )


def _pressure_condition(
    type: str,
    now_func: NowFunc,
    pressure_func: Callable[[], bool],
    record_event_func: RecordEventFunc,
    under: _Words,
    free: _Words,
) -> Setter:
    """Set a pressure condition. A new condition counts as changed in either state."""

    def set_condition(ctx: golang.Context, node: v1.Node) -> None:
        now = _seconds(now_func())
        _, condition = _find_condition(node, type)
        if condition is None:
            condition = v1.NodeCondition(type=type, status=v1.CONDITION_UNKNOWN)
            node.status.conditions.append(condition)
        condition.last_heartbeat_time = now
        pressure = pressure_func()
        status = v1.CONDITION_TRUE if pressure else v1.CONDITION_FALSE
        if condition.status == status:
            return
        words = under if pressure else free
        condition.status, condition.last_transition_time = status, now
        condition.reason, condition.message = words.reason, words.message
        record_event_func(v1.EVENT_TYPE_NORMAL, words.event)

    return set_condition


def _find_condition(node: v1.Node, type: str) -> tuple[int, v1.NodeCondition | None]:
    for index, condition in enumerate(node.status.conditions):
        if condition.type == type:
            return index, condition
    return -1, None


def _seconds(moment: datetime.datetime) -> datetime.datetime:
    """Truncate the time to seconds as the API does, so that a time read back equals the one that was sent."""
    return moment.replace(microsecond=0)


def volumes_in_use(synced_func: Callable[[], bool], volumes_in_use_func: Callable[[], list[str]]) -> Setter:
    """Set the attachable volumes in use, once the volume manager has seen all pods."""

    def set_volumes(ctx: golang.Context, node: v1.Node) -> None:
        if synced_func():
            node.status.volumes_in_use = volumes_in_use_func()

    return set_volumes
