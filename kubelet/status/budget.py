"""A bound for the texts of a pod's status, so that the API server and etcd take it.

DIVERGES (safer): the longest reasons and messages of a status are cut until all of them fit together.
Go: pkg/kubelet/status/status_manager.go, normalizeStatus: only termination messages have a bound.
Why: the API server takes no larger status, so the one of many containers that wait with long messages would never be
written, and the pod never be deleted.
Test: status_manager_test.py:test_status_of_many_containers_that_wait_with_long_messages
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from kubelet import types as kubetypes
from pkg.api.core import v1

# Bytes that the texts of one status may have together. As JSON a byte can become six, and the API server takes no
# request of more than 3 MiB; etcd takes no object of more than 1.5 MiB.
MAX_STATUS_TEXT_LENGTH = 256 << 10


def cut_text(text: str, max_bytes: int) -> str:
    """As much of the text's start as fits into max_bytes of UTF-8, no character cut in two."""
    return text if _length(text) <= max_bytes else text.encode()[:max_bytes].decode(errors="ignore")


def cut_texts(status: v1.PodStatus) -> None:
    """Cut the longest texts of the status, in place, until all of them fit together.

    All texts that are cut get the same length, so the texts of one container cost the others nothing but what is
    long. A status that has been cut stays as it is when it is cut again.
    """
    texts = list(_texts(status))
    lengths = [_length(text.value) for text in texts]
    if sum(lengths) <= MAX_STATUS_TEXT_LENGTH:
        return
    longest = _common_length(lengths, MAX_STATUS_TEXT_LENGTH)
    for text, length in zip(texts, lengths, strict=True):
        if length > longest:
            setattr(text.owner, text.field, cut_text(text.value, longest))


class _Text(NamedTuple):
    """A text of a status, and where it stands."""

    owner: object
    field: str
    value: str


def _texts(status: v1.PodStatus) -> Iterator[_Text]:
    """All reasons and messages that the kubelet writes, those that are empty left out."""
    for owner in _owners(status):
        for field in ("reason", "message"):
            value = getattr(owner, field, None)
            if value:
                yield _Text(owner, field, value)


def _owners(status: v1.PodStatus) -> Iterator[object]:
    """Everything in the status that has a reason or a message of the kubelet's."""
    yield status
    for condition in status.conditions:
        if _is_ours(condition.type):
            yield condition
    for containers in (status.container_statuses, status.init_container_statuses, status.ephemeral_container_statuses):
        for container in containers:
            for state in (container.state, container.last_state):
                yield from (found for found in (state.waiting, state.terminated) if found is not None)
            for resource_status in container.allocated_resources_status:
                yield from resource_status.resources


def _is_ours(condition_type: str) -> bool:
    return kubetypes.pod_condition_by_kubelet(condition_type) or kubetypes.pod_condition_shared_by_kubelet(
        condition_type
    )


def _length(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


def _common_length(lengths: Iterable[int], room: int) -> int:
    """The greatest length to which all can be cut so that together they fit into the room."""
    ascending = sorted(lengths)
    for i, length in enumerate(ascending):
        share = room // (len(ascending) - i)
        if length > share:
            return share
        room -= length
    return ascending[-1] if ascending else 0
