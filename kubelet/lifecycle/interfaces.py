"""Define how the kubelet asks its components whether to admit, sync or evict a pod.

Go: pkg/kubelet/lifecycle/interfaces.go
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from pkg.api.core import v1


class Operation(enum.StrEnum):
    """Name what is about to happen to a pod that needs admission."""

    ADD = "add"
    RESIZE = "resize"


ADD_OPERATION = Operation.ADD
RESIZE_OPERATION = Operation.RESIZE


# Handlers may raise these errors, which reject no pod: a lack of memory, stack or threads says nothing about the pod,
# and the kubelet asks again later. Libraries signal a lack of threads with RuntimeError.
ACCIDENTS = (MemoryError, RuntimeError)


@dataclass(frozen=True, slots=True)
class PodAdmitAttributes:
    """Hold the data for the decision of an admit handler. The pods are shared and must not be modified."""

    pod: v1.Pod
    # `other_pods` holds the pods bound to this kubelet, except `pod`.
    other_pods: list[v1.Pod] = field(default_factory=list)
    operation: Operation = ADD_OPERATION


@dataclass(frozen=True, slots=True)
class PodAdmitResult:
    """Hold an admit handler's decision.

    `reason` is one word in CamelCase. An admitted pod has neither a reason nor a message.
    """

    admit: bool
    reason: str = ""
    message: str = ""
    # `wait` means that the pod is not admitted now but may be soon, so the kubelet asks again. Go has no such result.
    wait: bool = False
    # If `wait` is True, this function kills other pods to make room for this one, and returns those that no longer
    # count. The function may block for their grace periods, so the caller must hold no lock, and no other pod may wait
    # for the caller. Go kills the pods during admission; see preemption.py.
    make_room: Callable[[], list[v1.Pod]] | None = None


class PodAdmitHandler(Protocol):
    """Define a handler that decides whether a pod may run on this node."""

    def admit(self, attrs: PodAdmitAttributes) -> PodAdmitResult: ...


class PodSyncLoopHandler(Protocol):
    """Define a handler that the sync loop asks about every pod in each iteration; it must return at once."""

    def should_sync(self, pod: v1.Pod) -> bool: ...


@dataclass(frozen=True, slots=True)
class ShouldEvictResponse:
    """Hold whether a pod must be evicted, with the reason and the message for its status."""

    evict: bool
    reason: str = ""
    message: str = ""


class PodSyncHandler(Protocol):
    """Define a handler that every sync of a pod asks whether to evict the pod; it must return at once.

    The kubelet kills a pod that must be evicted, and its status becomes Failed with the reason and message of the
    response.
    """

    def should_evict(self, pod: v1.Pod) -> ShouldEvictResponse: ...
