"""Test how a plugin's lists of devices are processed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from framework.waiting import wait_for, wait_until_equal
from google.protobuf.message import DecodeError

from kubelet.apis.deviceplugin.v1beta1 import api_pb2 as pluginapi
from kubelet.cm.devicemanager.plugin.v1beta1 import device_lists
from kubelet.cm.devicemanager.testing import FakeListStream
from pkg import golang
from pkg.apimachinery.clock.testing import FakeClock
from pkg.apimachinery.util.runtime.testing import failing_once, failures
from pkg.golang.testing import frames_kept_after, out_of_threads


class World:
    """Process lists on a thread."""

    def __init__(self) -> None:
        self.stream, self.clock = FakeListStream(), FakeClock()
        self.lists = device_lists.DeviceLists(self.stream, self.clock)
        self.lists.start("test-device-lists-reader")
        self.heard: list[int] = []
        self.end: list[Exception] = []
        self.receive = self._receive
        self.thread = golang.go(self._run, name="test-device-lists")

    def _run(self) -> None:
        self.end.append(self.lists.hand_on(lambda response: self.receive(response)))

    def _receive(self, response: pluginapi.ListAndWatchResponse) -> None:
        self.heard.append(int(response.devices[0].ID))

    def tell_one_by_one(self, numbers: range) -> None:
        for count, number in enumerate(numbers, len(self.heard) + 1):
            self.stream.tell(range(number, number + 1))
            wait_until_equal("lists that are heard", lambda: len(self.heard), count)
            assert self.heard[-1] == number


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    world.stream.cancel()
    world.thread.join(30)


def test_plugin_that_tells_as_fast_as_it_can_is_heard_now_and_then(world: World) -> None:
    """The first lists of a fast plugin are processed at once, and after that the newest list at each interval."""
    at_once = range(device_lists.MAX_LISTS)
    world.tell_one_by_one(at_once)
    world.stream.tell(range(100, 130))
    wait_for("all lists are asked for", lambda: world.stream.asked == len(at_once) + 31)
    assert world.heard == list(at_once), "no time has passed"
    world.clock.step(1 / device_lists.MAX_LISTS_PER_SECOND)
    wait_for("a later list is heard", lambda: len(world.heard) > len(at_once))
    assert world.heard == [*at_once, 129]


def test_stream_that_ends_is_heard_no_more(world: World) -> None:
    at_once = range(device_lists.MAX_LISTS)
    world.tell_one_by_one(at_once)
    world.stream.tell(range(100, 101))
    wait_for("the end of the stream is asked for", lambda: world.stream.asked == len(at_once) + 2)
    world.stream.err = ConnectionError("gone")
    world.stream.cancel()
    world.thread.join(30)
    assert world.end == [world.stream.err]
    assert world.stream.ended
    assert world.heard == list(at_once)


def test_of_the_lists_before_one_that_cannot_be_decoded_nothing_stays() -> None:
    """No list stays in memory after one that cannot be decoded.

    A plugin may register again as soon as its stream has ended, and send as many lists again.
    """

    class _Stream(FakeListStream):
        def __iter__(self) -> Iterator[pluginapi.ListAndWatchResponse]:
            return map(pluginapi.ListAndWatchResponse.FromString, [b"\n\x00", b"\xff"])

    def run() -> None:
        lists = device_lists.DeviceLists(_Stream(), FakeClock())
        lists.start("test-device-lists-reader")
        assert isinstance(lists.hand_on(lambda response: None), DecodeError)

    assert "_read" not in frames_kept_after(run)


@failures
def test_list_that_cannot_be_taken_is_taken_again(world: World, err: Exception) -> None:
    """The kubelet tries a list again after a failure.

    The plugin would not send its devices again, and no container could get them.
    """
    world.receive = failing_once(world.receive, err)
    world.tell_one_by_one(range(2))
    assert world.heard == [0, 1]
    assert not world.end


def test_newer_list_takes_the_place_of_one_that_cannot_be_taken(world: World) -> None:
    taken, refused = world.receive, golang.Channel[None]()

    def refuse_first(response: pluginapi.ListAndWatchResponse) -> None:
        if response.devices[0].ID == "0":
            world.stream.tell(range(1, 2))
            wait_for("three lists are asked for", lambda: world.stream.asked == 3)
            refused.close()
            raise MemoryError
        taken(response)

    world.receive = refuse_first
    world.stream.tell(range(1))
    refused.recv()
    wait_for("the newer list is heard", lambda: world.heard == [1])


def test_without_a_thread_nothing_is_read() -> None:
    stream = FakeListStream()
    with out_of_threads(), pytest.raises(golang.ThreadError):
        device_lists.DeviceLists(stream, FakeClock()).start("test-device-lists-reader")
    assert stream.asked == 0
    assert stream.ended
