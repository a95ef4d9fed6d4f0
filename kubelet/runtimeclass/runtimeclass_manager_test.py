from __future__ import annotations

from collections.abc import Iterator

import pytest

from kubelet import runtimeclass
from pkg import golang
from pkg.api.node import v1 as nodev1
from pkg.apimachinery.api import errors as apierrors
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.client_go.kubernetes.testing import FakeClientset


def _runtime_class(name: str, handler: str) -> nodev1.RuntimeClass:
    return nodev1.RuntimeClass(metadata=metav1.ObjectMeta(name=name), handler=handler)


@pytest.fixture
def manager() -> Iterator[runtimeclass.Manager]:
    ctx, cancel = golang.with_cancel(golang.background())
    client = FakeClientset(_runtime_class("native", ""), _runtime_class("sandbox", "kata-containers"))
    made = runtimeclass.Manager(client)
    made.start(ctx)
    made.wait_for_cache_sync(ctx)
    yield made
    cancel()


@pytest.mark.parametrize(("name", "handler"), [(None, ""), ("", ""), ("native", ""), ("sandbox", "kata-containers")])
def test_lookup_runtime_handler(manager: runtimeclass.Manager, name: str | None, handler: str) -> None:
    assert manager.lookup_runtime_handler(name) == handler


def test_lookup_of_what_is_not_there(manager: runtimeclass.Manager) -> None:
    with pytest.raises(apierrors.StatusError, match=r'runtimeclass.node.k8s.io "phantom" not found') as caught:
        manager.lookup_runtime_handler("phantom")
    assert apierrors.is_not_found(caught.value)
