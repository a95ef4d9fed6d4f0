"""Test runtime calls that a kubelet makes rarely, or only on a node with cgroups, when they fail in every way.

The caller gets an error, and the call works again after the fault. All cases of one kind share a node.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import timedelta
from unittest import mock

import pytest
from cri_api.v1 import api_pb2 as runtimeapi
from framework import runtime_faults
from framework.faults import Kind, add_fault
from framework.hollow_node import HollowNode
from framework.pods import pod, sleeper
from framework.waiting import wait_for

from kubelet import cm, kubelet_garbage
from kubelet import kubelet as kubelet_module
from kubelet.cri import errors as crierror
from kubelet.images import image_gc_manager
from kubelet.kuberuntime import kuberuntime_resize
from pkg import features, golang
from pkg.api.core import v1
from pkg.component_base.featuregate.testing import set_feature_gate_during_test

RUNNING = runtimeapi.CONTAINER_RUNNING
UNUSED_IMAGE = "registry.example/unused:1.0"
CONFIG = {
    "imageGCHighThresholdPercent": 1,
    "imageGCLowThresholdPercent": 0,
    "imageMinimumGCAge": "1us",
}
_TIMEOUT = 30.0
# A hanging call fails after this many seconds.
_CALL_TIMEOUT = 2.0


@pytest.fixture(scope="module", params=Kind)
def kind(request: pytest.FixtureRequest) -> Kind:
    found: Kind = request.param
    return found


@pytest.fixture(scope="module")
def node(kind: Kind, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HollowNode]:
    """Yield a node on which the pod "goes" has ended and left garbage for the garbage collector."""
    manifests = tmp_path_factory.mktemp(kind)
    (manifests / "stays.json").write_text(json.dumps(pod("stays", sleeper())))
    (manifests / "goes.json").write_text(json.dumps(pod("goes", sleeper())))
    with (
        # Only the test may collect garbage, not the kubelet's periodic loop.
        mock.patch.object(kubelet_garbage, "CONTAINER_GC_PERIOD", timedelta(hours=1).total_seconds()),
        set_feature_gate_during_test(features.feature_gate, features.POD_AND_CONTAINER_STATS_FROM_CRI, True),
        HollowNode(None, "seldom", config={"staticPodPath": str(manifests), **CONFIG}) as node,
    ):
        wait_for("both pods run", lambda: len(running(node)) == 2, _TIMEOUT)
        (manifests / "goes.json").unlink()
        workers = kubelet_of(node).pod_workers
        wait_for("the pod has gone", lambda: len(workers.pod_sync_statuses) == 1, _TIMEOUT)
        yield node


def running(node: HollowNode) -> list[str]:
    return sorted(c.sandbox.config.metadata.name for c in node.runtime.containers if c.state == RUNNING)


def kubelet_of(node: HollowNode) -> kubelet_module.Kubelet:
    assert node.kubelet is not None
    return node.kubelet


def pod_that_stays(kubelet: kubelet_module.Kubelet) -> v1.Pod:
    found = kubelet.pod_manager.get_pod_by_name("default", "stays-seldom")
    assert found is not None
    return found


def remove_sandbox(node: HollowNode, ctx: golang.Context) -> bool:
    """Collect the garbage of the pod that has ended, and report whether its sandbox is gone."""
    kubelet = kubelet_of(node)
    with suppress(crierror.RemoteError):
        kubelet.container_gc.garbage_collect(ctx)
    return [sandbox.config.metadata.name for sandbox in node.runtime.sandboxes] == ["stays-seldom"]


def remove_image(node: HollowNode, ctx: golang.Context) -> bool:
    """Collect images, and report whether the unused one is gone. The collection cannot free as much as it wants."""
    kubelet = kubelet_of(node)
    if node.runtime.recorder.counts.get("RemoveImage", 0) == 0:
        node.runtime.images.add(UNUSED_IMAGE)
    for _ in range(2):  # The first collection only detects an image; the second may remove it.
        with suppress(image_gc_manager.ImageGCError, crierror.RemoteError):
            kubelet.image_manager.garbage_collect(ctx, kubelet.clock.steady() - timedelta(hours=1))
    return node.runtime.images.find(UNUSED_IMAGE) is None


def get_stats(node: HollowNode, ctx: golang.Context) -> bool:
    kubelet = kubelet_of(node)
    pod = pod_that_stays(kubelet)
    status = kubelet.pod_cache.get(pod.metadata.uid)
    try:
        kubelet.stats_provider.pod_cpu_and_memory_stats(ctx, pod, status)
    except (crierror.RemoteError, crierror.InvalidResponseError):
        return False
    except LookupError:
        # The runtime has responded. The caller then asks the hollow node's cAdvisor, which knows no containers.
        return True
    return True


def resize(node: HollowNode, ctx: golang.Context) -> bool:
    kubelet = kubelet_of(node)
    sandbox = next(s for s in node.runtime.sandboxes if s.config.metadata.name == "stays-seldom")
    try:
        kubelet.container_runtime.update_pod_sandbox_resources(
            ctx, sandbox.id, pod_that_stays(kubelet), cm.ResourceConfig(cpu_shares=1024)
        )
    except kuberuntime_resize.ResizeError:
        return False
    return True


# Each call maps to a function that needs it. The function reports whether the call has worked.
NEEDS: Mapping[str, Callable[[HollowNode, golang.Context], bool]] = {
    "RemovePodSandbox": remove_sandbox,
    "RemoveImage": remove_image,
    "PodSandboxStats": get_stats,
    "UpdatePodSandboxResources": resize,
}


def attempt(node: HollowNode, need: Callable[[HollowNode, golang.Context], bool]) -> bool:
    """Report whether the call has worked within the time limit."""
    ctx, cancel = golang.with_timeout(golang.background(), _CALL_TIMEOUT)
    try:
        return need(node, ctx)
    except golang.ContextError:
        return False
    finally:
        cancel()


def test_each_call_has_its_cases() -> None:
    assert NEEDS.keys() == runtime_faults.SELDOM


@pytest.mark.parametrize("method", NEEDS)
def test_call_that_goes_wrong(node: HollowNode, method: str, kind: Kind) -> None:
    need = NEEDS[method]
    fault = add_fault(node.runtime.faults, method, kind)

    def goes_wrong() -> int:
        # On a busy machine the time limit may pass before the kubelet makes the call.
        attempt(node, need)
        return fault.hits

    wait_for(f"{method} fails", goes_wrong, _TIMEOUT)
    node.runtime.faults.remove(fault)
    wait_for(f"{method} succeeds again", lambda: attempt(node, need), _TIMEOUT)
    assert running(node) == ["stays-seldom"]
