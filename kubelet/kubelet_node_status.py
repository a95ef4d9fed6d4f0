"""Register the node with the API server, and report its status.

Go: pkg/kubelet/kubelet_node_status.go
"""

from __future__ import annotations

import enum
import random
import socket
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kubelet import apis as kubeletapis
from kubelet import events, lifecycle, nodestatus
from kubelet.errors import NodeStatusError
from kubelet.kubelet_network import KubeletNetwork
from kubelet.kubelet_node_declared_features import discover_node_declared_features
from kubelet.util import BasicNodeStartupLatencyTracker
from pkg import features, golang, klog
from pkg.api.core import v1
from pkg.apimachinery.api import errors as apierrors
from pkg.apimachinery.api import resource
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.apimachinery.runtime import codec
from pkg.apimachinery.util import net as utilnet
from pkg.apimachinery.util import wait
from pkg.apimachinery.util.runtime import contain
from pkg.apis.core.v1 import helper as v1helper
from pkg.component_helpers.node import util as nodeutil
from pkg.util import node as utilnode
from pkg.volume import util as volutil

if TYPE_CHECKING:
    from collections.abc import Callable

    from kubelet import cadvisor as kubecadvisor
    from kubelet import cm, eviction, images, nodeshutdown, volumemanager
    from kubelet import pod as kubepod
    from kubelet.apis import config as kubeletconfig
    from kubelet.util import NodeStartupLatencyTracker
    from pkg.apimachinery import clock
    from pkg.apimachinery.util.net import IPAddress
    from pkg.client_go import kubernetes
    from pkg.client_go.tools import record

TAINT_EXTERNAL_CLOUD_PROVIDER = "node.cloudprovider.kubernetes.io/uninitialized"
# The kubelet tries this many times in a row to send a status.
NODE_STATUS_UPDATE_RETRY = 5
# All times in this module are in seconds.
REGISTRATION_BACK_OFF_BASE = 0.1
REGISTRATION_BACK_OFF_MAX = 7.0
# For NODE_READY_GRACE_PERIOD after the start, the kubelet checks every FAST_STATUS_UPDATE_PERIOD whether the node has
# become ready, and reports that at once.
NODE_READY_GRACE_PERIOD = 120.0
FAST_STATUS_UPDATE_PERIOD = 0.1
# After the API server has been reached, storage may take this long to start.
STORAGE_START_PERIOD = 5.0

# The kubelet keeps these labels equal to the machine's properties even after the node has been registered.
_DEFAULT_LABELS = (
    v1.LABEL_HOSTNAME,
    v1.LABEL_TOPOLOGY_ZONE,
    v1.LABEL_TOPOLOGY_REGION,
    v1.LABEL_FAILURE_DOMAIN_BETA_ZONE,
    v1.LABEL_FAILURE_DOMAIN_BETA_REGION,
    v1.LABEL_INSTANCE_TYPE_STABLE,
    v1.LABEL_INSTANCE_TYPE,
    v1.LABEL_OS_STABLE,
    v1.LABEL_ARCH_STABLE,
    v1.LABEL_WINDOWS_BUILD,
    kubeletapis.LABEL_OS,
    kubeletapis.LABEL_ARCH,
)


@dataclass(frozen=True, slots=True)
class _UpdatedNode:
    """Hold the updated node."""

    # `node` is a copy of the original.
    node: v1.Node
    # `changed` is true if the node differs in more than the times of its heartbeats.
    changed: bool


class _FastUpdate(enum.Enum):
    """List the results of an attempt to report early that the node is ready."""

    AGAIN = enum.auto()
    DONE = enum.auto()
    # The node is ready, but the report failed.
    FAILED = enum.auto()


@dataclass(frozen=True, slots=True)
class StandaloneNode:
    """Hold the node object of standalone mode.

    `made` is the time of its creation by the monotonic clock. `runtime` is what the runtime supported then.
    """

    node: v1.Node
    made: float
    runtime: tuple[Any, Any]


@dataclass(kw_only=True, eq=False, repr=False)
class KubeletNodeStatus(KubeletNetwork):
    """Maintain the node object."""

    kubelet_configuration: kubeletconfig.KubeletConfiguration
    hostname: str
    node_name: str
    node_ips: list[utilnet.IPAddress]
    node_ref: v1.ObjectReference
    node_labels: dict[str, str]
    clock: clock.Clock
    recorder: record.EventRecorder
    kube_client: kubernetes.Interface | None
    cadvisor: kubecadvisor.Interface
    container_manager: cm.ContainerManager
    max_pods: int
    volume_manager: volumemanager.VolumeManager
    image_manager: images.ImageGCManager
    # When a resource runs short, the eviction manager frees it: first it removes garbage, then it evicts pods.
    eviction_manager: eviction.Manager
    # `heartbeat_client` and `node_lister` are None in standalone mode.
    heartbeat_client: kubernetes.Interface | None = None
    # This function is called after repeated failures of heartbeats, because the connections may be dead.
    on_repeated_heartbeat_failure: Callable[[], None] | None = None
    node_lister: kubepod.NodeGetter | None = None
    shutdown_manager: nodeshutdown.Manager | None = None
    node_startup_latency_tracker: NodeStartupLatencyTracker = field(default_factory=BasicNodeStartupLatencyTracker)
    # The kubelet computes the node's status every `node_status_update_frequency` seconds, and reports an unchanged one
    # every `node_status_report_frequency` seconds.
    node_status_update_frequency: float = 10.0
    node_status_report_frequency: float = 300.0
    # The flag is true if an external program provides the node's addresses.
    external_cloud_provider: bool = False
    # The validator raises ValueError for an address that this machine does not have. None stands for
    # `validate_node_ip`.
    node_ip_validator: Callable[[IPAddress], None] | None = None
    # These functions set the node's status. The list is filled at its first use.
    set_node_status_funcs: list[nodestatus.Setter] = field(default_factory=list)
    # Hold this lock while the node's status is computed and reported; it guards the next four fields.
    sync_node_status_mux: threading.Lock = field(default_factory=threading.Lock)
    registration_completed: bool = False
    # `created_node` is the node that the kubelet has just created, because the informer may not have it yet.
    created_node: v1.Node | None = None
    # The last report was sent at this time of the monotonic clock; None until a status has been reported.
    last_status_report_time: float | None = None
    # The next report of an unchanged status comes this many seconds later, or earlier if negative.
    delay_after_node_status_change: float = 0.0
    # If this flag is set, a runtime that is not ready is logged prominently; guarded by `update_runtime_mux`.
    container_runtime_ready_expected: bool = False
    last_node_unschedulable_lock: threading.Lock = field(default_factory=threading.Lock)
    # `last_node_unschedulable_lock` guards the next field.
    last_node_unschedulable: bool = False
    standalone_node: StandaloneNode | None = None
    # The one thread that updates `standalone_node` holds this lock.
    standalone_node_mux: threading.Lock = field(default_factory=threading.Lock)
    # Hold this lock while the runtime's status is read, so that two threads do not initialize the modules twice.
    update_runtime_mux: threading.Lock = field(default_factory=threading.Lock)

    # ---- Look-ups.  Go: kubelet_getters.go ----

    def get_node(self, ctx: golang.Context) -> v1.Node:
        """Return the informer's node, or in standalone mode a node of this machine. The caller must not modify it.

        Raise apierrors.StatusError, "not found", if the API server does not have the node yet.
        """
        if self.node_lister is not None:
            return self.node_lister.get(self.node_name)
        return self._standalone_node(ctx)

    def _standalone_node(self, ctx: golang.Context) -> v1.Node:
        """Return the node of standalone mode, which is created once and updated occasionally.

        DIVERGES (fault of Go): the kubelet updates the node every nodeStatusUpdateFrequency, or when the runtime
        supports other features than before.
        Go: pkg/kubelet/kubelet_getters.go, (*Kubelet).GetNode: the Go kubelet creates a new node on each call.
        Why: all conditions of a new node count as changes, and the log shows them again for each pod.
        Test: kubelet_node_status_test.py:test_node_of_standalone_mode_is_brought_up_to_date_by_one_thread
        """
        known = self.standalone_node
        runtime = (self.runtime_state.runtime_features(), self.runtime_state.runtime_handlers())
        if known is not None and self._is_current(known, runtime):
            return known.node
        # Only one thread updates the node, because a second one would log the same changes again. A node that is merely
        # old is good enough for other threads in the meantime.
        waits = known is None or known.runtime != runtime
        if not self.standalone_node_mux.acquire(blocking=waits):
            assert known is not None
            return known.node
        try:
            known = self.standalone_node
            if known is not None and self._is_current(known, runtime):
                return known.node
            now = self.clock.monotonic()
            node = self.initial_node(ctx) if known is None else self._update_node(ctx, known.node).node
            self.standalone_node = StandaloneNode(node, now, runtime)
            return node
        finally:
            self.standalone_node_mux.release()

    def _is_current(self, known: StandaloneNode, runtime: tuple[Any, Any]) -> bool:
        return known.runtime == runtime and self.clock.monotonic() - known.made < self.node_status_update_frequency

    def get_node_any_way(self, ctx: golang.Context) -> v1.Node:
        """Return get_node's node or, if that fails, a node of this machine. The caller must not modify it."""
        try:
            return self.get_node(ctx)
        except apierrors.StatusError:
            return self.initial_node(ctx)

    def get_host_ips_any_way(self, ctx: golang.Context) -> list[str]:
        """Return the node's addresses: one, or one of each family. Raise ValueError if none is known."""
        return utilnode.get_node_host_ips(self.get_node_any_way(ctx))

    def get_last_observed_node_addresses(self) -> list[v1.NodeAddress]:
        """Return the node's addresses in the API server, as last observed; an empty list while the node is unknown."""
        try:
            return self.get_node(golang.background()).status.addresses
        except apierrors.StatusError as err:
            klog.v(4).info_s("fail to obtain node from local cache", node=self.node_name, error=err)
            return []

    # ---- Registration ----

    def register_with_api_server(self, ctx: golang.Context) -> None:
        """Register the node, however long that takes. Raise ctx.err() once ctx is done.

        Do nothing if the node has been registered. The caller must hold `sync_node_status_mux`.
        """
        if self.registration_completed:
            return
        self.node_startup_latency_tracker.record_attempt_register_node()
        pause = REGISTRATION_BACK_OFF_BASE
        while True:
            wait.pause(ctx, pause, self.clock)
            pause = min(2 * pause, REGISTRATION_BACK_OFF_MAX)
            node = self.initial_node(ctx)
            klog.info_s("Attempting to register node", node=klog.kobj(node))
            if self.try_register_with_api_server(ctx, node):
                klog.info_s("Successfully registered node", node=klog.kobj(node))
                self.registration_completed = True
                return

    def try_register_with_api_server(self, ctx: golang.Context, node: v1.Node) -> bool:
        """Create the node, or reconcile an existing one; return whether the API server has it now."""
        assert self.kube_client is not None
        nodes = self.kube_client.core_v1.nodes()
        try:
            self.created_node = nodes.create(ctx, node)
        except golang.ContextError:
            raise
        except Exception as err:
            # After any error the next attempt may succeed.
            if not _may_exist(err):
                reason = ", reason is forbidden" if apierrors.is_forbidden(err) else ""
                klog.error_s(err, f"Unable to register node with API server{reason}", node=klog.kobj(node))
                return False
            refusal = err
        else:
            self.node_startup_latency_tracker.record_registered_new_node()
            return True
        try:
            original = nodes.get(ctx, self.node_name)
        except golang.ContextError:
            raise
        except Exception as err:
            # After any error the next attempt may succeed.
            message = "Unable to register node with API server, error getting existing node"
            # DIVERGES (fault of Go): if the node is missing because the kubelet may not create it, the log shows the
            # refusal.
            # Go: pkg/kubelet/kubelet_node_status.go, (*Kubelet).tryRegisterWithAPIServer: the log shows only that the
            # node was not found, because the refusal is overwritten.
            # Why: nobody would learn that the kubelet lacks the right to create its node.
            # Test: kubelet_node_status_test.py:test_node_that_may_not_be_created_is_told_of
            told = refusal if apierrors.is_forbidden(refusal) and apierrors.is_not_found(err) else err
            klog.error_s(told, message, node=klog.kobj(node))
            return False
        klog.info_s("Node was previously registered", node=klog.kobj(node))
        return self._reconcile(ctx, node, original)

    def _reconcile(self, ctx: golang.Context, node: v1.Node, original: v1.Node) -> bool:
        """Update what this kubelet alone decides about an existing node; return whether that succeeded."""
        assert self.kube_client is not None
        existing = v1.deepcopy(original)
        changes = [
            reconcile_cmad_annotation_with_existing_node(node, existing),
            update_default_labels(node, existing),
            self.reconcile_extended_resource(node, existing),
            reconcile_huge_page_resource(node, existing),
        ]
        if not any(changes):
            return True
        try:
            nodeutil.patch_node_status(ctx, self.kube_client.core_v1, self.node_name, original, existing)
        except golang.ContextError:
            raise
        except Exception as err:
            # After any error the next attempt may succeed.
            message = "Unable to reconcile node with API server,error updating node"
            klog.error_s(err, message, node=klog.kobj(node))
            return False
        return True

    def reconcile_extended_resource(self, initial_node: v1.Node, node: v1.Node) -> bool:
        """Set the extended resources of a recreated node to zero, until device plugins register again.

        Return whether the node changed.
        """
        requires_update = update_default_resources(initial_node, node)
        if not self.container_manager.should_reset_extended_resource_capacity():
            return requires_update
        for name in [name for name in node.status.capacity if v1helper.is_extended_resource_name(name)]:
            message = "Zero out resource capacity in existing node"
            klog.info_s(message, resourceName=name, node=klog.kobj(node))
            node.status.capacity[name] = resource.new_quantity(0)
            node.status.allocatable[name] = resource.new_quantity(0)
            requires_update = True
        return requires_update

    def initial_node(self, ctx: golang.Context) -> v1.Node:
        """Return the node object for the registration of this machine. Raise one of lifecycle.ACCIDENTS."""
        os_name, arch = nodestatus.GOOS, nodestatus.goarch()
        labels = {
            v1.LABEL_HOSTNAME: self.hostname,
            v1.LABEL_OS_STABLE: os_name,
            v1.LABEL_ARCH_STABLE: arch,
            kubeletapis.LABEL_OS: os_name,
            kubeletapis.LABEL_ARCH: arch,
        }
        for key, value in self.node_labels.items():
            if key in labels:
                message = "the node label will overwrite default setting"
                klog.info_s(message, labelKey=key, labelValue=value, default=labels[key])
            labels[key] = value
        node = v1.Node(metadata=metav1.ObjectMeta(name=self.node_name, labels=labels))
        config = self.kubelet_configuration
        node.spec.taints = [v1.deepcopy(taint) for taint in config.register_with_taints]
        if self.external_cloud_provider:
            taint = v1.Taint(key=TAINT_EXTERNAL_CLOUD_PROVIDER, value="true", effect=v1.TAINT_EFFECT_NO_SCHEDULE)
            node.spec.taints.append(taint)
        if config.enable_controller_attach_detach:
            klog.v(2).info_s("Setting node annotation to enable volume controller attach/detach")
            node.metadata.annotations[volutil.CONTROLLER_MANAGED_ATTACH_ANNOTATION] = "true"
        else:
            klog.v(2).info_s(
                "Controller attach/detach is disabled for this node; Kubelet will attach and detach volumes"
            )
        node.spec.provider_id = config.provider_id
        for failure in self.set_node_status(ctx, node):
            # An incomplete node object must not make admission reject pods.
            if isinstance(failure, lifecycle.ACCIDENTS):
                raise failure
        return node

    # ---- Status ----

    def fast_status_update_once(self, ctx: golang.Context, update_runtime_up: Callable[[golang.Context], None]) -> None:
        """Report as early as possible that the node has become ready after the start.

        `update_runtime_up` reads and records the runtime's status.

        Go: kubelet.go
        """
        start = self.clock.monotonic()
        loop, end = golang.with_cancel(ctx)

        def update() -> None:
            too_late = self.clock.monotonic() - start >= NODE_READY_GRACE_PERIOD
            if self.fast_node_status_update(ctx, too_late, update_runtime_up):
                end()

        wait.until(update, FAST_STATUS_UPDATE_PERIOD, loop)

    def fast_node_status_update(
        self, ctx: golang.Context, timeout: bool, update_runtime_up: Callable[[golang.Context], None]
    ) -> bool:
        """Report the node if it has just become ready; return whether there is nothing more to wait for.

        Call the API server only in that case. This method and sync_node_status exclude each other.
        """
        with self.sync_node_status_mux:
            update = self._fast_node_status_update_locked(ctx, timeout, update_runtime_up)
        if update is _FastUpdate.AGAIN:
            return False
        if update is _FastUpdate.FAILED:
            # The known node is probably outdated; this call reads it from the API server.
            self.sync_node_status(ctx)
        with self.update_runtime_mux:
            self.container_runtime_ready_expected = True
        return True

    def _fast_node_status_update_locked(
        self, ctx: golang.Context, timeout: bool, update_runtime_up: Callable[[golang.Context], None]
    ) -> _FastUpdate:
        if timeout:
            klog.error_s(None, "Node not becoming ready in time after startup")
            return _FastUpdate.DONE
        try:
            original = self.get_node(ctx)
        except apierrors.StatusError as err:
            # DIVERGES (fault of Go): a node that is not registered yet is no error, and is logged at level 4.
            # Go: pkg/kubelet/kubelet_node_status.go, (*Kubelet).fastNodeStatusUpdate: the Go kubelet logs an error ten
            # times a second until the node is registered.
            # Why: every first start passes through this state, and the lines hide real errors.
            # Test: kubelet_node_status_test.py:test_node_that_is_not_registered_yet_is_no_error
            klog.v(4).info_s("Error getting the current node from lister", err=err)
            return _FastUpdate.AGAIN
        _, ready = nodeutil.get_node_condition(original.status, v1.NODE_READY)
        if ready is None:
            klog.error_s(None, "Node does not have NodeReady condition", originalNode=original)
            return _FastUpdate.AGAIN
        if ready.status == v1.CONDITION_TRUE:
            return _FastUpdate.DONE
        update_runtime_up(ctx)
        updated = self._update_node(ctx, original)
        if not updated.changed:
            return _FastUpdate.AGAIN
        node = updated.node
        _, ready = nodeutil.get_node_condition(node.status, v1.NODE_READY)
        if ready is None:
            klog.error_s(None, "Node does not have NodeReady condition", node=node)
            return _FastUpdate.AGAIN
        if ready.status == v1.CONDITION_FALSE:
            return _FastUpdate.AGAIN
        klog.info_s("Fast updating node status as it just became ready")
        try:
            self._patch_node_status(ctx, original, node)
        except golang.ContextError:
            raise
        except Exception as err:
            # After any error the regular update, which comes soon, writes the whole status.
            klog.error_s(err, "Error updating node status, will retry with syncNodeStatus")
            return _FastUpdate.FAILED
        return _FastUpdate.DONE

    def sync_node_status(self, ctx: golang.Context) -> None:
        """Register the node if necessary, and report its status if a report is due.

        Raise ctx.err() once ctx is done.
        """
        # Hold the lock during calls to the API server, because the last report must carry the newest status.
        with self.sync_node_status_mux:
            if self.kube_client is None or self.heartbeat_client is None:
                return
            if self.kubelet_configuration.register_node:
                self._register(ctx)
            try:
                self.update_node_status(ctx)
            except golang.ContextError:
                raise
            except Exception as err:
                # The next sync tries again.
                klog.error_s(err, "Unable to update node status")

    def _register(self, ctx: golang.Context) -> None:
        """Register the node once. If a client deletes the node later, it stays deleted until the kubelet restarts."""
        if self.registration_completed:
            return
        self.register_with_api_server(ctx)
        if self.created_node is None:
            self._wait_for_storage(ctx)

    def _wait_for_storage(self, ctx: golang.Context) -> None:
        """Give storage plugins, which need the API server, time to start before the first report on an existing node.

        DIVERGES (fault of Go): after a restart the first report waits a limited time until storage plugins are set up.
        Go: pkg/kubelet/kubelet_node_status.go, (*Kubelet).syncNodeStatus: the Go kubelet sends the first report at
        once. If it was restarted while the API server was unavailable, the report says that the node is not ready.
        Why: the cluster marks all pods of such a node as not ready, although they run.
        Test: kubelet_node_status_test.py:test_first_report_after_a_restart_waits_for_storage
        """
        end = self.clock.monotonic() + STORAGE_START_PERIOD
        while self.runtime_state.storage_errors() is not None and self.clock.monotonic() < end:
            wait.pause(ctx, FAST_STATUS_UPDATE_PERIOD, self.clock)

    def update_node_status(self, ctx: golang.Context) -> None:
        """Report the node's status, if it changed or enough time has passed, in a few attempts.

        Raise NodeStatusError if all attempts fail.
        """
        klog.v(5).info_s("Updating node status")
        last: Exception | None = None
        for attempt in range(NODE_STATUS_UPDATE_RETRY):
            try:
                self.try_update_node_status(ctx, attempt)
                return
            except golang.ContextError:
                raise
            except Exception as err:
                # Try again: the API server may be unavailable, or another client may have changed the node.
                if attempt > 0 and self.on_repeated_heartbeat_failure is not None:
                    self.on_repeated_heartbeat_failure()
                klog.error_s(err, "Error updating node status, will retry")
                last = err
        raise NodeStatusError("update node status exceeds retry count") from last

    def try_update_node_status(self, ctx: golang.Context, try_number: int) -> None:
        """Report the node's status in one attempt. Raise the API server's error.

        The first attempt starts from the informer's node, which is nearly always current and costs the API server
        nothing.
        """
        original = self._get_node_for_update(ctx, try_number)
        updated = self._update_node(ctx, original)
        node = updated.node
        if not updated.changed and not self.is_update_status_period_expired():
            self.mark_volumes_from_node(node)
            return
        if updated.changed or self.last_status_report_time is None:
            # Without this delay, nodes that changed or started together would always report together.
            self.delay_after_node_status_change = self.calculate_delay()
        else:
            self.delay_after_node_status_change = 0.0
        self.mark_volumes_from_node(self._patch_node_status(ctx, original, node))

    def _get_node_for_update(self, ctx: golang.Context, try_number: int) -> v1.Node:
        assert self.heartbeat_client is not None
        created, self.created_node = self.created_node, None
        try:
            if try_number == 0 and self.node_lister is not None:
                return self._get_listed_node(self.node_lister, created)
            return self.heartbeat_client.core_v1.nodes().get(ctx, self.node_name)
        except golang.ContextError:
            raise
        except Exception as err:
            # After any error the caller tries again.
            raise NodeStatusError(f'error getting node "{self.node_name}": {err}') from err

    def _get_listed_node(self, lister: kubepod.NodeGetter, created: v1.Node | None) -> v1.Node:
        try:
            return lister.get(self.node_name)
        except apierrors.StatusError:
            if created is None:
                raise
            return created

    def is_update_status_period_expired(self) -> bool:
        """Report whether a status report is due although nothing changed."""
        if self.last_status_report_time is None:
            return True
        period = self.node_status_report_frequency + self.delay_after_node_status_change
        return self.clock.monotonic() - self.last_status_report_time >= period

    def calculate_delay(self) -> float:
        """Return a random delay of up to half the report period, in seconds; it may be negative."""
        return self.node_status_report_frequency * (random.random() - 0.5)

    def _update_node(self, ctx: golang.Context, original: v1.Node) -> _UpdatedNode:
        node = v1.deepcopy(original)
        cidr_changed = False
        if node.spec.pod_cidrs:
            try:
                cidr_changed = self.update_pod_cidr(ctx, ",".join(node.spec.pod_cidrs))
            except golang.ContextError:
                raise
            except Exception as err:
                # The next sync calls the runtime again.
                klog.error_s(err, "Error updating pod CIDR")
        required = {v1.LABEL_OS_STABLE: nodestatus.GOOS, v1.LABEL_ARCH_STABLE: nodestatus.goarch()}
        labels_missing = any(node.metadata.labels.get(key) != value for key, value in required.items())
        node.metadata.labels |= required
        self.set_node_status(ctx, node)
        status_changed = node_status_has_changed(original.status, node.status)
        return _UpdatedNode(node, cidr_changed or labels_missing or status_changed)

    def _patch_node_status(self, ctx: golang.Context, original: v1.Node, node: v1.Node) -> v1.Node:
        """Send the changed status, and return the node that the API server has then."""
        assert self.heartbeat_client is not None
        updated, _ = nodeutil.patch_node_status(ctx, self.heartbeat_client.core_v1, self.node_name, original, node)
        self.last_status_report_time = self.clock.monotonic()
        _, ready = nodeutil.get_node_condition(updated.status, v1.NODE_READY)
        if ready is not None and ready.status == v1.CONDITION_TRUE:
            self.node_startup_latency_tracker.record_node_ready()
        return updated

    def mark_volumes_from_node(self, node: v1.Node) -> None:
        """Pass the volumes in the node's status to the volume manager, because only those may be mounted.

        After a restart the volume manager does not know them, even if the status has not changed.
        """
        self.volume_manager.mark_volumes_as_reported_in_use(node.status.volumes_in_use)

    # ---- Setting the status ----

    def record_node_status_event(self, event_type: str, event: str) -> None:
        """Record a change of the node's status as an event."""
        klog.v(2).info_s("Recording event message for node", node=klog.kref("", self.node_name), event=event)
        self.recorder.eventf(self.node_ref, event_type, event, "Node %s status is now: %s", self.node_name, event)

    def record_event(self, event_type: str, event: str, message: str) -> None:
        """Record an event of the node."""
        self.recorder.event(self.node_ref, event_type, event, message)

    def record_node_schedulable_event(self, ctx: golang.Context, node: v1.Node) -> None:
        """Record an event if the node was cordoned or uncordoned."""
        with self.last_node_unschedulable_lock:
            if self.last_node_unschedulable == node.spec.unschedulable:
                return
            self.last_node_unschedulable = node.spec.unschedulable
        event = events.NODE_NOT_SCHEDULABLE if node.spec.unschedulable else events.NODE_SCHEDULABLE
        self.record_node_status_event(v1.EVENT_TYPE_NORMAL, event)

    def set_node_status(self, ctx: golang.Context, node: v1.Node) -> list[Exception]:
        """Set the status fields of the node. The failure of one setter does not keep the others from running.

        Return the exceptions of the setters. Raise ctx.err() once ctx is done.
        """
        failures: list[Exception] = []
        if not self.set_node_status_funcs:
            self.set_node_status_funcs = self.default_node_status_funcs()
        for position, setter in enumerate(self.set_node_status_funcs):
            klog.v(5).info_s("Setting node status condition code", position=position, node=klog.kobj(node))
            # A setter may have its own timeout, whose error must not end the report.
            with contain("Failed to set some node status fields", ctx, node=klog.kobj(node)):
                try:
                    setter(ctx, node)
                except Exception as err:
                    failures.append(err)
                    raise
        if features.feature_gate.enabled(features.NODE_DECLARED_FEATURES):
            node.status.declared_features = discover_node_declared_features(self.runtime_state.runtime_features())
        return failures

    def default_node_status_funcs(self) -> list[nodestatus.Setter]:
        """Return the setters in order: Ready needs the capacity, and comes last among the conditions."""
        config, state, manager = self.kubelet_configuration, self.runtime_state, self.container_manager
        isolation = config.local_storage_capacity_isolation
        record = self.record_node_status_event
        under = self.eviction_manager
        return [
            nodestatus.node_address(
                self.node_ips,
                self.node_ip_validator or validate_node_ip,
                self.hostname,
                self.external_cloud_provider,
                utilnet.resolve_bind_address,
            ),
            nodestatus.machine_info(
                self.node_name,
                self.max_pods,
                config.pods_per_core,
                self.cadvisor.machine_info,
                manager.get_capacity,
                manager.get_device_plugin_resource_capacity,
                lambda: self.container_manager.get_node_allocatable_reservation(),
                self.record_event,
                isolation,
            ),
            nodestatus.version_info(
                self.cadvisor.version_info,
                lambda: self.container_runtime.type(),
                lambda ctx: self.container_runtime.version(ctx),
            ),
            nodestatus.daemon_endpoints(v1.NodeDaemonEndpoints(kubelet_endpoint=v1.DaemonEndpoint(port=config.port))),
            nodestatus.images(config.node_status_max_images, lambda: self.image_manager.get_image_list()),
            nodestatus.go_runtime(),
            nodestatus.runtime_handlers(state.runtime_handlers),
            nodestatus.node_features(state.runtime_features),
            nodestatus.memory_pressure_condition(self.clock.now, under.is_under_memory_pressure, record),
            nodestatus.disk_pressure_condition(self.clock.now, under.is_under_disk_pressure, record),
            nodestatus.pid_pressure_condition(self.clock.now, under.is_under_pid_pressure, record),
            nodestatus.ready_condition(
                self.clock.now,
                state.runtime_errors,
                state.network_errors,
                state.storage_errors,
                manager.status,
                self._shutdown_errors,
                record,
                isolation,
            ),
            nodestatus.volumes_in_use(
                lambda: self.volume_manager.reconciler_states_have_been_synced(),
                lambda: self.volume_manager.get_volumes_in_use(),
            ),
            self.record_node_schedulable_event,
        ]

    def _shutdown_errors(self) -> Exception | None:
        return self.shutdown_manager.shutdown_status() if self.shutdown_manager is not None else None


def _may_exist(err: Exception) -> bool:
    """Report whether the node may exist although it could not be created.

    A kubelet that may not create nodes may still use one that another client has created.
    """
    if apierrors.is_forbidden(err):
        return not features.feature_gate.enabled(features.KUBELET_REGISTRATION_GET_ON_EXISTS_ONLY)
    return apierrors.is_already_exists(err)


def reconcile_huge_page_resource(initial_node: v1.Node, existing_node: v1.Node) -> bool:
    """Set the machine's current huge pages in the existing node; return whether that changed it."""
    requires_update = update_default_resources(initial_node, existing_node)
    initial, existing = initial_node.status, existing_node.status
    for name, capacity in initial.capacity.items():
        if not v1helper.is_huge_page_resource_name(name):
            continue
        allocatable = initial.allocatable.get(name, resource.new_quantity(0))
        known = name in existing.capacity
        if not known or existing.capacity[name].cmp(capacity) != 0:
            existing.capacity[name] = capacity
            requires_update = True
        if not known or existing.allocatable.get(name, resource.new_quantity(0)).cmp(allocatable) != 0:
            existing.allocatable[name] = allocatable
            requires_update = True
    for name in list(existing.capacity):
        if v1helper.is_huge_page_resource_name(name) and name not in initial.capacity:
            del existing.capacity[name]
            existing.allocatable.pop(name, None)
            klog.info_s("Removing huge page resource which is no longer supported", resourceName=name)
            requires_update = True
    return requires_update


def update_default_resources(initial_node: v1.Node, existing_node: v1.Node) -> bool:
    """Copy the initial node's resources to an existing node that has none; return whether that changed it."""
    initial, existing = initial_node.status, existing_node.status
    requires_update = False
    if not existing.capacity and initial.capacity:
        existing.capacity = dict(initial.capacity)
        requires_update = True
    if not existing.allocatable and initial.allocatable:
        existing.allocatable = dict(initial.allocatable)
        requires_update = True
    return requires_update


def update_default_labels(initial_node: v1.Node, existing_node: v1.Node) -> bool:
    """Copy the non-empty default labels of the initial node to the existing one; return whether that changed it."""
    initial, existing = initial_node.metadata.labels, existing_node.metadata.labels
    requires_update = False
    for label in _DEFAULT_LABELS:
        if label not in initial:
            continue
        if existing.get(label, "") != initial[label]:
            existing[label] = initial[label]
            requires_update = True
        if not existing.get(label):
            existing.pop(label, None)
    return requires_update


def reconcile_cmad_annotation_with_existing_node(node: v1.Node, existing_node: v1.Node) -> bool:
    """Reconcile the annotation that says whether the controller or the kubelet attaches volumes.

    Return whether that changed the existing node.
    """
    key = volutil.CONTROLLER_MANAGED_ATTACH_ANNOTATION
    new = node.metadata.annotations.get(key)
    if (new or "") == existing_node.metadata.annotations.get(key, ""):
        return False
    if new is None:
        klog.info_s("Controller attach-detach setting changed to false; updating existing Node")
        existing_node.metadata.annotations.pop(key, None)
    else:
        klog.info_s("Controller attach-detach setting changed to true; updating existing Node")
        existing_node.metadata.annotations[key] = new
    return True


def validate_node_ip(node_ip: utilnet.IPAddress) -> None:
    """Raise ValueError for an address at which other machines cannot reach this one."""
    for wrong, what in (
        (node_ip.is_loopback, "loopback"),
        (node_ip.is_multicast, "a multicast"),
        (node_ip.is_link_local, "a link-local unicast"),
        (node_ip.is_unspecified, "an all zeros"),
    ):
        if wrong:
            raise ValueError(f"nodeIP can't be {what} address")
    # DIVERGES (platform): an address counts as one of this machine if a socket can be bound to it.
    # Go: pkg/kubelet/kubelet_node_status.go, validateNodeIP: the Go kubelet lists the addresses of all interfaces.
    # Why: Python's standard library cannot list them.
    # Test: kubelet_node_status_test.py:test_validate_node_ip_of_this_machine
    family = socket.AF_INET if node_ip.version == 4 else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((str(node_ip), 0))
    except OSError:
        raise ValueError(f'node IP: "{node_ip}" not found in the host\'s network interfaces') from None


def node_status_has_changed(original_status: v1.NodeStatus, status: v1.NodeStatus) -> bool:
    """Report whether the two statuses differ in more than the times of their heartbeats."""
    if node_conditions_have_changed(original_status.conditions, status.conditions):
        return True
    return any(
        not codec.semantic_equal(getattr(original_status, name), getattr(status, name))
        for name in status.__struct_fields__
        if name != "conditions"
    )


def node_conditions_have_changed(
    original_conditions: list[v1.NodeCondition], conditions: list[v1.NodeCondition]
) -> bool:
    """Report whether the two lists differ in more than their order and the times of their heartbeats."""
    return _without_heartbeats(original_conditions) != _without_heartbeats(conditions)


def _without_heartbeats(conditions: list[v1.NodeCondition]) -> list[tuple[Any, ...]]:
    return sorted((c.type, c.status, c.reason, c.message, str(c.last_transition_time or "")) for c in conditions)
