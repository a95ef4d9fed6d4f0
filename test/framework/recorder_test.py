"""That a recorder misses nothing, whatever becomes of its watch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from framework.apiserver import APIServer
from framework.cluster_client import new_client
from framework.recorder import Recorder
from pkg.api.core import v1
from pkg.apimachinery import watch
from pkg.client_go import kubernetes

NAMESPACE = "default"


@pytest.fixture
def api() -> Iterator[APIServer]:
    with APIServer() as server:
        yield server


@pytest.fixture
def client(api: APIServer, tmp_path: Path) -> kubernetes.Clientset:
    api.kubeconfig(tmp_path / "kubeconfig")
    return new_client(tmp_path / "kubeconfig")


@pytest.fixture
def recorder(api: APIServer, client: kubernetes.Clientset) -> Iterator[Recorder[v1.ConfigMap]]:
    """Has seen the object "old"."""
    create(api, "old")
    found = Recorder("test", client.core_v1.config_maps(NAMESPACE))
    wait_for(found, lambda: found.latest("old"))
    yield found
    found.stop()


def create(api: APIServer, name: str) -> None:
    api.store.create("configmaps", {"metadata": {"name": name, "namespace": NAMESPACE}})


def change(api: APIServer, name: str, value: str) -> None:
    api.store.patch("configmaps", name, {"data": {"key": value}}, NAMESPACE)


def wait_for(recorder: Recorder[v1.ConfigMap], look: Callable[[], object]) -> None:
    recorder.wait_for("the change", look, 30, recorder.all)


def types(recorder: Recorder[v1.ConfigMap], name: str) -> list[str]:
    return [each.type for each in recorder.history(name)]


def test_every_version_is_kept(api: APIServer, recorder: Recorder[v1.ConfigMap]) -> None:
    for value in "123":
        change(api, "old", value)
    api.store.delete("configmaps", "old", NAMESPACE)

    wait_for(recorder, lambda: recorder.latest("old") is None)

    assert types(recorder, "old") == [watch.ADDED, *[watch.MODIFIED] * 3, watch.DELETED]
    assert [each.object.data.get("key", "") for each in recorder.history("old")] == ["", "1", "2", "3", "3"]
    assert recorder.all() == []


def test_cut_watch_goes_on_where_it_was(api: APIServer, recorder: Recorder[v1.ConfigMap]) -> None:
    api.cut_connections()
    change(api, "old", "1")
    change(api, "old", "2")

    wait_for(recorder, lambda: recorder.history("old")[-1].object.data.get("key") == "2")

    assert len(set(types(recorder, "old")[1:])) == 1


def test_what_happened_while_the_server_was_away_is_found(api: APIServer, recorder: Recorder[v1.ConfigMap]) -> None:
    create(api, "changed")
    wait_for(recorder, lambda: recorder.latest("changed"))
    api.stop()
    api.store.delete("configmaps", "old", NAMESPACE)
    create(api, "new")
    change(api, "changed", "1")
    api.compact()
    api.start()

    wait_for(recorder, lambda: recorder.latest("new"))

    assert types(recorder, "old")[-1] == watch.DELETED
    assert types(recorder, "changed") == [watch.ADDED, watch.MODIFIED]
    assert [each.metadata.name for each in recorder.all()] == ["changed", "new"]


def test_wait_that_fails_tells_what_was_seen(recorder: Recorder[v1.ConfigMap]) -> None:
    with pytest.raises(AssertionError, match=r"not within 0 s: a miracle; last seen: nothing"):
        recorder.wait_for("a miracle", lambda: False, 0, lambda: "nothing")
