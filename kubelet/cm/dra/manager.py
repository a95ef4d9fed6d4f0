"""Preparing what pods' claims were allocated, and giving it back.

Go: pkg/kubelet/cm/dra/manager.go

Errors show in the events of a pod, so they name neither it nor its namespace, and begin with what users know.
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
# Seconds between two looks for claims of pods that are no more.
DEFAULT_RECONCILE_PERIOD = 60.0
# Seconds that a driver has to come back before the node's slices of it are deleted: enough to replace its pod, and not
# so many that pods are scheduled for it for long.
DEFAULT_WIPING_DELAY = 30.0

# Reports of devices' health that a driver may send at once, and in each second that it is waited for after that.
MAX_HEALTH_REPORTS = 100
MAX_HEALTH_REPORTS_PER_SECOND = 10.0
# Devices that are read and written in a second because of one driver: those of each report, and with a report that has
# something new all that are known.
# DIVERGES (safer): the kubelet reads the health of at most MAX_HEALTH_DEVICES_PER_SECOND devices from one driver.
# Go: pkg/kubelet/cm/dra/manager.go, (*Manager).HandleWatchResourcesStream: has no bound.
# Why: a driver that sends as fast as it can would keep a processor and the disk busy.
# Test: manager_test.py:test_each_report_costs_what_is_read_and_written
MAX_HEALTH_DEVICES_PER_SECOND = 5000.0

ActivePodsFunc = Callable[[], list[v1.Pod]]
GetNodeFunc = Callable[[golang.Context], v1.Node]


class _PodClaim(NamedTuple):
    """A claim of a pod for which everything was found that preparing it takes."""

    pod_claim: v1.PodResourceClaim
    resource_claim: resourceapi.ResourceClaim
    claim_info: ClaimInfo
    plugins: dict[str, draplugin.DRAPlugin]


class _Batches(NamedTuple):
    """What is to be prepared: the claims each plugin is asked for, and where their names are by UID."""

    claims: dict[draplugin.DRAPlugin, list[drapb.Claim]]
    resource_claims: dict[str, resourceapi.ResourceClaim]


class Manager:
    """Sees to it that claims are prepared before a pod's containers start, and given back before it is over.

    Thread-safe. What pods' syncs call raises ResourcesError, except where it says something else.
    """

    def __init__(
        self, kube_client: kubernetes.Interface, state_file_directory: str, clock: clock_.Clock | None = None
    ) -> None:
        """Raises ValueError or OSError for a checkpoint that cannot be read, naming it."""
        self._clock = clock or clock_.RealClock()
        self._kube_client = kube_client
        self._cache = ClaimInfoCache(state_file_directory, DRA_MANAGER_STATE_FILE_NAME)
        health_state = str(Path(state_file_directory) / DRA_HEALTH_STATE_FILE_NAME)
        self._health_info_cache = HealthInfoCache(health_state, self._clock)
        self._update: golang.Channel[Update] = golang.Channel(100)
        self._waiting_lock = threading.Lock()  # guards _waiting
        # By driver, the pods that could not be helped as it was not there.
        self._waiting: dict[str, set[str]] = {}
        # Set by start.
        self._dra_plugins: draplugin.DRAPluginManager | None = None
        self._active_pods: ActivePodsFunc | None = None
        self._could_run: CouldRunFunc = lambda pod_uid: False
        self._sources_ready: SourcesReady | None = None

    def new_metrics_collector(self) -> ClaimInfoCollector:
        return ClaimInfoCollector(self._cache)

    def get_watcher_handler(self) -> cache.PluginHandler:
        """Takes the drivers' plugins. There only after start."""
        return self._plugins()

    def start(
        self,
        ctx: golang.Context,
        active_pods: ActivePodsFunc,
        could_run: CouldRunFunc,
        get_node: GetNodeFunc,
        sources_ready: SourcesReady,
    ) -> None:
        """Reconcile until ctx ends."""
        self.init_dra_plugin_manager(ctx, get_node, DEFAULT_WIPING_DELAY)
        self._active_pods = active_pods
        self._could_run = could_run
        self._sources_ready = sources_ready
        self._register_collectors(ctx)
        golang.go(self._reconcile, ctx, name="dra-manager")

    def _reconcile(self, ctx: golang.Context) -> None:
        """Look for claims of pods that are no more, until ctx ends.

        DIVERGES (safer): claims that could not be given back, or not yet because not all pods are known, are tried
        again after a second, then after two, and so on.
        Go: pkg/kubelet/cm/dra/manager.go, (*Manager).Start: they are tried again once a minute.
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
            klog.v(4).info_s("Another kubelet of this process shows the claims that are in use")
            return
        golang.after_func(ctx, lambda: metrics.unregister_collectors(collector))

    def init_dra_plugin_manager(self, ctx: golang.Context, get_node: GetNodeFunc, wiping_delay: float) -> None:
        """As start, but without the reconciliation."""
        self._dra_plugins = draplugin.DRAPluginManager(
            ctx, self._kube_client, get_node, self, wiping_delay, self._announce_driver
        )

    def _plugins(self) -> draplugin.DRAPluginManager:
        assert self._dra_plugins is not None, "the DRA manager was not started"
        return self._dra_plugins

    def reconcile_loop(self, ctx: golang.Context) -> bool:
        """Give back what was prepared for pods that are no longer there; returns whether nothing of it is left."""
        if self._active_pods is None or self._sources_ready is None or not self._sources_ready.all_ready():
            # The pods that are there are not known yet.
            return False
        with self._cache.rlock():
            claims = [(uid, info.namespace, info.claim_name) for info in self._cache.values() for uid in info.pod_uids]
        # DIVERGES (fault of Go): which pods are active is asked after it is known which pods have claims.
        # Go: pkg/kubelet/cm/dra/manager.go, (*Manager).reconcileLoop: the other way round.
        # Why: the claims of a pod that comes between the two would be taken from it at once.
        # Test: manager_test.py:test_claim_of_a_pod_that_comes_at_that_moment_is_left_to_it
        active_pods = {pod.metadata.uid for pod in self._active_pods()}
        inactive: dict[tuple[str, str], list[str]] = {}
        for pod_uid, namespace, claim_name in claims:
            if pod_uid not in active_pods:
                inactive.setdefault((pod_uid, namespace), []).append(claim_name)
        done = True
        for (pod_uid, namespace), claim_names in inactive.items():
            # DIVERGES (fault of Go): a pod keeps its claims as long as one of its containers may run.
            # Go: pkg/kubelet/cm/dra/manager.go, (*Manager).reconcileLoop: takes them from any pod that is not active,
            # also one that was deleted by force, or while the kubelet was down.
            # Why: a driver would take devices away that a container still uses.
            # Test: manager_test.py:test_claims_of_a_pod_that_is_ending_are_left_to_it
            if self._could_run(types.UID(pod_uid)):
                done = False
                continue
            try:
                self._unprepare_resources(ctx, types.UID(pod_uid), namespace, claim_names)
            except Exception as err:  # Drivers fail in many ways; other pods' claims are to be given back all the same.
                klog.info_s("Unpreparing pod resources in reconcile loop failed, will retry", podUID=pod_uid, err=err)
                done = False
        return done

    # ---- Preparing ----

    def prepare_resources(self, ctx: golang.Context, pod: v1.Pod) -> None:
        """Have drivers prepare the pod's claims, those that are not prepared already."""
        with _observed("PrepareResources"):
            pod_claims = self._look_up_claims(ctx, pod)
            if pod_claims:
                batches = self._reference_claims(pod, pod_claims)
                for plugin, claims in batches.claims.items():
                    self._prepare_batch(ctx, plugin, claims, batches.resource_claims)
                self._set_prepared(batches.resource_claims)

    def _look_up_claims(self, ctx: golang.Context, pod: v1.Pod) -> list[_PodClaim]:
        """All that is needed to prepare the pod's claims. Changes nothing, so that a pod that fails here can go."""
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
            # Go: pkg/kubelet/cm/dra/manager.go, (*Manager).prepareResources: asks the driver for it twice in one call,
            # gets one answer for both, and takes the other for skipped.
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
            # Even if the claim is prepared: a driver that is gone means that something is wrong with the node.
            plugins = {name: self._plugin_for(pod.metadata.uid, name) for name in info.driver_state}
            found.append(_PodClaim(pod_claim, claim, info, plugins))
        return found

    def _plugin_for(self, pod_uid: types.UID, driver_name: str) -> draplugin.DRAPlugin:
        """The driver's plugin. Raises LookupError, and has the pod synced once there is one."""
        with self._waiting_lock:
            self._waiting.setdefault(driver_name, set()).add(pod_uid)
        plugin = self._plugins().get_plugin(driver_name)
        with self._waiting_lock:
            self._waiting.get(driver_name, set()).discard(pod_uid)
        return plugin

    def _announce_driver(self, driver_name: str) -> None:
        """Have the pods synced that wait for the driver.

        DIVERGES (safer): a pod whose driver was not there is synced as soon as the driver has registered.
        Go: pkg/kubelet/cm/dra/plugin/dra_plugin_manager.go, (*DRAPluginManager).RegisterPlugin: tells no pod.
        Why: a pod would otherwise start up to a minute after its driver is back.
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
        """Note on disk that the pod has the claims, before any driver is asked; returns what they are asked."""
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
                    # DIVERGES (fault of Go): a pod whose claim is just being unprepared has it prepared after that.
                    # Go: pkg/kubelet/cm/dra/manager.go, (*Manager).prepareResources: takes the claim for prepared.
                    # Why: the pod would start with devices that the driver has taken back.
                    # Test: manager_test.py:test_no_pod_gets_a_claim_that_is_being_given_back
                    raise ClaimError(f"ResourceClaim {claim.metadata.name} is being unprepared")
                elif info.was_allocated_anew(entry.claim_info) and info.pod_uids - {pod.metadata.uid}:
                    # DIVERGES (fault of Go): a pod waits while an earlier one has what its claim was allocated before.
                    # Go: pkg/kubelet/cm/dra/manager.go, (*Manager).prepareResources: compares the UID of the claim, and
                    # not what it was allocated.
                    # Why: the pod would get the devices of the earlier allocation, which may be another pod's by now.
                    # Test: manager_test.py:test_a_claim_that_is_allocated_anew_before_a_pod_has_ended
                    raise ClaimError(
                        f"ResourceClaim {claim.metadata.name} was allocated anew, and an earlier pod still has what it "
                        "was allocated before (previous pod force-deleted?!)"
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
        """Have a plugin prepare claims, and note the devices that it has for them."""
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
        """What was prepared for the container. Raises LookupError when its claims were not.

        DIVERGES (fault of Go): each device is named once, however many of the container's requests it belongs to.
        Go: pkg/kubelet/cm/dra/manager.go, (*Manager).GetResources: names it once for each of them.
        Why: a runtime that does not look for duplicates would set such a device up several times.
        Test: manager_test.py:test_devices_of_requests
        """
        cdi_devices: list[kubecontainer.CDIDevice] = []
        for claim_name, request_names in _claim_requests(pod, container).items():
            with self._cache.rlock():
                info = self._cache.get(claim_name, pod.metadata.namespace)
                if info is None:
                    raise LookupError(f"internal error: {_unknown(claim_name, pod.metadata.namespace)}")
                for request_name in request_names:
                    # CRI has a field for them: they are not passed in annotations any more.
                    cdi_devices += info.cdi_devices_as_list(request_name)
        return ContainerInfo(list({device.name: device for device in cdi_devices}.values()))

    def get_container_claim_infos(self, pod: v1.Pod, container: v1.Container) -> list[ClaimInfo]:
        """The container's claims, as copies. Raises LookupError when they were not prepared."""
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

    # ---- Giving back ----

    def unprepare_resources(self, ctx: golang.Context, pod: v1.Pod) -> None:
        """Have drivers take back the pod's claims that no other pod has. May be called again, for the same pod."""
        with _observed("UnprepareResources"):
            self._forget_waiting(pod.metadata.uid)
            claim_names = self._claim_names(pod)
            if claim_names:
                self._unprepare_resources(ctx, pod.metadata.uid, pod.metadata.namespace, claim_names)

    def _claim_names(self, pod: v1.Pod) -> list[str]:
        """The claims of the pod, and those that were prepared for it."""
        names: dict[str, None] = {}
        for pod_claim in _pod_resource_claims(pod):
            try:
                name = resourceclaim.name(pod, pod_claim).name
            except (resourceclaim.ErrClaimNotFound, resourceclaim.ErrAPIUnsupported) as err:
                # DIVERGES (fault of Go): a pod for which a claim has never been made can end.
                # Go: pkg/kubelet/cm/dra/manager.go, (*Manager).unprepareResourcesForPod: fails each time.
                # Why: nothing was prepared, and the claim is not made any more for a pod that is to end.
                # Test: manager_test.py:test_claim_without_a_name
                klog.v(4).info_s("Nothing to give back of a claim", pod=klog.kobj(pod), err=err)
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
        """The claims that are to be given back. Of others the pod is only struck off, on disk in the end."""
        infos = []
        with self._cache.lock():
            for claim_name in claim_names:
                info = self._cache.get(claim_name, namespace)
                if info is None:
                    continue
                if info.pod_uids - {pod_uid}:
                    # DIVERGES (fault of Go): a pod that never got the claim leaves it to the pod that has it.
                    # Go: pkg/kubelet/cm/dra/manager.go, (*Manager).unprepareResources: if one pod has the claim, does
                    # not ask whether it is this one.
                    # Why: any pod that names the claim and is refused would take it from the pod that uses it.
                    # Test: manager_test.py:test_pod_that_never_got_the_claim_does_not_take_it_along
                    info.delete_pod_reference(pod_uid)
                    continue
                infos.append(info)
            # The pod's worker and the reconciliation may both be at it when a pod was deleted by force.
            if busy := [info.claim_name for info in infos if info.unpreparing]:
                # DIVERGES (fault of Go): the pod's worker and the reconciliation do not both unprepare a claim.
                # Go: pkg/kubelet/cm/dra/manager.go, (*Manager).unprepareResources: both may, one after the other.
                # Why: the second one may take the claim from a pod that has got it in the meantime.
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
                    # DIVERGES (fault of Go): the next pod has a claim prepared again that could not be unprepared.
                    # Go: pkg/kubelet/cm/dra/manager.go, (*Manager).unprepareResources: it still counts as prepared.
                    # Why: the driver may have taken the devices back before its answer was lost.
                    # Test: manager_test.py:test_a_claim_that_a_driver_may_have_taken_back_is_prepared_again
                    info.may_be_taken_back |= driver_name in info.driver_state
            with _named("NodeUnprepareResources"):
                response = plugin.node_unprepare_resources(ctx, drapb.NodeUnprepareResourcesRequest(claims=claims))
            errors = {claim_uid: result.error for claim_uid, result in response.claims.items()}
            _check_results("NodeUnprepareResources", claims, errors)

    def pod_might_need_to_unprepare_resources(self, uid: types.UID) -> bool:
        """Whether some claim is still there for the pod."""
        with self._cache.rlock():
            return self._cache.has_pod_reference(uid)

    # ---- Health ----

    def update_allocated_resources_status(self, pod: v1.Pod, status: v1.PodStatus) -> None:
        """Write into the status of each container how the devices of its claims are."""
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
        # Several devices may have the same id.
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
        """Take what a driver tells of its devices, and have pods synced that have one of which something is new.

        Raises HealthStreamError for a driver that tells too much.
        """
        try:
            for response in self._reports(stream):
                told = (device for device in response.devices if _can_be_claimed(device.device))
                devices = [_build_device_health(device) for device in told]
                changed = self._health_info_cache.update_health_info(plugin_name, devices)
                self._announce(plugin_name, changed)
                # What is not read keeps the driver from sending. Once ctx has ended, the next report is an error.
                written = self._health_info_cache.count() if changed else 0
                ctx.wait((len(response.devices) + written) / MAX_HEALTH_DEVICES_PER_SECOND)
        finally:
            klog.v(4).info_s("Clearing health cache for driver upon stream exit", pluginName=plugin_name)
            # DIVERGES (safer): pods that have a device of a driver that is gone are synced at once.
            # Go: pkg/kubelet/cm/dra/manager.go, (*Manager).HandleWatchResourcesStream: forgets the devices, and tells
            # no pod.
            # Why: for up to a minute their status would say that a device is healthy of which nobody knows.
            # Test: manager_test.py:test_health_is_forgotten_with_the_plugin
            self._announce(plugin_name, self._health_info_cache.clear_driver(plugin_name))

    def _reports(
        self, stream: Iterator[drahealthv1alpha1.NodeWatchResourcesResponse]
    ) -> Iterator[drahealthv1alpha1.NodeWatchResourcesResponse]:
        """Raises HealthStreamError for a driver that sends faster than its reports are taken, however long that takes.

        What waits in the stream by then is old, and is given up with it.

        DIVERGES (safer): the stream of a driver that reports without a pause, or more than MAX_DEVICES at once, ends.
        Go: pkg/kubelet/cm/dra/manager.go, (*Manager).HandleWatchResourcesStream: has no bound.
        Why: the kubelet would be busy with reports that are out of date, and keep devices that cannot exist.
        Test: manager_test.py:test_driver_that_tells_without_a_pause,
        manager_test.py:test_driver_that_tells_of_too_many_devices
        """
        left, since = float(MAX_HEALTH_REPORTS), self._clock.monotonic()
        for response in stream:
            waited = self._clock.monotonic() - since
            left = min(left + waited * MAX_HEALTH_REPORTS_PER_SECOND, MAX_HEALTH_REPORTS) - 1
            if left < 0:
                raise HealthStreamError(f"more than {MAX_HEALTH_REPORTS_PER_SECOND:g} reports a second of waiting")
            if len(response.devices) > MAX_DEVICES:
                raise HealthStreamError(f"a report of {len(response.devices)} devices, of at most {MAX_DEVICES}")
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
        """Where pods are announced whose devices' health has changed, or whose driver has come."""
        return self._update


def _reconcile_backoff() -> wait.Backoff:
    return wait.Backoff(duration=1.0, factor=2.0, steps=100, cap=DEFAULT_RECONCILE_PERIOD)


@contextmanager
def _observed(operation: str) -> Iterator[None]:
    """Count how long it took, and say in an error what was tried."""
    start, is_error = time.monotonic(), True
    try:
        with _named(f"{'prepare' if operation == 'PrepareResources' else 'unprepare'} dynamic resources"):
            yield
        is_error = False
    finally:
        labels = (operation, str(is_error).lower())
        metrics.DRA_OPERATIONS_DURATION.labels(*labels).observe(time.monotonic() - start)


class ClaimError(Exception):
    """A claim is not to be had now, or its driver has not done what it was asked."""


class ResourcesError(Exception):
    """Claims could not be prepared or given back; the cause says why."""


@contextmanager
def _named(what: str) -> Iterator[None]:
    try:
        yield
    except Exception as err:
        # Whatever it is: a driver's answer, the API server's, or the checkpoint. It is told with what was being done.
        raise ResourcesError(f"{what}: {err}") from err


def _check_results(method: str, claims: list[drapb.Claim], errors: Mapping[str, str]) -> None:
    """Raises ClaimError unless the driver did what it was asked for each of the claims, and for no other."""
    names = {claim.uid: claim.name for claim in claims}
    for claim_uid, error in errors.items():
        if claim_uid not in names:
            raise ClaimError(f"{method} returned result for unknown claim UID {claim_uid}")
        if error:
            raise ClaimError(f"{method} failed for ResourceClaim {names[claim_uid]}: {error}")
    if unfinished := len(names) - len(errors):
        raise ClaimError(f"{method} skipped {unfinished} ResourceClaims")


def _pod_resource_claims(pod: v1.Pod) -> list[v1.PodResourceClaim]:
    """The pod's claims, and the one that was made for its extended resources."""
    status = _extended_resource_claim_status(pod)
    if status is None:
        return pod.spec.resource_claims
    return [*pod.spec.resource_claims, v1.PodResourceClaim(resource_claim_name=status.resource_claim_name)]


def _extended_resource_claim_status(pod: v1.Pod) -> v1.PodExtendedResourceClaimStatus | None:
    enabled = features.feature_gate.enabled(features.DRA_EXTENDED_RESOURCE)
    return pod.status.extended_resource_claim_status if enabled else None


def _claim_requests(pod: v1.Pod, container: v1.Container) -> dict[str, list[str]]:
    """By claim, the requests of it that the container has; "" is all of them. A pod may have thousands of claims."""
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
    """The names of the objects behind the pod's claims, as far as there are any. There may be thousands of claims."""
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
    """A driver tells more of its devices' health than the kubelet listens to."""


def _can_be_claimed(device: drahealthv1alpha1.DeviceIdentifier) -> bool:
    """Whether a claim can have the device.

    DIVERGES (safer): a device is passed over if its name, or that of its pool, is longer than any in a ResourceSlice.
    Go: pkg/kubelet/cm/dra/manager.go, (*Manager).HandleWatchResourcesStream: has no bound.
    Why: no claim can have it, and it would take memory, and space on the disk.
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
    """No more than the API takes; the end of a message that was cut is three dots."""
    longest = v1.RESOURCE_HEALTH_MESSAGE_MAX_LENGTH
    data = message.encode()
    return message if len(data) <= longest else data[: longest - 3].decode(errors="ignore") + "..."
