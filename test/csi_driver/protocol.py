"""Check the order of a kubelet's calls for a volume in a log, even if the kubelet or the driver was killed in between.

A call that never ended, or whose error does not say how far the call came, may have done all of its work or nothing.
The next calls may be correct for either case. So there are paths where a volume certainly is, and paths where it
possibly is. A kubelet that was killed may not know what it has done: after a mark, it may repeat a call that undoes
something.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from csi_driver.calls import Call
from csi_driver.services import EPHEMERAL

# These codes do not say whether the call did its work. The empty one means that the driver ended during the call.
_OPEN = ("", "CANCELLED", "DEADLINE_EXCEEDED", "UNAVAILABLE", "RESOURCE_EXHAUSTED", "ABORTED")
_OPERATIONS = ("NodeStageVolume", "NodePublishVolume", "NodeUnpublishVolume", "NodeUnstageVolume")


def violations(calls: Sequence[Call], stages: bool = True) -> list[str]:
    """Return the violations in words.

    `stages` says whether the driver stages volumes.
    """
    found = []
    for volume in sorted({call.volume for call in calls if call.method in _OPERATIONS}):
        own = [call for call in calls if call.method in _OPERATIONS and call.volume == volume]
        ephemeral = any((call.request.get("volume_context") or {}).get(EPHEMERAL) == "true" for call in own)
        found += [f"{volume}: {each}" for each in _of_volume(own, stages and not ephemeral)]
    return found


def left(calls: Sequence[Call]) -> dict[str, set[str]]:
    """Return, by volume, the paths where it may still be staged or published at the end."""
    places: dict[str, set[str]] = {}
    for call in (each for each in calls if each.method in _OPERATIONS):
        at = places.setdefault(call.volume, set())
        if call.method in ("NodeStageVolume", "NodePublishVolume"):
            at |= _places(call)
        elif call.code == "OK":
            at.discard(call.path)
    return {volume: at for volume, at in places.items() if at}


def _of_volume(calls: Sequence[Call], stages: bool) -> Iterable[str]:
    # The volume is certainly staged at the paths in `staged`, and possibly staged or published at the others.
    staged: set[str] = set()
    maybe_staged: set[str] = set()
    maybe_published: set[str] = set()
    # The key is a method and a path, and the value the number of marks before the last call that undid something there.
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
                    yield f"published at {path} although it is not staged at {source!r}"
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
    """Return the paths where a volume may be after a call that stages or publishes it."""
    return {call.path} if call.code == "OK" or call.code in _OPEN else set()


def _overlaps(calls: Sequence[Call]) -> Iterable[str]:
    """Yield the calls that overlap an earlier call for the volume by the same run of the kubelet.

    Marks separate the runs.
    """
    for i, call in enumerate(calls):
        for later in calls[i + 1 :]:
            if call.ended is not None and later.began < call.ended and later.marks == call.marks:
                yield f"{later.method} came during {call.method}"
