"""Define fakes of the pod package.

Go: pkg/kubelet/pod/testing
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

from kubelet import container as kubecontainer
from kubelet import pod as kubepod
from pkg import golang
from pkg.api.core import v1
from pkg.apimachinery import types


class FakeMirrorClient:
    """Hold the full names of the mirror pods, and count the calls."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._mirror_pods: set[str] = set()
        self._create_counts: Counter[str] = Counter()
        self._delete_counts: Counter[str] = Counter()

    def create_mirror_pod(self, ctx: golang.Context, pod: v1.Pod) -> None:
        full_name = kubecontainer.get_pod_full_name(pod)
        with self._lock:
            self._mirror_pods.add(full_name)
            self._create_counts[full_name] += 1

    def delete_mirror_pod(self, ctx: golang.Context, pod_full_name: str, uid: types.UID | None) -> bool:
        with self._lock:
            self._mirror_pods.discard(pod_full_name)
            self._delete_counts[pod_full_name] += 1
        return True

    def delete_in_background(self, ctx: golang.Context, uids_by_full_name: Mapping[str, types.UID]) -> None:
        for full_name, uid in uids_by_full_name.items():
            self.delete_mirror_pod(ctx, full_name, uid)

    def has_pod(self, pod_full_name: str) -> bool:
        with self._lock:
            return pod_full_name in self._mirror_pods

    def num_of_pods(self) -> int:
        with self._lock:
            return len(self._mirror_pods)

    def get_pods(self) -> list[str]:
        with self._lock:
            return sorted(self._mirror_pods)

    def get_counts(self, pod_full_name: str) -> tuple[int, int]:
        """Return how often the mirror pod was created and deleted."""
        with self._lock:
            return self._create_counts[pod_full_name], self._delete_counts[pod_full_name]


if TYPE_CHECKING:
    _client: kubepod.MirrorClient = FakeMirrorClient()
