"""Test Secrets that are read when they are needed, from a faulty API server."""

from __future__ import annotations

from pathlib import Path

import pytest
from framework import faulty_call
from framework.client_calls import Call
from framework.faulty_call import MINE, OTHER, FaultyCall, Kind

from kubelet import secret
from pkg import golang
from pkg.api.core import v1
from pkg.apimachinery import types
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.apimachinery.clock import testing as testingclock

TTL = 60.0


def _pod() -> v1.Pod:
    """Return a pod that refers to both Secrets."""
    secrets = [v1.LocalObjectReference(name=name) for name in (MINE, OTHER)]
    metadata = metav1.ObjectMeta(namespace="default", name="pod", uid=types.UID("pod"))
    return v1.Pod(metadata=metadata, spec=v1.PodSpec(image_pull_secrets=secrets))


@pytest.mark.parametrize("caching", [False, True])
@faulty_call.cases(Call("kubelet/secret/secret_manager.py", "secrets", "get"))
def test_call_that_gets_a_secret(call: Call, kind: Kind, caching: bool, tmp_path: Path) -> None:
    clock = testingclock.FakeClock()
    with FaultyCall(tmp_path, call, kind) as api:
        api.create("secrets", {"stringData": {"key": "value"}})
        manager: secret.Manager = secret.SimpleSecretManager(golang.background(), api.client)
        if caching:
            manager = secret.new_caching_secret_manager(golang.background(), api.client, lambda: TTL, clock)
        manager.register_pod(_pod())

        def get(name: str) -> dict[str, bytes]:
            clock.step(TTL + 1)
            return manager.get_secret("default", name).data

        api.see_recover(get, {"key": b"value"})
