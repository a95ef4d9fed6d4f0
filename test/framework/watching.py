"""Waiting for what becomes of an object of a test API server."""

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
    """What `look` makes of the object, as it is now or once it has changed, as soon as that is not None.

    Raises LookupError when the object is gone, what `look` raises, and TimeoutError after so many seconds, which says
    `what` was waited for.
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
        except Exception as err:  # whoever waits raises it
            answers.try_send(err)
            return
        if found is not None:
            answers.try_send(found)
            return
