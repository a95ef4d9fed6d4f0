"""Test the factory's informers and listers: the requested resources, and the sharing of informers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from pkg import golang
from pkg.api.core import v1
from pkg.api.node import v1 as nodev1
from pkg.api.storage import v1 as storagev1
from pkg.apimachinery import labels
from pkg.apimachinery.api import errors as apierrors
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.client_go import informers
from pkg.client_go.tools.cache import testing

WAIT = 30.0


class Client:
    """Provide the resources of the factory as attributes of a clientset."""

    def __init__(self) -> None:
        self.core_v1 = self.storage_v1 = self.node_v1 = self
        self.sources: dict[str, testing.FakeControllerSource[Any]] = {
            "nodes": testing.FakeControllerSource(v1.Node),
            "services": testing.FakeControllerSource(v1.Service),
            "csidrivers": testing.FakeControllerSource(storagev1.CSIDriver),
            "runtimeclasses": testing.FakeControllerSource(nodev1.RuntimeClass),
        }
        self.namespaces: list[str] = []

    def nodes(self) -> Any:
        return self.sources["nodes"]

    def services(self, namespace: str) -> Any:
        self.namespaces.append(namespace)
        return self.sources["services"]

    def csi_drivers(self) -> Any:
        return self.sources["csidrivers"]

    def runtime_classes(self) -> Any:
        return self.sources["runtimeclasses"]


def meta(name: str, namespace: str = "", **object_labels: str) -> metav1.ObjectMeta:
    return metav1.ObjectMeta(name=name, namespace=namespace, labels=object_labels)


@pytest.fixture
def client() -> Client:
    return Client()


@pytest.fixture
def ctx() -> Iterator[golang.Context]:
    ctx, cancel = golang.with_timeout(golang.background(), WAIT)
    yield ctx
    cancel()


def factory_of(client: Client, **options: Any) -> informers.SharedInformerFactory:
    untyped: Any = client
    return informers.SharedInformerFactory(untyped, 0.0, **options)


@pytest.mark.parametrize("watch_list", [True, False])
def test_options_are_tweaked(client: Client, ctx: golang.Context, watch_list: bool) -> None:
    def only_mine(options: metav1.ListOptions) -> metav1.ListOptions:
        return msgspec.structs.replace(options, field_selector="metadata.name=mine")

    client.sources["nodes"].watch_list = watch_list
    factory = factory_of(client, tweak_list_options=only_mine)
    factory.core_v1.nodes().informer()
    factory.start(ctx)
    assert factory.wait_for_cache_sync(ctx) == {v1.Node: True}
    calls = client.sources["nodes"].calls
    assert [verb for verb, _ in calls][:2] == (["watch"] if watch_list else ["watch", "list"])
    assert {options.field_selector for _, options in calls} == {"metadata.name=mine"}


def test_listers(client: Client, ctx: golang.Context) -> None:
    client.sources["nodes"].add(v1.Node(metadata=meta("n1", zone="a")), v1.Node(metadata=meta("n2", zone="b")))
    client.sources["services"].add(v1.Service(metadata=meta("dns", "kube-system")), v1.Service(metadata=meta("w", "x")))
    client.sources["csidrivers"].add(storagev1.CSIDriver(metadata=meta("csi.example.com")))
    client.sources["runtimeclasses"].add(nodev1.RuntimeClass(metadata=meta("gvisor"), handler="runsc"))
    factory = factory_of(client)
    nodes, services = factory.core_v1.nodes().lister(), factory.core_v1.services().lister()
    drivers, classes = factory.storage_v1.csi_drivers().lister(), factory.node_v1.runtime_classes().lister()
    factory.start(ctx)
    assert all(factory.wait_for_cache_sync(ctx).values())

    assert [node.metadata.name for node in nodes.list(labels.selector_from_set({"zone": "b"}))] == ["n2"]
    assert nodes.get("n1").metadata.labels == {"zone": "a"}
    assert [service.metadata.name for service in services.services("x").list()] == ["w"]
    assert services.services("kube-system").get("dns").metadata.namespace == "kube-system"
    assert [driver.metadata.name for driver in drivers.list()] == ["csi.example.com"]
    assert classes.get("gvisor").handler == "runsc"
    with pytest.raises(apierrors.StatusError, match='"kata" not found') as raised:
        classes.get("kata")
    assert apierrors.is_not_found(raised.value) and "runtimeclass.node.k8s.io" in str(raised.value)


def test_one_informer_for_all_who_ask(client: Client) -> None:
    factory = factory_of(client)
    assert factory.core_v1.nodes().informer() is factory.core_v1.nodes().informer()


def test_namespace(client: Client) -> None:
    factory_of(client, namespace="x").core_v1.services().informer()
    assert client.namespaces == ["x"]


def test_start_again_starts_what_is_new(client: Client) -> None:
    ctx, cancel = golang.with_cancel(golang.background())
    factory = factory_of(client)
    factory.core_v1.nodes().informer()
    factory.start(ctx)
    factory.core_v1.services().informer()
    assert set(factory.wait_for_cache_sync(ctx)) == {v1.Node}, "what is not started is not waited for"
    factory.start(ctx)
    factory.start(ctx)
    assert factory.wait_for_cache_sync(ctx) == {v1.Node: True, v1.Service: True}
    assert [len(client.sources[name].calls) for name in ("nodes", "services")] == [1, 1]
    cancel()
    factory.shutdown()
    assert factory.core_v1.nodes().informer().is_stopped()
    factory.storage_v1.csi_drivers().informer()
    factory.start(ctx)
    assert client.sources["csidrivers"].calls == []


def test_wait_for_cache_sync_gives_up(client: Client) -> None:
    ctx, cancel = golang.with_cancel(golang.background())
    source = client.sources["nodes"]
    source.watch_errors.append(OSError("no"))
    source.list_errors.append(OSError("no"))
    factory = factory_of(client)
    factory.core_v1.nodes().informer()
    factory.start(ctx)
    short, _ = golang.with_timeout(ctx, 0.01)
    assert factory.wait_for_cache_sync(short) == {v1.Node: False}
    cancel()
    factory.shutdown()
