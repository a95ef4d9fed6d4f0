"""Read pods from a file or from the files of a directory; on a node without an API server, also read their objects.

The source lists its path once per period and follows inotify events in between. If a file with a pod stops being a
valid manifest, this source behaves as Go does: the event alone changes nothing, but the next list no longer contains
the pod, and so the kubelet stops it. Users whose programs cannot replace a file by renaming should know of this
behavior. A file that cannot be read is a different case: its pods stay.

Go: pkg/kubelet/config/file.go, file_linux.go
"""

from __future__ import annotations

import datetime
import enum
import errno
import os
import re
import stat
from dataclasses import dataclass, field
from pathlib import Path

from watchdog.observers import inotify_c

from kubelet import container as kubecontainer
from kubelet import events
from kubelet import types as kubetypes
from kubelet.config import common, notes, objects
from pkg import golang, klog
from pkg.api.core import v1
from pkg.apimachinery import clock as clocklib
from pkg.apimachinery import types
from pkg.apimachinery.util import runtime, wait
from pkg.client_go.tools import record
from pkg.client_go.util import flowcontrol
from pkg.util import inotify, procfs, regularfile

_EVENT_BUFFER_LEN = 10
_RETRY_PERIOD = 1.0  # seconds
_MAX_RETRY_PERIOD = 20.0
_NO_FILE = "manifest path is not a directory or file"
_LEFTOVER = (
    "the kubelet uses this file as a manifest although its name looks like an editor's leftover; it uses every file of "
    "a directory except those whose names begin with a dot"
)
_LEFTOVER_NAMES = re.compile(r".*(~|\.bak|\.old|\.orig|\.rej|\.save|\.dpkg-\w+|\.rpm(new|save))|#.*#", re.DOTALL)
# `MAX_MANIFESTS` is the largest number of files that the source reads from a directory, in the order of their names.
MAX_MANIFESTS = 5000
# These errors of a disk or a server may be temporary, so a later attempt to read the file may succeed.
_PASSING = (errno.EIO, errno.ESTALE)
# `UNREAD_PATIENCE` is the time after the start, in seconds, during which an unreadable file keeps unlisted pods from
# being stopped.
UNREAD_PATIENCE = 300.0


class PodEventType(enum.IntEnum):
    """Name what a watch event requests."""

    POD_ADD = 0
    POD_MODIFY = 1
    POD_DELETE = 2
    # The source must list the whole path, because events may have been missed. Go waits for the next period instead.
    LIST = 3


@dataclass(slots=True, frozen=True)
class WatchEvent:
    """Describe a change of a file below the watched path."""

    file_name: str
    event_type: PodEventType
    # `directory` is the device and inode of the directory that had the event. The path may lead to another directory by
    # now.
    directory: tuple[int, int] | None = None


class ManifestError(common.FaultError):
    """Signal that a file cannot be used as a manifest; the message names the file."""


class RetryableError(Exception):
    """Signal that the watch has ended for a reason that needs no growing delay before the next attempt."""


# A signature consists of the metadata that change with the content of a file: device, inode, size, and the times of the
# content and of the inode.
_Signature = tuple[int, int, int, int, int]


@dataclass(slots=True, frozen=True)
class _Manifest:
    """Hold the contents of a file and the signature of the version that was read.

    Only nodes without an API server use `objects`.
    """

    signature: _Signature
    pods: list[v1.Pod]
    objects: list[objects.APIObject]
    # `faults` describes the documents of the file that cannot be used.
    faults: list[str]
    # `unknown_fields` holds the fields that the kubelet ignores because the pod type lacks them.
    unknown_fields: common.UnknownFields


def new_source_file(
    ctx: golang.Context,
    path: str,
    node_name: str,
    period: float,
    updates: golang.Channel[kubetypes.PodUpdate],
    recorder: record.EventRecorder,
    object_store: objects.ObjectStore | None = None,
    manifest_notes: notes.ManifestNotes | None = None,
) -> SourceFile:
    """Follow a path and list it each `period` seconds until ctx ends. The path need not exist yet.

    On a node without an API server the caller passes a store for the objects beside the pods, and each file may hold
    several documents. On all other nodes a file holds one pod.
    """
    path = path.rstrip(os.sep) or os.sep
    source = SourceFile(path, node_name, period, updates, recorder, object_store, manifest_notes)
    klog.v(1).info_s("Watching path", path=path)
    source.run(ctx)
    return source


@dataclass(slots=True, frozen=True)
class _DirContents:
    """Hold the manifests of a directory."""

    # The keys are paths.
    manifests: dict[str, _Manifest]
    # `is_complete` is False if a file is missing that the next list may be able to read.
    is_complete: bool


class SourceFile:
    """Follow one path.

    One thread owns the state of the object: it lists the path, consumes the watch events and sends the updates.
    """

    def __init__(
        self,
        path: str,
        node_name: str,
        period: float,
        updates: golang.Channel[kubetypes.PodUpdate],
        recorder: record.EventRecorder,
        object_store: objects.ObjectStore | None = None,
        manifest_notes: notes.ManifestNotes | None = None,
        clock: clocklib.Clock | None = None,
    ) -> None:
        self._object_store = object_store
        self._clock = clock or clocklib.RealClock()
        self._began = self._clock.monotonic()
        # `_is_complete` tells whether all files have been read at least once. Only then the source knows all pods of
        # the path.
        self._is_complete = False
        self._path = path
        self._node_name = node_name
        self._period = period
        self._updates = updates
        self._recorder = recorder
        # `_store` holds the manifests by file, so that PodConfig receives both of two pods with one name. PodConfig
        # keeps the first.
        # DIVERGES (fault of Go): if two files hold pods with the same name, the first file counts, and an event names
        # the other.
        # Go: pkg/kubelet/config/file.go, newSourceFile: the Go kubelet stores pods by name, so that the last pod it
        # reads counts.
        # Why: filterInvalidPods keeps the first pod and reports the second, but it never receives both.
        # Test: file_test.py:test_two_files_with_one_pod_name_are_both_sent
        self._store: dict[str, _Manifest] = {}
        # `_failed` holds the faults of unusable files, so that the source parses such a file again only when it
        # changes. They are stored as text because a stored exception keeps its frames alive, and more of them each time
        # that it is raised again.
        self._failed: dict[str, tuple[_Signature, str]] = {}
        # `_notes` holds the current faults by file; the source records an event for each new one.
        self._notes = manifest_notes or notes.ManifestNotes()
        self._watch_events: golang.Channel[WatchEvent] = golang.Channel(_EVENT_BUFFER_LEN)
        # Only the thread of the watch uses the next two fields. `_watched` is the device and inode of the watched
        # directory. `_told_missing` tells whether the thread has requested a list since the path disappeared.
        self._watched: tuple[int, int] | None = None
        self._told_missing = False

    def run(self, ctx: golang.Context) -> None:
        """Start the threads that list and watch."""
        golang.go(self._loop, ctx, name="config-file")
        self.start_watch(ctx)

    def _loop(self, ctx: golang.Context) -> None:
        list_ticker = golang.Ticker(self._period)
        try:
            self._list_and_log(ctx)
            while True:
                selected = golang.select(list_ticker.channel, self._watch_events, ctx.done())
                if selected.took(list_ticker.channel):
                    self._list_and_log(ctx)
                elif event := selected.took(self._watch_events):
                    self._consume_and_log(ctx, event.value)
                else:
                    return
        except golang.ContextError:
            return
        finally:
            list_ticker.stop()

    def _list_and_log(self, ctx: golang.Context) -> None:
        with runtime.contain("Unable to read config path", path=self._path):
            try:
                self.list_config(ctx)
            except (OSError, ManifestError) as err:
                klog.error_s(err, "Unable to read config path", path=self._path)

    def _consume_and_log(self, ctx: golang.Context, event: WatchEvent) -> None:
        with runtime.contain("Unable to process watch event", path=event.file_name):
            try:
                self.consume_watch_event(ctx, event)
            except (OSError, ManifestError) as err:
                klog.error_s(err, "Unable to process watch event")

    def _apply_defaults(self, pod: v1.Pod, source: str) -> None:
        common.apply_defaults(pod, source, True, self._node_name)

    def list_config(self, ctx: golang.Context) -> None:
        """Read the whole path and send its contents.

        Raise OSError or ManifestError if nothing could be read. One bad file among many is only reported.
        """
        try:
            info = Path(self._path).stat()
        except FileNotFoundError as err:
            self._replace_store(ctx, {}, True)  # The empty update makes the source count as seen.
            raise ManifestError("path does not exist, ignoring") from err
        if stat.S_ISDIR(info.st_mode):
            contents = self._extract_from_dir(self._path)
            self._replace_store(ctx, contents.manifests, contents.is_complete)
        elif stat.S_ISREG(info.st_mode):
            try:
                manifest = self._extract_from_file(self._path, self._store.get(self._path))
            except (OSError, ManifestError) as err:
                self._report(self._path, str(err))
                raise
            self._replace_store(ctx, {self._path: manifest}, True)
        else:
            fault = ManifestError("path is not a directory or file")
            self._report(self._path, str(fault))
            raise fault

    def _extract_from_dir(self, name: str) -> _DirContents:
        """Read as many manifests as possible, in the order of the file names, and report the faults of single files."""
        manifests: dict[str, _Manifest] = {}
        is_complete = True
        entries = [entry for entry in sorted(os.listdir(name)) if not entry.startswith(".")]
        too_many = f"{len(entries)} files, more than the limit of {MAX_MANIFESTS}; the last ones by name are ignored"
        if len(entries) > MAX_MANIFESTS:
            klog.error_s(None, "Too many manifest files", path=name, files=len(entries), limit=MAX_MANIFESTS)
        self._report(name, *([too_many] if len(entries) > MAX_MANIFESTS else []))
        for entry in entries[:MAX_MANIFESTS]:
            path = str(Path(name, entry))
            try:
                mode = Path(path).stat().st_mode
            except OSError as err:
                is_complete &= self._keep_unread(manifests, path, err, "Could not get metadata")
                continue
            if stat.S_ISDIR(mode):
                klog.error_s(None, "Provided manifest path is a directory, not recursing into manifest path", path=path)
            elif stat.S_ISREG(mode):
                try:
                    manifests[path] = self._extract_from_file(path, self._store.get(path))
                except FileNotFoundError:
                    continue  # The file has disappeared since the directory was listed.
                except OSError as err:
                    is_complete &= self._keep_unread(manifests, path, err, "Could not process manifest file")
                except ManifestError as err:
                    klog.error_s(err, "Could not process manifest file", path=path)
                    self._report(path, str(err))
            else:
                klog.error_s(None, "Manifest path is not a directory or file", path=path, mode=stat.filemode(mode))
                self._report(path, _NO_FILE)
        return _DirContents(manifests, is_complete)

    def _keep_unread(self, manifests: dict[str, _Manifest], path: str, err: OSError, message: str) -> bool:
        """Report a file that cannot be read, and keep its last known contents.

        Return True if these contents are known, or if the error looks permanent.

        DIVERGES (safer): the pods of a manifest file that cannot be read keep running.
        Go: pkg/kubelet/config/file.go, (*sourceFile).extractFromDir: the Go kubelet ignores the file, and stops its
        pods.
        Why: too many open files, or a disk error, say nothing about the contents of the file.
        Test: file_test.py:test_pods_of_a_file_that_cannot_be_read_for_a_while_stay
        """
        klog.error_s(err, message, path=path)
        self._report(path, str(err))
        known = self._store.get(path)
        if known is not None and not isinstance(err, FileNotFoundError):
            manifests[path] = known
            return True
        return not (procfs.is_accident(err) or err.errno in _PASSING)

    def _extract_from_file(self, filename: str, known: _Manifest | None = None) -> _Manifest:
        """Read one file; return `known` without parsing anything if the file has not changed since `known` was read.

        Raise OSError or ManifestError if the file cannot be used.
        """
        klog.v(3).info_s("Reading config file", path=filename)
        try:
            # Something other than a regular file may have replaced the file since the list. This call does not open it,
            # and never blocks on it.
            descriptor = regularfile.open_regular(filename)
        except regularfile.NotRegularFileError as err:
            raise ManifestError(f"{filename}: {_NO_FILE}") from err
        with os.fdopen(descriptor, "rb") as file:
            info = os.fstat(descriptor)
            signature = (info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns)
            if known is not None and known.signature == signature:
                return known
            failed = self._failed.pop(filename, None)
            if failed is not None and failed[0] == signature:
                self._failed[filename] = failed
                raise ManifestError(failed[1])
            data = file.read(common.MAX_CONFIG_LENGTH + 1)
        if len(data) > common.MAX_CONFIG_LENGTH:
            raise ManifestError(f"{filename}: larger than the limit of {common.MAX_CONFIG_LENGTH} bytes")
        documents = self._decode(filename, data)
        faults = [_fault(err) for err in documents.faults]
        if faults and not (documents.pods or documents.objects):
            failure = f"{filename}: {'; '.join(faults)}"
            self._failed[filename] = signature, failure
            raise ManifestError(failure)
        for fault in faults:
            klog.error_s(None, "Could not process a document of the manifest file", path=filename, fault=fault)
        return _Manifest(signature, documents.pods, documents.objects, faults, documents.unknown_fields)

    def _decode(self, filename: str, data: bytes) -> objects.Documents:
        """Decode the documents of a file. Raise OSError if memory runs out."""

        def complete(pod: v1.Pod) -> None:
            self._apply_defaults(pod, filename)

        try:
            if self._object_store is not None:
                return objects.try_decode_documents(data, complete)
            unknown: common.UnknownFields = {}
            pod = common.try_decode_single_pod(data, complete, unknown)
            return objects.Documents(pods=[pod], unknown_fields=unknown)
        except (common.NotParsedError, common.InvalidPodError) as err:
            return objects.Documents(faults=[golang.without_frames(err)])
        except MemoryError as err:
            # A lack of memory is not a fault of the file, so the source reads it again later.
            raise OSError(errno.ENOMEM, f"MemoryError: {err}", filename) from err
        except Exception as err:
            # Any error that the contents of a file cause in the decoder is a fault of that file alone.
            klog.error_s(err, "Unable to decode a manifest file", path=filename, stacktrace=klog.stacktrace(err))
            return objects.Documents(faults=[ManifestError(f"{type(err).__name__}: {err}")])

    def _report(self, path: str, *faults: str) -> None:
        """Store the current faults of a file, and record an event of the node for each new fault.

        DIVERGES (safer): the kubelet records an event of the node for a manifest file that it cannot use.
        Go: pkg/kubelet/config/file.go, (*sourceFile).extractFromDir: the Go kubelet only logs the fault.
        Why: a user who misses the pod looks at the events of the node first.
        Test: file_test.py:test_bad_file_is_reported_and_the_others_go_on
        """
        texts = [fault if path in fault else f"{path}: {fault}" for fault in faults]
        leftover = golang.to_valid_utf8(f"{path}: {_LEFTOVER}") if self._is_leftover(path) else ""
        node = v1.ObjectReference(kind="Node", name=self._node_name, uid=types.UID(self._node_name))
        for text in self._notes.replace(path, [*texts, leftover] if leftover else texts):
            if text == leftover:
                klog.warning_s("Using a manifest file whose name looks like an editor's leftover", path=path)
                continue
            event = f"Error reading static pod manifest {text}"
            self._recorder.event(node, v1.EVENT_TYPE_WARNING, events.FAILED_VALIDATION, event)

    def _is_leftover(self, path: str) -> bool:
        """Report whether the file's name looks like a leftover of an editor or a package manager.

        DIVERGES (safer): the kubelet logs a warning about a manifest file whose name looks like an editor's leftover.
        Go: pkg/kubelet/config/file.go, (*sourceFile).extractFromDir: the Go kubelet uses the file without a warning.
        Why: the pod in the file has the name of another pod, or comes back after a user has removed it, which nobody
        expects.
        Test: file_test.py:test_editors_leftover_counts_and_is_warned_about
        """
        return path != self._path and _LEFTOVER_NAMES.fullmatch(os.path.basename(path)) is not None

    def _replace_store(self, ctx: golang.Context, manifests: dict[str, _Manifest], is_complete: bool) -> None:
        self._store = manifests
        # A file that stays unreadable must not protect the pods of other files forever.
        self._is_complete |= is_complete or self._clock.monotonic() - self._began >= UNREAD_PATIENCE
        self._notes.keep(os.path.lexists)
        self._failed = {path: failed for path, failed in self._failed.items() if os.path.lexists(path)}
        self._send(ctx)

    def _send(self, ctx: golang.Context) -> None:
        """Report what cannot be used, store all objects, and then send all pods.

        The objects come first because the pods refer to them.
        """
        manifests = sorted(self._store.items())
        unknown = {uid: fields for _, manifest in manifests for uid, fields in manifest.unknown_fields.items()}
        self._notes.replace_unknown_fields(unknown)
        seen = _Seen()
        for path, manifest in manifests:
            seen.faults = list(manifest.faults)
            for pod in manifest.pods:
                seen.add(path, "pod", kubecontainer.get_pod_full_name(pod), pod.metadata.name)
            firsts = [obj for obj in manifest.objects if seen.add_object(path, obj)]
            seen.firsts += firsts
            self._report(path, *seen.faults)
        if self._object_store is not None:
            self._object_store.replace(seen.firsts)
        # PodConfig itself ignores a pod whose name an earlier pod has.
        pods = [pod for _, manifest in manifests for pod in manifest.pods]
        # DIVERGES (safer): until the source has read each file once, for at most five minutes, the kubelet stops no pod
        # because its manifest is missing.
        # Go: pkg/kubelet/config/file.go, (*sourceFile).replaceStore: the Go kubelet takes the readable files for the
        # full state.
        # Why: a file that cannot be read just when the kubelet starts may belong to a running pod.
        # Test: file_test.py:test_pods_are_not_all_there_while_a_file_was_never_read
        op = kubetypes.SET if self._is_complete else kubetypes.ADD
        self._updates.send(kubetypes.PodUpdate(pods, op, kubetypes.FILE_SOURCE), ctx)

    # In Go, the methods below are in file_linux.go.

    def start_watch(self, ctx: golang.Context) -> None:
        """Start the thread that watches the path, and renews the watch when it fails or the path disappears."""
        back_off = flowcontrol.Backoff(_RETRY_PERIOD, _MAX_RETRY_PERIOD)
        back_off_id = "watch"

        def watch() -> None:
            if back_off.is_in_back_off_since_update(back_off_id, datetime.datetime.now(datetime.UTC)):
                return
            try:
                self.do_watch(ctx)
            except RetryableError as err:
                klog.error_s(err, "Unable to read config path", path=self._path)
            except OSError as err:
                klog.error_s(err, "Unable to read config path", path=self._path)
                back_off.next(back_off_id, datetime.datetime.now(datetime.UTC))
            except golang.ContextError:
                return

        golang.go(wait.until, watch, _RETRY_PERIOD, ctx, name="config-file-watch")

    def do_watch(self, ctx: golang.Context) -> None:
        """Watch the path until ctx ends.

        Raise RetryableError if the path does not exist or disappears, and OSError if inotify fails.
        """
        try:
            is_dir = stat.S_ISDIR(Path(self._path).stat().st_mode)
        except FileNotFoundError as err:
            # DIVERGES (fault of Go): the source lists a missing manifest path again before it declares the path's pods
            # gone.
            # Go: pkg/kubelet/config/file_linux.go, (*sourceFile).doWatch: the Go kubelet at once sends an update
            # without pods, concurrently with the goroutine that lists the path.
            # Why: the empty update may follow the pods of a path that was just created, and would stop them.
            # Test: file_test.py:test_path_that_is_made_while_it_is_missed_keeps_its_pods
            if not self._told_missing:
                self._watch_events.send(WatchEvent(self._path, PodEventType.LIST), ctx)
                self._told_missing = True
            raise RetryableError("path does not exist, ignoring") from err
        self._told_missing = False
        # DIVERGES (fault of Go): the pod of a single manifest file stays when another file is renamed onto that file.
        # Go: pkg/kubelet/config/file_linux.go, (*sourceFile).doWatch: the Go kubelet watches the inode of the file,
        # stops the pod when that inode is gone, and finds the new file with the next list.
        # Why: editors and tools replace files by renaming, and the pod would be missing for up to 20 seconds.
        # Test: file_test.py:test_replaced_by_rename_is_never_gone
        watched = self._path if is_dir else str(Path(self._path).parent)
        lost: golang.Channel[str] = golang.Channel(1)
        # The source must look up the directory before the watch begins. If the path changes in between, the identities
        # differ, and consume_watch_event checks whether a removed file still exists.
        self._watched = _identity(watched)
        watching = inotify.start("config-file-inotify")
        try:
            callback = _WatchCallback(self, ctx, watched, lost)
            watching.add_callback(os.fsencode(watched), _MASK, callback, inotify_c.CallbackId(id(callback)))
            # The watch reports no events for changes before it began.
            self._watch_events.send(WatchEvent(self._path, PodEventType.LIST), ctx)
            if reason := golang.select(lost, ctx.done()).took(lost):
                raise RetryableError(f"watch on {watched} ended: {reason.value}")
        finally:
            watching.stop()
            watching.join()

    def produce_watch_event(self, ctx: golang.Context, directory: str, event: inotify_c.InotifyEvent) -> None:
        """Turn one inotify event into a WatchEvent, or drop it. The method runs on the thread of the watch."""
        name = os.fsdecode(event.name)
        path = str(Path(directory, name))
        if directory != self._path and path != self._path:
            return  # The event concerns another file in the directory of a single manifest file.
        if name.startswith("."):
            klog.v(4).info_s("Ignored pod manifest, because it starts with dots", eventName=path)
            return
        if event.is_delete or event.is_moved_from:
            event_type = PodEventType.POD_DELETE
        elif event.is_create:
            if _is_being_written(path):
                return
            event_type = PodEventType.POD_ADD
        elif event.is_moved_to:
            event_type = PodEventType.POD_ADD
        elif event.is_close_write or event.is_attrib:
            event_type = PodEventType.POD_MODIFY
        else:
            return
        self._watch_events.send(WatchEvent(path, event_type, self._watched), ctx)

    def consume_watch_event(self, ctx: golang.Context, event: WatchEvent) -> None:
        """Update the store for one event and send the result. Raise OSError or ManifestError for a bad file."""
        match event.event_type:
            case PodEventType.LIST:
                self.list_config(ctx)
            case PodEventType.POD_ADD | PodEventType.POD_MODIFY:
                try:
                    self._store[event.file_name] = self._extract_from_file(event.file_name)
                except FileNotFoundError:
                    raise
                except (OSError, ManifestError) as err:
                    self._report(event.file_name, str(err))
                    raise ManifestError(f'can\'t process config file "{event.file_name}": {err}') from err
                self._send(ctx)
            case PodEventType.POD_DELETE:
                # DIVERGES (fault of Go): removing a file stops no pod if the path no longer leads to the directory of
                # that file.
                # Go: pkg/kubelet/config/file_linux.go, (*sourceFile).consumeWatchEvent: the Go kubelet stops the pod at
                # each removal.
                # Why: when a user points a link at a new directory and removes the old one, the events of the old files
                # carry the paths of the new files.
                # Test: file_test.py:test_directory_behind_a_link_that_is_replaced_and_then_removed
                directory = _identity(os.path.dirname(event.file_name))
                is_gone = directory == event.directory or not _is_there(event.file_name)
                if is_gone and self._store.pop(event.file_name, None) is not None:
                    self._send(ctx)


@dataclass(slots=True)
class _Seen:
    """Track which file holds which name, in the order of the files: of two objects with one name the first counts."""

    places: dict[tuple[str, str], str] = field(default_factory=dict)
    firsts: list[objects.APIObject] = field(default_factory=list)
    # `faults` holds the faults of the current file.
    faults: list[str] = field(default_factory=list)

    def add_object(self, path: str, obj: objects.APIObject) -> bool:
        """Report whether the object is the first with its name."""
        name = klog.kobj(obj)
        return self.add(path, type(obj).__name__, name, name)

    def add(self, path: str, kind: str, full_name: str, name: str) -> bool:
        """Report whether this is the first item of its kind with this full name; otherwise add a fault."""
        if (kind, full_name) not in self.places:
            self.places[kind, full_name] = path
            return True
        first = self.places[kind, full_name]
        where = first if first != path else "the same file"
        self.faults.append(f'metadata.name: the {kind} "{name}" is also in {where}, which takes precedence')
        return False


def _fault(err: ValueError) -> str:
    if isinstance(err, common.NotParsedError):
        return f"couldn't parse as pod({err}), please check config file"
    return str(err)


# If a writer never closes the file, the next list finds what was written.
# DIVERGES (fault of Go): the source reads a manifest file when its writer closes it.
# Go: pkg/kubelet/config/file_linux.go, (*sourceFile).produceWatchEvent: the Go kubelet reads the file after each write.
# Why: half a file may be a valid pod, which the kubelet would start.
# Test: file_test.py:test_file_is_read_when_its_writer_closes_it
_MASK = inotify_c.Mask(
    inotify_c.InotifyConstants.IN_CREATE
    | inotify_c.InotifyConstants.IN_CLOSE_WRITE
    | inotify_c.InotifyConstants.IN_ATTRIB
    | inotify_c.InotifyConstants.IN_MOVED_FROM
    | inotify_c.InotifyConstants.IN_MOVED_TO
    | inotify_c.InotifyConstants.IN_DELETE
    | inotify_c.InotifyConstants.IN_DELETE_SELF
    | inotify_c.InotifyConstants.IN_MOVE_SELF
)


def _is_being_written(path: str) -> bool:
    """Report whether the writer of a new file will also close it; the source then reads the file at that event."""
    try:
        info = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISREG(info.st_mode) and info.st_nlink == 1


def _identity(path: str) -> tuple[int, int] | None:
    """Return the device and inode that the path leads to through links, or None if nothing exists there.

    Raise OSError if the path cannot be examined.
    """
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def _is_there(path: str) -> bool:
    """Report whether the path exists. Raise OSError if it cannot be examined."""
    return _identity(path) is not None


class _WatchCallback:
    """Receive the events of the watch, on the watch's own thread."""

    def __init__(self, source: SourceFile, ctx: golang.Context, directory: str, lost: golang.Channel[str]) -> None:
        self._source = source
        self._ctx = ctx
        self._directory = directory
        self._lost = lost

    def on_event(self, event: inotify_c.InotifyEvent) -> None:
        if event.is_delete_self or event.is_move_self:
            self._lost.try_send("the directory was moved or removed")
            return
        try:
            with runtime.contain("Unable to handle an event of the manifest path", path=self._directory):
                self._source.produce_watch_event(self._ctx, self._directory, event)
        except golang.ContextError:
            return

    def on_watch_deleted(self, wd: inotify_c.WatchDescriptor) -> None:
        self._lost.try_send("the directory was removed")

    def on_queue_overflow(self) -> None:
        self._lost.try_send("events were lost")
