"""Provide an image manager with images that the test sets."""

from __future__ import annotations

from kubelet import container as kubecontainer


class FakeImageGCManager:
    """Provide a fixed list of images."""

    def __init__(self) -> None:
        self.images = [
            kubecontainer.Image(id="agnhost", size=86775172, repo_tags=["agnhost:2.55", "agnhost:2.63.0"]),
            kubecontainer.Image(id="pause", size=686872, repo_tags=["pause:3.10"]),
        ]

    def get_image_list(self) -> list[kubecontainer.Image]:
        return self.images
