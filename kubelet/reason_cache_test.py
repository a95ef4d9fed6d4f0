"""Tests of the reason cache."""

from __future__ import annotations

from kubelet import container as kubecontainer
from kubelet import reason_cache


def _sync_result(
    action: kubecontainer.SyncAction, target: str, error: Exception | None, message: str
) -> kubecontainer.SyncResult:
    result = kubecontainer.SyncResult(action, target)
    if error is not None:
        result.fail(error, message)
    return result


def test_reason_cache() -> None:
    start = kubecontainer.START_CONTAINER
    result = kubecontainer.PodSyncResult()
    failed_1 = RuntimeError("start failed 1")
    failed_2 = RuntimeError("start failed 2")
    result.add_sync_result(_sync_result(start, "container_1", failed_1, "message_1"))
    result.add_sync_result(_sync_result(start, "container_2", failed_2, "message_2"))
    result.add_sync_result(_sync_result(start, "container_3", None, ""))
    result.add_sync_result(
        _sync_result(kubecontainer.KILL_CONTAINER, "container_4", RuntimeError("kill failed"), "message_4")
    )
    cache = reason_cache.ReasonCache()
    cache.update("pod_1", result)

    assert cache.get("pod_1", "container_1") == (failed_1, "message_1")
    assert cache.get("pod_1", "container_2") == (failed_2, "message_2")
    assert cache.get("pod_1", "container_3") is None, "it was started"
    assert cache.get("pod_1", "container_4") is None, "only starts are remembered"
    assert cache.get("pod_2", "container_1") is None, "another pod"

    cache.remove("pod_1", "container_2")
    assert cache.get("pod_1", "container_2") is None

    started = kubecontainer.PodSyncResult()
    started.add_sync_result(_sync_result(start, "container_1", None, ""))
    cache.update("pod_1", started)
    assert cache.get("pod_1", "container_1") is None, "started since"


def test_the_entry_used_longest_ago_goes_first() -> None:
    cache = reason_cache.ReasonCache()
    for i in range(reason_cache.MAX_REASON_CACHE_ENTRIES):
        cache.add("pod", str(i), RuntimeError(), "")
    assert cache.get("pod", "0") is not None
    cache.add("pod", "one more", RuntimeError(), "")
    assert cache.get("pod", "0") is not None
    assert cache.get("pod", "1") is None
    assert cache.get("pod", "one more") is not None
