"""Test volumes with the content of an image, if the runtime supports them."""

from __future__ import annotations

import re
from typing import Any

import pytest
from framework.cluster_client import Namespace, waiting_reason
from framework.containerd import PAUSE
from framework.pods import Manifest
from framework.volumes import looker, mounted, once, told

# Containerd supports image volumes from this release on.
_FIRST = (2, 1)


@pytest.fixture(scope="module")
def runtime(namespace: Namespace) -> tuple[int, ...]:
    """Return the version of containerd. The version of any other runtime counts as the latest."""
    node = namespace.core.read_node(namespace.node)
    found = re.match(r"containerd://v?(\d+)\.(\d+)", node.status.node_info.container_runtime_version)
    return tuple(map(int, found.groups())) if found is not None else (999,)


@pytest.fixture
def supported(runtime: tuple[int, ...]) -> None:
    if runtime < _FIRST:
        pytest.skip("the runtime has no image volumes")


def of_image(namespace: Namespace, name: str, reference: str, script: str, policy: str = "IfNotPresent") -> Manifest:
    source: dict[str, Any] = {"reference": namespace.images.actual(reference), "pullPolicy": policy}
    volumes = [{"name": "v", "image": source}]
    return once(name, looker(script, volumeMounts=[mounted("v", "/v")]), volumes=volumes)


@pytest.mark.usefixtures("supported")
def test_content_of_an_image(namespace: Namespace) -> None:
    script = "test -x /v/pause && echo there; touch /v/new"
    namespace.create(of_image(namespace, "content", PAUSE, f"{script} || true"))
    assert told(namespace, "content") == "there\ntouch: /v/new: Read-only file system\n"


@pytest.mark.usefixtures("supported")
def test_image_that_cannot_be_pulled(namespace: Namespace) -> None:
    reference = "registry.invalid/not-there:1"
    namespace.create(of_image(namespace, "not-there", reference, "true", "Never"))
    message = f'.*Container image "{re.escape(reference)}" is not present with pull policy of Never.*'
    namespace.wait_for_event("not-there", "ErrImageNeverPull", message)


def test_runtime_that_has_none(namespace: Namespace, runtime: tuple[int, ...]) -> None:
    """A runtime without image volumes does not start the container with something else in place of the volume."""
    if runtime >= _FIRST:
        pytest.skip("the runtime has image volumes")
    namespace.create(of_image(namespace, "refused", PAUSE, "true"))
    namespace.wait_for("refused", "waits", lambda found: waiting_reason(found) == "CreateContainerError")
    namespace.wait_for_event("refused", "Failed", "Error: failed to generate container .*", "spec.containers{main}")
