"""Receive a device plugin's lists of devices at a limited rate.

DIVERGES (safer): the kubelet processes up to ten of a plugin's lists at once, and then the newest list each second.
Go: pkg/kubelet/cm/devicemanager/plugin/v1beta1/client.go, (*client).Run: it processes each list, and writes a
checkpoint for each.
Why: a plugin that sends lists as fast as it can would keep a processor and the disk busy.
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

# MAX_LISTS is the number of one plugin's lists that are processed at once, MAX_LISTS_PER_SECOND the rate after that.
# Each processed list is the newest.
MAX_LISTS = 10
MAX_LISTS_PER_SECOND = 1.0
# MAX_BYTES_PER_SECOND limits the bytes of lists that are read from one plugin; a list counts as at least
# LIST_COST_BYTES.
MAX_BYTES_PER_SECOND = 4 << 20
LIST_COST_BYTES = 40 << 10


class ListStream(Protocol):
    """Define the stream of a plugin's responses to ListAndWatch."""

    def __iter__(self) -> Iterator[pluginapi.ListAndWatchResponse]: ...

    def cancel(self) -> object:
        """Make the iteration over the stream fail. Any thread may call this."""
        ...

    def end(self) -> None:
        """Free the stream's resources. If a thread iterates over the stream, only that thread may call this."""
        ...


class DeviceLists:
    """Read a plugin's lists on a thread of their own, and pass the newest ones on in the caller's thread."""

    def __init__(self, stream: ListStream, clock: clocklib.Clock) -> None:
        self._stream = stream
        # The bucket leaves out the first list, which is processed without a token.
        self._limiter = flowcontrol.TokenBucketRateLimiter(MAX_LISTS_PER_SECOND, MAX_LISTS - 1, clock)
        # This channel holds the newest list until it is processed.
        self._newest: golang.Channel[pluginapi.ListAndWatchResponse] = golang.Channel(1)
        # This context ends when the reader stops.
        self._ctx, self._end = golang.with_cancel(golang.background())
        self._err: Exception = EOFError("EOF")
        # `start` sets this field.
        self._reader: golang.Thread | None = None

    def start(self, reader_name: str) -> None:
        """Start to read. Raise golang.ThreadError."""
        try:
            self._reader = golang.go(self._read, name=reader_name)
        except golang.ThreadError:
            self._stream.end()
            raise

    def stop(self) -> None:
        """End the stream, and wait until the reader has stopped."""
        self._end()
        self._stream.cancel()
        if self._reader is not None:
            self._reader.join()

    def hand_on(self, receive: Callable[[pluginapi.ListAndWatchResponse], None]) -> Exception:
        """Call `receive` with the first list, and then with newer ones; return the error that ended the stream.

        A list that is not processed yet when the stream ends is dropped.
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
        """Call `receive` until it succeeds for the list or a newer one.

        Raise golang.ContextError if the stream has ended. The retries matter because a plugin sends a list only when
        its devices change.
        """
        while True:
            # No list is invalid: a failure comes from a shortage of memory or threads, so it is worth another attempt.
            with contain("Failed to process a device plugin's list, retrying", self._ctx):
                receive(response)
                return
            self._limiter.wait(self._ctx)
            newer, _, _ = self._newest.try_recv()
            response = response if newer is None else newer

    def _read(self) -> None:
        try:
            for response in self._stream:
                self._newest.try_recv()  # The new list replaces an older one that is still waiting.
                self._newest.try_send(response)
                size = max(response.ByteSize(), LIST_COST_BYTES)
                # While the kubelet does not read, flow control keeps the plugin from sending.
                if self._ctx.wait(size / MAX_BYTES_PER_SECOND):
                    return
        except Exception as err:
            # The plugin has ended, was disconnected, or sent data that cannot be decoded; `hand_on` returns the error.
            # The frames are removed because they refer to the last list and to this object, which keeps the error.
            self._err = golang.without_frames(err)
        finally:
            self._newest.close()
            self._end()
            self._stream.end()
