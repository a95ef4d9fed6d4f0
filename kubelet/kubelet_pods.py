"""Build the options of containers, compute the statuses of pods, and clean up after pods.

Go: pkg/kubelet/kubelet_pods.go
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import TYPE_CHECKING

from cri_api.v1 import api_pb2 as runtimeapi

from kubelet import cm, environment, envvars, kuberuntime, metrics, status
from kubelet import container as kubecontainer
from kubelet import types as kubetypes
from kubelet.kubelet_mounts import make_block_volumes, make_mounts, resolve_recursive_read_only
from kubelet.kubelet_node_status import KubeletNodeStatus
from kubelet.kubelet_pod_resources import (
    convert_to_api_pod_level_resources_status,
    get_effective_allocated_resources,
)
from kubelet.kubelet_volumes import KubeletVolumes
from kubelet.pod_workers import KillPodOptions, PodWorkerState, PodWorkerSync, UpdatePodOptions
from pkg import features, fieldpath, golang, klog
from pkg.api.core import v1
from pkg.api.v1 import pod as podutil
from pkg.api.v1 import resource
from pkg.apimachinery import types
from pkg.apimachinery.api.resource import Quantity
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.apimachinery.util import validation
from pkg.apimachinery.util.runtime import contain
from pkg.apis.core import pods as podshelper
from pkg.apis.core.v1 import helper as v1helper
from pkg.apis.core.v1.helper import qos as v1qos
from pkg.util import expansion, filesystem
from pkg.util import pod as utilpod
from pkg.volume import util as volumeutil
from pkg.volume.util import volumepathhandler

if TYPE_CHECKING:
    from kubelet import allocation, configmap, lifecycle, prober, runtimeclass, secret, userns
    from kubelet import pod as kubepod
    from kubelet.cri.streaming import portforward, remotecommand
    from kubelet.reason_cache import ReasonCache
    from pkg.client_go.util import flowcontrol
    from pkg.volume.util import hostutil, subpath

# Containers that the kubelet has not tried to start yet have one of these waiting reasons.
POD_INITIALIZING = "PodInitializing"
CONTAINER_CREATING = "ContainerCreating"
# A container has this termination reason if it was removed because another container's exit restarts all containers of
# the pod in place.
RESTARTING_ALL_CONTAINERS = "RestartingAllContainers"
_REMOVED_TO_RESTART = "The container is removed because RestartAllContainers in place"

HOSTNAME_MAX_LEN = 63

# Every pod gets the environment variables of these services of the default namespace.
MASTER_SERVICES = frozenset({"kubernetes"})

# This exit code stands for an exit that the kubelet did not observe.
UNKNOWN_EXIT_CODE = 137


@dataclass(frozen=True, slots=True)
class PodsOnNode:
    """Hold the pods that were found on the node, in the runtime and in the cgroups.

    A pod is listed whether a source contains it or not. `seconds` is the duration of the search.
    """

    # Workers had started to work on these pods before the search began.
    begun: Set[types.UID]
    cgroups: Mapping[types.UID, cm.CgroupName]
    running: list[kubecontainer.Pod]
    seconds: float


@dataclass(kw_only=True, eq=False, repr=False)
class KubeletPods(KubeletVolumes, KubeletNodeStatus):
    """Translate a pod's spec into the runtime's terms, and the runtime's state into the pod's status."""

    hostutil: hostutil.HostUtils
    subpather: subpath.Interface
    cgroups_per_qos: bool
    mirror_pod_client: kubepod.MirrorClient
    # The reason cache holds the error of each container's last failed sync. The status shows it as the waiting reason.
    reason_cache: ReasonCache
    # Both fields are the runtime: `streaming_runtime` serves exec, attach and port forwarding; `runner` runs a command
    # to its end.
    streaming_runtime: kubecontainer.StreamingRuntime
    runner: kubecontainer.CommandRunner
    # The allocation manager admits pods, and holds the allocated resources of each.
    allocation_manager: allocation.Manager
    # These threads are removing orphaned cgroups; the keys are the pods' UIDs. Only the sync loop's thread adds to
    # them.
    cgroup_cleanups: dict[types.UID, golang.Thread] = field(default_factory=dict)
    probe_manager: prober.Manager
    runtime_class_manager: runtimeclass.Manager | None = None
    userns_manager: userns.UsernsManager
    crash_loop_back_off: flowcontrol.Backoff
    # These managers provide the secrets and config maps to which pods refer. In standalone mode they read the manifest
    # directory. Pod workers register the pods that run.
    secret_manager: secret.Manager | None = None
    config_map_manager: configmap.Manager | None = None
    pod_sync_handlers: list[lifecycle.PodSyncHandler] = field(default_factory=list)
    # `service_lister` is None in standalone mode, in which the kubelet knows no services.
    service_lister: Callable[[], list[v1.Service]] | None = None
    service_has_synced: Callable[[], bool] = lambda: True

    def get_active_pods(self) -> list[v1.Pod]:
        """Return the pods that hold resources of the node.

        These are the pods that are neither terminal nor known to have terminated.
        """
        return self.filter_out_inactive_pods(self.pod_manager.get_pods())

    def get_allocated_pods(self) -> list[v1.Pod]:
        """Return the active pods with their allocated resources, which may differ from the requested ones."""
        active_pods = self.get_active_pods()
        if not features.feature_gate.enabled(features.IN_PLACE_POD_VERTICAL_SCALING):
            return active_pods
        return [self.allocation_manager.update_pod_from_allocation(pod).pod for pod in active_pods]

    def get_or_create_user_namespace_mappings(self, pod: v1.Pod, runtime_handler: str) -> runtimeapi.UserNamespace:
        """Return the pod's user namespace mappings.

        Raise ValueError if the pod asks for its own user namespace and cannot have one.
        """
        return self.userns_manager.get_or_create_user_namespace_mappings(pod, runtime_handler)

    def generate_pod_host_name_and_domain(self, pod: v1.Pod) -> tuple[str, str]:
        """Return the pod's host name and, if the pod has a subdomain, its domain.

        Raise ValueError for a name that is not valid in DNS.
        """
        override = pod.spec.hostname_override
        if override is not None and features.feature_gate.enabled(features.HOSTNAME_OVERRIDE):
            _require_valid("HostnameOverride", override, "subdomain", validation.is_dns1123_subdomain(override))
            return truncate_pod_hostname_if_needed(pod.metadata.name, override), ""
        hostname = pod.metadata.name
        if pod.spec.hostname:
            hostname = pod.spec.hostname
            _require_valid("Hostname", hostname, "label", validation.is_dns1123_label(hostname))
        hostname = truncate_pod_hostname_if_needed(pod.metadata.name, hostname)
        if not pod.spec.subdomain:
            return hostname, ""
        subdomain = pod.spec.subdomain
        _require_valid("Subdomain", subdomain, "label", validation.is_dns1123_label(subdomain))
        return hostname, f"{subdomain}.{pod.metadata.namespace}.svc.{self.dns_configurer.cluster_domain}"

    def get_pod_cgroup_parent(self, pod: v1.Pod) -> str:
        """Return the cgroup under which the runtime puts the pod, in the form that the cgroup driver expects."""
        _, cgroup_parent = self.container_manager.new_pod_container_manager().get_pod_container_name(pod)
        return cgroup_parent

    def generate_run_container_options(
        self,
        ctx: golang.Context,
        pod: v1.Pod,
        container: v1.Container,
        pod_ip: str,
        pod_ips: Sequence[str],
        image_volumes: dict[str, runtimeapi.ImageSpec],
    ) -> tuple[kubecontainer.RunContainerOptions, Callable[[], None] | None]:
        """Return the devices, environment and mounts of a container, and a function to call after its creation.

        Raise ValueError, OSError or the API server's error if the spec refers to something that does not exist.
        """
        options = self.container_manager.get_resources(ctx, pod, container)
        hostname, host_domain = self.generate_pod_host_name_and_domain(pod)
        volumes = self.volume_manager.get_mounted_volumes_for_pod(volumeutil.get_unique_pod_name(pod))
        options.devices += make_block_volumes(container, volumes, volumepathhandler.VolumePathHandler())
        options.envs += self.make_environment_variables(ctx, pod, container, pod_ip, pod_ips, volumes)
        mounts, cleanup_action = make_mounts(
            pod,
            self.get_pod_dir(pod.metadata.uid),
            container,
            hostname,
            host_domain,
            pod_ips,
            volumes,
            self.hostutil,
            self.subpather,
            options.envs,
            self.runtime_class_supports_recursive_read_only_mounts(pod),
            image_volumes,
        )
        options.mounts += mounts
        if container.termination_message_path:
            options.pod_container_dir = self._make_pod_container_dir(pod, container)
        return options, cleanup_action

    def _make_pod_container_dir(self, pod: v1.Pod, container: v1.Container) -> str:
        """Return the directory of the container's termination message.

        If the directory cannot be created, return an empty string; the kubelet then reads no message.
        """
        path = self.get_pod_container_dir(pod.metadata.uid, container.name)
        try:
            filesystem.mkdir_all(path, 0o750)
        except OSError as err:
            klog.error_s(err, "Error on creating dir", path=path)
            return ""
        return path

    def get_service_env_var_map(self, namespace: str, enable_service_links: bool) -> dict[str, str]:
        """Return the environment variables of the services that a pod of the namespace can use."""
        if self.service_lister is None:
            return {}
        services: dict[str, v1.Service] = {}
        for service in self.service_lister():
            if not v1helper.is_service_ip_set(service):
                continue
            name = service.metadata.name
            if service.metadata.namespace == metav1.NAMESPACE_DEFAULT and name in MASTER_SERVICES:
                services.setdefault(name, service)
            elif service.metadata.namespace == namespace and enable_service_links:
                services[name] = service
        return {env.name: env.value for env in envvars.from_services(list(services.values()))}

    def make_environment_variables(
        self,
        ctx: golang.Context,
        pod: v1.Pod,
        container: v1.Container,
        pod_ip: str,
        pod_ips: Sequence[str],
        pod_volumes: kubecontainer.VolumeMap,
    ) -> list[kubecontainer.EnvVar]:
        """Return the container's environment: variables from whole objects, its own variables, and those of services.

        If names collide, the container's own variable wins over that from an object, and a service's variable loses
        against both. Raise ValueError if a variable's source does not exist, or the API server's error.
        """
        if pod.spec.enable_service_links is None:
            raise ValueError("nil pod.spec.enableServiceLinks encountered, cannot construct envvars")
        if not kubetypes.is_static_pod(pod) and not self.service_has_synced():
            raise ValueError("services have not yet been read at least once, cannot construct envvars")
        service_env = self.get_service_env_var_map(pod.metadata.namespace, pod.spec.enable_service_links)
        objects = environment.APIObjects(pod.metadata.namespace, self.config_map_manager, self.secret_manager)
        files = environment.Files(pod, pod_volumes)
        env = environment.Variables()
        objects.set_from_sources(container.env_from, env)
        mapping = expansion.mapping_func_for(env.values, service_env)
        for variable in container.env:
            value: str | None = variable.value
            if value:
                env.set_expanded(variable.name, value, mapping)
                continue
            if (source := variable.value_from) is not None:
                if source.file_key_ref is not None:
                    value = files.value(source.file_key_ref)
                else:
                    value = self._env_var_source_value(ctx, source, pod, container, pod_ip, pod_ips, objects)
            if value is not None:
                env.set(variable.name, value)
        for name, value in service_env.items():
            if name not in env.values:
                env.set(name, value)
        return [kubecontainer.EnvVar(name=name, value=value) for name, value in env.values.items()]

    def _env_var_source_value(
        self,
        ctx: golang.Context,
        source: v1.EnvVarSource,
        pod: v1.Pod,
        container: v1.Container,
        pod_ip: str,
        pod_ips: Sequence[str],
        objects: environment.APIObjects,
    ) -> str | None:
        """Return the value of the variable's source.

        None means that an optional source does not exist; the variable then stays unset.
        """
        if source.field_ref is not None:
            return self.pod_field_selector_runtime_value(ctx, source.field_ref, pod, pod_ip, pod_ips)
        if source.resource_field_ref is not None:
            return self.container_resource_runtime_value(ctx, source.resource_field_ref, pod, container)
        if source.config_map_key_ref is not None:
            return objects.config_map_value(source.config_map_key_ref)
        if source.secret_key_ref is not None:
            return objects.secret_value(source.secret_key_ref)
        return ""

    def container_resource_runtime_value(
        self, ctx: golang.Context, selector: v1.ResourceFieldSelector, pod: v1.Pod, container: v1.Container
    ) -> str:
        """Return the value of a resourceFieldRef, of this container unless the reference names another.

        If the container has no limit, its limit is the pod's or, without one, the node's allocatable amount. Raise
        ValueError for an unsupported resource, and LookupError for a container that does not exist.

        Go: containerResourceRuntimeValue, kubelet_resources.go (defaultPodLimitsForDownwardAPI)
        """
        name = selector.container_name
        asked = resource.find_container_in_pod(pod, name) if name else container
        # Do not copy the whole pod, because thousands of variables may have such a value.
        limited = v1.Container(resources=v1.deepcopy(asked.resources))
        # As in Go, an init container that the reference names has only its own limits.
        if not any(init.name == name for init in pod.spec.init_containers):
            allocatable = _limited_by_pod(pod, self.get_node_any_way(ctx).status.allocatable)
            resource.merge_container_resource_limits(limited, allocatable)
        return resource.extract_container_resource_value(selector, limited)

    def pod_field_selector_runtime_value(
        self, ctx: golang.Context, selector: v1.ObjectFieldSelector, pod: v1.Pod, pod_ip: str, pod_ips: Sequence[str]
    ) -> str:
        """Return the value of a fieldRef while the pod runs. Raise ValueError for an unsupported path."""
        path, _ = podshelper.convert_downward_api_field_label(selector.api_version, selector.field_path, "")
        pod_ips = self.sort_pod_ips(pod_ips)
        match path:
            case "spec.nodeName":
                return pod.spec.node_name
            case "spec.serviceAccountName":
                return pod.spec.service_account_name
            case "status.hostIP":
                return self.get_host_ips_any_way(ctx)[0]
            case "status.hostIPs":
                return ",".join(self.get_host_ips_any_way(ctx))
            case "status.podIP":
                return pod_ips[0] if pod_ips else pod_ip
            case "status.podIPs":
                return ",".join(pod_ips)
        return fieldpath.extract_field_path_as_string(pod, path)

    def kill_pod(
        self, ctx: golang.Context, pod: v1.Pod, running: kubecontainer.Pod, grace_period_override: int | None
    ) -> None:
        """Stop all containers of the pod and its sandbox. Raise the runtime's error."""
        self.container_runtime.kill_pod(ctx, pod, running, grace_period_override)
        try:
            self.container_manager.update_qos_cgroups()
        except OSError as err:
            klog.v(2).info_s("Failed to update QoS cgroups while killing pod", err=err)

    def make_pod_data_dirs(self, pod: v1.Pod) -> None:
        """Create the pod's directories under the root directory. Raise OSError on failure."""
        uid = pod.metadata.uid
        for path in (self.get_pod_dir(uid), self.get_pod_volumes_dir(uid), self.get_pod_plugins_dir(uid)):
            filesystem.mkdir_all(path, 0o750)

    def get_pull_secrets_for_pod(self, pod: v1.Pod) -> list[v1.Secret]:
        """Return the pod's image pull secrets. An event lists those that are unavailable."""
        found, failed = [], []
        # Validation allows empty names.
        for name in filter(None, (reference.name for reference in pod.spec.image_pull_secrets)):
            try:
                found.append(self._get_pull_secret(pod.metadata.namespace, name))
            except golang.Canceled:
                raise
            except Exception as err:  # Despite any error, the image may be present, or need no secret.
                message = "Unable to retrieve pull secret, the image pull may not succeed."
                klog.info_s(message, pod=klog.kobj(pod), secret=klog.kref(pod.metadata.namespace, name), err=err)
                failed.append(name)
        if failed:
            self.recorder.eventf(
                pod,
                v1.EVENT_TYPE_WARNING,
                "FailedToRetrieveImagePullSecret",
                "Unable to retrieve some image pull secrets (%s); attempting to pull the image may not succeed.",
                ", ".join(failed),
            )
        return found

    def _get_pull_secret(self, namespace: str, name: str) -> v1.Secret:
        if self.secret_manager is None:
            raise ValueError("no kubeClient defined")
        return self.secret_manager.get_secret(namespace, name)

    def pod_could_have_running_containers(self, pod: v1.Pod) -> bool:
        """Report whether containers of the pod may run or start, or its resource claims are still to be unprepared."""
        uid = pod.metadata.uid
        if self.pod_workers.could_have_running_containers(uid):
            return True
        return self.container_manager.pod_might_need_to_unprepare_resources(uid)

    def pod_is_finished(self, pod: v1.Pod) -> bool:
        """Report whether all work on the pod is done, so that its final status can be sent and its object deleted."""
        return self.pod_workers.should_pod_be_finished(pod.metadata.uid)

    def filter_out_inactive_pods(self, pods: list[v1.Pod]) -> list[v1.Pod]:
        """Return the pods that hold resources of the node.

        A pod is inactive if it is known to have terminated, or if its phase is terminal and nothing has to terminate
        it.
        """
        return [pod for pod in pods if not self._is_pod_inactive(pod)]

    def _is_pod_inactive(self, pod: v1.Pod) -> bool:
        uid = pod.metadata.uid
        if self.pod_workers.is_pod_known_terminated(uid):
            return True
        return self._is_admitted_pod_terminal(pod) and not self.pod_workers.is_pod_termination_requested(uid)

    def _is_admitted_pod_terminal(self, pod: v1.Pod) -> bool:
        if podutil.is_pod_phase_terminal(pod.status.phase):
            return True
        known = self.status_manager.get_pod_status(pod.metadata.uid)
        return known is not None and podutil.is_pod_phase_terminal(known.phase)

    def remove_orphaned_pod_statuses(self, pods: list[v1.Pod], mirror_pods: list[v1.Pod]) -> None:
        """Forget the statuses of unknown pods.

        `pods` must include the terminated pods, whose statuses are needed until the pods are deleted.
        """
        self.status_manager.remove_orphaned_statuses({pod.metadata.uid for pod in [*pods, *mirror_pods]})

    def find_pods_on_node(self, ctx: golang.Context) -> PodsOnNode:
        """List the pods in the runtime and in the cgroups for handle_pod_cleanups. Any thread may call this method.

        The runtime's cache is not used, because killed pods may still be in it. Raise the error that prevents the
        listing of the cgroups or of the runtime's pods.
        """
        start = self.clock.monotonic()
        begun = self.pod_workers.begun_pods()
        cgroups: dict[types.UID, cm.CgroupName] = {}
        if self.cgroups_per_qos:
            cgroups = self.container_manager.new_pod_container_manager().get_all_pods_from_cgroups()
        running = self.runtime_cache.force_update_if_older(ctx, self.clock.steady())
        return PodsOnNode(begun, cgroups, running, self.clock.monotonic() - start)

    def handle_pod_cleanups(self, ctx: golang.Context, found: PodsOnNode) -> None:
        """Clean up after pods: reconcile workers, statuses, probes, directories and cgroups with the desired pods.

        The method runs on the sync loop's thread every two seconds, and must not wait for anything. A failure is
        logged, and the next housekeeping tries again.
        """
        all_pods, mirror_pods, orphaned_mirror_pod_fullnames = self.pod_manager.get_pods_and_mirror_pods()

        klog.v(3).info_s("Clean up pod workers for terminated pods")
        working_pods = self.pod_workers.sync_known_pods(all_pods)
        possibly_running = _possibly_running(working_pods)
        # Skip a pod on which a worker had begun to work before the listing and which is forgotten by now, because it
        # has terminated since. If a new incarnation of the pod runs, the next housekeeping finds it.
        running_runtime_pods = [pod for pod in found.running if pod.id in working_pods or pod.id not in found.begun]

        klog.v(3).info_s("Clean up probes for terminated pods")
        with contain("Failed cleaning up probes", ctx):
            self.probe_manager.cleanup_pods(possibly_running)
        klog.v(3).info_s("Clean up orphaned pod statuses")
        with contain("Failed cleaning up orphaned pod statuses", ctx):
            self.remove_orphaned_pod_statuses(all_pods, mirror_pods)
        with contain("Failed cleaning up orphaned pod allocations", ctx):
            self.allocation_manager.remove_orphaned_pods({pod.metadata.uid for pod in all_pods})
        klog.v(3).info_s("Clean up orphaned pod user namespace allocations")
        with contain("Failed cleaning up orphaned pod user namespaces allocations", ctx):
            self.userns_manager.cleanup_orphaned_pod_userns_allocations(
                all_pods, running_runtime_pods, working_pods.keys()
            )
        klog.v(3).info_s("Clean up orphaned pod directories")
        with contain("Failed cleaning up orphaned pod directories", ctx):
            self.cleanup_orphaned_pod_dirs(ctx, all_pods, running_runtime_pods)
        klog.v(3).info_s("Clean up orphaned mirror pods")
        with contain("Failed cleaning up orphaned mirror pods", ctx):
            self._delete_orphaned_mirror_pods(ctx, mirror_pods, orphaned_mirror_pod_fullnames)

        active_pods = self.filter_out_inactive_pods(all_pods)
        all_restarted = self._restart_unknown_pods(ctx, active_pods, working_pods)
        self._hand_terminal_pods_to_workers(ctx, all_pods, running_runtime_pods, working_pods)
        self._terminate_orphaned_runtime_pods(ctx, running_runtime_pods, working_pods)
        if all_restarted and all(pod.id in working_pods for pod in running_runtime_pods):
            self.pod_workers.mark_pods_synced()
        _record_pod_counts(all_pods, active_pods, mirror_pods, working_pods)
        if self.cgroups_per_qos:
            klog.v(3).info_s("Clean up orphaned pod cgroups")
            # DIVERGES (fault of Go): a pod that this housekeeping has started or begun to terminate keeps its cgroup.
            # Go: pkg/kubelet/kubelet_pods.go, (*Kubelet).HandlePodCleanups: the Go kubelet lists the pods that may run
            # before it starts or terminates pods, so the cgroups of these count as orphaned.
            # Why: the removal kills all processes in the cgroup: those of a pod that starts with an earlier one's UID,
            # and those of a pod that has one second left to stop.
            # Test: kubelet_pods_test.py:test_pod_that_is_started_again_keeps_its_cgroup,
            # kubelet_pods_test.py:test_orphan_that_is_told_to_end_keeps_its_cgroup_until_it_has
            possibly_running |= _possibly_running(working_pods) | {pod.id for pod in running_runtime_pods}
            self._cleanup_orphaned_pod_cgroups(ctx, found.cgroups, possibly_running)
        self.crash_loop_back_off.gc()

    def _delete_orphaned_mirror_pods(
        self, ctx: golang.Context, mirror_pods: list[v1.Pod], full_names: list[str]
    ) -> None:
        """Delete the mirror pods whose static pods are gone, except those whose static pods are still terminating.

        DIVERGES (safer): a separate thread sends the deletions to the API server.
        Go: pkg/kubelet/kubelet_pods.go, (*Kubelet).HandlePodCleanups: the sync loop sends them, and waits.
        Why: no pod would start while the API server does not respond.
        Test: pod/pod_manager_test.py:test_deletion_in_the_background_waits_for_nobody_and_is_asked_for_once

        DIVERGES (fault of Go): the kubelet deletes only the mirror pod with the known UID.
        Go: pkg/kubelet/kubelet_pods.go, (*Kubelet).HandlePodCleanups: the Go kubelet deletes any pod with the mirror
        pod's name.
        Why: if the mirror pod is already gone, a new pod of another client may have its name.
        Test: kubelet_test.py:test_mirror_whose_static_pod_is_gone_is_deleted_and_no_other_pod_of_its_name,
        pod/mirror_client_test.py:test_pod_that_has_the_name_of_a_mirror_by_now_stays
        """
        terminating = self.pod_workers.is_pod_for_mirror_pod_terminating_by_full_name
        uids = {kubecontainer.get_pod_full_name(pod): pod.metadata.uid for pod in mirror_pods}
        orphaned = {name: uids[name] for name in full_names if not terminating(name)}
        self.mirror_pod_client.delete_in_background(ctx, orphaned)

    def _restart_unknown_pods(
        self, ctx: golang.Context, active_pods: list[v1.Pod], working_pods: dict[types.UID, PodWorkerSync]
    ) -> bool:
        """Start desired pods that have no worker.

        A static pod, for example, has no worker if it was removed and added again with the same UID. Only active pods
        count, because the pod manager also contains pods that will never run, such as rejected ones.

        Return whether the workers have received all of these pods.
        """
        failed = False
        for desired in active_pods:
            uid = desired.metadata.uid
            if uid in working_pods:
                continue
            klog.v(3).info_s(
                "Pod will be restarted because it is in the desired set and not known to the pod workers "
                "(likely due to UID reuse)",
                podUID=uid,
            )
            static = kubetypes.is_static_pod(desired)
            known = self.pod_manager.get_pod_and_mirror_pod(desired)
            done = False
            with contain("Failed to restart a pod", ctx, pod=klog.kobj(desired), podUID=uid):
                self.pod_workers.update_pod(
                    ctx,
                    UpdatePodOptions(
                        update_type=kubetypes.SyncPodType.CREATE, pod=known.pod, mirror_pod=known.mirror_pod
                    ),
                )
                done = True
            failed |= not done
            # Record the pod as known; otherwise a later step would treat it as an orphan.
            working_pods[uid] = PodWorkerSync(state=PodWorkerState.SYNC_POD, has_config=True, static=static)
            metrics.RESTARTED_POD_TOTAL.labels("true" if static else "").inc()
        return not failed

    def _hand_terminal_pods_to_workers(
        self,
        ctx: golang.Context,
        all_pods: list[v1.Pod],
        running: list[kubecontainer.Pod],
        working_pods: dict[types.UID, PodWorkerSync],
    ) -> None:
        """Have workers finish the pods that were already terminal and being deleted when the kubelet started."""
        running_uids = {pod.id for pod in running}
        for pod in all_pods:
            uid = pod.metadata.uid
            if pod.metadata.deletion_timestamp is None or not podutil.is_pod_phase_terminal(pod.status.phase):
                continue
            if uid in working_pods or uid in running_uids:
                continue
            klog.v(3).info_s(
                "Handling termination and deletion of the pod to pod workers", pod=klog.kobj(pod), podUID=uid
            )
            with contain("Failed to finish a terminal pod", ctx, pod=klog.kobj(pod), podUID=uid):
                self.pod_workers.update_pod(ctx, UpdatePodOptions(update_type=kubetypes.SyncPodType.KILL, pod=pod))

    def _terminate_orphaned_runtime_pods(
        self, ctx: golang.Context, running: list[kubecontainer.Pod], working_pods: dict[types.UID, PodWorkerSync]
    ) -> None:
        """Terminate the runtime's pods that belong to no source, with a grace period of one second."""
        for running_pod in running:
            if running_pod.id in working_pods:
                continue
            kill_options = KillPodOptions(pod_termination_grace_period_seconds_override=1)
            klog.v(2).info_s(
                "Clean up containers for orphaned pod we had not seen before",
                podUID=running_pod.id,
                killPodOptions=kill_options,
            )
            with contain("Failed to terminate an orphaned pod", ctx, podUID=running_pod.id):
                self.pod_workers.update_pod(
                    ctx,
                    UpdatePodOptions(
                        update_type=kubetypes.SyncPodType.KILL, running_pod=running_pod, kill_pod_options=kill_options
                    ),
                )
                working_pods[running_pod.id] = PodWorkerSync(state=PodWorkerState.TERMINATING_POD, orphan=True)
            metrics.ORPHANED_RUNTIME_POD_TOTAL.inc()

    def _cleanup_orphaned_pod_cgroups(
        self, ctx: golang.Context, cgroup_pods: Mapping[types.UID, cm.CgroupName], possibly_running: set[types.UID]
    ) -> None:
        """Remove the cgroups of pods that cannot be running any more.

        Each removal has its own thread, because the kernel may take long.

        DIVERGES (safer): the thread that removes a cgroup also checks whether the pod's volumes are still mounted.
        Go: pkg/kubelet/kubelet_pods.go, (*Kubelet).cleanupOrphanedPodCgroups: the sync loop checks it.
        Why: all pods would wait for a disk that does not respond.
        Test: kubelet_pods_test.py:test_housekeeping_does_not_wait_for_the_volumes_of_an_orphaned_cgroup
        """
        self.cgroup_cleanups = {uid: thread for uid, thread in self.cgroup_cleanups.items() if thread.is_alive()}
        # DIVERGES (fault of Go): a pod with "_" in its UID, for which systemd's slice has "-", keeps its cgroup.
        # Go: pkg/kubelet/kubelet_pods.go, (*Kubelet).cleanupOrphanedPodCgroups: the cgroup counts as orphaned.
        # Why: a manifest may set such a UID, and the kubelet would kill its pod every two seconds.
        # Test: kubelet_pods_test.py:test_slice_of_a_uid_with_an_underscore_is_no_orphan_s
        possibly_running = possibly_running | {types.UID(uid.replace("_", "-")) for uid in possibly_running}
        for uid, name in cgroup_pods.items():
            # DIVERGES (safer): the kubelet does not start a second removal of a cgroup while the first is still
            # running.
            # Go: pkg/kubelet/kubelet_pods.go, (*Kubelet).cleanupOrphanedPodCgroups: the Go kubelet starts another
            # removal every two seconds.
            # Why: while a removal hangs, threads would accumulate.
            # Test: kubelet_pods_test.py:test_cgroup_that_cannot_be_removed_has_one_thread_and_others_go
            if uid not in possibly_running and uid not in self.cgroup_cleanups:
                with contain("Failed to clean up an orphaned pod cgroup", ctx, podUID=uid):
                    cleanup = golang.go(self._cleanup_orphaned_pod_cgroup, uid, name, name=f"cgroup-cleanup-{uid}")
                    self.cgroup_cleanups[uid] = cleanup

    def _cleanup_orphaned_pod_cgroup(self, uid: types.UID, name: cm.CgroupName) -> None:
        with contain("Failed to clean up an orphaned pod cgroup", golang.background(), podUID=uid):
            if self.pod_workers.could_have_running_containers(uid):
                return  # A static pod with this UID has been added again meanwhile.
            if not self.volume_manager.volumes_have_been_reconstructed():
                return  # The kubelet does not know the pod's volumes yet.
            pcm = self.container_manager.new_pod_container_manager()
            if self.pod_volumes_exist(uid):
                message = "Orphaned pod found, but volumes not yet removed.  Reducing cpu to minimum"
                klog.v(3).info_s(message, podUID=uid)
                message = "Failed to reduce cpu time for pod pending volume cleanup"
                _log_failure(message, uid, pcm.reduce_cpu_limits, name)
                return
            klog.v(3).info_s("Orphaned pod found, removing pod cgroups", podUID=uid)
            _log_failure("Failed to destroy orphaned pod cgroup", uid, pcm.destroy, name)

    def generate_api_pod_status(
        self, ctx: golang.Context, pod: v1.Pod, pod_status: kubecontainer.PodStatus, pod_is_terminal: bool
    ) -> v1.PodStatus:
        """Compute a pod's status from the runtime's state and the previous status. A terminal phase never changes."""
        klog.v(3).info_s("Generating pod status", podIsTerminal=pod_is_terminal, pod=klog.kobj(pod))
        old_status = self.status_manager.get_pod_status(pod.metadata.uid)
        if old_status is None:
            old_status = pod.status
        new = self._convert_status_to_api_status(pod, pod_status, old_status)
        statuses = [*new.container_statuses, *new.init_container_statuses]
        initialized = kubecontainer.has_any_active_regular_container_started(pod.spec, pod_status)
        new.phase = get_phase(pod, statuses, pod_is_terminal, initialized)
        klog.v(4).info_s("Got phase for pod", pod=klog.kobj(pod), oldPhase=old_status.phase, phase=new.phase)
        self._keep_terminal_phase(pod, old_status, new)
        self.probe_manager.update_pod_status(ctx, pod, new)
        if features.feature_gate.enabled(features.RESOURCE_HEALTH_STATUS):
            self.container_manager.update_allocated_resources_status(pod, new)
        new.conditions = self._pod_conditions(pod, old_status, new, pod_status, pod_is_terminal)
        if self.kube_client is not None:
            self._set_host_ips(ctx, pod, new)
        return new

    def _keep_terminal_phase(self, pod: v1.Pod, old: v1.PodStatus, new: v1.PodStatus) -> None:
        """Set the final phase, and keep the reason and the message while the phase stays the same.

        A terminal phase stays as it is. A sync handler may make a pod fail.
        """
        if not podutil.is_pod_phase_terminal(new.phase):
            for terminal in (old.phase, pod.status.phase):
                if podutil.is_pod_phase_terminal(terminal):
                    new.phase = terminal
                    break
        if new.phase == old.phase:
            new.reason = old.reason or pod.status.reason
            new.message = old.message or pod.status.message
        for handler in self.pod_sync_handlers:
            result = handler.should_evict(pod)
            if result.evict:
                new.phase, new.reason, new.message = v1.POD_FAILED, result.reason, result.message
                break
        if podutil.is_pod_phase_terminal(pod.status.phase) and new.phase != pod.status.phase:
            klog.error_s(
                None,
                "Pod attempted illegal phase transition",
                pod=klog.kobj(pod),
                originalStatusPhase=pod.status.phase,
                apiStatusPhase=new.phase,
            )
            new.phase = pod.status.phase

    def _pod_conditions(
        self,
        pod: v1.Pod,
        old: v1.PodStatus,
        new: v1.PodStatus,
        pod_status: kubecontainer.PodStatus,
        pod_is_terminal: bool,
    ) -> list[v1.PodCondition]:
        """Return the pod's conditions: those of other components unchanged, then the kubelet's own."""
        conditions = [c for c in pod.status.conditions if not kubetypes.pod_condition_by_kubelet(c.type)]
        conditions += self.determine_pod_resize_status(pod, pod_is_terminal)
        _, disruption = podutil.get_pod_condition_from_list(old.conditions, v1.DISRUPTION_TARGET)
        if disruption is not None:
            conditions = utilpod.replace_or_append_pod_condition(conditions, disruption)
        statuses = [*new.init_container_statuses, *new.container_statuses]
        conditions.append(status.generate_pod_ready_to_start_containers_condition(pod, old, pod_status))
        conditions.append(status.generate_pod_initialized_condition(pod, old, statuses, new.phase))
        conditions.append(status.generate_pod_ready_condition(pod, old, conditions, statuses, new.phase))
        conditions.append(status.generate_containers_ready_condition(pod, old, statuses, new.phase))
        generation = podutil.calculate_pod_condition_observed_generation(old, pod.metadata.generation, v1.POD_SCHEDULED)
        conditions.append(
            v1.PodCondition(type=v1.POD_SCHEDULED, status=v1.CONDITION_TRUE, observed_generation=generation)
        )
        if _restarts_in_place() and podutil.all_containers_could_restart(pod.spec):
            restarting = status.generate_all_containers_restarting_condition(pod, pod_status, old, new.phase)
            conditions.append(restarting)
        return conditions

    def determine_pod_resize_status(self, allocated_pod: v1.Pod, pod_is_terminal: bool) -> list[v1.PodCondition]:
        """Return the resize conditions, and clear them if the pod is terminal."""
        uid = allocated_pod.metadata.uid
        if pod_is_terminal:
            self.status_manager.clear_pod_resize_in_progress_condition(uid)
            self.status_manager.clear_pod_resize_pending_condition(uid)
            return []
        return self.status_manager.get_pod_resize_conditions(uid)

    def _set_host_ips(self, ctx: golang.Context, pod: v1.Pod, new: v1.PodStatus) -> None:
        """Set the node's addresses, which are also the pod's own if the pod uses the host's network."""
        try:
            host_ips = self.get_host_ips_any_way(ctx)
        except ValueError as err:
            klog.v(4).info_s("Cannot get host IPs", err=err)
            return
        new.host_ip = host_ips[0]
        new.host_ips = [v1.HostIP(ip=ip) for ip in host_ips[:2]]
        if not kubecontainer.is_host_network_pod(pod):
            return
        if not new.pod_ip:
            new.pod_ip = host_ips[0]
            new.pod_ips = [v1.PodIP(ip=new.pod_ip)]
        if len(host_ips) == 2 and len(new.pod_ips) == 1 and _family(new.pod_ips[0].ip) != _family(host_ips[1]):
            new.pod_ips.append(v1.PodIP(ip=host_ips[1]))

    def sort_pod_ips(self, pod_ips: Sequence[str]) -> list[str]:
        """Return at most one address of each family; the node's primary family comes first."""
        first = self.node_ips[0].version if self.node_ips else 4
        by_family: dict[int, str] = {}
        for text in pod_ips:
            if (ip := _parse_ip(text)) is not None:
                by_family.setdefault(ip.version, str(ip))
        return [by_family[family] for family in (first, 10 - first) if family in by_family]

    def _convert_status_to_api_status(
        self, pod: v1.Pod, pod_status: kubecontainer.PodStatus, old: v1.PodStatus
    ) -> v1.PodStatus:
        """Compute the addresses, the QoS class and the container statuses; generate_api_pod_status adds the rest."""
        new = v1.PodStatus(qos_class=v1qos.get_pod_qos(pod))
        new.pod_ips = self._pod_ips(pod, pod_status, old)
        new.pod_ip = new.pod_ips[0].ip if new.pod_ips else ""
        spec = pod.spec
        ephemeral = [c for c, _ in podutil.container_iter(spec, podutil.EPHEMERAL_CONTAINERS)]
        restarting = _restarts_in_place() and kubecontainer.should_all_containers_restart(pod, pod_status, old)
        convert = functools.partial(self._convert_to_api_container_statuses, pod, pod_status, pod_restarting=restarting)
        new.container_statuses = convert(old.container_statuses, spec.containers)
        new.init_container_statuses = convert(old.init_container_statuses, spec.init_containers, is_init=True)
        new.ephemeral_container_statuses = convert(old.ephemeral_container_statuses, ephemeral)
        if features.feature_gate.enabled(features.IN_PLACE_POD_LEVEL_RESOURCES_VERTICAL_SCALING):
            pcm = self.container_manager.new_pod_container_manager()
            new.resources = convert_to_api_pod_level_resources_status(pcm, pod, old)
            new.allocated_resources = get_effective_allocated_resources(pod).requests
        return new

    def _pod_ips(self, pod: v1.Pod, pod_status: kubecontainer.PodStatus, old: v1.PodStatus) -> list[v1.PodIP]:
        found = [v1.PodIP(ip=ip) for ip in self.sort_pod_ips(pod_status.ips)]
        if found or kubecontainer.is_host_network_pod(pod):
            return found
        if any(sandbox.state == runtimeapi.SANDBOX_READY for sandbox in pod_status.sandbox_statuses):
            return []
        # DIVERGES (fault of Go): a pod without a ready sandbox keeps the addresses in its status.
        # Go: pkg/kubelet/pleg/generic.go, (*GenericPLEG).getPodIPs: it keeps only the addresses that this process has
        # seen.
        # Why: a restart of the kubelet would remove the addresses of all terminated pods.
        # Test: kubelet_pods_status_test.py:test_pod_without_a_ready_sandbox_keeps_its_address
        return list(old.pod_ips)

    def _convert_to_api_container_statuses(
        self,
        pod: v1.Pod,
        pod_status: kubecontainer.PodStatus,
        previous: list[v1.ContainerStatus],
        containers: list[v1.Container],
        is_init: bool = False,
        pod_restarting: bool = False,
    ) -> list[v1.ContainerStatus]:
        """Return one status for each container, sorted by name; init containers keep the order of the spec."""
        if not containers:
            return []
        default_reason = POD_INITIALIZING if pod.spec.init_containers else CONTAINER_CREATING
        old = {container_status.name: container_status for container_status in previous}
        statuses = {c.name: self._default_status(pod, c, old.get(c.name), default_reason) for c in containers}
        _note_lost_containers(pod, pod_status, statuses, old, default_reason, pod_restarting)
        self._apply_runtime_statuses(containers, pod_status, statuses, old, pod_restarting)
        ends_unseen = is_init and kuberuntime.has_any_regular_container_created(pod, pod_status)
        for container in containers:
            name = container.name
            self._explain_waiting(pod, pod_status, container, statuses[name], old.get(name), is_init, ends_unseen)
        if is_init:
            return kubetypes.sort_statuses_of_init_containers(pod, statuses)
        return [statuses[name] for name in sorted(statuses)]

    def _default_status(
        self, pod: v1.Pod, container: v1.Container, old: v1.ContainerStatus | None, default_reason: str
    ) -> v1.ContainerStatus:
        """Return the status of a container that the runtime does not know."""
        if old is not None and old.state.terminated is not None:
            return v1.deepcopy(old)
        new = v1.ContainerStatus(
            name=container.name,
            image=container.image,
            state=v1.ContainerState(waiting=v1.ContainerStateWaiting(reason=default_reason)),
            volume_mounts=self._volume_mount_statuses(pod, container),
        )
        if old is not None:
            new.restart_count = old.restart_count
            new.last_state = old.last_state
        return new

    def _volume_mount_statuses(self, pod: v1.Pod, container: v1.Container) -> list[v1.VolumeMountStatus]:
        supported = self.runtime_class_supports_recursive_read_only_mounts(pod)
        statuses = []
        for mount in container.volume_mounts:
            mode = None
            if mount.read_only:
                mode = v1.RECURSIVE_READ_ONLY_DISABLED
                try:
                    if resolve_recursive_read_only(mount, supported):
                        mode = v1.RECURSIVE_READ_ONLY_ENABLED
                except ValueError as err:
                    klog.error_s(err, "failed to resolve recursive read-only mode", mode=mount.recursive_read_only)
            statuses.append(
                v1.VolumeMountStatus(
                    name=mount.name,
                    mount_path=mount.mount_path,
                    read_only=mount.read_only,
                    recursive_read_only=mode,
                )
            )
        return statuses

    def _apply_runtime_statuses(
        self,
        containers: list[v1.Container],
        pod_status: kubecontainer.PodStatus,
        statuses: dict[str, v1.ContainerStatus],
        old: dict[str, v1.ContainerStatus],
        pod_restarting: bool,
    ) -> None:
        """Set the state from the newest container of each name, and the last state from the one before it."""
        specs = {container.name: container for container in containers}
        seen: Counter[str] = Counter()
        newest_first = kubecontainer.sort_container_statuses_by_creation_time(pod_status.container_statuses)[::-1]
        for runtime_status in newest_first:
            name = runtime_status.name
            if name not in specs or seen[name] >= 2:
                continue
            new = _convert_container_status(runtime_status, old.get(name), pod_restarting)
            if seen[name] == 0:
                self._add_container_details(specs[name], runtime_status, new, old.get(name))
                statuses[name] = new
            else:
                statuses[name].last_state = new.state
            seen[name] += 1

    def _add_container_details(
        self,
        spec: v1.Container,
        runtime_status: kubecontainer.Status,
        new: v1.ContainerStatus,
        old: v1.ContainerStatus | None,
    ) -> None:
        """Set the resources, the user and the stop signal as the runtime reports them."""
        running = runtime_status.state is kubecontainer.State.RUNNING
        if running and old is not None and old.started is not None and old.container_id == new.container_id:
            # After a restart of the kubelet a started container must not appear as starting.
            # DIVERGES (fault of Go): a container that replaces a started one does not count as started.
            # Go: pkg/kubelet/kubelet_pods.go, (*Kubelet).convertToAPIContainerStatuses: a new container of that name
            # counts as started too, until its startup probe has begun.
            # Why: the container would appear as started, and its liveness probe could run, while it starts.
            # Test: kubelet_pods_status_test.py:test_only_the_same_container_stays_started
            new.started = old.started
        new.resources = _container_status_resources(spec, new, runtime_status, old)
        new.allocated_resources = dict(spec.resources.requests)
        if runtime_status.user is not None and runtime_status.user.linux is not None:
            user = runtime_status.user.linux
            new.user = v1.ContainerUser(
                linux=v1.LinuxContainerUser(
                    uid=user.uid, gid=user.gid, supplemental_groups=list(user.supplemental_groups)
                )
            )
        new.stop_signal = runtime_status.stop_signal

    def _explain_waiting(
        self,
        pod: v1.Pod,
        pod_status: kubecontainer.PodStatus,
        container: v1.Container,
        container_status: v1.ContainerStatus,
        old: v1.ContainerStatus | None,
        is_init: bool,
        ends_unseen: bool,
    ) -> None:
        """Show a container that should run but does not as waiting, with the reason of its last failed start.

        If `ends_unseen` is set, an init container that the runtime does not know has succeeded.
        """
        if is_init:
            found = pod_status.find_container_status_by_name(container.name)
            if found is not None and found.state is kubecontainer.State.EXITED and found.exit_code == 0:
                return
            sidecar = container.restart_policy == v1.CONTAINER_RESTART_POLICY_ALWAYS
            if found is None and ends_unseen and not sidecar and container_status.state.waiting is not None:
                # The init container must have succeeded, because the containers after it exist; the runtime has removed
                # it since.
                container_status.state = v1.ContainerState(
                    terminated=v1.ContainerStateTerminated(
                        reason="Completed",
                        message="Unable to get init container status from container runtime and pod has been "
                        "initialized, treat it as exited normally",
                    )
                )
                return
        if not kubecontainer.should_container_be_restarted(container, pod, pod_status):
            return
        reason = self.reason_cache.get(pod.metadata.uid, container.name)
        if reason is not None:
            waiting = v1.ContainerStateWaiting(reason=reason.reason, message=reason.message)
        elif (found_before := _still_waiting(old, container_status)) is not None:
            waiting = found_before
        else:
            return
        if container_status.state.terminated is not None:
            container_status.last_state = container_status.state
        container_status.state = v1.ContainerState(waiting=waiting)

    def runtime_class_supports_recursive_read_only_mounts(self, pod: v1.Pod) -> bool:
        """Report whether the runtime handler of the pod's class supports recursive read-only mounts."""
        handler = ""
        if self.runtime_class_manager is not None:
            name = pod.spec.runtime_class_name
            try:
                handler = self.runtime_class_manager.lookup_runtime_handler(name)
            except Exception as err:  # If the class does not exist, creating the sandbox fails and reports it.
                klog.error_s(err, "failed to look up the runtime handler", runtimeClassName=name)
                return False
        return runtime_handler_supports_recursive_read_only_mounts(handler, self.runtime_state.runtime_handlers())

    def find_container(
        self, ctx: golang.Context, pod_full_name: str, pod_uid: types.UID, container_name: str
    ) -> kubecontainer.Container | None:
        """Return the running container of that name, or None. Raise the runtime's error."""
        pods = kubecontainer.Pods(self.container_runtime.get_pods(ctx, False))
        pod = pods.find_pod(pod_full_name, types.UID(self.pod_manager.translate_pod_uid(pod_uid)))
        return pod.find_container_by_name(container_name)

    def run_in_container(
        self, ctx: golang.Context, pod_full_name: str, pod_uid: types.UID, container_name: str, cmd: Sequence[str]
    ) -> bytes:
        """Run a command to its end, and return its output.

        Raise LookupError if there is no such container, or the runtime's error.
        """
        container = self._require_container(ctx, pod_full_name, pod_uid, container_name)
        return self.runner.run_in_container(ctx, container.id, cmd, 0)

    def get_exec(
        self,
        ctx: golang.Context,
        pod_full_name: str,
        pod_uid: types.UID,
        container_name: str,
        cmd: Sequence[str],
        stream_opts: remotecommand.Options,
    ) -> str:
        """Return the URL at which the runtime serves the command. Raise LookupError, or the runtime's error."""
        container = self._require_container(ctx, pod_full_name, pod_uid, container_name)
        opts = stream_opts
        return self.streaming_runtime.get_exec(ctx, container.id, cmd, opts.stdin, opts.stdout, opts.stderr, opts.tty)

    def get_attach(
        self,
        ctx: golang.Context,
        pod_full_name: str,
        pod_uid: types.UID,
        container_name: str,
        stream_opts: remotecommand.Options,
    ) -> str:
        """Return the URL at which the runtime serves the attach stream. Raise LookupError, or the runtime's error."""
        container = self.find_container(ctx, pod_full_name, pod_uid, container_name)
        if container is None:
            raise LookupError(f"container {container_name} not found in pod {pod_full_name}")
        pod = self.get_pod_by_full_name(pod_full_name)
        if pod is None or (pod_uid and pod.metadata.uid != pod_uid):
            raise LookupError(f"pod {pod_full_name} not found")
        spec = kubecontainer.get_container_spec(pod, container_name)
        if spec is None:
            raise LookupError(f"container {container_name} not found in pod {pod_full_name}")
        # The container's spec decides whether there is a terminal, not the client that attaches.
        opts = stream_opts
        return self.streaming_runtime.get_attach(ctx, container.id, opts.stdin, opts.stdout, opts.stderr, spec.tty)

    def get_port_forward(
        self,
        ctx: golang.Context,
        pod_name: str,
        pod_namespace: str,
        pod_uid: types.UID,
        port_forward_opts: portforward.V4Options,
    ) -> str:
        """Return the URL at which the runtime serves the forwarded ports. Raise LookupError, or the runtime's error."""
        pods = kubecontainer.Pods(self.container_runtime.get_pods(ctx, False))
        uid = types.UID(self.pod_manager.translate_pod_uid(pod_uid))
        full_name = kubecontainer.build_pod_full_name(pod_name, pod_namespace)
        if pods.find_pod(full_name, uid).is_empty():
            raise LookupError(f'pod not found ("{full_name}")')
        return self.streaming_runtime.get_port_forward(ctx, pod_name, pod_namespace, uid, port_forward_opts.ports)

    def _require_container(
        self, ctx: golang.Context, pod_full_name: str, pod_uid: types.UID, container_name: str
    ) -> kubecontainer.Container:
        container = self.find_container(ctx, pod_full_name, pod_uid, container_name)
        if container is None:
            raise LookupError(f'container not found ("{container_name}")')
        return container


def runtime_handler_supports_recursive_read_only_mounts(
    runtime_handler_name: str, runtime_handlers: Sequence[kubecontainer.RuntimeHandler]
) -> bool:
    """Report whether the handler supports recursive read-only mounts.

    An empty list is not an error: the runtime then does not list its handlers.
    """
    if not runtime_handlers:
        return False
    for handler in runtime_handlers:
        if handler.name == runtime_handler_name:
            return handler.supports_recursive_read_only_mounts
    klog.error_s(None, "Unknown runtime handler", runtimeHandlerName=runtime_handler_name)
    return False


def truncate_pod_hostname_if_needed(pod_name: str, hostname: str) -> str:
    """Truncate the host name to the length that Linux allows. Raise ValueError if nothing usable remains."""
    if len(hostname) <= HOSTNAME_MAX_LEN:
        return hostname
    truncated = hostname[:HOSTNAME_MAX_LEN].rstrip("-.")
    klog.error_s(
        None,
        "Hostname for pod was too long, truncated it",
        podName=pod_name,
        hostnameMaxLen=HOSTNAME_MAX_LEN,
        truncatedHostname=truncated,
    )
    if not truncated:
        raise ValueError(f'hostname for pod "{pod_name}" was invalid: "{hostname}"')
    return truncated


def get_phase(pod: v1.Pod, statuses: list[v1.ContainerStatus], pod_is_terminal: bool, pod_has_initialized: bool) -> str:
    """Return the pod's phase, from the statuses of its init, sidecar and regular containers.

    `pod_is_terminal` means that no container of the pod will start again, whatever the restart policy says.
    """
    by_name = {container_status.name: container_status for container_status in statuses}
    init = _count_init_containers(pod, by_name)
    regular = _count_regular_containers(pod, by_name)
    if init["failed permanently"]:
        return v1.POD_FAILED
    if init["pending"] or (init["sidecar pending"] and not pod_has_initialized):
        return v1.POD_PENDING
    waiting = init["waiting"] + regular["waiting"]
    unknown = init["unknown"] + regular["unknown"]
    running = init["running"] + regular["running"]
    stopped = regular["stopped"]
    if waiting:
        return v1.POD_PENDING
    if running and not unknown:
        return v1.POD_RUNNING
    if running or unknown or not stopped:
        return v1.POD_PENDING
    ended = v1.POD_SUCCEEDED if stopped == regular["succeeded"] else v1.POD_FAILED
    # A static pod's source would add it again, so its restart policy alone decides when it is finished.
    if pod_is_terminal and not kubetypes.is_static_pod(pod):
        return ended
    return ended if stopped == regular["stopped permanently"] else v1.POD_RUNNING


def _count_init_containers(pod: v1.Pod, statuses: dict[str, v1.ContainerStatus]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for container in pod.spec.init_containers:
        found = statuses.get(container.name)
        if podutil.is_restartable_init_container(container):
            counts.update(_sidecar_counts(found))
            continue
        ended = _last_end(found)
        if found is None or found.state.running is not None or ended is None:
            counts["pending"] += 1
        elif ended.exit_code != 0 and not _is_restarted(pod, container, ended):
            counts["failed permanently"] += 1
    return counts


def _sidecar_counts(found: v1.ContainerStatus | None) -> list[str]:
    if found is None:
        return ["unknown"]
    if found.state.running is not None:
        return ["running"] if found.started else ["running", "sidecar pending"]
    if found.state.terminated is not None:
        return []
    if found.state.waiting is None:
        return ["unknown", "sidecar pending"]
    return [] if found.last_state.terminated is not None else ["waiting", "sidecar pending"]


def _count_regular_containers(pod: v1.Pod, statuses: dict[str, v1.ContainerStatus]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for container in pod.spec.containers:
        found = statuses.get(container.name)
        if found is None:
            counts["unknown"] += 1
        elif found.state.running is not None:
            counts["running"] += 1
        elif (ended := _last_end(found)) is not None:
            counts["stopped"] += 1
            if not _is_restarted(pod, container, ended):
                counts["stopped permanently"] += 1
            if found.state.terminated is not None and ended.exit_code == 0:
                counts["succeeded"] += 1
        elif found.state.waiting is not None:
            counts["waiting"] += 1
        else:
            counts["unknown"] += 1
    return counts


def _is_restarted(pod: v1.Pod, container: v1.Container, ended: v1.ContainerStateTerminated) -> bool:
    if podutil.container_should_restart(container, pod.spec, ended.exit_code):
        return True
    return _restarts_in_place() and ended.reason == RESTARTING_ALL_CONTAINERS


def _last_end(found: v1.ContainerStatus | None) -> v1.ContainerStateTerminated | None:
    """Return how the container terminated, or None if it has not, or is running again."""
    if found is None or found.state.running is not None:
        return None
    if found.state.terminated is not None:
        return found.state.terminated
    return found.last_state.terminated if found.state.waiting is not None else None


def _convert_container_status(
    runtime_status: kubecontainer.Status, old: v1.ContainerStatus | None, pod_restarting: bool
) -> v1.ContainerStatus:
    """Convert a runtime status to an API status. The old status supplies what the runtime no longer knows."""
    new = v1.ContainerStatus(
        name=runtime_status.name,
        restart_count=runtime_status.restart_count,
        image=runtime_status.image,
        image_id=runtime_status.image_ref,
        container_id=str(runtime_status.id),
    )
    if old is not None:
        new.volume_mounts = old.volume_mounts
        if _restarts_in_place():
            _keep_history(new, old)
    match runtime_status.state:
        case kubecontainer.State.RUNNING:
            new.state.running = v1.ContainerStateRunning(started_at=runtime_status.started_at)
            if _restarts_in_place() and old is not None and old.state.terminated is not None:
                new.restart_count = max(new.restart_count, old.restart_count + 1)
        case kubecontainer.State.EXITED:
            new.state.terminated = v1.ContainerStateTerminated(
                exit_code=runtime_status.exit_code,
                reason=runtime_status.reason,
                message=runtime_status.message,
                started_at=runtime_status.started_at,
                finished_at=runtime_status.finished_at,
                container_id=str(runtime_status.id),
            )
        case kubecontainer.State.UNKNOWN if old is not None and old.state.running is not None:
            new.state.terminated = v1.ContainerStateTerminated(
                reason=RESTARTING_ALL_CONTAINERS if pod_restarting else kubecontainer.CONTAINER_REASON_STATUS_UNKNOWN,
                message="The container could not be located when the pod was terminated",
                exit_code=UNKNOWN_EXIT_CODE,
            )
            new.restart_count = old.restart_count + 1
        case _:
            new.state.waiting = v1.ContainerStateWaiting()
    return new


def _keep_history(new: v1.ContainerStatus, old: v1.ContainerStatus) -> None:
    """Keep the restart count and the last state, because a restart in place removes the containers that have them."""
    new.restart_count = max(new.restart_count, old.restart_count)
    if old.container_id != new.container_id and old.state.terminated is not None:
        new.last_state = v1.ContainerState(terminated=old.state.terminated)
    elif old.last_state.terminated is not None:
        new.last_state = v1.ContainerState(terminated=old.last_state.terminated)


def _restarts_in_place() -> bool:
    """Report whether a container's exit may restart all containers of the pod in place on this node."""
    return features.feature_gate.enabled(features.RESTART_ALL_CONTAINERS_ON_CONTAINER_EXITS)


def _note_lost_containers(
    pod: v1.Pod,
    pod_status: kubecontainer.PodStatus,
    statuses: dict[str, v1.ContainerStatus],
    old: dict[str, v1.ContainerStatus],
    default_reason: str,
    pod_restarting: bool,
) -> None:
    """Record an unknown termination for each container that was running and that the runtime no longer has."""
    in_runtime = {runtime_status.name for runtime_status in pod_status.container_statuses}
    for name, new in statuses.items():
        before = old.get(name)
        if name in in_runtime or before is None:
            continue
        if pod_restarting and before.state.waiting is None:
            _show_removed_to_restart(new, before)
            continue
        if before.state.running is None:
            continue
        waiting = new.state.waiting
        if waiting is None or waiting.reason != default_reason or new.last_state.terminated is not None:
            continue
        new.last_state = v1.ContainerState(
            terminated=v1.ContainerStateTerminated(
                reason=kubecontainer.CONTAINER_REASON_STATUS_UNKNOWN,
                message="The container could not be located when the pod was deleted.  "
                "The container used to be Running",
                exit_code=UNKNOWN_EXIT_CODE,
            )
        )
        if pod.metadata.deletion_timestamp is None:
            new.restart_count += 1


def _container_status_resources(
    spec: v1.Container,
    new: v1.ContainerStatus,
    runtime_status: kubecontainer.Status,
    old: v1.ContainerStatus | None,
) -> v1.ResourceRequirements:
    """Return the resources in effect: the runtime's values for a running container, otherwise the allocated ones.

    A CPU value at or below the kernel's minimum quota or shares cannot be read back from the cgroup, so the spec's
    value is shown.
    """
    resources = v1.deepcopy(spec.resources)
    if runtime_status.state is not kubecontainer.State.RUNNING:
        return resources
    actual = runtime_status.resources or kubecontainer.ContainerResources()
    same = (
        old is not None
        and old.state.running is not None
        and old.container_id == new.container_id
        and old.resources is not None
    )
    before = old.resources if same and old is not None and old.resources is not None else v1.ResourceRequirements()
    rows = (
        (resources.limits, before.limits, v1.RESOURCE_CPU, actual.cpu_limit, cm.MIN_MILLI_CPU_LIMIT),
        (resources.limits, before.limits, v1.RESOURCE_MEMORY, actual.memory_limit, -1),
        (resources.requests, before.requests, v1.RESOURCE_CPU, actual.cpu_request, cm.MIN_SHARES),
        (resources.requests, before.requests, v1.RESOURCE_MEMORY, actual.memory_request, -1),
    )
    for target, earlier, name, measured, least_milli in rows:
        if not target:
            continue
        if measured is None:
            if name in earlier:
                target[name] = earlier[name]
        elif measured.milli_value() > least_milli or (name in target and target[name].milli_value() > least_milli):
            target[name] = measured
    return resources


def _still_waiting(before: v1.ContainerStatus | None, now: v1.ContainerStatus) -> v1.ContainerStateWaiting | None:
    """Return the container's previous waiting reason if it is an error and the container has not run since.

    DIVERGES (fault of Go): a waiting container keeps its reason and message when the kubelet restarts.
    Go: pkg/kubelet/reason_cache.go, (*ReasonCache).Get: the Go kubelet only knows starts that failed since its own
    start.
    Why: the status would not explain the problem until the next start has failed.
    Test: kubelet_pods_status_test.py:test_reason_outlives_the_kubelet_that_gave_it
    """
    if before is None or before.state.waiting is None:
        return None
    if before.state.waiting.reason in ("", CONTAINER_CREATING, POD_INITIALIZING, RESTARTING_ALL_CONTAINERS):
        return None
    ended, ended_before = now.state.terminated, before.last_state.terminated
    if ended is None:
        return before.state.waiting
    same = ended_before is not None and ended_before.container_id == ended.container_id
    return before.state.waiting if same else None


def _show_removed_to_restart(new: v1.ContainerStatus, before: v1.ContainerStatus) -> None:
    waiting = v1.ContainerStateWaiting(reason=RESTARTING_ALL_CONTAINERS, message=_REMOVED_TO_RESTART)
    ended = v1.ContainerStateTerminated(
        reason=RESTARTING_ALL_CONTAINERS, message=_REMOVED_TO_RESTART, exit_code=UNKNOWN_EXIT_CODE
    )
    new.state = v1.ContainerState(waiting=waiting)
    new.last_state = v1.ContainerState(terminated=ended)
    new.restart_count = before.restart_count + 1


def _possibly_running(working_pods: dict[types.UID, PodWorkerSync]) -> set[types.UID]:
    states = (PodWorkerState.SYNC_POD, PodWorkerState.TERMINATING_POD)
    return {uid for uid, sync in working_pods.items() if sync.state in states}


def _record_pod_counts(
    all_pods: list[v1.Pod],
    active_pods: list[v1.Pod],
    mirror_pods: list[v1.Pod],
    working_pods: dict[types.UID, PodWorkerSync],
) -> None:
    for gauge, pods in ((metrics.DESIRED_POD_COUNT, all_pods), (metrics.ACTIVE_POD_COUNT, active_pods)):
        static = sum(kubetypes.is_static_pod(pod) for pod in pods)
        gauge.labels("").set(len(pods) - static)
        gauge.labels("true").set(static)
    metrics.MIRROR_POD_COUNT.set(len(mirror_pods))
    counts = Counter(working_pods.values())
    config_states = (("desired", False, True), ("orphan", True, True), ("runtime_only", True, False))
    for config_state, orphan, has_config in config_states:
        for static in (True, False) if has_config else (False,):
            for state in PodWorkerState:
                sync = PodWorkerSync(state=state, orphan=orphan, has_config=has_config, static=static)
                label = ("true" if static else "") if has_config else "unknown"
                metrics.WORKING_POD_COUNT.labels(str(state), config_state, label).set(counts[sync])


def _require_valid(what: str, value: str, kind: str, faults: list[str]) -> None:
    if faults:
        raise ValueError(f'pod {what} "{value}" is not a valid DNS {kind}: {";".join(faults)}')


def _limited_by_pod(pod: v1.Pod, allocatable: dict[str, Quantity]) -> dict[str, Quantity]:
    """Return the resources that a container without limits may use: the node's, or the pod's limits if it has any."""
    limits = pod.spec.resources.limits if pod.spec.resources is not None else {}
    if not features.feature_gate.enabled(features.POD_LEVEL_RESOURCES):
        return allocatable
    return allocatable | {
        name: limit
        for name, limit in limits.items()
        if name in allocatable and name in (v1.RESOURCE_CPU, v1.RESOURCE_MEMORY) and not limit.is_zero()
    }


def _log_failure(message: str, uid: types.UID, action: Callable[[cm.CgroupName], None], name: cm.CgroupName) -> None:
    try:
        action(name)
    except Exception as err:
        # The next housekeeping finds the cgroup again. The failure must not affect other pods' cgroups.
        klog.info_s(message, podUID=uid, err=err)


def _family(ip: str) -> int:
    return ip_address(ip).version


def _parse_ip(text: str) -> IPv4Address | IPv6Address | None:
    """Parse an address, with leading zeros or mapped into IPv6 too; return None if it is invalid."""
    if "." in text and ":" not in text:
        text = ".".join(part.lstrip("0") or "0" for part in text.split("."))
    try:
        ip = ip_address(text)
    except ValueError:
        return None
    return getattr(ip, "ipv4_mapped", None) or ip
