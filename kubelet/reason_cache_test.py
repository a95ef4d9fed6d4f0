"""Test the reason cache."""

from __future__ import annotations

import gc
import weakref
from datetime import UTC, datetime

from kubelet import container as kubecontainer
from kubelet import reason_cache
from pkg.apimachinery import types
from pkg.apimachinery.api import errors as apierrors

UID = types.UID("pod")
POD_1 = types.UID("pod_1")

NOW = datetime(2020, 1, 1, tzinfo=UTC)


class _Secret:
    """Represent an object that a call uses."""


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
    cache.update(POD_1, result)

    assert cache.get(POD_1, "container_1") == reason_cache.ReasonItem("start failed 1", "message_1", None)
    assert cache.get(POD_1, "container_2") == reason_cache.ReasonItem("start failed 2", "message_2", None)
    assert cache.get(POD_1, "container_3") is None, "the container was started"
    assert cache.get(POD_1, "container_4") is None, "the cache stores only starts"
    assert cache.get(types.UID("pod_2"), "container_1") is None, "another pod"

    cache.remove(POD_1, "container_2")
    assert cache.get(POD_1, "container_2") is None

    started = kubecontainer.PodSyncResult()
    started.add_sync_result(_sync_result(start, "container_1", None, ""))
    cache.update(POD_1, started)
    assert cache.get(POD_1, "container_1") is None, "the container has started since"


def test_the_entry_used_longest_ago_goes_first() -> None:
    cache = reason_cache.ReasonCache()
    for i in range(reason_cache.MAX_REASON_CACHE_ENTRIES):
        cache.add(UID, str(i), RuntimeError(), "")
    assert cache.get(UID, "0") is not None
    cache.add(UID, "one more", RuntimeError(), "")
    assert cache.get(UID, "0") is not None
    assert cache.get(UID, "1") is None
    assert cache.get(UID, "one more") is not None


def test_when_it_is_tried_again() -> None:
    cache = reason_cache.ReasonCache()
    cache.add(UID, "a", kubecontainer.BackoffError(kubecontainer.ErrCrashLoopBackOff(), NOW), "later")
    assert cache.get(UID, "a") == reason_cache.ReasonItem("CrashLoopBackOff", "later", NOW)


def test_what_a_container_lacks() -> None:
    cache = reason_cache.ReasonCache()
    reason = kubecontainer.ErrRunContainer()
    reason.__cause__ = apierrors.new_not_found("secret", "smtp")
    cache.add(UID, "a", reason, "no")
    item = cache.get(UID, "a")
    assert item is not None and item.missing is not None
    assert (item.missing.kind, item.missing.name) == ("secret", "smtp")


def test_long_message_is_cut() -> None:
    cache = reason_cache.ReasonCache()
    cache.add(UID, "a", RuntimeError(), "x" * 1_000_000)
    item = cache.get(UID, "a")
    assert item is not None and item.message == "x" * reason_cache.MAX_MESSAGE_LENGTH


def test_nothing_of_the_pod_is_kept() -> None:
    """An exception refers to the variables of the calls through which it passed."""
    cache = reason_cache.ReasonCache()
    kept = []

    def start() -> None:
        secret = _Secret()
        kept.append(weakref.ref(secret))
        raise RuntimeError("no")

    try:
        start()
    except RuntimeError as err:
        cache.add(UID, "a", err, "")

    gc.collect()
    assert kept[0]() is None
