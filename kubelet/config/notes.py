"""Notes on the manifests of a source: the faults that they have now, and the fields that the kubelet ignores.

Go: none
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from pkg import golang
from pkg.apimachinery import types


@dataclass(slots=True, frozen=True)
class ManifestNote:
    """What is wrong with a manifest, or with a part of it. The text names the file or URL, and the field."""

    origin: str
    text: str


class ManifestNotes:
    """The notes on one source's manifests. The source alone writes them, any thread reads them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards the fields below
        self._notes: dict[str, tuple[ManifestNote, ...]] = {}  # by origin
        self._unknown_fields: Mapping[types.UID, Sequence[str]] = {}  # by the pod's uid

    def replace(self, origin: str, texts: Iterable[str]) -> list[str]:
        """These are all that is to be told of an origin, a file or the URL; returns those that are new."""
        notes = tuple(ManifestNote(golang.to_valid_utf8(origin), golang.to_valid_utf8(text)) for text in texts)
        with self._lock:
            before = set(self._notes.pop(origin, ()))
            if notes:
                self._notes[origin] = notes
        return [note.text for note in notes if note not in before]

    def keep(self, is_there: Callable[[str], bool]) -> None:
        """Forget the origins that are not there any more."""
        with self._lock:
            origins = list(self._notes)
        for origin in origins:
            if not is_there(origin):
                self.replace(origin, ())

    def replace_unknown_fields(self, fields: Mapping[types.UID, Sequence[str]]) -> None:
        """These are all fields of the manifests that no type has, by the uid of the pod. They are not copied."""
        with self._lock:
            self._unknown_fields = fields

    def all(self) -> list[ManifestNote]:
        """All notes, in the order of their origins."""
        with self._lock:
            return [note for _, notes in sorted(self._notes.items()) for note in notes]

    def unknown_fields(self, uid: types.UID) -> list[str]:
        """The fields of the pod's manifest that are ignored because a pod has no such field."""
        with self._lock:
            return list(self._unknown_fields.get(uid, ()))
