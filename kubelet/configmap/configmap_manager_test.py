"""Test ConfigMaps that are read when they are needed, from a faulty API server."""

from __future__ import annotations

from pathlib import Path

import pytest
from framework import faulty_call
from framework.client_calls import Call
from framework.faulty_call import MINE, OTHER, FaultyCall, Kind

from kubelet import configmap
from pkg import golang
from pkg.api.core import v1
from pkg.apimachinery import types
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.apimachinery.clock import testing as testingclock

TTL = 60.0


def _pod() -> v1.Pod:
    """Return a pod that refers to both ConfigMaps."""
    sources = [v1.EnvFromSource(config_map_ref=v1.ConfigMapEnvSource(name=name)) for name in (MINE, OTHER)]
    metadata = metav1.ObjectMeta(namespace="default", name="pod", uid=types.UID("pod"))
    return v1.Pod(metadata=metadata, spec=v1.PodSpec(containers=[v1.Container(name="c", env_from=sources)]))


@pytest.mark.parametrize("caching", [False, True])
@faulty_call.cases(Call("kubelet/configmap/configmap_manager.py", "configmaps", "get"))
def test_call_that_gets_a_config_map(call: Call, kind: Kind, caching: bool, tmp_path: Path) -> None:
    clock = testingclock.FakeClock()
    with FaultyCall(tmp_path, call, kind) as api:
        api.create("configmaps", {"data": {"key": "value"}})
        manager: configmap.Manager = configmap.SimpleConfigMapManager(golang.background(), api.client)
        if caching:
            manager = configmap.new_caching_config_map_manager(golang.background(), api.client, lambda: TTL, clock)
        manager.register_pod(_pod())

        def get(name: str) -> dict[str, str]:
            clock.step(TTL + 1)
            return manager.get_config_map("default", name).data

        api.see_recover(get, {"key": "value"})
