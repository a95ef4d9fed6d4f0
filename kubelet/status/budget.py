"""Limit the texts of a pod's status, so that the API server and etcd accept it.

DIVERGES (safer): the kubelet cuts the longest reasons and messages of a status until all of them fit the limit.
Go: pkg/kubelet/status/status_manager.go, normalizeStatus: the Go kubelet limits only termination messages.
Why: the API server refuses a larger status. If many containers waited with long messages, their status could never be
written, and the pod could never be deleted.
Test: status_manager_test.py:test_status_of_many_containers_that_wait_with_long_messages
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from kubelet import types as kubetypes
from pkg.api.core import v1

# `MAX_STATUS_TEXT_LENGTH` is the number of bytes that the texts of one status may have together. In JSON one byte can
# become six. The API server accepts requests of up to 3 MiB, and etcd objects of up to 1.5 MiB.
MAX_STATUS_TEXT_LENGTH = 256 << 10


def cut_text(text: str, max_bytes: int) -> str:
    """Return the beginning of the text that fits into max_bytes of UTF-8, without splitting a character."""
    return text if _length(text) <= max_bytes else text.encode()[:max_bytes].decode(errors="ignore")


def cut_texts(status: v1.PodStatus) -> None:
    """Cut the longest texts of the status, in place, until all of them fit the limit.

    All cut texts get the same length, so that the long texts of one container do not shorten the short texts of others.
    Cutting the same status again changes nothing.
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
    """Hold a text of a status, and the object and field that hold it."""

    owner: object
    field: str
    value: str


def _texts(status: v1.PodStatus) -> Iterator[_Text]:
    """Yield all reasons and messages that the kubelet writes, except empty ones."""
    for owner in _owners(status):
        for field in ("reason", "message"):
            value = getattr(owner, field, None)
            if value:
                yield _Text(owner, field, value)


def _owners(status: v1.PodStatus) -> Iterator[object]:
    """Yield every object in the status that has a reason or a message of the kubelet."""
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
    """Return the greatest length to which all texts can be cut so that together they fit into `room` bytes."""
    ascending = sorted(lengths)
    for i, length in enumerate(ascending):
        share = room // (len(ascending) - i)
        if length > share:
            return share
        room -= length
    return ascending[-1] if ascending else 0
