"""Pull records as files below the kubelet's root directory.

Go: pkg/kubelet/images/pullmanager/fs_pullrecords.go
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import msgspec
from prometheus_client import Gauge

from kubelet.images.pullmanager.interfaces import ImagePulledRecord
from kubelet.images.pullmanager.metrics import FS_PULL_INTENTS_SIZE, FS_PULLED_RECORDS_SIZE, register_metrics
from pkg import klog
from pkg.apimachinery.runtime import codec
from pkg.apimachinery.util.runtime import contain
from pkg.util import atomicfile, filesystem

_CACHE_FILES_SHA256_PREFIX = "sha256-"
# Of files that a Go kubelet has left.
_TMP_FILES_SUFFIX = ".tmp"

_T = TypeVar("_T")


class ImagePullIntent(msgspec.Struct, frozen=True, rename="camel"):
    """Written before a pull, removed after it: one that is left tells of a kubelet that died in between."""

    image: str
    kind: str = "ImagePullIntent"
    api_version: str = "kubelet.config.k8s.io/v1beta1"


class FSPullRecordsAccessor:
    """Reads and writes <root>/image_manager/{pulling,pulled}/sha256-*. The caller sees to locking."""

    def __init__(self, kubelet_dir: str) -> None:
        """Makes the directories. Raises OSError."""
        register_metrics()
        self._pulling_dir = Path(kubelet_dir, "image_manager", "pulling")
        self._pulled_dir = Path(kubelet_dir, "image_manager", "pulled")
        for directory in (self._pulling_dir, self._pulled_dir):
            filesystem.mkdir_all(directory, 0o700)

    def write_image_pull_intent(self, image: str) -> None:
        """Raises OSError, as all methods here do."""
        _write_file(self._pulling_dir / _cache_filename(image), msgspec.json.encode(ImagePullIntent(image)))
        _tell_size(FS_PULL_INTENTS_SIZE, self._pulling_dir)

    def list_image_pull_intents(self) -> list[ImagePullIntent]:
        return list(_read_all(self._pulling_dir, ImagePullIntent))

    def image_pull_intent_exists(self, image: str) -> bool:
        return (self._pulling_dir / _cache_filename(image)).exists()

    def delete_image_pull_intent(self, image: str) -> None:
        (self._pulling_dir / _cache_filename(image)).unlink(missing_ok=True)
        _tell_size(FS_PULL_INTENTS_SIZE, self._pulling_dir)

    def get_image_pulled_record(self, image_ref: str) -> ImagePulledRecord | None:
        """None when there is no such record. Raises ValueError for one that cannot be decoded."""
        try:
            data = (self._pulled_dir / _cache_filename(image_ref)).read_bytes()
        except FileNotFoundError:
            return None
        record = codec.json_decoder(ImagePulledRecord).decode(data)
        return record if record.image_ref == image_ref else None

    def list_image_pulled_records(self) -> list[ImagePulledRecord]:
        return list(_read_all(self._pulled_dir, ImagePulledRecord))

    def write_image_pulled_record(self, record: ImagePulledRecord) -> None:
        _write_file(self._pulled_dir / _cache_filename(record.image_ref), msgspec.json.encode(record))
        _tell_size(FS_PULLED_RECORDS_SIZE, self._pulled_dir)

    def delete_image_pulled_record(self, image_ref: str) -> None:
        (self._pulled_dir / _cache_filename(image_ref)).unlink(missing_ok=True)
        _tell_size(FS_PULLED_RECORDS_SIZE, self._pulled_dir)


def _cache_filename(image: str) -> str:
    return _CACHE_FILES_SHA256_PREFIX + hashlib.sha256(image.encode()).hexdigest()


def _write_file(target: Path, content: bytes) -> None:
    """Replaces the file whole, so that neither a reader nor a crash of the machine finds half of it, or none.

    DIVERGES (safer): the file and its directory are on the disk before the kubelet goes on.
    Go: pkg/kubelet/images/pullmanager/fs_pullrecords.go, writeFile: syncs neither.
    Why: a crash of the machine can lose the record of a pull's beginning; its image then counts as one that was there
    before the kubelet, which every pod may use.
    Test: image_pull_manager_test.py:test_intent_outlasts_a_crash_of_the_machine
    """
    filesystem.mkdir_all(target.parent, 0o700)
    atomicfile.write(target, content)
    atomicfile.sync_directory(target.parent)


def _record_files(directory: Path) -> list[Path]:
    found = sorted(directory.glob(_CACHE_FILES_SHA256_PREFIX + "*"))
    return [path for path in found if path.suffix != _TMP_FILES_SUFFIX and path.is_file()]


def _tell_size(gauge: Gauge, directory: Path) -> None:
    """Have the gauge say how many records there are. What was done to them is done, though they cannot be counted."""
    with contain("Failed to count the image pull records", path=str(directory)):
        gauge.set(len(_record_files(directory)))


def _read_all(directory: Path, kind: type[_T]) -> Iterator[_T]:
    """Every record that can be read; the others are logged and left alone."""
    for path in _record_files(directory):
        try:
            yield codec.json_decoder(kind).decode(path.read_bytes())
        except (OSError, ValueError) as err:
            klog.error_s(err, "Error reading image pull record", path=str(path))
