"""Who looks on while the kubelet works: what its parts tell, and to whom.

Go: none

Each protocol is what one part of the kubelet tells; those of the runtime's calls and of relists stand beside the code
that tells them. An observer must be quick and must not raise: it is told on the threads that do the work, some of which
hold locks. Whoever tells observers nothing is the default.
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
    """Is told of the sync loop's events, by its thread alone."""

    def took(self, case: int) -> None:
        """Select has chosen this case."""
        ...

    def done(self) -> None:
        """The loop goes back to select."""
        ...


class PodObserver(Protocol):
    """Is told what becomes of pods, by any thread."""

    def seen(self, pod: v1.Pod, at: datetime.datetime) -> None:
        """A source has named the pod at this time of day."""
        ...

    def admitted(self, uid: types.UID) -> None: ...

    def refused(self, uid: types.UID, reason: str, message: str) -> None:
        """The pod was refused for good."""
        ...

    def waits_for_admission(self, uid: types.UID, message: str) -> None:
        """Whether the pod may run is asked again later."""
        ...

    def updated(self, uid: types.UID, deleted: bool) -> None:
        """Its source has changed the pod; `deleted`: it is to end."""
        ...

    def removed(self, uid: types.UID) -> None:
        """No source names the pod any more."""
        ...

    def waits_for_volumes(self, uid: types.UID) -> AbstractContextManager[None]:
        """The pod's worker waits for its volumes as long as the block takes, which raises if it waits in vain."""
        ...


class NullLoopObserver:
    """Is told in vain."""

    def took(self, case: int) -> None: ...

    def done(self) -> None: ...


class NullPodObserver:
    """Is told in vain."""

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
    """Whom a kubelet tells. Where there is None, nobody is told."""

    loop: LoopObserver = field(default_factory=NullLoopObserver)
    pods: PodObserver = field(default_factory=NullPodObserver)
    runtime: RuntimeObserver | None = None
    relists: RelistObserver | None = None
