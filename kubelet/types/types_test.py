"""Test the shared types.

Go: pkg/kubelet/types/pod_update_test.go, pod_status_test.go, types_test.go
"""

from __future__ import annotations

import datetime

import pytest

from kubelet import types as kubetypes
from pkg.api.core import v1
from pkg.apimachinery import types
from pkg.apimachinery.apis.meta import v1 as metav1


def pod(source: str | None = None, priority: int | None = None, mirror: bool = False) -> v1.Pod:
    annotations = {} if source is None else {kubetypes.CONFIG_SOURCE_ANNOTATION_KEY: source}
    if mirror:
        annotations[kubetypes.CONFIG_MIRROR_ANNOTATION_KEY] = "x"
    metadata = metav1.ObjectMeta(annotations=annotations, uid=types.UID("u"))
    return v1.Pod(metadata=metadata, spec=v1.PodSpec(priority=priority))


@pytest.mark.parametrize(
    ("sources", "expected"),
    [([], []), (["", "file"], ["file"]), (["file", "*"], ["file", "http", "api"]), (["http", "api"], ["http", "api"])],
)
def test_get_validated_sources(sources: list[str], expected: list[str]) -> None:
    assert kubetypes.get_validated_sources(sources) == expected


def test_unknown_source() -> None:
    with pytest.raises(ValueError, match='unknown pod source "taco"'):
        kubetypes.get_validated_sources(["file", "taco"])


def test_get_pod_source() -> None:
    assert kubetypes.get_pod_source(pod("http")) == "http"
    with pytest.raises(ValueError, match='cannot get source of pod "u"'):
        kubetypes.get_pod_source(pod())


@pytest.mark.parametrize(
    ("candidate", "static", "critical"),
    [
        (pod(), False, False),
        (pod("api"), False, False),
        (pod("file"), True, True),
        (pod("api", mirror=True), False, True),
        (pod("api", 2_000_000_000), False, True),
        (pod("api", 1_999_999_999), False, False),
        (pod("api", 0), False, False),
    ],
)
def test_static_and_critical(candidate: v1.Pod, static: bool, critical: bool) -> None:
    assert kubetypes.is_static_pod(candidate) is static
    assert kubetypes.is_critical_pod(candidate) is critical


@pytest.mark.parametrize(
    ("preemptor", "preemptee", "expected"),
    [
        (pod("file"), pod("api"), True),
        (pod("api"), pod("file"), False),
        (pod("api", 10), pod("api", 5), True),
        (pod("api", 5), pod("api", 5), False),
        (pod("api", 5), pod("api"), False),
    ],
)
def test_preemptable(preemptor: v1.Pod, preemptee: v1.Pod, expected: bool) -> None:
    assert kubetypes.preemptable(preemptor, preemptee) is expected


def test_sync_pod_type() -> None:
    assert [str(kind) for kind in kubetypes.SyncPodType] == ["sync", "update", "create", "kill"]
    assert not kubetypes.SYNC_POD_SYNC  # SYNC_POD_SYNC is the zero value.


def test_pod_conditions() -> None:
    for owned in (v1.POD_READY, v1.POD_SCHEDULED, v1.POD_READY_TO_START_CONTAINERS):
        assert kubetypes.pod_condition_by_kubelet(owned)
    assert not kubetypes.pod_condition_by_kubelet("example.com/gate")
    assert kubetypes.pod_condition_shared_by_kubelet(v1.DISRUPTION_TARGET)
    assert not kubetypes.pod_condition_shared_by_kubelet(v1.POD_READY)


def test_timestamp() -> None:
    time = datetime.datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=datetime.UTC)
    text = kubetypes.Timestamp(time).get_string()
    assert text == "2026-01-02T03:04:05.000678000Z"
    assert kubetypes.convert_to_timestamp(text).get() == time
    assert kubetypes.convert_to_timestamp("2026-01-02T05:04:05.000678999+02:00").get() == time
    assert kubetypes.convert_to_timestamp("nonsense").get().year == 1


def test_sort_init_container_statuses() -> None:
    spec = v1.PodSpec(init_containers=[v1.Container(name=name) for name in "abc"])
    statuses = [v1.ContainerStatus(name=name) for name in "cxab"]
    kubetypes.sort_init_container_statuses(v1.Pod(spec=spec), statuses)
    assert [status.name for status in statuses] == ["a", "b", "c", "x"]
    found = kubetypes.sort_statuses_of_init_containers(v1.Pod(spec=spec), {s.name: s for s in statuses})
    assert [status.name for status in found] == ["a", "b", "c"]
