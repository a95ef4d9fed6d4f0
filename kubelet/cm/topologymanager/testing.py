"""Define a topology manager and a hint provider whose results the test sets.

Go: pkg/kubelet/cm/topologymanager/fake_topology_manager.go
"""

from __future__ import annotations

from kubelet import lifecycle
from kubelet.cm import admission
from kubelet.cm.topologymanager.hints import HintProvider, Hints, TopologyHint
from kubelet.cm.topologymanager.policy import Policy
from kubelet.cm.topologymanager.policy_none import NonePolicy
from kubelet.cm.topologymanager.topology_manager import Manager
from pkg.api.core import v1


class FakeTopologyManager:
    """Admit every pod, with one hint for all containers."""

    def __init__(
        self, hint: TopologyHint | None = None, policy: Policy | None = None, scope: str = "container"
    ) -> None:
        self.hint = hint or TopologyHint()
        self.policy: Policy = policy or NonePolicy()
        self.scope = scope
        self.hint_providers: list[HintProvider] = []
        # These lists contain container IDs.
        self.added: list[str] = []
        self.removed: list[str] = []

    def get_affinity(self, pod_uid: str, container_name: str) -> TopologyHint:
        return self.hint

    def get_policy(self) -> Policy:
        return self.policy

    def name(self) -> str:
        return self.scope

    def add_hint_provider(self, provider: HintProvider) -> None:
        self.hint_providers.append(provider)

    def add_container(self, pod: v1.Pod, container: v1.Container, container_id: str) -> None:
        self.added.append(container_id)

    def remove_container(self, container_id: str) -> None:
        self.removed.append(container_id)

    def admit(self, attrs: lifecycle.PodAdmitAttributes) -> lifecycle.PodAdmitResult:
        return admission.get_pod_admit_result(None)


class FakeHintProvider:
    """Return the hints of the test, and record for which containers and nodes it allocates."""

    def __init__(self, hints: Hints | None = None, err: Exception | None = None, of: str = "c1") -> None:
        self.hints = hints or {}
        self.err = err
        self.fails_for = of
        # If set, this error replaces the hints.
        self.no_hints: Exception | None = None
        self.manager: Manager | None = None
        self.allocated: list[tuple[str, TopologyHint]] = []

    def get_topology_hints(self, pod: v1.Pod, container: v1.Container) -> Hints:
        return self.get_pod_topology_hints(pod)

    def get_pod_topology_hints(self, pod: v1.Pod) -> Hints:
        if self.no_hints is not None:
            raise self.no_hints
        return self.hints

    def allocate(self, pod: v1.Pod, container: v1.Container) -> None:
        if self.err is not None and container.name == self.fails_for:
            raise self.err
        assert self.manager is not None
        self.allocated.append((container.name, self.manager.get_affinity(pod.metadata.uid, container.name)))
