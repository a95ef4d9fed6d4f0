"""Volumes that are the content of an image, where the runtime has them."""

from __future__ import annotations

import re
from typing import Any

import pytest
from framework.cluster_client import Namespace
from framework.containerd import PAUSE
from framework.pods import Manifest
from framework.volumes import looker, mounted, once, told

# containerd's first release with such volumes.
_FIRST = (2, 1)


@pytest.fixture(scope="module", autouse=True)
def _supported(namespace: Namespace) -> None:
    node = namespace.client.core_v1.nodes().get(namespace.ctx, namespace.node)
    version = node.status.node_info.container_runtime_version
    found = re.match(r"containerd://v?(\d+)\.(\d+)", version)
    if found is not None and tuple(map(int, found.groups())) < _FIRST:
        pytest.skip(f"{version} has no volumes of images")


def of_image(namespace: Namespace, name: str, reference: str, script: str, policy: str = "IfNotPresent") -> Manifest:
    source: dict[str, Any] = {"reference": namespace.images.actual(reference), "pullPolicy": policy}
    volumes = [{"name": "v", "image": source}]
    return once(name, looker(script, volumeMounts=[mounted("v", "/v")]), volumes=volumes)


def test_content_of_an_image(namespace: Namespace) -> None:
    script = "test -x /v/pause && echo there; touch /v/new"
    namespace.create(of_image(namespace, "content", PAUSE, f"{script} || true"))
    assert told(namespace, "content") == "there\ntouch: /v/new: Read-only file system\n"


def test_image_that_cannot_be_pulled(namespace: Namespace) -> None:
    reference = "registry.invalid/not-there:1"
    namespace.create(of_image(namespace, "not-there", reference, "true", "Never"))
    message = f'.*Container image "{re.escape(reference)}" is not present with pull policy of Never.*'
    namespace.wait_for_event("not-there", "ErrImageNeverPull", message)
