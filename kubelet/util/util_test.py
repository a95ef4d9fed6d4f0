"""Test the helpers.

Go: pkg/kubelet/util/util_test.go, pkg/kubelet/util/queue/work_queue_test.go, pkg/kubelet/util/store/filestore_test.go,
pkg/kubelet/util/cache/object_cache_test.go, pkg/kubelet/util/sliceutils/sliceutils_test.go,
pkg/kubelet/util/ioutils/ioutils_test.go, pkg/kubelet/util/format/pod_test.go
"""

from __future__ import annotations

import datetime
import io
import time
from pathlib import Path

import pytest

from kubelet import container as kubecontainer
from kubelet import util
from kubelet.util import boottime_util, cache, format, ioutils, queue, sliceutils, store
from pkg.api.core import v1
from pkg.apimachinery import types
from pkg.apimachinery.api import resource
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.apimachinery.clock import testing as testingclock


def test_work_queue() -> None:
    clock = testingclock.FakeClock()
    work = queue.BasicWorkQueue(clock)
    assert work.get_work() == []
    for item, delay in (("late", 60), ("past", -60), ("soon", 10), ("earlier", -120)):
        work.enqueue(types.UID(item), delay)
    assert work.get_work() == ["earlier", "past"]
    assert work.get_work() == []
    clock.step(30)
    assert work.get_work() == ["soon"]
    assert len(work) == 1


def test_work_queue_overwrites() -> None:
    clock = testingclock.FakeClock()
    work = queue.BasicWorkQueue(clock)
    work.enqueue(types.UID("a"), 5)
    work.enqueue(types.UID("a"), 20)
    work.enqueue(types.UID("b"), 20)
    work.enqueue(types.UID("b"), 5)
    clock.step(10)
    assert work.get_work() == ["b"]
    clock.step(20)
    assert work.get_work() == ["a"]
    assert len(work) == 0


def test_work_queue_does_not_pile_up() -> None:
    work = queue.BasicWorkQueue(testingclock.FakeClock())
    for i in range(10_000):
        work.enqueue(types.UID("a"), 1 + i)
    assert len(work) == 1
    assert len(work._heap) < 100


def test_file_store(tmp_path: Path) -> None:
    files = store.FileStore(str(tmp_path / "a/b"))
    files.write("id1", b"data1")
    files.write("id1", b"new")
    files.write("id-2.x", b"")
    assert files.read("id1") == b"new"
    assert sorted(files.list()) == ["id-2.x", "id1"]
    files.delete("id1")
    files.delete("id1")
    with pytest.raises(store.ErrKeyNotFound, match="key is not found"):
        files.read("id1")
    assert [path.name for path in (tmp_path / "a/b").iterdir()] == ["id-2.x"]


@pytest.mark.parametrize("key", ["", ".", "..", "-a", "a-", "a/b", "a b", "a" * 251, "a\n"])
def test_bad_keys(key: str) -> None:
    with pytest.raises(ValueError, match="invalid key"):
        store.validate_key(key)


def test_object_cache() -> None:
    clock = testingclock.FakeClock()
    values = iter(range(10))
    objects = cache.ObjectCache(lambda: next(values), 10.0, clock)
    assert [objects.get("k"), objects.get("k"), objects.get("other")] == [0, 0, 1]
    clock.step(11)
    assert objects.get("k") == 2
    objects.add("k", 99)
    assert objects.get("k") == 99


def test_sliceutils() -> None:
    day = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    times = [day, None, day - datetime.timedelta(1)]
    pods = [v1.Pod(metadata=metav1.ObjectMeta(creation_timestamp=time)) for time in times]
    ordered = sliceutils.pods_by_creation_time(pods)
    assert [pod.metadata.creation_timestamp for pod in ordered] == [times[1], times[2], times[0]]
    images = [kubecontainer.Image(id=id, size=size) for id, size in (("a", 1), ("b", 3), ("c", 1))]
    assert [image.id for image in sliceutils.by_image_size(images)] == ["b", "c", "a"]


def test_limit_writer() -> None:
    out = io.BytesIO()
    writer = ioutils.limit_writer(out, 5)
    assert writer.write(b"abc") == 3
    for _ in range(2):
        with pytest.raises(ioutils.ShortWriteError):
            writer.write(b"defg")
    assert out.getvalue() == b"abcde"


def test_format() -> None:
    assert format.pod(None) == "<nil>"
    pod = v1.Pod(metadata=metav1.ObjectMeta(name="n", namespace="ns", uid=types.UID("u")))
    assert format.pod(pod) == "n_ns(u)"


@pytest.mark.parametrize(
    ("domain", "as_fqdn", "expected"),
    [("example.com", None, "h"), ("example.com", False, "h"), ("example.com", True, "h.example.com"), ("", True, "h")],
)
def test_get_nodename_for_kernel(domain: str, as_fqdn: bool | None, expected: str) -> None:
    assert util.get_nodename_for_kernel("h", domain, as_fqdn) == expected


def test_nodename_too_long() -> None:
    assert len(util.get_nodename_for_kernel("h", "x" * 62, True)) == 64
    with pytest.raises(ValueError, match="too long"):
        util.get_nodename_for_kernel("h", "x" * 63, True)


def test_get_limits() -> None:
    def limits(**kwargs: str) -> v1.ResourceRequirements:
        return v1.ResourceRequirements(limits={k: resource.must_parse(v) for k, v in kwargs.items()})

    opts = util.ResourceOpts(limits(cpu="2", memory="1Gi"), limits(memory="1Mi"))
    assert util.get_limits(opts) == limits(cpu="2", memory="1Mi").limits
    assert util.get_limits(util.ResourceOpts()) == {}
    assert util.get_limits(None) == {}


def test_boot_time() -> None:
    boot = util.get_boot_time()
    assert boot < datetime.datetime.now(datetime.UTC)
    assert boot.microsecond == 0


@pytest.mark.parametrize("stat", ["btime 18446744073709551000\n", "btime soon\n", "cpu 1 2 3\n"])
def test_boot_time_of_a_machine_that_cannot_tell_it(stat: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "stat").write_text(stat)
    monkeypatch.setattr(boottime_util, "_PROC_STAT", str(tmp_path / "stat"))
    uptime = datetime.timedelta(seconds=time.clock_gettime(time.CLOCK_BOOTTIME))
    assert abs(datetime.datetime.now(datetime.UTC) - uptime - util.get_boot_time()) < datetime.timedelta(minutes=1)
