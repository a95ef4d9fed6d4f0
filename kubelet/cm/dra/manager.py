"""Prepare and unprepare the devices that pods' claims were allocated.

Errors appear in a pod's events. They therefore name neither the pod nor its namespace, and begin with names that users
know.

Go: pkg/kubelet/cm/dra/manager.go
"""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from kubelet import container as kubecontainer
from kubelet import metrics
from kubelet.apis.dra.v1 import api_pb2 as drapb
from kubelet.apis.dra_health.v1alpha1 import api_pb2 as drahealthv1alpha1
from kubelet.cm.dra import plugin as draplugin
from kubelet.cm.dra import state
from kubelet.cm.dra.claiminfo import ClaimInfo, ClaimInfoCache, ClaimInfoCollector, new_claim_info_from_claim
from kubelet.cm.dra.healthinfo import DEFAULT_HEALTH_TIMEOUT, MAX_DEVICES, MAX_NAME_LENGTH, HealthInfoCache
from kubelet.cm.dra.types import ContainerInfo
from kubelet.cm.resourceupdates import Update
from pkg import features, golang, klog
from pkg.api.core import v1
from pkg.api.resource import v1 as resourceapi
from pkg.apimachinery import clock as clock_
from pkg.apimachinery import types
from pkg.apimachinery.api import errors as apierrors
from pkg.apimachinery.util import wait
from pkg.apimachinery.util.runtime import contain
from pkg.dynamic_resource_allocation import resourceclaim
from pkg.scheduler import util as schedutil

if TYPE_CHECKING:
    from kubelet.cm.containermap import CouldRunFunc
    from kubelet.config import SourcesReady
    from kubelet.pluginmanager import cache
    from pkg.client_go import kubernetes

DRA_MANAGER_STATE_FILE_NAME = "dra_manager_state"
DRA_HEALTH_STATE_FILE_NAME = "dra_health_state"
# DEFAULT_RECONCILE_PERIOD is the time, in seconds, between two checks for claims of pods that no longer exist.
DEFAULT_RECONCILE_PERIOD = 60.0
# DEFAULT_WIPING_DELAY is the time, in seconds, that a driver has to return before the kubelet deletes the node's slices
# of that driver. It is long enough to replace the driver's pod, and short enough that the scheduler does not place many
# pods that need the driver.
DEFAULT_WIPING_DELAY = 30.0

# MAX_HEALTH_REPORTS is the number of reports about devices' health that a driver may send at once,
# MAX_HEALTH_REPORTS_PER_SECOND the number for each second that the kubelet then waits for the driver.
MAX_HEALTH_REPORTS = 100
MAX_HEALTH_REPORTS_PER_SECOND = 10.0
# MAX_HEALTH_DEVICES_PER_SECOND limits the devices that are read and written for one driver: the devices of each report
# and, if the report changes anything, all known devices.
# DIVERGES (safer): the kubelet reads the health of at most MAX_HEALTH_DEVICES_PER_SECOND devices from one driver.
# Go: pkg/kubelet/cm/dra/manager.go, (*Manager).HandleWatchResourcesStream: there is no limit.
# Why: a driver that sends reports as fast as it can would keep a processor and the disk busy.
# Test: manager_test.py:test_each_report_costs_what_is_read_and_written
MAX_HEALTH_DEVICES_PER_SECOND = 5000.0

ActivePodsFunc = Callable[[], list[v1.Pod]]
GetNodeFunc = Callable[[golang.Context], v1.Node]


class _PodClaim(NamedTuple):
    """Hold a pod's claim, with everything that is needed to prepare it."""

    pod_claim: v1.PodResourceClaim
    resource_claim: resourceapi.ResourceClaim
    claim_info: ClaimInfo
    plugins: dict[str, draplugin.DRAPlugin]


class _Batches(NamedTuple):
    """Hold the claims that each plugin must prepare, and the claims' objects by UID."""

    claims: dict[draplugin.DRAPlugin, list[drapb.Claim]]
    resource_claims: dict[str, resourceapi.ResourceClaim]


class Manager:
    """Prepare claims before a pod's containers start, and unprepare them before the pod is terminated.

    All methods are thread-safe. The methods that pods' syncs call raise ResourcesError, unless they say otherwise.
    """

    def __init__(
        self, kube_client: kubernetes.Interface, state_file_directory: str, clock: clock_.Clock | None = None
    ) -> None:
        """Read the checkpoints. Raise ValueError or OSError, which names the file, if one cannot be read."""
        self._clock = clock or clock_.RealClock()
        self._kube_client = kube_client
        self._cache = ClaimInfoCache(state_file_directory, DRA_MANAGER_STATE_FILE_NAME)
        health_state = str(Path(state_file_directory) / DRA_HEALTH_STATE_FILE_NAME)
        self._health_info_cache = HealthInfoCache(health_state, self._clock)
        self._update: golang.Channel[Update] = golang.Channel(100)
        self._waiting_lock = threading.Lock()  # This lock guards _waiting.
        # `_waiting` maps drivers to the pods that failed because the driver was not registered.
        self._waiting: dict[str, set[str]] = {}
        # `start` sets these fields.
        self._dra_plugins: draplugin.DRAPluginManager | None = None
        self._active_pods: ActivePodsFunc | None = None
        self._could_run: CouldRunFunc = lambda pod_uid: False
        self._sources_ready: SourcesReady | None = None

    def new_metrics_collector(self) -> ClaimInfoCollector:
        return ClaimInfoCollector(self._cache)

    def get_watcher_handler(self) -> cache.PluginHandler:
        """Return the handler that registers drivers' plugins. It exists only after `start`."""
        return self._plugins()

    def start(
        self,
        ctx: golang.Context,
        active_pods: ActivePodsFunc,
        could_run: CouldRunFunc,
        get_node: GetNodeFunc,
        sources_ready: SourcesReady,
    ) -> None:
        """Start to reconcile, until `ctx` ends."""
        self.init_dra_plugin_manager(ctx, get_node, DEFAULT_WIPING_DELAY)
        self._active_pods = active_pods
        self._could_run = could_run
        self._sources_ready = sources_ready
        self._register_collectors(ctx)
        golang.go(self._reconcile, ctx, name="dra-manager")

    def _reconcile(self, ctx: golang.Context) -> None:
        """Unprepare the claims of pods that no longer exist, until `ctx` ends.

        DIVERGES (safer): after a failure, or while not all pods are known, the kubelet tries again after a second, then
        after two, and so on.
        Go: pkg/kubelet/cm/dra/manager.go, (*Manager).Start: it tries again once a minute.
        Why: another pod may be waiting for the devices.
        Test: manager_test.py:test_reconciliation_that_fails_is_tried_again
        """
        backoff = _reconcile_backoff()
        while ctx.err() is None:
            done = False
            with contain("Failed to reconcile resource claims", ctx):
                self._plugins().plan_wipes()
                done = self.reconcile_loop(ctx)
            if done:
                backoff = _reconcile_backoff()
            wait.sleep(ctx, DEFAULT_RECONCILE_PERIOD if done else backoff.step(), self._clock)

    def _register_collectors(self, ctx: golang.Context) -> None:
        collector = self.new_metrics_collector()
        try:
            metrics.register_collectors(collector)
        except ValueError:
            klog.v(4).info_s("Another kubelet of this process already exports the claims in use")
            return
        golang.after_func(ctx, lambda: metrics.unregister_collectors(collector))

    def init_dra_plugin_manager(self, ctx: golang.Context, get_node: GetNodeFunc, wiping_delay: float) -> None:
        """Create the plugin manager, without starting the reconciliation."""
        self._dra_plugins = draplugin.DRAPluginManager(
            ctx, self._kube_client, get_node, self, wiping_delay, self._announce_driver
        )

    def _plugins(self) -> draplugin.DRAPluginManager:
        assert self._dra_plugins is not None, "the DRA manager was not started"
        return self._dra_plugins

    def reconcile_loop(self, ctx: golang.Context) -> bool:
        """Unprepare the claims of pods that no longer exist; report whether none of them is left."""
        if self._active_pods is None or self._sources_ready is None or not self._sources_ready.all_ready():
            # The kubelet does not know yet which pods exist.
            return False
        with self._cache.rlock():
            claims = [(uid, info.namespace, info.claim_name) for info in self._cache.values() for uid in info.pod_uids]
        # DIVERGES (fault of Go): the kubelet first lists the pods that have claims, and then asks which pods are
        # active.
        # Go: pkg/kubelet/cm/dra/manager.go, (*Manager).reconcileLoop: it does the two in the other order.
        # Why: a pod that arrives between the two would lose its claims at once.
        # Test: manager_test.py:test_claim_of_a_pod_that_comes_at_that_moment_is_left_to_it
        active_pods = {pod.metadata.uid for pod in self._active_pods()}
        inactive: dict[tuple[str, str], list[str]] = {}
        for pod_uid, namespace, claim_name in claims:
            if pod_uid not in active_pods:
                inactive.setdefault((pod_uid, namespace), []).append(claim_name)
        done = True
        for (pod_uid, namespace), claim_names in inactive.items():
            # DIVERGES (fault of Go): a pod keeps its claims as long as one of its containers may run.
            # Go: pkg/kubelet/cm/dra/manager.go, (*Manager).reconcileLoop: it unprepares the claims of any pod that is
            # not active, even one that was deleted by force, or while the kubelet was down.
            # Why: a driver would release devices that a container still uses.
            # Test: manager_test.py:test_claims_of_a_pod_that_is_ending_are_left_to_it
            if self._could_run(types.UID(pod_uid)):
                done = False
                continue
            try:
                self._unprepare_resources(ctx, types.UID(pod_uid), namespace, claim_names)
            except Exception as err:
                # A driver may fail in many ways; the claims of other pods must still be unprepared.
                klog.info_s("Unpreparing pod resources in reconcile loop failed, will retry", podUID=pod_uid, err=err)
                done = False
        return done

    # ---- Prepare ----

    def prepare_resources(self, ctx: golang.Context, pod: v1.Pod) -> None:
        """Have the drivers prepare those of the pod's claims that are not prepared yet."""
        with _observed("PrepareResources"):
            pod_claims = self._look_up_claims(ctx, pod)
            if pod_claims:
                batches = self._reference_claims(pod, pod_claims)
                for plugin, claims in batches.claims.items():
                    self._prepare_batch(ctx, plugin, claims, batches.resource_claims)
                self._set_prepared(batches.resource_claims)

    def _look_up_claims(self, ctx: golang.Context, pod: v1.Pod) -> list[_PodClaim]:
        """Return what is needed to prepare the pod's claims.

        Change nothing, so that a pod that fails here needs no clean-up.
        """
        found = []
        looked_up: dict[str, resourceapi.ResourceClaim] = {}
        for pod_claim in _pod_resource_claims(pod):
            klog.v(3).info_s("Processing resource", pod=klog.kobj(pod), podClaim=pod_claim.name)
            claim_name, must_check_owner = resourceclaim.name(pod, pod_claim)
            if claim_name is None:
                klog.v(5).info_s(
                    "No need to prepare resources, no claim generated", pod=klog.kobj(pod), podClaim=pod_claim.name
                )
                continue
            # DIVERGES (fault of Go): a claim that a pod names twice is prepared once.
            # Go: pkg/kubelet/cm/dra/manager.go, (*Manager).prepareResources: it sends the claim twice in one call, gets
            # one result for both, and concludes that the driver skipped one.
            # Why: the pod would never start.
            # Test: manager_test.py:test_a_claim_that_a_pod_names_twice_is_asked_for_once
            if (known := looked_up.get(claim_name)) is not None:
                if must_check_owner:
                    resourceclaim.is_for_pod(pod, known)
                continue
            claim = looked_up[claim_name] = self._get_claim(ctx, pod.metadata.namespace, claim_name)
            if must_check_owner:
                resourceclaim.is_for_pod(pod, claim)
            if not resourceclaim.is_reserved_for_pod(pod, claim):
                raise ClaimError(
                    f"pod {pod.metadata.name} ({pod.metadata.uid}) is not allowed to use ResourceClaim "
                    f"{claim_name} ({claim.metadata.uid})"
                )
            try:
                info = new_claim_info_from_claim(claim)
            except ValueError as err:
                raise ClaimError(f"ResourceClaim {claim.metadata.name}: {err}") from err
            # Require the driver even if the claim is already prepared: a missing driver means that something is wrong
            # with the node.
            plugins = {name: self._plugin_for(pod.metadata.uid, name) for name in info.driver_state}
            found.append(_PodClaim(pod_claim, claim, info, plugins))
        return found

    def _plugin_for(self, pod_uid: types.UID, driver_name: str) -> draplugin.DRAPlugin:
        """Return the driver's plugin.

        Raise LookupError if the driver has no plugin, and have the pod synced when one registers.
        """
        with self._waiting_lock:
            self._waiting.setdefault(driver_name, set()).add(pod_uid)
        plugin = self._plugins().get_plugin(driver_name)
        with self._waiting_lock:
            self._waiting.get(driver_name, set()).discard(pod_uid)
        return plugin

    def _announce_driver(self, driver_name: str) -> None:
        """Have the pods synced that wait for the driver.

        DIVERGES (safer): a pod whose driver was not registered is synced as soon as the driver registers.
        Go: pkg/kubelet/cm/dra/plugin/dra_plugin_manager.go, (*DRAPluginManager).RegisterPlugin: it syncs no pod.
        Why: otherwise a pod would start up to a minute after its driver has returned.
        Test: manager_test.py:test_pods_that_wait_for_a_driver_are_told_when_it_comes
        """
        with self._waiting_lock:
            pod_uids = self._waiting.pop(driver_name, set())
        if pod_uids:
            self._send_update(pod_uids)

    def _get_claim(self, ctx: golang.Context, namespace: str, name: str) -> resourceapi.ResourceClaim:
        try:
            return self._kube_client.resource_v1.resource_claims(namespace).get(ctx, name)
        except (apierrors.StatusError, OSError) as err:
            raise ClaimError(f"fetch ResourceClaim {name}: {err}") from err

    def _reference_claims(self, pod: v1.Pod, pod_claims: Iterable[_PodClaim]) -> _Batches:
        """Record in the checkpoint that the pod uses the claims, and return the calls to make after that.

        If the pod is deleted before the drivers have prepared the claims, the reconciliation finds them in the
        checkpoint.
        """
        batches = _Batches({}, {})
        with self._cache.lock():
            for entry in pod_claims:
                claim = entry.resource_claim
                info = self._cache.get(claim.metadata.name, claim.metadata.namespace)
                if info is None:
                    info = entry.claim_info
                    self._cache.add(info)
                elif info.claim_uid != claim.metadata.uid:
                    raise ClaimError(
                        f"old ResourceClaim with same name {claim.metadata.name} and different UID {info.claim_uid} "
                        "still exists (previous pod force-deleted?!)"
                    )
                elif info.unpreparing:
                    # DIVERGES (fault of Go): if a pod's claim is being unprepared, the kubelet later prepares it again
                    # for the pod.
                    # Go: pkg/kubelet/cm/dra/manager.go, (*Manager).prepareResources: it regards the claim as prepared.
                    # Why: the pod would start with devices that the driver has taken back.
                    # Test: manager_test.py:test_no_pod_gets_a_claim_that_is_being_given_back
                    raise ClaimError(f"ResourceClaim {claim.metadata.name} is being unprepared")
                elif info.was_allocated_anew(entry.claim_info) and info.pod_uids - {pod.metadata.uid}:
                    # DIVERGES (fault of Go): a pod waits while an earlier pod uses the previous allocation of its
                    # claim.
                    # Go: pkg/kubelet/cm/dra/manager.go, (*Manager).prepareResources: it compares only the claim's UID,
                    # not its allocation.
                    # Why: the pod would get the devices of the previous allocation, which another pod may use by now.
                    # Test: manager_test.py:test_a_claim_that_is_allocated_anew_before_a_pod_has_ended
                    raise ClaimError(
                        f"ResourceClaim {claim.metadata.name} has a new allocation, and an earlier pod still uses the "
                        "old one (previous pod force-deleted?!)"
                    )
                info.allocated = entry.claim_info.allocated
                info.add_pod_reference(pod.metadata.uid)
                if info.prepared and not info.may_be_taken_back:
                    klog.v(5).info_s("Resources already prepared", pod=klog.kobj(pod), claim=klog.kobj(claim))
                    continue
                batches.resource_claims[info.claim_uid] = claim
                for plugin in entry.plugins.values():
                    batches.claims.setdefault(plugin, []).append(_claim_of(info))
            self._sync_to_checkpoint("cache")
        return batches

    def _prepare_batch(
        self,
        ctx: golang.Context,
        plugin: draplugin.DRAPlugin,
        claims: list[drapb.Claim],
        resource_claims: Mapping[str, resourceapi.ResourceClaim],
    ) -> None:
        """Have a plugin prepare claims, and record the devices in its response."""
        with _named("NodePrepareResources"):
            response = plugin.node_prepare_resources(ctx, drapb.NodePrepareResourcesRequest(claims=claims))
        errors = {claim_uid: result.error for claim_uid, result in response.claims.items()}
        _check_results("NodePrepareResources", claims, errors)
        with self._cache.lock():
            for claim_uid, result in response.claims.items():
                self._info_of(resource_claims[claim_uid]).set_devices(
                    plugin.driver_name, [_device_of(device) for device in result.devices]
                )

    def _set_prepared(self, resource_claims: Mapping[str, resourceapi.ResourceClaim]) -> None:
        if not resource_claims:
            return
        with self._cache.lock():
            for claim in resource_claims.values():
                info = self._info_of(claim)
                info.prepared, info.may_be_taken_back = True, False
            self._sync_to_checkpoint("state")

    def _info_of(self, claim: resourceapi.ResourceClaim) -> ClaimInfo:
        info = self._cache.get(claim.metadata.name, claim.metadata.namespace)
        if info is None:
            raise LookupError(f"internal error: {_unknown(claim.metadata.name, claim.metadata.namespace)}")
        return info

    def _sync_to_checkpoint(self, what: str) -> None:
        try:
            self._cache.sync_to_checkpoint()
        except OSError as err:
            raise OSError(f"checkpoint ResourceClaim {what}: {err}") from err

    # ---- What containers get ----

    def get_resources(self, pod: v1.Pod, container: v1.Container) -> ContainerInfo:
        """Return the devices of the container's claims. Raise LookupError if the claims were not prepared.

        DIVERGES (fault of Go): each device appears once, even if it belongs to several of the container's requests.
        Go: pkg/kubelet/cm/dra/manager.go, (*Manager).GetResources: the device appears once for each request.
        Why: a runtime that does not remove duplicates would set such a device up several times.
        Test: manager_test.py:test_devices_of_requests
        """
        cdi_devices: list[kubecontainer.CDIDevice] = []
        for claim_name, request_names in _claim_requests(pod, container).items():
            with self._cache.rlock():
                info = self._cache.get(claim_name, pod.metadata.namespace)
                if info is None:
                    raise LookupError(f"internal error: {_unknown(claim_name, pod.metadata.namespace)}")
                for request_name in request_names:
                    # The CRI has a field for CDI devices, so annotations no longer pass them.
                    cdi_devices += info.cdi_devices_as_list(request_name)
        return ContainerInfo(list({device.name: device for device in cdi_devices}.values()))

    def get_container_claim_infos(self, pod: v1.Pod, container: v1.Container) -> list[ClaimInfo]:
        """Return copies of the container's claims. Raise LookupError if they were not prepared."""
        names = []
        wanted = {claim.name for claim in container.resources.claims}
        for pod_claim in pod.spec.resource_claims:
            if pod_claim.name in wanted and (claim_name := resourceclaim.name(pod, pod_claim).name) is not None:
                names.append(claim_name)
        status = _extended_resource_claim_status(pod)
        if status is not None and any(m.container_name == container.name for m in status.request_mappings):
            names.append(status.resource_claim_name)
        infos = []
        with self._cache.rlock():
            for name in names:
                info = self._cache.get(name, pod.metadata.namespace)
                if info is None:
                    raise LookupError(_unknown(name, pod.metadata.namespace))
                infos.append(copy.deepcopy(info))
        return infos

    # ---- Unprepare ----

    def unprepare_resources(self, ctx: golang.Context, pod: v1.Pod) -> None:
        """Have the drivers unprepare those of the pod's claims that no other pod uses. Repeated calls do no harm."""
        with _observed("UnprepareResources"):
            self._forget_waiting(pod.metadata.uid)
            claim_names = self._claim_names(pod)
            if claim_names:
                self._unprepare_resources(ctx, pod.metadata.uid, pod.metadata.namespace, claim_names)

    def _claim_names(self, pod: v1.Pod) -> list[str]:
        """List the claims of the pod, including those that were prepared for it earlier."""
        names: dict[str, None] = {}
        for pod_claim in _pod_resource_claims(pod):
            try:
                name = resourceclaim.name(pod, pod_claim).name
            except (resourceclaim.ErrClaimNotFound, resourceclaim.ErrAPIUnsupported) as err:
                # DIVERGES (fault of Go): a pod can terminate although one of its claims was never created.
                # Go: pkg/kubelet/cm/dra/manager.go, (*Manager).unprepareResourcesForPod: it fails each time.
                # Why: nothing was prepared, and the claim of a terminating pod is no longer created.
                # Test: manager_test.py:test_claim_without_a_name
                klog.v(4).info_s("Claim has nothing to unprepare", pod=klog.kobj(pod), err=err)
                continue
            if name is not None:
                names[name] = None
        meta = pod.metadata
        with self._cache.rlock():
            held = [info for info in self._cache.values() if info.has_pod_reference(meta.uid)]
            names |= {info.claim_name: None for info in held if info.namespace == meta.namespace}
        return list(names)

    def _forget_waiting(self, pod_uid: types.UID) -> None:
        with self._waiting_lock:
            for driver_name, pod_uids in list(self._waiting.items()):
                pod_uids.discard(pod_uid)
                if not pod_uids:
                    del self._waiting[driver_name]

    def _unprepare_resources(
        self, ctx: golang.Context, pod_uid: types.UID, namespace: str, claim_names: Iterable[str]
    ) -> None:
        infos = self._dereference_claims(pod_uid, namespace, claim_names)
        try:
            self._unprepare_batches(ctx, pod_uid, infos)
        except BaseException:
            with self._cache.lock():
                for info in infos:
                    info.unpreparing = False
            raise
        with self._cache.lock():
            for info in infos:
                self._cache.delete(info.claim_name, namespace)
                klog.v(6).info_s("Deleted claim info cache entry", claim=klog.kref(namespace, info.claim_name))
            self._sync_to_checkpoint("state")

    def _dereference_claims(self, pod_uid: types.UID, namespace: str, claim_names: Iterable[str]) -> list[ClaimInfo]:
        """Return the claims to unprepare, and only remove the pod from the claims that other pods use too.

        The checkpoint records the removal when the caller has unprepared the others. A kubelet that is restarted before
        that repeats the whole call, which does no harm.
        """
        infos = []
        with self._cache.lock():
            for claim_name in claim_names:
                info = self._cache.get(claim_name, namespace)
                if info is None:
                    continue
                if info.pod_uids - {pod_uid}:
                    # DIVERGES (fault of Go): a pod that never got the claim leaves the claim to the pod that uses it.
                    # Go: pkg/kubelet/cm/dra/manager.go, (*Manager).unprepareResources: it does not check that the only
                    # pod that uses the claim is the one that ends.
                    # Why: the end of any rejected pod that names the claim would unprepare the claim of the pod that
                    # uses it.
                    # Test: manager_test.py:test_pod_that_never_got_the_claim_does_not_take_it_along
                    info.delete_pod_reference(pod_uid)
                    continue
                infos.append(info)
            # The pod worker and the reconciliation may both get here for a pod that was deleted by force.
            if busy := [info.claim_name for info in infos if info.unpreparing]:
                # DIVERGES (fault of Go): the pod worker and the reconciliation never both unprepare a claim.
                # Go: pkg/kubelet/cm/dra/manager.go, (*Manager).unprepareResources: both may do so, one after the other.
                # Why: the second one may unprepare the claim of a pod that got it in the meantime.
                # Test: manager_test.py:test_only_one_at_a_time_gives_a_claim_back
                raise ClaimError(f"ResourceClaim {busy[0]} is being unprepared")
            for info in infos:
                info.unpreparing = True
        return infos

    def _unprepare_batches(self, ctx: golang.Context, pod_uid: types.UID, infos: Sequence[ClaimInfo]) -> None:
        batches: dict[str, list[drapb.Claim]] = {}
        for info in infos:
            for driver_name in info.driver_state:
                batches.setdefault(driver_name, []).append(_claim_of(info))
        for driver_name, claims in batches.items():
            plugin = self._plugin_for(pod_uid, driver_name)
            with self._cache.lock():
                for info in infos:
                    # DIVERGES (fault of Go): after a failed attempt to unprepare a claim, the next pod has it prepared
                    # again.
                    # Go: pkg/kubelet/cm/dra/manager.go, (*Manager).unprepareResources: the claim still counts as
                    # prepared.
                    # Why: the driver may have taken the devices back before its response was lost.
                    # Test: manager_test.py:test_a_claim_that_a_driver_may_have_taken_back_is_prepared_again
                    info.may_be_taken_back |= driver_name in info.driver_state
            with _named("NodeUnprepareResources"):
                response = plugin.node_unprepare_resources(ctx, drapb.NodeUnprepareResourcesRequest(claims=claims))
            errors = {claim_uid: result.error for claim_uid, result in response.claims.items()}
            _check_results("NodeUnprepareResources", claims, errors)

    def pod_might_need_to_unprepare_resources(self, uid: types.UID) -> bool:
        """Report whether any claim is still recorded for the pod."""
        with self._cache.rlock():
            return self._cache.has_pod_reference(uid)

    # ---- Health ----

    def update_allocated_resources_status(self, pod: v1.Pod, status: v1.PodStatus) -> None:
        """Write the health of the devices of each container's claims into the status."""
        containers = {container.name: container for container in pod.spec.containers}
        claim_names = _claim_names_of(pod)
        for container_status in status.container_statuses:
            container = containers.get(container_status.name)
            if container is None or not container.resources.claims:
                continue
            statuses = {entry.name: entry for entry in container_status.allocated_resources_status}
            for claim in container.resources.claims:
                self._update_claim_status(pod, claim, claim_names.get(claim.name, ""), statuses)
            container_status.allocated_resources_status = [entry for entry in statuses.values() if entry.resources]

    def _update_claim_status(
        self, pod: v1.Pod, claim: v1.ResourceClaim, claim_name: str, statuses: dict[str, v1.ResourceStatus]
    ) -> None:
        if not claim_name:
            klog.v(4).info_s(
                "Could not find generated name for resource claim", pod=klog.kobj(pod), claimName=claim.name
            )
            return
        with self._cache.rlock():
            info = self._cache.get(claim_name, pod.metadata.namespace)
            if info is None:
                klog.v(4).info_s(
                    "Could not find claim info for resource claim", pod=klog.kobj(pod), claimName=claim_name
                )
                return
            devices = [(driver, device) for driver, d in info.driver_state.items() for device in d.devices]
        request = resourceclaim.base_request_ref(claim.request)
        # Several devices may have the same ID.
        found: dict[str, v1.ResourceHealth] = {}
        for driver_name, device in devices:
            if request and device.request_names and request not in device.request_names:
                continue
            health_info = self._health_info_cache.get_health_info(driver_name, device.pool_name, device.device_name)
            health = _build_resource_health(driver_name, device, health_info)
            found.setdefault(health.resource_id, health)
        name = f"claim:{claim.name}/{claim.request}" if claim.request else f"claim:{claim.name}"
        statuses[name] = v1.ResourceStatus(name=name, resources=list(found.values()))

    def handle_watch_resources_stream(
        self, ctx: golang.Context, stream: Iterator[drahealthv1alpha1.NodeWatchResourcesResponse], plugin_name: str
    ) -> None:
        """Store what a driver reports about its devices, and have the affected pods synced.

        Raise HealthStreamError for a driver that reports too much.
        """
        try:
            for response in self._reports(stream):
                told = (device for device in response.devices if _can_be_claimed(device.device))
                devices = [_build_device_health(device) for device in told]
                changed = self._health_info_cache.update_health_info(plugin_name, devices)
                self._announce(plugin_name, changed)
                # While the kubelet does not read, flow control keeps the driver from sending. After `ctx` has ended,
                # the next report raises an error.
                written = self._health_info_cache.count() if changed else 0
                ctx.wait((len(response.devices) + written) / MAX_HEALTH_DEVICES_PER_SECOND)
        finally:
            klog.v(4).info_s("Clearing health cache for driver upon stream exit", pluginName=plugin_name)
            # DIVERGES (safer): pods that use a device of a driver that is gone are synced at once.
            # Go: pkg/kubelet/cm/dra/manager.go, (*Manager).HandleWatchResourcesStream: it drops the devices, and syncs
            # no pod.
            # Why: for up to a minute their status would report a device as healthy whose health is unknown.
            # Test: manager_test.py:test_health_is_forgotten_with_the_plugin
            self._announce(plugin_name, self._health_info_cache.clear_driver(plugin_name))

    def _reports(
        self, stream: Iterator[drahealthv1alpha1.NodeWatchResourcesResponse]
    ) -> Iterator[drahealthv1alpha1.NodeWatchResourcesResponse]:
        """Yield the reports. Raise HealthStreamError if the driver sends faster than the kubelet processes.

        The time that processing takes does not count. The reports that are still in the stream are outdated, and are
        dropped.

        DIVERGES (safer): the kubelet ends the stream of a driver that reports without a pause, or more than MAX_DEVICES
        at once.
        Go: pkg/kubelet/cm/dra/manager.go, (*Manager).HandleWatchResourcesStream: there is no limit.
        Why: the kubelet would be busy with outdated reports, and keep devices that cannot exist.
        Test: manager_test.py:test_driver_that_tells_without_a_pause,
        manager_test.py:test_driver_that_tells_of_too_many_devices
        """
        left, since = float(MAX_HEALTH_REPORTS), self._clock.monotonic()
        for response in stream:
            waited = self._clock.monotonic() - since
            left = min(left + waited * MAX_HEALTH_REPORTS_PER_SECOND, MAX_HEALTH_REPORTS) - 1
            if left < 0:
                raise HealthStreamError(f"more than {MAX_HEALTH_REPORTS_PER_SECOND:g} reports in each second")
            if len(response.devices) > MAX_DEVICES:
                raise HealthStreamError(f"report of {len(response.devices)} devices, maximum {MAX_DEVICES}")
            yield response
            since = self._clock.monotonic()

    def _announce(self, driver_name: str, changed: Iterable[state.DeviceHealth]) -> None:
        keys = {(device.pool_name, device.device_name) for device in changed}
        pod_uids: set[str] = set()
        with self._cache.rlock():
            for info in self._cache.values():
                devices = info.driver_state.get(driver_name, state.DriverState()).devices
                if any((device.pool_name, device.device_name) in keys for device in devices):
                    pod_uids |= info.pod_uids
        if not pod_uids:
            return
        klog.info_s("Sending health update notification for pods", pluginName=driver_name, pods=sorted(pod_uids))
        self._send_update(pod_uids)

    def _send_update(self, pod_uids: Iterable[str]) -> None:
        update = Update(tuple(sorted(pod_uids)))
        if not self._update.try_send(update):
            message = "DRA health update channel is full, discarding pod update notification"
            klog.error_s(None, message, pods=update.pod_uids)

    def updates(self) -> golang.Channel[Update]:
        """Return the channel that announces pods whose devices changed their health, or whose driver registered."""
        return self._update


def _reconcile_backoff() -> wait.Backoff:
    return wait.Backoff(duration=1.0, factor=2.0, steps=100, cap=DEFAULT_RECONCILE_PERIOD)


@contextmanager
def _observed(operation: str) -> Iterator[None]:
    """Measure the duration of the block, and name the operation in its errors."""
    start, is_error = time.monotonic(), True
    try:
        with _named(f"{'prepare' if operation == 'PrepareResources' else 'unprepare'} dynamic resources"):
            yield
        is_error = False
    finally:
        labels = (operation, str(is_error).lower())
        metrics.DRA_OPERATIONS_DURATION.labels(*labels).observe(time.monotonic() - start)


class ClaimError(Exception):
    """Signal that a claim cannot be used now, or that its driver failed."""


class ResourcesError(Exception):
    """Signal that claims could not be prepared or unprepared. The cause gives the reason."""


@contextmanager
def _named(what: str) -> Iterator[None]:
    try:
        yield
    except Exception as err:
        # The error may come from a driver, the API server or the checkpoint. It is reported with the operation that
        # failed.
        raise ResourcesError(f"{what}: {err}") from err


def _check_results(method: str, claims: list[drapb.Claim], errors: Mapping[str, str]) -> None:
    """Raise ClaimError unless the driver succeeded for exactly these claims."""
    names = {claim.uid: claim.name for claim in claims}
    for claim_uid, error in errors.items():
        if claim_uid not in names:
            raise ClaimError(f"{method} returned result for unknown claim UID {claim_uid}")
        if error:
            raise ClaimError(f"{method} failed for ResourceClaim {names[claim_uid]}: {error}")
    if unfinished := len(names) - len(errors):
        raise ClaimError(f"{method} skipped {unfinished} ResourceClaims")


def _pod_resource_claims(pod: v1.Pod) -> list[v1.PodResourceClaim]:
    """Return the pod's claims, including the one that was created for its extended resources."""
    status = _extended_resource_claim_status(pod)
    if status is None:
        return pod.spec.resource_claims
    return [*pod.spec.resource_claims, v1.PodResourceClaim(resource_claim_name=status.resource_claim_name)]


def _extended_resource_claim_status(pod: v1.Pod) -> v1.PodExtendedResourceClaimStatus | None:
    enabled = features.feature_gate.enabled(features.DRA_EXTENDED_RESOURCE)
    return pod.status.extended_resource_claim_status if enabled else None


def _claim_requests(pod: v1.Pod, container: v1.Container) -> dict[str, list[str]]:
    """Return the container's requests by claim; "" stands for all requests of the claim.

    A pod may have thousands of claims, so this avoids nested loops.
    """
    wanted: dict[str, list[str]] = {}
    for claim in container.resources.claims:
        wanted.setdefault(claim.name, []).append(claim.request)
    requests: dict[str, list[str]] = {}
    for pod_claim in pod.spec.resource_claims:
        if pod_claim.name in wanted and (claim_name := resourceclaim.name(pod, pod_claim).name) is not None:
            requests.setdefault(claim_name, []).extend(wanted[pod_claim.name])
    if (status := _extended_resource_claim_status(pod)) is not None:
        extended = {
            name
            for name, quantity in container.resources.requests.items()
            if not quantity.is_zero() and schedutil.is_dra_extended_resource_name(name)
        }
        for mapping in status.request_mappings:
            if mapping.container_name == container.name and mapping.resource_name in extended:
                requests.setdefault(status.resource_claim_name, []).append(mapping.request_name)
    return requests


def _claim_names_of(pod: v1.Pod) -> dict[str, str]:
    """Return the names of the objects behind the pod's claims, as far as they exist.

    A pod may have thousands of claims, so this avoids nested loops.
    """
    named = {claim.name: claim.resource_claim_name for claim in pod.spec.resource_claims}
    made = {status.name: status.resource_claim_name for status in pod.status.resource_claim_statuses}
    return {name: claim_name for names in (named, made) for name, claim_name in names.items() if claim_name}


def _claim_of(info: ClaimInfo) -> drapb.Claim:
    return drapb.Claim(namespace=info.namespace, uid=info.claim_uid, name=info.claim_name)


def _device_of(device: drapb.Device) -> state.Device:
    return state.Device(
        pool_name=device.pool_name,
        device_name=device.device_name,
        share_id=device.share_id if device.HasField("share_id") else None,
        request_names=tuple(device.request_names),
        cdi_device_ids=tuple(device.cdi_device_ids),
    )


def _unknown(claim_name: str, namespace: str) -> str:
    return f"unable to get claim info for ResourceClaim {claim_name} in namespace {namespace}"


def _build_resource_health(
    driver_name: str, device: state.Device, health_info: state.DeviceHealth
) -> v1.ResourceHealth:
    message = None
    if health_info.message and features.feature_gate.enabled(features.RESOURCE_HEALTH_STATUS_MESSAGE):
        message = health_info.message
    name = f"{driver_name}/{device.pool_name}/{device.device_name}"
    resource_id = device.cdi_device_ids[0] if device.cdi_device_ids else name
    return v1.ResourceHealth(resource_id=resource_id, health=health_info.health.value, message=message)


_DEVICE_HEALTH = {
    drahealthv1alpha1.HEALTHY: state.DeviceHealthStatus.HEALTHY,
    drahealthv1alpha1.UNHEALTHY: state.DeviceHealthStatus.UNHEALTHY,
}


class HealthStreamError(Exception):
    """Signal that a driver reports more about its devices' health than the kubelet accepts."""


def _can_be_claimed(device: drahealthv1alpha1.DeviceIdentifier) -> bool:
    """Report whether a claim can contain the device.

    DIVERGES (safer): the kubelet ignores a device if its name, or its pool's name, is too long for a ResourceSlice.
    Go: pkg/kubelet/cm/dra/manager.go, (*Manager).HandleWatchResourcesStream: there is no limit.
    Why: no claim can contain the device, and it would take memory and disk space.
    Test: manager_test.py:test_devices_with_names_that_no_device_can_have_are_not_kept
    """
    if max(len(device.pool_name), len(device.device_name)) <= MAX_NAME_LENGTH:
        return True
    klog.v(4).info_s("Ignoring device with a name that is too long", deviceName=device.device_name[:MAX_NAME_LENGTH])
    return False


def _build_device_health(device: drahealthv1alpha1.DeviceHealth) -> state.DeviceHealth:
    timeout = device.health_check_timeout_seconds
    if timeout < 0:
        klog.v(4).info_s(
            "Ignoring negative health check timeout, using default",
            poolName=device.device.pool_name,
            deviceName=device.device.device_name,
            providedTimeout=timeout,
            defaultTimeout=DEFAULT_HEALTH_TIMEOUT,
        )
    return state.DeviceHealth(
        pool_name=device.device.pool_name,
        device_name=device.device.device_name,
        health=_DEVICE_HEALTH.get(device.health, state.DeviceHealthStatus.UNKNOWN),
        health_check_timeout=float(timeout) if timeout > 0 else DEFAULT_HEALTH_TIMEOUT,
        message=truncate_health_message(device.message),
    )


def truncate_health_message(message: str) -> str:
    """Cut a message to the length that the API allows; the end of a shortened message is three dots."""
    longest = v1.RESOURCE_HEALTH_MESSAGE_MAX_LENGTH
    data = message.encode()
    return message if len(data) <= longest else data[: longest - 3].decode(errors="ignore") + "..."
