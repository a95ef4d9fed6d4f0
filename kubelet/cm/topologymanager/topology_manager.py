"""Admit pods whose resources can come from NUMA nodes that the policy accepts.

Go: pkg/kubelet/cm/topologymanager/topology_manager.go
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence, Set
from typing import TYPE_CHECKING

from kubelet import lifecycle, metrics
from kubelet.cm.topologymanager.hints import HintProvider, TopologyHint
from kubelet.cm.topologymanager.numa_info import NUMAInfo
from kubelet.cm.topologymanager.policy import POLICY_SINGLE_NUMA_NODE, Policy
from kubelet.cm.topologymanager.policy_best_effort import POLICY_BEST_EFFORT, BestEffortPolicy
from kubelet.cm.topologymanager.policy_none import POLICY_NONE
from kubelet.cm.topologymanager.policy_options import PolicyOptions, new_policy_options
from kubelet.cm.topologymanager.policy_restricted import POLICY_RESTRICTED, RestrictedPolicy
from kubelet.cm.topologymanager.policy_single_numa_node import SingleNumaNodePolicy
from kubelet.cm.topologymanager.scope import CONTAINER_TOPOLOGY_SCOPE, POD_TOPOLOGY_SCOPE, Scope
from kubelet.cm.topologymanager.scope_container import ContainerScope
from kubelet.cm.topologymanager.scope_none import NoneScope
from kubelet.cm.topologymanager.scope_pod import PodScope
from pkg import klog
from pkg.api.core import v1

if TYPE_CHECKING:
    from kubelet.cadvisor.info import v1 as cadvisorapi
    from kubelet.cm.topologymanager.hints import Store

_POLICIES: Mapping[str, type[BestEffortPolicy | SingleNumaNodePolicy]] = {
    POLICY_BEST_EFFORT: BestEffortPolicy,
    POLICY_RESTRICTED: RestrictedPolicy,
    POLICY_SINGLE_NUMA_NODE: SingleNumaNodePolicy,
}
_SCOPES: Mapping[str, type[ContainerScope | PodScope]] = {
    CONTAINER_TOPOLOGY_SCOPE: ContainerScope,
    POD_TOPOLOGY_SCOPE: PodScope,
}


class Manager:
    """Serve as an admit handler, and as the Store of the hint providers. All methods are thread-safe."""

    def __init__(
        self,
        topology: Sequence[cadvisorapi.Node],
        topology_policy_name: str,
        topology_scope_name: str,
        topology_policy_options: Mapping[str, str],
    ) -> None:
        """Raise ValueError for a policy, scope or option that is unknown or does not fit the machine."""
        self._scope: Scope
        # The policy none ignores the configured scope.
        if topology_policy_name == POLICY_NONE:
            klog.info_s("Creating topology manager with none policy")
            self._scope = NoneScope()
            return
        opts = new_policy_options(topology_policy_options)
        klog.info_s(
            "Creating topology manager with policy per scope",
            topologyPolicyName=topology_policy_name,
            topologyScopeName=topology_scope_name,
            topologyPolicyOptions=opts,
        )
        policy = _new_policy(topology, topology_policy_name, opts)
        if topology_scope_name not in _SCOPES:
            raise ValueError(f'unknown scope: "{topology_scope_name}"')
        self._scope = _SCOPES[topology_scope_name](policy)
        self._initialize_metrics()

    def _initialize_metrics(self) -> None:
        """Create the metrics, so that they show 0 before the first pod arrives.

        DIVERGES (fault of Go): the metrics of NUMA alignment show 0 from the start.
        Go: pkg/kubelet/cm/topologymanager/topology_manager.go, (*manager).initializeMetrics: it runs before the metrics
        are registered, and an unregistered metric keeps no values.
        Why: a node without failures and a node that does not count failures would look the same.
        Test: topology_manager_test.py:test_figures_of_alignment_are_there_before_the_first_pod
        """
        for scope in (metrics.ALIGN_SCOPE_CONTAINER, metrics.ALIGN_SCOPE_POD):
            metrics.CONTAINER_ALIGNED_COMPUTE_RESOURCES.labels(scope, metrics.ALIGNED_NUMA_NODE)
            metrics.CONTAINER_ALIGNED_COMPUTE_RESOURCES_FAILURE.labels(scope, metrics.ALIGNED_NUMA_NODE)

    def get_affinity(self, pod_uid: str, container_name: str) -> TopologyHint:
        return self._scope.get_affinity(pod_uid, container_name)

    def get_policy(self) -> Policy:
        return self._scope.get_policy()

    def name(self) -> str:
        return self._scope.name()

    def add_hint_provider(self, provider: HintProvider) -> None:
        """Add a hint provider. Providers return hints and allocate in the order in which they were added.

        Call this only before the first admission.
        """
        self._scope.add_hint_provider(provider)

    def add_container(self, pod: v1.Pod, container: v1.Container, container_id: str) -> None:
        self._scope.add_container(pod, container, container_id)

    def remove_container(self, container_id: str) -> None:
        self._scope.remove_container(container_id)

    def forget_all_but(self, pod_uids: Set[str]) -> None:
        self._scope.forget_all_but(pod_uids)

    def admit(self, attrs: lifecycle.PodAdmitAttributes) -> lifecycle.PodAdmitResult:
        klog.v(4).info_s("Topology manager admission check", pod=klog.kobj(attrs.pod))
        metrics.TOPOLOGY_MANAGER_ADMISSION_REQUESTS_TOTAL.inc()
        start = time.monotonic()
        result = self._scope.admit(attrs.pod)
        metrics.TOPOLOGY_MANAGER_ADMISSION_DURATION.observe((time.monotonic() - start) * 1000)
        klog.v(4).info_s("Pod Admit Result", Message=result.message, pod=klog.kobj(attrs.pod))
        return result


def _new_policy(topology: Sequence[cadvisorapi.Node], name: str, opts: PolicyOptions) -> Policy:
    try:
        numa_info = NUMAInfo(topology, opts)
    except ValueError as err:
        raise ValueError(f"cannot discover NUMA topology: {err}") from err
    if len(numa_info.nodes) > opts.max_allowable_numa_nodes:
        raise ValueError(f"unsupported on machines with more than {opts.max_allowable_numa_nodes} NUMA Nodes")
    if name not in _POLICIES:
        raise ValueError(f'unknown policy: "{name}"')
    return _POLICIES[name](numa_info, opts)


if TYPE_CHECKING:

    def _is_store(manager: Manager) -> Store:
        return manager

    def _is_admit_handler(manager: Manager) -> lifecycle.PodAdmitHandler:
        return manager
