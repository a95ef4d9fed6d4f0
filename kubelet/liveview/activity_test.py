"""Test how the activities of workers are described."""

from __future__ import annotations

import datetime
import importlib
import inspect
from collections.abc import Callable
from typing import Any

import pytest

from kubelet.activity import Activity
from kubelet.liveview import activity
from kubelet.liveview.history import Call
from kubelet.pod_workers import PodWorkerSnapshot

NOW = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


def function(step: activity.Step) -> Callable[..., Any]:
    found = importlib.import_module(step.file.removesuffix(".py").replace("/", "."))
    for part in step.function.split("."):
        found = inspect.unwrap(getattr(found, part))
    return found  # type: ignore[return-value]


@pytest.mark.parametrize("at", list(Activity), ids=lambda at: at.name)
def test_steps_name_the_functions_that_tell_them(at: Activity) -> None:
    step = activity.STEPS[at]
    source = inspect.getsource(function(step))
    assert f"doing(ctx, Activity.{at.name})" in source or f"doing(request.ctx, Activity.{at.name})" in source


@pytest.mark.parametrize("operation", list(activity.CALLS))
def test_steps_name_the_functions_that_call(operation: str) -> None:
    assert f'self._recorded("{operation}"' in inspect.getsource(function(activity.CALLS[operation]))


def test_call_says_more_than_the_activity() -> None:
    worker = PodWorkerSnapshot(activity=Activity.SYNCS, step_began=NOW)
    calls = [Call("exec_sync", NOW.timestamp()), Call("pull_image", NOW.timestamp())]
    assert activity.of_worker(worker, calls) == activity.CALLS["pull_image"]
    assert activity.of_worker(worker, calls[:1]) == activity.STEPS[Activity.SYNCS]


def test_call_of_somebody_else() -> None:
    """A sandbox that the garbage collector stops does not count as the worker's activity."""
    worker = PodWorkerSnapshot(activity=Activity.WAITS_FOR_UPDATE)
    step = activity.of_worker(worker, [Call("stop_podsandbox", NOW.timestamp())])
    assert step == activity.STEPS[Activity.WAITS_FOR_UPDATE]


@pytest.mark.parametrize("worker", [None, PodWorkerSnapshot()])
def test_pod_that_nobody_works_on(worker: PodWorkerSnapshot | None) -> None:
    assert activity.of_worker(worker, []) is None
