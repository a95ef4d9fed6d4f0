"""What a kubelet may do to a volume, in which order, whatever was killed in between; as a log of calls shows it.

A call that never ended, or whose error leaves it open, may have done all of its work or nothing, and what may follow
it is what may follow either. So there are places where a volume surely is, and places where it maybe is. Who was killed
may not know any more what was done: after a mark, what undoes something may be done again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from csi_driver.calls import Call
from csi_driver.services import EPHEMERAL

# What says nothing about whether it was done, the end of the driver included.
_OPEN = ("", "CANCELLED", "DEADLINE_EXCEEDED", "UNAVAILABLE", "RESOURCE_EXHAUSTED", "ABORTED")
_OPERATIONS = ("NodeStageVolume", "NodePublishVolume", "NodeUnpublishVolume", "NodeUnstageVolume")


def violations(calls: Sequence[Call], stages: bool = True) -> list[str]:
    """What is wrong with the calls, in words; nothing if they are as they should be.

    stages: whether the driver has volumes staged.
    """
    found = []
    for volume in sorted({call.volume for call in calls if call.method in _OPERATIONS}):
        own = [call for call in calls if call.method in _OPERATIONS and call.volume == volume]
        ephemeral = any((call.request.get("volume_context") or {}).get(EPHEMERAL) == "true" for call in own)
        found += [f"{volume}: {each}" for each in _of_volume(own, stages and not ephemeral)]
    return found


def left(calls: Sequence[Call]) -> dict[str, set[str]]:
    """By volume, where it may still be staged or published at the end."""
    places: dict[str, set[str]] = {}
    for call in (each for each in calls if each.method in _OPERATIONS):
        at = places.setdefault(call.volume, set())
        if call.method in ("NodeStageVolume", "NodePublishVolume"):
            at |= _places(call)
        elif call.code == "OK":
            at.discard(call.path)
    return {volume: at for volume, at in places.items() if at}


def _of_volume(calls: Sequence[Call], stages: bool) -> Iterable[str]:
    # Where it surely, and where it maybe, is.
    staged: set[str] = set()
    maybe_staged: set[str] = set()
    maybe_published: set[str] = set()
    # By method and path, how many marks were before what was undone last.
    undone: dict[tuple[str, str], int] = {}
    for call in calls:
        path, done = call.path, call.code == "OK"
        match call.method:
            case "NodeStageVolume":
                if others := maybe_staged - {path}:
                    yield f"staged at {path} while it may be staged at {sorted(others)}"
                maybe_staged |= _places(call)
                if done:
                    staged.add(path)
            case "NodePublishVolume":
                source = call.request.get("staging_target_path", "")
                if stages and source not in staged:
                    yield f"published at {path} without being staged at {source!r}"
                maybe_published |= _places(call)
            case "NodeUnpublishVolume":
                if path not in maybe_published and undone.get((call.method, path), call.marks) == call.marks:
                    yield f"unpublished at {path}, where it is not"
                if done:
                    undone[call.method, path] = call.marks
                    maybe_published.discard(path)
            case "NodeUnstageVolume":
                if maybe_published:
                    yield f"unstaged while it may be published at {sorted(maybe_published)}"
                if path not in maybe_staged and undone.get((call.method, path), call.marks) == call.marks:
                    yield f"unstaged at {path}, where it is not"
                staged.discard(path)
                if done:
                    undone[call.method, path] = call.marks
                    maybe_staged.discard(path)
    yield from _overlaps(calls)


def _places(call: Call) -> set[str]:
    """Where a volume may be after a call that was to bring it there."""
    return {call.path} if call.code == "OK" or call.code in _OPEN else set()


def _overlaps(calls: Sequence[Call]) -> Iterable[str]:
    """Two calls for a volume at one time, by one life of the kubelet: marks part them."""
    for i, call in enumerate(calls):
        for later in calls[i + 1 :]:
            if call.ended is not None and later.began < call.ended and later.marks == call.marks:
                yield f"{later.method} came during {call.method}"
