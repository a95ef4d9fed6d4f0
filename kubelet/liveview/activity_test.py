"""Tests of what stacks tell."""

from __future__ import annotations

import importlib
import inspect
import sys

import pytest

from kubelet.liveview import activity
from pkg import golang


@pytest.mark.parametrize(("file", "name"), list(activity.STEPS), ids=lambda part: part)
def test_steps_name_functions_that_exist(file: str, name: str) -> None:
    found = importlib.import_module(file.removesuffix(".py").replace("/", "."))
    for part in name.split("."):
        found = inspect.unwrap(getattr(found, part))

    code = found.__code__
    assert (code.co_qualname, code.co_filename.endswith(file)) == (name, True)


def test_worker_that_waits() -> None:
    from kubelet import pod_workers

    ctx, cancel = golang.with_cancel(golang.background())
    updates: golang.Channel[None] = golang.Channel()
    thread = golang.go(pod_workers._wait_for_update, ctx, updates, name="podworker-1")
    try:
        found = None
        while not updates._receivers or found is None:
            found = activity.of_workers().get("1")
        assert activity.of_workers()["1"] == (activity.WAITS_FOR_CHANGE, "_wait_for_update")
    finally:
        cancel()
        thread.join()
    assert "1" not in activity.of_workers()


def test_stack_that_says_nothing() -> None:
    assert activity.of_frame(sys._getframe()) == ("is between two steps", "")
