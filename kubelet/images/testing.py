"""An image manager that has listed what the test says."""

from __future__ import annotations

from kubelet import container as kubecontainer


class FakeImageGCManager:
    """The images that the image manager has listed."""

    def __init__(self) -> None:
        self.images = [
            kubecontainer.Image(id="agnhost", size=86775172, repo_tags=["agnhost:2.55", "agnhost:2.63.0"]),
            kubecontainer.Image(id="pause", size=686872, repo_tags=["pause:3.10"]),
        ]

    def get_image_list(self) -> list[kubecontainer.Image]:
        return self.images
