"""Test the file source on a real file system with real inotify."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from time import monotonic

import pytest
from framework.waiting import wait_for_end_of_threads
from watchdog.observers import inotify_c

from kubelet import config
from kubelet import types as kubetypes
from kubelet.config import common, file, notes
from pkg import golang
from pkg.api.core import v1
from pkg.apimachinery.clock import testing as clocktesting
from pkg.apimachinery.runtime import codec
from pkg.apimachinery.util.runtime.testing import raising
from pkg.client_go.tools.record import testing as recordtesting
from pkg.golang.testing import frames_kept_after
from pkg.util.testing import open_inotify_instances

NODE = "random-test-hostname"
_DEADLINE = 30.0
# This period is so long that a test sees only changes that inotify reports.
_NEVER = 3600.0


def manifest(name: str = "test", image: str = "test/image") -> bytes:
    return (
        f"apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, namespace: mynamespace}}\n"
        f"spec: {{containers: [{{name: c, image: {image}}}]}}\n"
    ).encode()


def with_spec(field: bytes) -> bytes:
    return manifest().replace(b"spec: {", b"spec: {" + field + b", ")


POD_JSON = b'{"apiVersion": "v1", "kind": "Pod", "metadata": {}, "spec": {}}'


class Watched:
    """Run a file source, and receive what it sends."""

    def __init__(
        self, path: Path, period: float, ctx: golang.Context, object_store: config.ObjectStore | None = None
    ) -> None:
        self.ctx = ctx
        self.updates: golang.Channel[kubetypes.PodUpdate] = golang.Channel()
        self.recorder = recordtesting.FakeRecorder(100)
        self.source = config.new_source_file(ctx, str(path), NODE, period, self.updates, self.recorder, object_store)

    def expect(self, *images: str, ops: Sequence[kubetypes.PodOperation] = (kubetypes.SET,)) -> list[v1.Pod]:
        """Receive updates until one has exactly these images; earlier updates show intermediate states."""
        deadline = monotonic() + _DEADLINE
        seen: list[list[str]] = []
        while monotonic() < deadline:
            update, ok = self.updates.recv(timeout=deadline - monotonic())
            if not ok or update is None:
                break
            assert update.op in ops and update.source == kubetypes.FILE_SOURCE
            seen.append([p.spec.containers[0].image for p in update.pods])
            if seen[-1] == list(images):
                return update.pods
        raise AssertionError(f"expected {images}, got {seen}")

    def expect_event(self, *parts: str) -> None:
        """Wait for an event, and receive updates meanwhile so that the source does not block."""
        while True:
            selected = golang.select(self.recorder.events, self.updates, timeout=_DEADLINE)
            assert selected.case, f"no event with {parts}"
            if event := selected.took(self.recorder.events):
                assert all(part in event.value for part in parts), event.value
                return


@pytest.fixture
def watch() -> Iterator[Callable[..., Watched]]:
    ctx, cancel = golang.with_cancel(golang.background())
    yield lambda path, period=_NEVER, object_store=None: Watched(path, period, ctx, object_store)
    cancel()


Watch = Callable[..., Watched]


def test_update_on_non_existent_file(tmp_path: Path, watch: Watch) -> None:
    watch(tmp_path / "none").expect()


def test_extract_from_non_existent_file(tmp_path: Path) -> None:
    updates: golang.Channel[kubetypes.PodUpdate] = golang.Channel(1)
    source = file.SourceFile(str(tmp_path / "no"), NODE, 1.0, updates, recordtesting.FakeRecorder(1))
    with pytest.raises(file.RetryableError, match="path does not exist, ignoring"):
        source.do_watch(golang.background())
    event, _, _ = source._watch_events.try_recv()
    assert event is not None
    with pytest.raises(file.ManifestError, match="path does not exist, ignoring"):
        source.consume_watch_event(golang.background(), event)
    assert updates.try_recv()[0] == kubetypes.PodUpdate([], kubetypes.SET, kubetypes.FILE_SOURCE)


def test_path_that_is_made_while_it_is_missed_keeps_its_pods(tmp_path: Path) -> None:
    updates: golang.Channel[kubetypes.PodUpdate] = golang.Channel(2)
    path = tmp_path / "pod.yaml"
    source = file.SourceFile(str(path), NODE, 1.0, updates, recordtesting.FakeRecorder(1))
    for _ in range(2):
        with pytest.raises(file.RetryableError, match="path does not exist, ignoring"):
            source.do_watch(golang.background())
    path.write_bytes(manifest())
    source.list_config(golang.background())
    event, _, _ = source._watch_events.try_recv()
    assert event is not None and len(source._watch_events) == 0
    source.consume_watch_event(golang.background(), event)
    assert [len(update.pods) for update in (updates.try_recv()[0], updates.try_recv()[0]) if update] == [1, 1]


def test_read_pods_from_file_exist_already(tmp_path: Path, watch: Watch) -> None:
    path = tmp_path / "test_pod_manifest"
    path.write_bytes(manifest())
    [pod] = watch(path).expect("test/image")
    assert pod.metadata.name == f"test-{NODE}"
    assert pod.metadata.namespace == "mynamespace"
    assert pod.metadata.annotations[kubetypes.CONFIG_HASH_ANNOTATION_KEY] == pod.metadata.uid
    assert pod.spec.tolerations == [v1.Toleration(operator="Exists", effect="NoExecute")]
    assert pod.spec.containers[0].image_pull_policy == "Always"
    assert pod.status.phase == "Pending"


def test_read_pods_from_dir(tmp_path: Path, watch: Watch) -> None:
    (tmp_path / "b.yaml").write_bytes(manifest("b", "b"))
    (tmp_path / "a.json").write_bytes(
        b'{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"},"spec":{"containers":[{"name":"c","image":"a"}]}}'
    )
    (tmp_path / ".hidden.yaml").write_bytes(manifest("hidden", "hidden"))
    (tmp_path / "directory").mkdir()
    watch(tmp_path).expect("a", "b")


def test_empty_dir_counts_as_seen(tmp_path: Path, watch: Watch) -> None:
    watch(tmp_path).expect()


@pytest.mark.parametrize("symlink", [False, True])
@pytest.mark.parametrize("watch_dir", [False, True])
def test_watch_file_added_changed_renamed_removed(tmp_path: Path, watch: Watch, watch_dir: bool, symlink: bool) -> None:
    directory = tmp_path / "dir"
    directory.mkdir()
    path = directory / "pod"
    # Changes behind a link cause no event here; the next list finds them.
    watched = watch(directory if watch_dir else path, 0.05 if symlink else _NEVER)
    watched.expect()
    target = path
    if symlink:
        target = tmp_path / "target"
        path.symlink_to(target)
    target.write_bytes(manifest(image="one"))
    watched.expect("one")
    target.write_bytes(manifest(image="two"))
    watched.expect("two")
    path.rename(directory / "other")
    if watch_dir:
        watched.expect("two")
        (directory / "other").unlink()
    watched.expect()


@pytest.mark.parametrize("watch_dir", [False, True])
def test_replaced_by_rename_is_never_gone(tmp_path: Path, watch: Watch, watch_dir: bool) -> None:
    path = tmp_path / "pod.yaml"
    path.write_bytes(manifest(image="one"))
    watched = watch(tmp_path if watch_dir else path)
    watched.expect("one")
    watched.expect("one")  # The source lists the directory once more after the start of the watch.
    fresh = tmp_path / ".fresh"
    fresh.write_bytes(manifest(image="two"))
    fresh.rename(path)
    update, _ = watched.updates.recv(timeout=_DEADLINE)
    assert update is not None and [p.spec.containers[0].image for p in update.pods] == ["two"]


def test_path_that_comes_later_is_waited_for(tmp_path: Path, watch: Watch) -> None:
    path = tmp_path / "later"
    watched = watch(path)
    watched.expect()
    path.mkdir()
    (path / "pod.yaml").write_bytes(manifest(image="one"))
    watched.expect("one")


def test_directory_that_is_replaced(tmp_path: Path, watch: Watch) -> None:
    path = tmp_path / "dir"
    path.mkdir()
    (path / "pod.yaml").write_bytes(manifest(image="one"))
    watched = watch(path)
    watched.expect("one")
    watched.expect("one")
    path.rename(tmp_path / "old")
    path.mkdir()
    (path / "pod.yaml").write_bytes(manifest(image="two"))
    watched.expect("two")


def test_directory_behind_a_link_that_is_replaced_and_then_removed(tmp_path: Path, watch: Watch) -> None:
    old, new, link = tmp_path / "old", tmp_path / "new", tmp_path / "manifests"
    for directory, image in ((old, "one"), (new, "two")):
        directory.mkdir()
        (directory / "pod.yaml").write_bytes(manifest(image=image))
    link.symlink_to(old)
    watched = watch(link)
    watched.expect("one")
    watched.expect("one")  # The source lists the directory once more after the start of the watch.
    fresh = tmp_path / "fresh"
    fresh.symlink_to(new)
    fresh.rename(link)
    shutil.rmtree(old)
    update, _ = watched.updates.recv(timeout=_DEADLINE)
    assert update is not None and [p.spec.containers[0].image for p in update.pods] == ["two"]


def test_removal_counts_for_the_directory_in_which_it_was_seen(tmp_path: Path) -> None:
    """A removal in the old directory does not count, even if the path leads elsewhere by now."""
    old, new, link = tmp_path / "old", tmp_path / "new", tmp_path / "manifests"
    for directory in (old, new):
        directory.mkdir()
        (directory / "pod.yaml").write_bytes(manifest())
    link.symlink_to(new)
    updates: golang.Channel[kubetypes.PodUpdate] = golang.Channel(2)
    source = file.SourceFile(str(link), NODE, 1.0, updates, recordtesting.FakeRecorder(1))
    source.list_config(golang.background())
    assert updates.try_recv()[2]
    constants = inotify_c.InotifyConstants
    removal = inotify_c.InotifyEvent(inotify_c.WatchDescriptor(1), inotify_c.Mask(constants.IN_DELETE), 0, b"pod.yaml")
    for directory, ends_pods in ((old, False), (new, True)):
        source._watched = (directory.stat().st_dev, directory.stat().st_ino)
        source.produce_watch_event(golang.background(), str(link), removal)
        source._watched = (new.stat().st_dev, new.stat().st_ino)
        event, _, _ = source._watch_events.try_recv()
        assert event is not None
        source.consume_watch_event(golang.background(), event)
        update, _, is_sent = updates.try_recv()
        assert is_sent is ends_pods
    assert update is not None and update.pods == []


def test_file_that_is_removed_and_written_again_at_once_is_removed(tmp_path: Path, watch: Watch) -> None:
    path, other = tmp_path / "pod.yaml", tmp_path / "other.yaml"
    path.write_bytes(manifest(image="one"))
    other.write_bytes(manifest(name="other", image="other"))
    watched = watch(tmp_path)
    watched.expect("other", "one")
    watched.expect("other", "one")  # The source lists the directory once more after the start of the watch.
    # The source is blocked while it sends this change, and handles the next two events only after the new file exists.
    os.utime(other)
    path.unlink()
    path.write_bytes(manifest(image="one"))
    watched.expect("other", "one")
    watched.expect("other")
    watched.expect("other", "one")


def test_file_is_read_when_its_writer_closes_it(tmp_path: Path, watch: Watch) -> None:
    watched = watch(tmp_path)
    watched.expect()
    watched.expect()
    data = manifest(image="whole")
    with (tmp_path / "pod.yaml").open("wb") as writer:
        writer.write(data[:40])
        writer.flush()
        writer.write(data[40:])
    watched.expect("whole")
    assert not watched.recorder.events.try_recv()[2]  # The source never read the half-written file.


def test_unchanged_files_are_not_parsed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pod.yaml").write_bytes(manifest())
    updates: golang.Channel[kubetypes.PodUpdate] = golang.Channel(2)
    source = file.SourceFile(str(tmp_path), NODE, 1.0, updates, recordtesting.FakeRecorder(1))
    parsed: list[bytes] = []
    decode = common.try_decode_single_pod

    def counting(data: bytes, default_fn: common.DefaultFunc, unknown: common.UnknownFields) -> v1.Pod:
        parsed.append(data)
        return decode(data, default_fn, unknown)

    monkeypatch.setattr(common, "try_decode_single_pod", counting)
    source.list_config(golang.background())
    source.list_config(golang.background())
    first, second = updates.try_recv()[0], updates.try_recv()[0]
    assert len(parsed) == 1
    assert first is not None and second is not None and first.pods[0] is second.pods[0]


def test_faulty_files_are_not_parsed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The source parses a faulty file only once, because parsing a large file takes seconds."""
    bad = tmp_path / "pod.yaml"
    bad.write_bytes(b"[")
    recorder = recordtesting.FakeRecorder(10)
    source = file.SourceFile(str(tmp_path), NODE, 1.0, golang.Channel(10), recorder)
    parsed: list[bytes] = []

    def refusing(data: bytes, default_fn: common.DefaultFunc, unknown: common.UnknownFields) -> v1.Pod:
        parsed.append(data)
        raise common.NotParsedError("never")

    monkeypatch.setattr(common, "try_decode_single_pod", refusing)
    source.list_config(golang.background())
    source.list_config(golang.background())
    assert len(parsed) == 1
    bad.write_bytes(b"[ ")
    source.list_config(golang.background())
    assert len(parsed) == 2


def test_what_is_kept_of_a_faulty_file_does_not_grow(tmp_path: Path) -> None:
    bad = tmp_path / "pod.yaml"
    bad.write_bytes(b"[")
    source = file.SourceFile(str(bad), NODE, 1.0, golang.Channel(1), recordtesting.FakeRecorder(10))
    depths = []
    for _ in range(4):
        with pytest.raises(file.ManifestError, match="couldn't parse as pod") as caught:
            source.list_config(golang.background())
        depths.append(len(caught.traceback))
    assert depths[1] == depths[3], "each list keeps its frames alive"


@pytest.mark.parametrize("fault", [RecursionError, MemoryError, OverflowError, RuntimeError, UnicodeError, KeyError])
def test_whatever_a_file_raises_stays_with_it(
    tmp_path: Path, watch: Watch, monkeypatch: pytest.MonkeyPatch, fault: type[Exception]
) -> None:
    decode = common.try_decode_single_pod

    def failing(data: bytes, default_fn: common.DefaultFunc, unknown: common.UnknownFields) -> v1.Pod:
        if b"image: bad" in data:
            raise fault("surprise")
        return decode(data, default_fn, unknown)

    monkeypatch.setattr(common, "try_decode_single_pod", failing)
    (tmp_path / "bad.yaml").write_bytes(manifest("bad", "bad"))
    (tmp_path / "good.yaml").write_bytes(manifest("good", "good"))
    watched = watch(tmp_path)
    # There may be enough memory later. Until then, the source does not know all its pods.
    ops = (kubetypes.ADD, kubetypes.SET) if fault is MemoryError else (kubetypes.SET,)
    watched.expect("good", ops=ops)
    watched.expect_event("bad.yaml", fault.__name__, "surprise")
    (tmp_path / "bad.yaml").write_bytes(manifest("mended", "mended"))
    watched.expect("mended", "good", ops=ops)


def test_file_name_that_is_not_text(tmp_path: Path, watch: Watch) -> None:
    good, bad = (os.fsencode(tmp_path) + b"/" + name for name in (b"good-\xff.yaml", b"bad-\xfe.yaml"))
    Path(os.fsdecode(good)).write_bytes(manifest())
    Path(os.fsdecode(bad)).write_bytes(b"[")
    watched = watch(tmp_path)
    [pod] = watched.expect("test/image")
    assert codec.encode_json(pod) and v1.deepcopy(pod) == pod
    watched.expect_event("couldn't parse as pod")
    other = os.fsdecode(os.fsencode(tmp_path) + b"/other-\xff.yaml")
    Path(other).write_bytes(manifest())
    pods = watched.expect("test/image", "test/image")
    assert pods[0].metadata.uid != pods[1].metadata.uid
    Path(os.fsdecode(good)).unlink()
    watched.expect("test/image")


def test_too_many_files(tmp_path: Path, watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file, "MAX_MANIFESTS", 2)
    for name in ("a", "b", "c"):
        (tmp_path / f"{name}.yaml").write_bytes(manifest(name, name))
    (tmp_path / ".hidden").write_bytes(b"")
    watched = watch(tmp_path)
    watched.expect("a", "b")
    watched.expect_event(str(tmp_path), "3 files, more than the limit of 2")


def _fifo(path: Path) -> None:
    os.mkfifo(path)


BAD_FILES: list[tuple[str, Callable[[Path], object], str]] = [
    ("not yaml", lambda p: p.write_bytes(b"{"), "couldn't parse as pod(yaml: line"),
    ("not a pod", lambda p: p.write_bytes(b"apiVersion: v1\nkind: Node"), "got Node of v1"),
    ("wrong type", lambda p: p.write_bytes(manifest("[1]")), "$.metadata.name"),
    ("invalid", lambda p: p.write_bytes(manifest("p", '""')), "spec.containers[0].image: Required value"),
    ("half written", lambda p: p.write_bytes(manifest()[:60]), "did not find expected"),
    ("empty", lambda p: p.write_bytes(b""), "couldn't parse as pod"),
    ("two documents", lambda p: p.write_bytes(manifest() + b"---\n" + manifest()), "several documents"),
    ("too large", lambda p: p.write_bytes(b"#" * (common.MAX_CONFIG_LENGTH + 1)), "larger than the limit"),
    (
        "integer of more than 32 bits",
        lambda p: p.write_bytes(with_spec(b"priority: 3000000000")),
        "got 3000000000 - at `$.spec.priority`",
    ),
    (
        "integer of more than 64 bits",
        lambda p: p.write_bytes(with_spec(b"terminationGracePeriodSeconds: 99999999999999999999999")),
        "at `$.spec.terminationGracePeriodSeconds`",
    ),
    (
        "integer of more than 4300 digits",
        lambda p: p.write_bytes(with_spec(b"priority: " + b"9" * 5000)),
        "Expected `int | null`, got `str` - at `$.spec.priority`",
    ),
    (
        "integer of more than 4300 digits in JSON",
        lambda p: p.write_bytes(POD_JSON.replace(b"{}", b'{"generation": ' + b"9" * 5000 + b"}")),
        "at `$.metadata.generation`",
    ),
    ("deep yaml", lambda p: p.write_bytes(b"a: " + b"[" * 100_000), "exceeded max depth"),
    ("deep json", lambda p: p.write_bytes(b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"), "exceeded max depth"),
    ("fifo", _fifo, "not a directory or file"),
    ("dangling link", lambda p: p.symlink_to("nowhere"), "No such file or directory"),
    ("link loop", lambda p: p.symlink_to(p.name), "Too many levels of symbolic links"),
]


@pytest.mark.parametrize(("make", "message"), [c[1:] for c in BAD_FILES], ids=[c[0] for c in BAD_FILES])
def test_bad_file_is_reported_and_the_others_go_on(
    tmp_path: Path, watch: Watch, capfd: pytest.CaptureFixture[str], make: Callable[[Path], object], message: str
) -> None:
    bad = tmp_path / "bad.yaml"
    make(bad)
    (tmp_path / "good.yaml").write_bytes(manifest(image="good"))
    watched = watch(tmp_path, 0.05)
    watched.expect("good")
    watched.expect_event("FailedValidation", str(bad), message)
    watched.expect("good")
    watched.expect("good")
    assert not watched.recorder.events.try_recv()[2]  # The source reports the fault only once.
    assert str(bad) in capfd.readouterr().err
    bad.unlink()
    bad.write_bytes(manifest("mended", "mended"))
    watched.expect("mended", "good")


class _NoObjects:
    def replace(self, objects: Sequence[config.APIObject]) -> None: ...


@pytest.mark.parametrize("store", [None, _NoObjects()], ids=["one pod", "documents"])
@pytest.mark.parametrize("content", [b"kind: Pod\napiVersion: v1", b"[", b"kind: Secret\napiVersion: v1\ndata: 5"])
def test_nothing_stays_of_a_bad_file(tmp_path: Path, store: config.ObjectStore | None, content: bytes) -> None:
    """No frame of a bad file stays in memory, because a file may have ten megabytes and a directory many files."""
    (tmp_path / "bad.yaml").write_bytes(content)
    updates: golang.Channel[kubetypes.PodUpdate] = golang.Channel(1)
    recorder = recordtesting.FakeRecorder(100)
    source = file.SourceFile(str(tmp_path), NODE, _NEVER, updates, recorder, store)
    assert frames_kept_after(lambda: source.list_config(golang.background())) == []
    assert recorder.events.try_recv()[2]


class Noted:
    """List a file source on request, and keep its notes."""

    def __init__(self, path: Path, object_store: config.ObjectStore | None = None) -> None:
        self.notes = notes.ManifestNotes()
        self.recorder = recordtesting.FakeRecorder(100)
        self._updates: golang.Channel[kubetypes.PodUpdate] = golang.Channel(1)
        self._source = file.SourceFile(str(path), NODE, _NEVER, self._updates, self.recorder, object_store, self.notes)

    def list(self) -> tuple[list[v1.Pod], list[str]]:
        """Return the pods that the source sends, and the texts of all notes after that."""
        self._source.list_config(golang.background())
        update, _, _ = self._updates.try_recv()
        assert update is not None
        return update.pods, [note.text for note in self.notes.all()]


def test_file_whose_name_is_not_text_is_noted_once(tmp_path: Path) -> None:
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/a-\xff.yaml~")).write_bytes(b"[")
    source = Noted(tmp_path)
    for _ in range(2):
        texts = source.list()[1]
        assert ["a-\ufffd.yaml~" in text for text in texts] == [True, True]
    assert source.recorder.events.try_recv()[2] and not source.recorder.events.try_recv()[2]


def test_notes_tell_what_is_wrong_with_files_now(tmp_path: Path) -> None:
    bad, good = tmp_path / "bad.yaml", tmp_path / "good.yaml"
    bad.write_bytes(manifest("bad", '""'))
    good.write_bytes(manifest("good"))
    source = Noted(tmp_path)

    _, texts = source.list()
    assert len(texts) == 1 and texts[0].startswith(f"{bad}: ")
    assert "spec.containers[0].image: Required value" in texts[0]
    assert source.list()[1] == texts
    bad.write_bytes(manifest("mended"))
    assert source.list()[1] == []
    bad.write_bytes(manifest("good"))
    assert [f'the pod "good-{NODE}" is also in {bad}' in text for text in source.list()[1]] == [True]
    good.write_bytes(b"[")
    assert [text.startswith(f"{good}: ") for text in source.list()[1]] == [True]
    good.unlink()
    assert source.list()[1] == []


@pytest.mark.parametrize(
    "name", ["a.yaml~", "a.yaml.bak", "a.yaml.orig", "a.old", "#a.yaml#", "a.yaml.dpkg-dist", "a.yaml.rpmsave"]
)
def test_editors_leftover_counts_and_is_warned_about(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], name: str
) -> None:
    (tmp_path / name).write_bytes(manifest())
    source = Noted(tmp_path)

    for _ in range(2):
        pods, texts = source.list()
        assert len(pods) == 1
        assert [(text.startswith(f"{tmp_path / name}: "), "editor's leftover" in text) for text in texts] == [
            (True,) * 2
        ]
    assert not source.recorder.events.try_recv()[2], "such a name is not a fault"
    assert capfd.readouterr().err.count("whose name looks like an editor's leftover") == 1


@pytest.mark.parametrize("name", ["a.yaml", "a", "tilde~.json", "bak", "old.yaml", "#a.yaml", "a.backup.yaml"])
def test_usual_name_is_not_warned_about(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(manifest())
    assert Noted(tmp_path).list()[1] == []


@pytest.mark.parametrize("store", [None, _NoObjects()], ids=["one pod", "documents"])
def test_unknown_fields_are_noted_with_their_pod(tmp_path: Path, store: config.ObjectStore | None) -> None:
    path = tmp_path / "a.yaml"
    path.write_bytes(manifest().replace(b"name: c,", b"name: c, comand: [sh],"))
    source = Noted(tmp_path, store)

    for _ in range(2):  # The result must be the same when the file is not parsed again.
        [pod], texts = source.list()
        assert source.notes.unknown_fields(pod.metadata.uid) == ["spec.containers[0].comand"]
        assert texts == [], "the manifest is used"
    path.write_bytes(manifest())
    source.list()
    assert source.notes.unknown_fields(pod.metadata.uid) == []


def test_bad_file_while_watching(tmp_path: Path, watch: Watch) -> None:
    (tmp_path / "good.yaml").write_bytes(manifest(image="good"))
    watched = watch(tmp_path)
    watched.expect("good")
    watched.expect("good")
    os.mkfifo(tmp_path / "fifo.yaml")  # An ordinary open of a FIFO for reading blocks until a writer opens it.
    watched.expect_event("fifo.yaml", "manifest path is not a directory or file")
    (tmp_path / "late.yaml").write_bytes(manifest("late", "late"))
    watched.expect("good", "late")


def test_unreadable_file(tmp_path: Path, watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    """The test imitates the system's refusal because root may read every file."""
    really_open = os.open

    def refuse_bad(path: str, *args: int) -> int:
        if path.endswith("bad.yaml"):
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return really_open(path, *args)

    (tmp_path / "bad.yaml").write_bytes(manifest())
    (tmp_path / "good.yaml").write_bytes(manifest("good", "good"))
    monkeypatch.setattr(os, "open", refuse_bad)
    watched = watch(tmp_path)
    watched.expect("good")
    watched.expect_event("bad.yaml", "Permission denied")


Fault = tuple[object, str, object]


def _faults_of_reading() -> dict[str, list[Fault]]:
    """Return the faults that imitate a failing step for a changed bad.yaml, by the name of the step."""
    really_open, really_stat, really_decode = os.open, Path.stat, common.try_decode_single_pod

    def fail_to_open(path: str, *args: int) -> int:
        if path.endswith("bad.yaml"):
            raise OSError(errno.EMFILE, "Too many open files", path)
        return really_open(path, *args)

    def fail_to_stat(path: Path, **options: bool) -> os.stat_result:
        if path.name == "bad.yaml":
            raise OSError(errno.EIO, "Input/output error", str(path))
        return really_stat(path, **options)

    def fail_to_decode(data: bytes, default_fn: common.DefaultFunc, unknown: common.UnknownFields) -> v1.Pod:
        if b"changed" in data:
            raise MemoryError
        return really_decode(data, default_fn, unknown)

    cannot_open = (os, "open", fail_to_open)
    return {
        "open": [cannot_open],
        # A list of the directory reads the file's metadata first; an event about the file opens it directly.
        "stat": [(Path, "stat", fail_to_stat), cannot_open],
        "decode": [(common, "try_decode_single_pod", fail_to_decode)],
    }


@pytest.mark.parametrize("what", ["stat", "open", "decode"])
def test_pods_of_a_file_that_cannot_be_read_for_a_while_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_bytes(manifest("bad", "bad"))
    (tmp_path / "good.yaml").write_bytes(manifest("good", "good"))
    # The test runs no threads: a thread that listed the directory meanwhile could read a half-written file.
    updates: golang.Channel[kubetypes.PodUpdate] = golang.Channel(9)
    recorder = recordtesting.FakeRecorder(9)
    source = file.SourceFile(str(tmp_path), NODE, 1.0, updates, recorder)
    source.list_config(golang.background())
    assert _sent(updates) == (kubetypes.SET, ["bad", "good"])
    with monkeypatch.context() as patch:
        for fault in _faults_of_reading()[what]:
            patch.setattr(*fault)
        bad.write_bytes(manifest("changed", "changed"))
        with pytest.raises(file.ManifestError, match=r"bad\.yaml"):
            source.consume_watch_event(golang.background(), file.WatchEvent(str(bad), file.PodEventType.POD_MODIFY))
        assert "bad.yaml" in (recorder.events.try_recv()[0] or "")
        for _ in range(2):
            source.list_config(golang.background())
            assert _sent(updates) == (kubetypes.SET, ["bad", "good"])
    source.list_config(golang.background())
    assert _sent(updates) == (kubetypes.SET, ["changed", "good"])


def _fail_to_open(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    """Fail every attempt to open a file whose name begins with "bad"."""
    really_open = os.open

    def fail_to_open(path: str, *args: int) -> int:
        if Path(path).name.startswith("bad"):
            raise OSError(code, os.strerror(code), path)
        return really_open(path, *args)

    monkeypatch.setattr(os, "open", fail_to_open)


def _sent(updates: golang.Channel[kubetypes.PodUpdate]) -> tuple[kubetypes.PodOperation, list[str]]:
    update, _, _ = updates.try_recv()
    assert update is not None
    return update.op, [pod.spec.containers[0].image for pod in update.pods]


@pytest.mark.parametrize("code", [errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ESTALE])
def test_pods_are_not_all_there_while_a_file_was_never_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """The source sends an ADD while files are unread, because the pods in them may be running."""
    for name in ("bad", "good"):
        (tmp_path / f"{name}.yaml").write_bytes(manifest(name, name))
    updates: golang.Channel[kubetypes.PodUpdate] = golang.Channel(9)
    source = file.SourceFile(str(tmp_path), NODE, 1.0, updates, recordtesting.FakeRecorder(9))
    changed = file.WatchEvent(str(tmp_path / "good.yaml"), file.PodEventType.POD_MODIFY)
    with monkeypatch.context() as patch:
        _fail_to_open(patch, code)
        source.list_config(golang.background())
        assert _sent(updates) == (kubetypes.ADD, ["good"])
        source.consume_watch_event(golang.background(), changed)
        assert _sent(updates) == (kubetypes.ADD, ["good"])
    source.list_config(golang.background())
    assert _sent(updates) == (kubetypes.SET, ["bad", "good"])
    _fail_to_open(monkeypatch, code)
    source.list_config(golang.background())
    assert _sent(updates) == (kubetypes.SET, ["bad", "good"])


def test_pods_are_not_all_there_before_the_first_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pod.yaml").write_bytes(manifest(image="first"))
    (tmp_path / "other.yaml").write_bytes(manifest("other", "other"))
    updates: golang.Channel[kubetypes.PodUpdate] = golang.Channel(9)
    source = file.SourceFile(str(tmp_path), NODE, 1.0, updates, recordtesting.FakeRecorder(9))
    changed = file.WatchEvent(str(tmp_path / "pod.yaml"), file.PodEventType.POD_MODIFY)
    with monkeypatch.context() as patch:
        patch.setattr(os, "listdir", raising(OSError(errno.EIO, "Input/output error")))
        with pytest.raises(OSError, match="Input/output error"):
            source.list_config(golang.background())
    source.consume_watch_event(golang.background(), changed)
    assert _sent(updates) == (kubetypes.ADD, ["first"])
    source.list_config(golang.background())
    assert _sent(updates) == (kubetypes.SET, ["other", "first"])


def test_file_that_is_never_read_is_not_waited_for_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("bad", "good"):
        (tmp_path / f"{name}.yaml").write_bytes(manifest(name, name))
    updates: golang.Channel[kubetypes.PodUpdate] = golang.Channel(9)
    fake_clock = clocktesting.FakeClock()
    source = file.SourceFile(str(tmp_path), NODE, 1.0, updates, recordtesting.FakeRecorder(9), clock=fake_clock)
    _fail_to_open(monkeypatch, errno.EIO)
    source.list_config(golang.background())
    fake_clock.step(file.UNREAD_PATIENCE)
    source.list_config(golang.background())
    assert [_sent(updates), _sent(updates)] == [(kubetypes.ADD, ["good"]), (kubetypes.SET, ["good"])]


def test_two_files_with_one_pod_name_are_both_sent(tmp_path: Path, watch: Watch) -> None:
    """The file source sends both pods and names both files in its event; PodConfig keeps the first pod."""
    (tmp_path / "a.yaml").write_bytes(manifest(image="a"))
    (tmp_path / "b.yaml").write_bytes(manifest(image="b"))
    watched = watch(tmp_path)
    pods = watched.expect("a", "b")
    assert pods[0].metadata.name == pods[1].metadata.name and pods[0].metadata.uid != pods[1].metadata.uid
    watched.expect_event(str(tmp_path / "b.yaml"), "metadata.name", f"is also in {tmp_path / 'a.yaml'}")


def test_threads_end_while_nobody_receives(tmp_path: Path) -> None:
    ctx, cancel = golang.with_cancel(golang.background())
    watched = Watched(tmp_path, 0.01, ctx)
    watched.expect()
    cancel()
    wait_for_end_of_threads("config-file")


def test_what_has_taken_the_place_of_a_file_is_not_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The source opens only regular files: opening a device may have effects, and a FIFO unblocks its writer."""
    path = tmp_path / "pod.yaml"
    os.mkfifo(path)
    opened: list[int] = []
    open_file = os.open

    def note(name: str | os.PathLike[str], flags: int, *args: object, **kwargs: object) -> int:
        if os.fspath(name) == str(path):
            opened.append(flags)
        return open_file(name, flags, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "open", note)
    source = file.SourceFile(str(tmp_path), NODE, _NEVER, golang.Channel(), recordtesting.FakeRecorder(1), None)
    with pytest.raises(file.ManifestError, match="not a directory or file"):
        source._extract_from_file(str(path))
    assert opened and all(flags & os.O_PATH for flags in opened)


def test_watch_without_a_thread_leaves_nothing_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: inotify_c.InotifyFD) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(inotify_c.InotifyFD, "start", refuse)
    source = file.SourceFile(str(tmp_path), NODE, _NEVER, golang.Channel(), recordtesting.FakeRecorder(1), None)
    before = open_inotify_instances()
    with pytest.raises(OSError, match="can't start new thread"):
        source.do_watch(golang.background())
    assert open_inotify_instances() <= before


def test_watch_that_cannot_be_had_leaves_nothing_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A failed watch leaves nothing open, even if its thread starts only after the stop was requested."""
    run = inotify_c.InotifyFD.run

    def begin_late(self: inotify_c.InotifyFD) -> None:
        self.stopped_event.wait(_DEADLINE)
        run(self)

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, "inotify watch limit reached")

    monkeypatch.setattr(inotify_c.InotifyFD, "run", begin_late)
    monkeypatch.setattr(inotify_c.InotifyFD, "add_callback", refuse)
    recorder = recordtesting.FakeRecorder(1)
    source = file.SourceFile(str(tmp_path), NODE, _NEVER, golang.Channel(), recorder, None)
    before = open_inotify_instances()
    with pytest.raises(OSError, match="inotify watch limit reached"):
        source.do_watch(golang.background())
    assert open_inotify_instances() <= before


class Store:
    """Record the names of the objects that the source stores."""

    def __init__(self) -> None:
        self.names: golang.Channel[list[str]] = golang.Channel(100)

    def replace(self, objects: Sequence[config.APIObject]) -> None:
        self.names.send([f"{type(obj).__name__}/{obj.metadata.name}" for obj in objects])

    def expect(self, *names: str) -> None:
        """Wait until the source has stored exactly these objects."""
        seen: list[str] | None = None
        while seen != list(names):
            seen, ok = self.names.recv(_DEADLINE)
            assert ok, f"expected {names}"


def config_map(name: str, data: str = "{a: b}") -> bytes:
    return f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}}}\ndata: {data}\n".encode()


class TestObjects:
    """Test the objects beside the pods, on a node without an API server."""

    def start(self, path: Path, watch: Watch) -> tuple[Watched, Store]:
        store = Store()
        watched = watch(path, object_store=store)
        return watched, store

    def test_objects_come_and_go_with_their_files(self, tmp_path: Path, watch: Watch) -> None:
        (tmp_path / "all.yaml").write_bytes(config_map("a") + b"---\n" + manifest() + b"---\n" + manifest("p2", "two"))
        watched, store = self.start(tmp_path, watch)
        store.expect("ConfigMap/a")
        watched.expect("test/image", "two")
        (tmp_path / "b.yaml").write_bytes(config_map("b"))
        watched.expect("test/image", "two")
        store.expect("ConfigMap/a", "ConfigMap/b")
        (tmp_path / "all.yaml").unlink()
        watched.expect()
        store.expect("ConfigMap/b")

    def test_bad_document_is_an_event_and_the_others_count(self, tmp_path: Path, watch: Watch) -> None:
        bad = config_map("bad", "{port: 80}")
        (tmp_path / "all.yaml").write_bytes(config_map("a") + b"---\n" + bad + b"---\n" + manifest())
        watched, store = self.start(tmp_path, watch)
        store.expect("ConfigMap/a")
        watched.expect_event(f"{tmp_path}/all.yaml: document 2: invalid ConfigMap bad: data[port]: expected text")
        # The rename makes the whole file appear at once, because the source may be listing at this moment.
        (tmp_path / ".other.yaml").write_bytes(manifest("p2", "two"))
        (tmp_path / ".other.yaml").rename(tmp_path / "other.yaml")
        watched.expect("test/image", "two")
        assert watched.recorder.events.try_recv()[2] is False, "the fault is reported again"

    def test_nothing_of_use_is_one_event_with_all_faults(self, tmp_path: Path, watch: Watch) -> None:
        (tmp_path / "all.yaml").write_bytes(b"{kind: Job, apiVersion: batch/v1}\n---\n" + config_map("x", "{y: 1}"))
        watched, store = self.start(tmp_path, watch)
        watched.expect_event(
            "document 1: expected one of Pod, ", "got Job of batch/v1; document 2: invalid ConfigMap x:"
        )
        store.expect()

    def test_first_of_two_with_one_name_counts(self, tmp_path: Path, watch: Watch) -> None:
        (tmp_path / "a.yaml").write_bytes(config_map("x") + b"---\n" + config_map("x", "{a: c}"))
        (tmp_path / "b.yaml").write_bytes(config_map("x", "{a: d}"))
        watched, store = self.start(tmp_path, watch)
        store.expect("ConfigMap/x")
        name = 'metadata.name: the ConfigMap "default/x"'
        same = f"{tmp_path}/a.yaml: {name} is also in the same file, which takes precedence"
        watched.expect_event(same)
        watched.expect_event(
            f'{tmp_path}/b.yaml: metadata.name: the ConfigMap "default/x" is also in {tmp_path}/a.yaml, which'
        )

    def test_node_with_api_server_takes_none(self, tmp_path: Path, watch: Watch) -> None:
        (tmp_path / "a.yaml").write_bytes(config_map("x"))
        watch(tmp_path).expect_event("couldn't parse as pod(expected Pod of v1, got ConfigMap of v1)")
