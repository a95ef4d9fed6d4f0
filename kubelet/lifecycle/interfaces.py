"""What the kubelet asks its parts about a pod: may it come in, does it need a sync, must it go.

Go: pkg/kubelet/lifecycle/interfaces.go
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from pkg.api.core import v1


class Operation(enum.StrEnum):
    """What is about to happen to a pod that is up for admission."""

    ADD = "add"
    RESIZE = "resize"


ADD_OPERATION = Operation.ADD
RESIZE_OPERATION = Operation.RESIZE


# What handlers raise, and turn nobody away for: that there is no memory, stack or thread left says nothing of the pod,
# which is asked about again. Libraries have no class of their own for the last of these.
ACCIDENTS = (MemoryError, RuntimeError)


@dataclass(frozen=True, slots=True)
class PodAdmitAttributes:
    """The question put to the admit handlers. The pods in it are shared and must not be changed."""

    pod: v1.Pod
    # The pods bound to this kubelet, without the one above.
    other_pods: list[v1.Pod] = field(default_factory=list)
    operation: Operation = ADD_OPERATION


@dataclass(frozen=True, slots=True)
class PodAdmitResult:
    """An admit handler's answer. The reason is one CamelCase word; an admitted pod has neither text."""

    admit: bool
    reason: str = ""
    message: str = ""
    # Not now, but perhaps soon: the pod is asked about again. Go knows yes and no.
    wait: bool = False
    # With wait: ends other pods, so that this one fits, and returns those that then count no more. It takes up to their
    # grace periods, so that nobody may call it who holds a lock, or whom others wait for.
    # Go ends them where it admits the pod; see preemption.py.
    make_room: Callable[[], list[v1.Pod]] | None = None


class PodAdmitHandler(Protocol):
    """Has a say in whether a pod may run on this node."""

    def admit(self, attrs: PodAdmitAttributes) -> PodAdmitResult: ...


class PodSyncLoopHandler(Protocol):
    """Asked about every pod in each turn of the sync loop; must answer at once."""

    def should_sync(self, pod: v1.Pod) -> bool: ...


@dataclass(frozen=True, slots=True)
class ShouldEvictResponse:
    """Whether a pod must go, and the reason and message its status then shows."""

    evict: bool
    reason: str = ""
    message: str = ""


class PodSyncHandler(Protocol):
    """Asked in every sync of a pod whether it must be evicted; must answer at once.

    A pod that must is killed, and its status shows as failed with what the answer says.
    """

    def should_evict(self, pod: v1.Pod) -> ShouldEvictResponse: ...
