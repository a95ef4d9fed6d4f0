"""Wait for changes of an object of a test API server."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from pkg import golang

from .apiserver.interfaces import Object, Store, Watch

T = TypeVar("T")


def wait_for_object(
    store: Store,
    resource: str,
    name: str,
    look: Callable[[Object], T | None],
    *,
    namespace: str = "",
    timeout: float,
    what: str,
) -> T:
    """Return the first result of `look` that is not None, called with the object now and after each change.

    Raise LookupError if the object is deleted, any error of `look`, and TimeoutError after `timeout` seconds. The
    errors quote `what`, the expected condition.
    """
    watch = store.watch(resource, namespace, field_selector=f"metadata.name={name}")
    answers: golang.Channel[T | Exception] = golang.Channel(1)
    thread = golang.go(_look, watch, look, answers, name=f"wait-for-{name}")
    try:
        answer, is_there = answers.recv(timeout)
    finally:
        watch.stop()
        thread.join()
    if not is_there or answer is None:
        raise TimeoutError(f"{resource} {name}: not within {timeout:g} s: {what}")
    if isinstance(answer, Exception):
        raise answer
    return answer


def _look(watch: Watch, look: Callable[[Object], T | None], answers: golang.Channel[T | Exception]) -> None:
    for event in watch:
        if event.type == "DELETED":
            answers.try_send(LookupError(f"{event.object['metadata']['name']} has been deleted"))
            return
        try:
            found = look(event.object)
        except Exception as err:  # The waiting thread raises the error.
            answers.try_send(err)
            return
        if found is not None:
            answers.try_send(found)
            return
