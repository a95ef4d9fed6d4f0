"""Sort pods and images.

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
    """Sort the pods by age, oldest first; those without a creation time, such as static pods, come first."""
    return sorted(pods, key=lambda pod: pod.metadata.creation_timestamp or _EPOCH)


def by_image_size(images: Iterable[kubecontainer.Image]) -> list[kubecontainer.Image]:
    """Sort the images by size, largest first; equal ones by id in reverse order."""
    return sorted(images, key=lambda image: (image.size, image.id), reverse=True)
