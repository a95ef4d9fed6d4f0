"""Test the results of syncs.

Go: pkg/kubelet/container/sync_result_test.go
"""

from __future__ import annotations

import datetime

import pytest

from kubelet import container as kubecontainer

NOW = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


def failed(action: kubecontainer.SyncAction, target: str, err: Exception, message: str) -> kubecontainer.SyncResult:
    result = kubecontainer.SyncResult(action, target)
    result.fail(err, message)
    return result


def test_pod_sync_result() -> None:
    fine = kubecontainer.SyncResult(kubecontainer.START_CONTAINER, "container_0")
    result = kubecontainer.PodSyncResult()
    result.add_sync_result(fine)
    assert result.error() is None

    crash = kubecontainer.ErrCrashLoopBackOff()
    result.add_sync_result(failed(kubecontainer.START_CONTAINER, "c", crash, 'back-off 10s "c"'))
    error = result.error()
    assert error is not None
    assert str(error) == ('failed to "StartContainer" for "c" with CrashLoopBackOff: "back-off 10s \\"c\\""')
    assert error.exceptions[0].__cause__ is crash

    other = kubecontainer.PodSyncResult()
    other.add_pod_sync_result(result)
    assert str(other.error()) == str(error)

    other.fail(RuntimeError("no sandbox"))
    assert str(other.error()) == f"[failed to SyncPod: no sandbox, {error}]"
    # Equal texts are shown once.
    other.add_sync_result(result.sync_results[-1])
    assert str(other.error()) == f"[failed to SyncPod: no sandbox, {error}]"


def backoff(seconds: float) -> kubecontainer.BackoffError:
    return kubecontainer.BackoffError(RuntimeError("backoff"), NOW + datetime.timedelta(seconds=seconds))


def wrapped(err: Exception) -> Exception:
    outer = RuntimeError("wrapped")
    outer.__cause__ = err
    return outer


@pytest.mark.parametrize(
    ("err", "expected"),
    [
        pytest.param(None, None, id="nil error"),
        pytest.param(RuntimeError("generic"), None, id="simple error"),
        pytest.param(backoff(5), 5, id="BackoffError"),
        pytest.param(wrapped(backoff(3)), 3, id="wrapped BackoffError"),
        pytest.param(ExceptionGroup("", [ValueError(), KeyError()]), None, id="aggregate without"),
        pytest.param(ExceptionGroup("", [backoff(10), backoff(3), ValueError(), backoff(5)]), 3, id="minimum"),
        pytest.param(wrapped(ExceptionGroup("", [backoff(10), backoff(3)])), 3, id="wrapped aggregate"),
        pytest.param(ExceptionGroup("", [ExceptionGroup("", [backoff(2)]), backoff(4)]), 2, id="nested aggregate"),
    ],
)
def test_min_backoff_expiration(err: Exception | None, expected: float | None) -> None:
    found = kubecontainer.min_backoff_expiration(err)
    assert found == (None if expected is None else NOW + datetime.timedelta(seconds=expected))


def test_failed_actions() -> None:
    failed = kubecontainer.SyncResult(kubecontainer.KILL_POD_SANDBOX, "p", kubecontainer.ErrKillPodSandbox())
    result = kubecontainer.PodSyncResult([failed, kubecontainer.SyncResult(kubecontainer.START_CONTAINER, "c")])
    try:
        raise RuntimeError("no") from result.error()
    except RuntimeError as err:
        assert kubecontainer.failed_actions(err) == {kubecontainer.KILL_POD_SANDBOX}
    assert kubecontainer.failed_actions(OSError()) == kubecontainer.failed_actions(None) == frozenset()


def test_min_backoff_expiration_of_a_pod_sync_result() -> None:
    result = kubecontainer.PodSyncResult()
    result.add_sync_result(failed(kubecontainer.START_CONTAINER, "a", backoff(7), "m"))
    result.add_sync_result(failed(kubecontainer.START_CONTAINER, "b", backoff(6), "m"))
    assert kubecontainer.min_backoff_expiration(result.error()) == NOW + datetime.timedelta(seconds=6)
