"""Test which images a kubelet removes, because of disk usage or age, and which it keeps."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

import pytest
from framework.hollow_node import HollowNode
from framework.pods import pod, shell, sleeper
from framework.waiting import wait_for

from kubelet import kubelet as kubelet_module
from kubelet.images import image_gc_manager
from pkg import golang

IN_USE, DONE_WITH, PINNED = (f"registry.example/{name}:1.0" for name in ("in-use", "done-with", "pinned"))
# Every disk is fuller than these thresholds.
BY_SPACE = {"imageGCHighThresholdPercent": 1, "imageGCLowThresholdPercent": 0, "imageMinimumGCAge": "1ms"}
BY_AGE = {"imageGCHighThresholdPercent": 100, "imageMinimumGCAge": "1ms", "imageMaximumGCAge": "1s"}


def present(node: HollowNode) -> set[str]:
    return {name for name in (IN_USE, DONE_WITH, PINNED) if node.runtime.images.find(name) is not None}


def collect(kubelet: kubelet_module.Kubelet) -> None:
    """Run one collection, as a kubelet does that started an hour ago. The collection cannot free enough."""
    began = kubelet.clock.now() - timedelta(hours=1)
    try:
        kubelet.image_manager.garbage_collect(golang.background(), began)
    except image_gc_manager.ImageGCError as err:
        assert "Insufficient free disk space" in str(err)


@pytest.mark.parametrize("config", [BY_SPACE, BY_AGE], ids=["space", "age"])
def test_only_images_that_nobody_needs_go(tmp_path: Path, config: Mapping[str, object]) -> None:
    used, done = tmp_path / "in-use.json", tmp_path / "done-with.json"
    with HollowNode(None, "images", config={"staticPodPath": str(tmp_path), **config}) as node:
        kubelet = node.kubelet
        assert kubelet is not None
        pulled = Path(kubelet.get_root_dir(), "image_manager", "pulled")
        wait_for("the first collection", lambda: node.runtime.recorder.counts.get("ListImages", 0) > 0, 60)
        node.runtime.images.add(PINNED)
        pinned = node.runtime.images.find(PINNED)
        assert pinned is not None
        pinned.pinned = True
        used.write_text(json.dumps(pod("in-use", sleeper(image=IN_USE))))
        done.write_text(json.dumps(pod("done-with", shell("exit 0", image=DONE_WITH), restartPolicy="Never")))
        wait_for("both containers exist", lambda: len(node.runtime.containers) == 2, 30)

        # A container keeps its image in use until the container is removed, whether it runs or not.
        collect(kubelet)
        assert present(node) == {IN_USE, DONE_WITH, PINNED}

        done.unlink()

        def gone() -> bool:
            kubelet.container_gc.garbage_collect(golang.background())
            collect(kubelet)
            return DONE_WITH not in present(node)

        wait_for("the container's image is gone", gone, 30)
        assert present(node) == {IN_USE, PINNED}
        # The record of a pull disappears with its image.
        assert len(list(pulled.iterdir())) == 1
