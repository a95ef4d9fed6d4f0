"""What a device plugin tells of its devices, as fast as the kubelet wants to hear it.

DIVERGES (safer): ten lists that a plugin sends are taken at once, and after that the newest one each second.
Go: pkg/kubelet/cm/devicemanager/plugin/v1beta1/client.go, (*client).Run: takes each list, and writes a checkpoint.
Why: a plugin that sends as fast as it can would keep a processor and the disk busy.
Test: device_lists_test.py:test_plugin_that_tells_as_fast_as_it_can_is_heard_now_and_then
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

from kubelet.apis.deviceplugin.v1beta1 import api_pb2 as pluginapi
from pkg import golang
from pkg.apimachinery import clock as clocklib
from pkg.apimachinery.util.runtime import contain
from pkg.client_go.util import flowcontrol

# How many lists of one plugin are handed on at once, and how many in a second after that; each is the newest.
MAX_LISTS = 10
MAX_LISTS_PER_SECOND = 1.0
# How many bytes of lists are read from one plugin in a second, and as how many a list counts at least.
MAX_BYTES_PER_SECOND = 4 << 20
LIST_COST_BYTES = 40 << 10


class ListStream(Protocol):
    """The plugin's answer to ListAndWatch."""

    def __iter__(self) -> Iterator[pluginapi.ListAndWatchResponse]: ...

    def cancel(self) -> object:
        """Have the thread that iterates over the stream get an error. Any thread may call this."""
        ...

    def end(self) -> None:
        """Free what the stream holds. Only the thread that iterates over the stream may call this, if there is one."""
        ...


class DeviceLists:
    """Reads a plugin's lists on a thread of its own, and hands on the newest of them on the caller's."""

    def __init__(self, stream: ListStream, clock: clocklib.Clock) -> None:
        self._stream = stream
        # The first list waits for nothing.
        self._limiter = flowcontrol.TokenBucketRateLimiter(MAX_LISTS_PER_SECOND, MAX_LISTS - 1, clock)
        # The newest list, if it has not been handed on.
        self._newest: golang.Channel[pluginapi.ListAndWatchResponse] = golang.Channel(1)
        # Done once no more is read.
        self._ctx, self._end = golang.with_cancel(golang.background())
        self._err: Exception = EOFError("EOF")
        # Set by start.
        self._reader: golang.Thread | None = None

    def start(self, reader_name: str) -> None:
        """Begin to read. Raises golang.ThreadError."""
        try:
            self._reader = golang.go(self._read, name=reader_name)
        except golang.ThreadError:
            self._stream.end()
            raise

    def stop(self) -> None:
        """End the stream, and wait until no more is read."""
        self._end()
        self._stream.cancel()
        if self._reader is not None:
            self._reader.join()

    def hand_on(self, receive: Callable[[pluginapi.ListAndWatchResponse], None]) -> Exception:
        """Call receive with the first list and then with newest ones, until the stream ends; returns why it did.

        A list that waits for its turn when the stream ends is dropped.
        """
        try:
            for response in self._newest:
                self._hand_over(receive, response)
                self._limiter.wait(self._ctx)
        except golang.ContextError:
            pass  # The stream has ended.
        finally:
            self.stop()
        return self._err

    def _hand_over(
        self, receive: Callable[[pluginapi.ListAndWatchResponse], None], response: pluginapi.ListAndWatchResponse
    ) -> None:
        """Call receive until it takes the list, or a newer one. Raises golang.ContextError once the stream has ended.

        A plugin tells of its devices when they change, and not again because nobody has listened.
        """
        while True:
            # Nothing in a list is a reason to refuse it: it is a want of memory, or of threads.
            with contain("Failed to take a device plugin's list, trying again", self._ctx):
                receive(response)
                return
            self._limiter.wait(self._ctx)
            newer, _, _ = self._newest.try_recv()
            response = response if newer is None else newer

    def _read(self) -> None:
        try:
            for response in self._stream:
                self._newest.try_recv()  # An older list that nobody has taken counts no more.
                self._newest.try_send(response)
                size = max(response.ByteSize(), LIST_COST_BYTES)
                # What is not read keeps the plugin from sending.
                if self._ctx.wait(size / MAX_BYTES_PER_SECOND):
                    return
        except Exception as err:
            # The plugin has gone or was let go, or sent what cannot be decoded: whoever hands on says so.
            # Without its frames, which have the last list, and these lists, which keep the error.
            self._err = golang.without_frames(err)
        finally:
            self._newest.close()
            self._end()
            self._stream.end()
