"""Orders in which pods and images are handled.

Go: pkg/kubelet/util/sliceutils/sliceutils.go
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from typing import TYPE_CHECKING

from pkg.api.core import v1

if TYPE_CHECKING:
    from kubelet import container as kubecontainer

_EPOCH = datetime.datetime(1, 1, 1, tzinfo=datetime.UTC)


def pods_by_creation_time(pods: Iterable[v1.Pod]) -> list[v1.Pod]:
    """The pods, oldest first; those without a creation time, as static ones, come before all others."""
    return sorted(pods, key=lambda pod: pod.metadata.creation_timestamp or _EPOCH)


def by_image_size(images: Iterable[kubecontainer.Image]) -> list[kubecontainer.Image]:
    """The images, largest first, and among equals by id, last first."""
    return sorted(images, key=lambda image: (image.size, image.id), reverse=True)
