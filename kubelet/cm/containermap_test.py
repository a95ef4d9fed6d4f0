"""Test the map of containers, and how it is built from the runtime's containers."""

from __future__ import annotations

import pytest
from cri_api.v1 import api_pb2 as runtimeapi

from kubelet.cm.containermap import ContainerMap, ContainerRef, stale_containers
from kubelet.cm.helpers import build_container_map_and_running_set_from_runtime
from kubelet.cri.testing import FakeRuntimeService
from pkg import golang
from pkg.api.core import v1
from pkg.apimachinery import types
from pkg.apimachinery.apis.meta import v1 as metav1


def test_container_map() -> None:
    found = ContainerMap()
    for number in range(3):
        found.add(f"pod{number}", "c", f"id{number}")
    assert found.get_container_id("pod1", "c") == "id1"
    assert found.get_container_ref("id2") == ("pod2", "c")
    copy = found.clone()
    found.remove_by_container_id("id0")
    found.remove_by_container_ref("pod1", "c")
    found.remove_by_container_ref("gone", "c")
    assert found == {"id2": ("pod2", "c")}
    assert len(copy) == 3
    with pytest.raises(LookupError, match="container c not in ContainerMap for pod pod1"):
        found.get_container_id("pod1", "c")
    with pytest.raises(LookupError, match="containerID id0 not in ContainerMap"):
        found.get_container_ref("id0")
    found.add("pod2", "c", "id3")
    found.add("pod2", "other", "id4")
    found.remove_by_container_refs({ContainerRef("pod2", "c"), ContainerRef("gone", "c")})
    assert found == {"id4": ("pod2", "other")}
    copy.visit(lambda uid, name, container_id: copy.remove_by_container_id(container_id))
    assert copy == {}


class Runtime(FakeRuntimeService):
    def list_pod_sandbox(
        self, ctx: golang.Context, pod_filter: runtimeapi.PodSandboxFilter | None = None
    ) -> list[runtimeapi.PodSandbox]:
        return [runtimeapi.PodSandbox(id="s", metadata=runtimeapi.PodSandboxMetadata(uid="u"))]

    def list_containers(
        self, ctx: golang.Context, container_filter: runtimeapi.ContainerFilter | None = None
    ) -> list[runtimeapi.Container]:
        return [
            runtimeapi.Container(
                id=f"{sandbox}-{name}",
                pod_sandbox_id=sandbox,
                metadata=runtimeapi.ContainerMetadata(name=name),
                state=state,
            )
            for sandbox, name, state in (
                ("s", "a", runtimeapi.CONTAINER_RUNNING),
                ("s", "b", runtimeapi.CONTAINER_EXITED),
                ("gone", "c", runtimeapi.CONTAINER_RUNNING),
            )
        ]


def test_stale_containers() -> None:
    spec = v1.PodSpec(containers=[v1.Container(name="app")], init_containers=[v1.Container(name="init")])
    pods = [
        v1.Pod(metadata=metav1.ObjectMeta(uid=types.UID("known")), spec=spec),
        v1.PartialPod(metadata=metav1.ObjectMeta(uid=types.UID("in part"))),
    ]
    uids = ("known", "in part", "ending", "gone")
    known = [ContainerRef(uid, name) for uid in uids for name in ("init", "app", "other")]
    found = stale_containers((*known, *known), pods, {"known", "in part", "ending"}.__contains__)
    assert found == [("gone", "app"), ("gone", "init"), ("gone", "other"), ("known", "other")]


def test_map_from_the_runtime() -> None:
    found, running = build_container_map_and_running_set_from_runtime(golang.background(), Runtime())
    assert found == {"s-a": ("u", "a"), "s-b": ("u", "b")}
    assert running == {"s-a"}
