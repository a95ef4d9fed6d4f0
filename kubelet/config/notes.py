"""Hold notes on the manifests of a source: their current faults, and the fields that the kubelet ignores.

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
    """Describe a fault of a manifest or of a part of it. The text names the file or URL, and the field."""

    origin: str
    text: str


class ManifestNotes:
    """Hold the notes on one source's manifests. Only the source writes them; any thread may read them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # This lock guards the fields below.
        self._notes: dict[str, tuple[ManifestNote, ...]] = {}  # The keys are origins.
        self._unknown_fields: Mapping[types.UID, Sequence[str]] = {}  # The keys are UIDs of pods.

    def replace(self, origin: str, texts: Iterable[str]) -> list[str]:
        """Replace all notes on an origin, which is a file or the URL; return the texts that are new."""
        notes = tuple(ManifestNote(golang.to_valid_utf8(origin), golang.to_valid_utf8(text)) for text in texts)
        with self._lock:
            before = set(self._notes.pop(origin, ()))
            if notes:
                self._notes[origin] = notes
        return [note.text for note in notes if note not in before]

    def keep(self, is_there: Callable[[str], bool]) -> None:
        """Forget the origins that no longer exist."""
        with self._lock:
            origins = list(self._notes)
        for origin in origins:
            if not is_there(origin):
                self.replace(origin, ())

    def replace_unknown_fields(self, fields: Mapping[types.UID, Sequence[str]]) -> None:
        """Replace the unknown fields of all manifests; the keys are the UIDs of the pods.

        The caller must not change the map afterwards.
        """
        with self._lock:
            self._unknown_fields = fields

    def all(self) -> list[ManifestNote]:
        """Return all notes in the order of their origins."""
        with self._lock:
            return [note for _, notes in sorted(self._notes.items()) for note in notes]

    def unknown_fields(self, uid: types.UID) -> list[str]:
        """Return the fields of the pod's manifest that the kubelet ignores because the pod type lacks them."""
        with self._lock:
            return list(self._unknown_fields.get(uid, ()))
