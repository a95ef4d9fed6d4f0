"""Define how the parts of the kubelet report what they do to observers.

Go: none

Each protocol belongs to one part of the kubelet. Those of the runtime's calls and of relists are defined next to the
code that calls them. An observer must be quick and must not raise exceptions, because the threads that do the work call
it, and some of them hold locks. The default observers do nothing.
"""

from __future__ import annotations

import datetime
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from pkg.api.core import v1
from pkg.apimachinery import types

if TYPE_CHECKING:
    from kubelet.kuberuntime.instrumented_services import RuntimeObserver
    from kubelet.pleg.generic import RelistObserver


class LoopObserver(Protocol):
    """Define how the sync loop reports its events. Only the loop's thread calls these methods."""

    def took(self, case: int) -> None:
        """Record that `select` has chosen this case."""
        ...

    def done(self) -> None:
        """Record that the loop has handled the event and returns to `select`."""
        ...


class PodObserver(Protocol):
    """Define how the kubelet reports what happens to pods. Any thread may call these methods."""

    def seen(self, pod: v1.Pod, at: datetime.datetime) -> None:
        """Record that a source has added the pod at this time of day."""
        ...

    def admitted(self, uid: types.UID) -> None: ...

    def refused(self, uid: types.UID, reason: str, message: str) -> None:
        """Record that the pod was rejected permanently."""
        ...

    def waits_for_admission(self, uid: types.UID, message: str) -> None:
        """Record that the decision about the pod's admission is postponed."""
        ...

    def updated(self, uid: types.UID, deleted: bool) -> None:
        """Record that the source has changed the pod; `deleted` means that the pod has to terminate."""
        ...

    def removed(self, uid: types.UID) -> None:
        """Record that no source contains the pod any more."""
        ...

    def waits_for_volumes(self, uid: types.UID) -> AbstractContextManager[None]:
        """Record, for the time of the block, that the pod's worker waits for the pod's volumes.

        The block raises an exception if the volumes do not arrive.
        """
        ...


class NullLoopObserver:
    """Ignore all reports."""

    def took(self, case: int) -> None: ...

    def done(self) -> None: ...


class NullPodObserver:
    """Ignore all reports."""

    def seen(self, pod: v1.Pod, at: datetime.datetime) -> None: ...

    def admitted(self, uid: types.UID) -> None: ...

    def refused(self, uid: types.UID, reason: str, message: str) -> None: ...

    def waits_for_admission(self, uid: types.UID, message: str) -> None: ...

    def updated(self, uid: types.UID, deleted: bool) -> None: ...

    def removed(self, uid: types.UID) -> None: ...

    def waits_for_volumes(self, uid: types.UID) -> AbstractContextManager[None]:
        return nullcontext()


@dataclass(frozen=True, slots=True, kw_only=True)
class Observers:
    """Hold the observers of a kubelet. None stands for no observer."""

    loop: LoopObserver = field(default_factory=NullLoopObserver)
    pods: PodObserver = field(default_factory=NullPodObserver)
    runtime: RuntimeObserver | None = None
    relists: RelistObserver | None = None
