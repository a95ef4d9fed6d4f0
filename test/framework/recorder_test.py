"""Test that a recorder misses nothing, whatever happens to its watch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kubernetes.client import CoreV1Api

from framework.apiserver import APIServer
from framework.cluster_client import new_client
from framework.recorder import ADDED, DELETED, MODIFIED, Recorder

NAMESPACE = "default"


@pytest.fixture
def api() -> Iterator[APIServer]:
    with APIServer() as server:
        yield server


@pytest.fixture
def recorder(api: APIServer, tmp_path: Path) -> Iterator[Recorder]:
    """Run a recorder that has already seen the object "old"."""
    create(api, "old")
    api.kubeconfig(tmp_path / "kubeconfig")
    core = CoreV1Api(new_client(tmp_path / "kubeconfig"))
    found = Recorder(core.list_namespaced_config_map, NAMESPACE)
    wait_for(found, lambda: found.latest("old"))
    yield found
    found.stop()


def create(api: APIServer, name: str) -> None:
    api.store.create("configmaps", {"metadata": {"name": name, "namespace": NAMESPACE}})


def change(api: APIServer, name: str, value: str) -> None:
    api.store.patch("configmaps", name, {"data": {"key": value}}, NAMESPACE)


def wait_for(recorder: Recorder, look: Callable[[], object]) -> None:
    recorder.wait_for("the change", look, 30, recorder.all)


def types(recorder: Recorder, name: str) -> list[str]:
    return [each.type for each in recorder.history(name)]


def test_every_version_is_kept(api: APIServer, recorder: Recorder) -> None:
    for value in "123":
        change(api, "old", value)
    api.store.delete("configmaps", "old", NAMESPACE)

    wait_for(recorder, lambda: recorder.latest("old") is None)

    assert types(recorder, "old") == [ADDED, *[MODIFIED] * 3, DELETED]
    assert [(each.object.data or {}).get("key", "") for each in recorder.history("old")] == ["", "1", "2", "3", "3"]
    assert recorder.all() == []


def test_cut_watch_goes_on_where_it_was(api: APIServer, recorder: Recorder) -> None:
    api.cut_connections()
    change(api, "old", "1")
    change(api, "old", "2")

    wait_for(recorder, lambda: (recorder.latest("old").data or {}).get("key") == "2")

    assert types(recorder, "old") == [ADDED, MODIFIED, MODIFIED]


def test_what_happened_while_the_server_was_away_is_found(api: APIServer, recorder: Recorder) -> None:
    create(api, "changed")
    wait_for(recorder, lambda: recorder.latest("changed"))
    api.stop()
    api.store.delete("configmaps", "old", NAMESPACE)
    create(api, "new")
    change(api, "changed", "1")
    api.compact()
    api.start()

    wait_for(recorder, lambda: recorder.latest("new"))

    assert types(recorder, "old")[-1] == DELETED
    assert types(recorder, "changed") == [ADDED, MODIFIED]
    assert [each.metadata.name for each in recorder.all()] == ["changed", "new"]


def test_wait_that_fails_tells_what_was_seen(recorder: Recorder) -> None:
    with pytest.raises(AssertionError, match=r"not within 0 s: a miracle; last seen: nothing"):
        recorder.wait_for("a miracle", lambda: False, 0, lambda: "nothing")
