"""Store pull records as files below the kubelet's root directory.

Go: pkg/kubelet/images/pullmanager/fs_pullrecords.go
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

import msgspec
from prometheus_client import Gauge

from kubelet.apis.config import scheme
from kubelet.images.pullmanager.interfaces import ImagePulledRecord
from kubelet.images.pullmanager.metrics import FS_PULL_INTENTS_SIZE, FS_PULLED_RECORDS_SIZE, register_metrics
from pkg import klog
from pkg.apimachinery.runtime import codec
from pkg.apimachinery.util.runtime import contain
from pkg.util import atomicfile, filesystem

_CACHE_FILES_SHA256_PREFIX = "sha256-"
# A Go kubelet may have left files with this suffix.
_TMP_FILES_SUFFIX = ".tmp"
_UNREADABLE = "Error reading image pull record"

# Records are written in the first version, and read in all of these versions.
_ENCODE_VERSION = scheme.API_VERSION
_VERSIONS = (_ENCODE_VERSION, "kubelet.config.k8s.io/v1alpha1")

_T = TypeVar("_T", bound=msgspec.Struct)


class ImagePullIntent(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Record the intent to pull an image.

    The intent is written before a pull and removed after it. A remaining intent means that a kubelet died in between.
    """

    image: str
    kind: str = "ImagePullIntent"
    api_version: str = "kubelet.config.k8s.io/v1beta1"


class _TypeMeta(msgspec.Struct, rename="camel"):
    """Read the kind and version of a file."""

    kind: str = ""
    api_version: str = ""


class FSPullRecordsAccessor:
    """Read and write <root>/image_manager/{pulling,pulled}/sha256-*. The caller is responsible for locking."""

    def __init__(self, kubelet_dir: str) -> None:
        """Create the directories. Raise OSError."""
        register_metrics()
        self._pulling_dir = Path(kubelet_dir, "image_manager", "pulling")
        self._pulled_dir = Path(kubelet_dir, "image_manager", "pulled")
        for directory in (self._pulling_dir, self._pulled_dir):
            filesystem.mkdir_all(directory, 0o700)
        self._records_version_migration()

    def _records_version_migration(self) -> None:
        """Write records of an older version again in the current one.

        Log and skip those that cannot be read or written.
        """

        def migrate_intent(content: bytes) -> None:
            intent = _decode_intent(content)
            if not intent.is_current:
                self.write_image_pull_intent(intent.record.image)

        def migrate_pulled_record(content: bytes) -> None:
            pulled = _decode_pulled_record(content)
            if not pulled.is_current:
                self.write_image_pulled_record(pulled.record)

        for directory, migrate, fault in (
            (self._pulling_dir, migrate_intent, "Error migrating image pull intents"),
            (self._pulled_dir, migrate_pulled_record, "Error migrating image pulled records"),
        ):
            try:
                _process_dir_files(directory, migrate, fault)
            except OSError as err:
                klog.error_s(err, fault, path=str(directory))

    def write_image_pull_intent(self, image: str) -> None:
        """Record the intent to pull the image. Raise OSError, as all methods of this class do."""
        _write_file(self._pulling_dir / _cache_filename(image), msgspec.json.encode(ImagePullIntent(image)))
        _tell_size(FS_PULL_INTENTS_SIZE, self._pulling_dir)

    def list_image_pull_intents(self) -> list[ImagePullIntent]:
        intents: list[ImagePullIntent] = []
        _process_dir_files(
            self._pulling_dir, lambda content: intents.append(_decode_intent(content).record), _UNREADABLE
        )
        return intents

    def image_pull_intent_exists(self, image: str) -> bool:
        """Report whether there is an intent for the image. Also raise ValueError if it cannot be decoded."""
        try:
            content = (self._pulling_dir / _cache_filename(image)).read_bytes()
        except FileNotFoundError:
            return False
        return _decode_intent(content).record.image == image

    def delete_image_pull_intent(self, image: str) -> None:
        (self._pulling_dir / _cache_filename(image)).unlink(missing_ok=True)
        _tell_size(FS_PULL_INTENTS_SIZE, self._pulling_dir)

    def get_image_pulled_record(self, image_ref: str) -> ImagePulledRecord | None:
        """Return the record, or None if there is none. Raise ValueError if it cannot be decoded."""
        try:
            data = (self._pulled_dir / _cache_filename(image_ref)).read_bytes()
        except FileNotFoundError:
            return None
        record = _decode_pulled_record(data).record
        return record if record.image_ref == image_ref else None

    def list_image_pulled_records(self) -> list[ImagePulledRecord]:
        records: list[ImagePulledRecord] = []
        _process_dir_files(
            self._pulled_dir, lambda content: records.append(_decode_pulled_record(content).record), _UNREADABLE
        )
        return records

    def write_image_pulled_record(self, record: ImagePulledRecord) -> None:
        _write_file(self._pulled_dir / _cache_filename(record.image_ref), msgspec.json.encode(record))
        _tell_size(FS_PULLED_RECORDS_SIZE, self._pulled_dir)

    def delete_image_pulled_record(self, image_ref: str) -> None:
        (self._pulled_dir / _cache_filename(image_ref)).unlink(missing_ok=True)
        _tell_size(FS_PULLED_RECORDS_SIZE, self._pulled_dir)


def _cache_filename(image: str) -> str:
    return _CACHE_FILES_SHA256_PREFIX + hashlib.sha256(image.encode()).hexdigest()


def _write_file(target: Path, content: bytes) -> None:
    """Replace the file atomically, so that neither a reader nor a crash of the machine leaves half a file or none.

    DIVERGES (safer): the file and its directory are synced to the disk before the kubelet continues.
    Go: pkg/kubelet/images/pullmanager/fs_pullrecords.go, writeFile: the Go kubelet syncs neither.
    Why: a crash of the machine can lose the intent to pull an image. The image then counts as preloaded, and every pod
    may use it.
    Test: image_pull_manager_test.py:test_intent_outlasts_a_crash_of_the_machine
    """
    filesystem.mkdir_all(target.parent, 0o700)
    atomicfile.write(target, content)
    atomicfile.sync_directory(target.parent)


def _record_files(directory: Path) -> list[Path]:
    found = sorted(directory.glob(_CACHE_FILES_SHA256_PREFIX + "*"))
    return [path for path in found if path.suffix != _TMP_FILES_SUFFIX and path.is_file()]


def _tell_size(gauge: Gauge, directory: Path) -> None:
    """Set the gauge to the number of records. A failure to count them does not undo the operation on the records."""
    with contain("Failed to count the image pull records", path=str(directory)):
        gauge.set(len(_record_files(directory)))


def _process_dir_files(directory: Path, file_action: Callable[[bytes], object], fault: str) -> None:
    """Pass the content of each record to file_action. Log `fault` for a file that cannot be read or processed.

    Raise OSError if the directory cannot be read.
    """
    for path in _record_files(directory):
        try:
            file_action(path.read_bytes())
        except (OSError, ValueError) as err:
            klog.error_s(err, fault, path=str(path))


@dataclass(frozen=True, slots=True)
class _Decoded(Generic[_T]):
    """Hold the content of a file."""

    record: _T
    # `is_current` is true if the file has the version that is written.
    is_current: bool


def _decode_intent(content: bytes) -> _Decoded[ImagePullIntent]:
    return _decode(content, ImagePullIntent)


def _decode_pulled_record(content: bytes) -> _Decoded[ImagePulledRecord]:
    return _decode(content, ImagePulledRecord)


def _decode(content: bytes, type_: type[_T]) -> _Decoded[_T]:
    """Decode a record. Raise ValueError for another kind or version, an unknown field, or malformed content."""
    kind = type_.__name__
    with codec.reading(kind):
        meta = codec.json_decoder(_TypeMeta).decode(content)
        scheme.check_kind({"kind": meta.kind, "apiVersion": meta.api_version}, kind, _VERSIONS)
        record = codec.json_decoder(type_).decode(content)
    current = msgspec.structs.replace(record, api_version=_ENCODE_VERSION)
    return _Decoded(current, meta.api_version == _ENCODE_VERSION)
