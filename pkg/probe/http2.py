"""Speak HTTP/2 with untrusted servers: those of containers, for probes.

Go: golang.org/x/net/http2 (transport.go), google.golang.org/grpc/internal/transport/http2_client.go

The library h2 encodes and decodes HTTP/2 in Python and without threads. This module bounds what it reads from one
connection.
"""

from __future__ import annotations

import io
from collections.abc import Iterable

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import (
    Event,
    InformationalResponseReceived,
    RemoteSettingsChanged,
    ResponseReceived,
    TrailersReceived,
)
from h2.settings import SettingCodes, Settings
from hpack import Decoder, Encoder, HPACKDecodingError

from pkg.probe import dialer

# The client reads at most this many bytes from one connection. Each frame counts _FRAME_COST bytes more, because even
# an empty frame takes a tenth of a millisecond of processor time. Each header counts _HEADER_COST bytes more, because
# one byte may encode a header, and 64 KiB of such bytes took twenty times as long as 64 KiB of frames.
# DIVERGES (safer): this kubelet reads at most MAX_RECEIVED_BYTES from a probe's HTTP/2 server; a gRPC probe that gets
# more fails.
# Go: pkg/probe/grpc/grpc.go, grpcProber.Probe: the Go kubelet accepts a message of 4 MiB, and has no bound for other
# data.
# Why: a container that sends endlessly would keep a processor busy and fill the memory.
# Test: grpc_test.py:test_server_that_sends_without_an_end,
# http2_test.py:test_header_costs_more_than_the_byte_that_stands_for_it
MAX_RECEIVED_BYTES = 64 * 1024
_FRAME_COST = 256
_HEADER_COST = 32
# A server may change the size of its header table this many times. One byte requests a change, which takes a
# microsecond, and there may be any number of these bytes before the first header of a response. No response needs more
# than two changes.
# DIVERGES (safer): in this kubelet, a probe over HTTP/2 fails when its server changes the size of its header table more
# than MAX_TABLE_CHANGES times.
# Go: golang.org/x/net/http2/hpack/hpack.go, (*Decoder).parseDynamicTableSizeUpdate: the Go kubelet has no bound.
# Why: each byte of such a response would hold the only interpreter lock for a microsecond.
# Test: http2_test.py:test_server_changes_the_size_of_its_table_of_headers_no_more_often_than_it_may
MAX_TABLE_CHANGES = 100

_READ_SIZE = 4096
# This client's headers are already valid, and checking each of them would take a tenth of a call's time. Of received
# headers, h2 would check each byte, and 64 KiB from a server may become 160 MiB of headers. h2 would also refuse
# headers that Go accepts, such as values that begin with a space.
_CONFIGURATION = H2Configuration(
    validate_outbound_headers=False,
    normalize_outbound_headers=False,
    validate_inbound_headers=False,
    normalize_inbound_headers=False,
)
# A frame's header holds its length in three bytes, its type, its flags and its stream.
_FRAME_HEADER_SIZE = 9
_SETTINGS, _GOAWAY = 4, 7
_SETTING_SIZE = 6
_KNOWN_SETTINGS = frozenset(SettingCodes)
_WITH_HEADERS = (InformationalResponseReceived, ResponseReceived, TrailersReceived)


class _Encoder(Encoder):
    """Encode headers in time linear in their length: without compression and without the table of earlier headers.

    By default the library Huffman-encodes each header, in time quadratic in its length. For each header it also
    searches the table, whose size the server chooses. A pod's spec has room for one header of 1 MiB, or for a hundred
    thousand headers: encoding them would take minutes, during which other threads hardly run Python. The location of a
    redirect is sent in a header, too.
    """

    def add(self, to_add: tuple[bytes, bytes], sensitive: bool, huffman: bool = False) -> bytes:
        return super().add(to_add, True, False)


class _Decoder(Decoder):
    """Decode headers, and refuse input that changes the size of the header table too often."""

    def __init__(self) -> None:
        super().__init__()
        self._changes_left = MAX_TABLE_CHANGES

    @property
    def header_table_size(self) -> int:
        return self.header_table.maxsize

    @header_table_size.setter
    def header_table_size(self, size: int) -> None:
        self._changes_left -= 1
        if self._changes_left < 0:
            raise HPACKDecodingError(f"the size of the table was changed more than {MAX_TABLE_CHANGES} times")
        self.header_table.maxsize = size


class TooMuchError(ValueError):
    """Signal that the server has sent more than the client reads."""

    def __init__(self) -> None:
        super().__init__(f"received more than {MAX_RECEIVED_BYTES} bytes")


class GoAwayError(ConnectionError):
    """Signal that the server will not serve the request, which is the first one of its connection."""


class ClientConn:
    """Hold one connection for one request by one thread; both end with the connection's context.

    All methods raise OSError and H2Error; those that receive also raise EOFError, GoAwayError and TooMuchError.

    Go: http2.ClientConn
    """

    def __init__(self, connection: dialer.Connection) -> None:
        self._connection = connection
        self._reader = io.BufferedReader(connection, _READ_SIZE)
        self._http2 = H2Connection(_CONFIGURATION)
        self._http2.encoder, self._http2.decoder = _Encoder(), _Decoder()
        # These are the settings of a client. h2 does not allow a server to send the push setting, but Go accepts it.
        self._http2.remote_settings = Settings(client=True)
        self._http2.local_settings = Settings(client=True, initial_values={SettingCodes.ENABLE_PUSH: 0})
        self._room = MAX_RECEIVED_BYTES

    def start(self) -> None:
        """Start the HTTP/2 connection, and wait for the server's settings."""
        self._http2.initiate_connection()
        while not any(isinstance(event, RemoteSettingsChanged) for event in self.receive()):
            pass

    def send_headers(self, headers: list[tuple[str, str]], *, end: bool = False) -> int:
        """Queue the headers of the request, and its end if `end` is set. Return the number of its stream."""
        stream = self._http2.get_next_available_stream_id()
        self._http2.send_headers(stream, headers, end_stream=end)
        return stream

    def send_data(self, stream: int, data: bytes) -> bytes:
        """Queue as much of the data as the server accepts now, and the end of the request after the last byte.

        Return the rest.
        """
        while data and (window := self._http2.local_flow_control_window(stream)) > 0:
            part, data = _cut(data, min(window, self._http2.max_outbound_frame_size))
            self._http2.send_data(stream, part, end_stream=not data)
        return data

    def receive(self) -> list[Event]:
        """Send the queued data, and return the events of the server's next frame."""
        if unsent := self._http2.data_to_send():
            self._connection.send(unsent)
        self._room -= _FRAME_COST
        header = self._read(_FRAME_HEADER_SIZE)
        frame = header + self._read(int.from_bytes(header[:3]))
        if header[3] == _GOAWAY:
            # After a GOAWAY, h2 would refuse every later frame. The server still serves the streams up to the one that
            # the GOAWAY names.
            _check_goaway(frame)
            return []
        events = self._http2.receive_data(_without_unknown_settings(frame) if header[3] == _SETTINGS else frame)
        self._room -= _HEADER_COST * sum(len(event.headers) for event in events if isinstance(event, _WITH_HEADERS))
        return events

    def _read(self, size: int) -> bytes:
        if size > self._room:
            raise TooMuchError
        self._room -= size
        data = self._reader.read(size)
        if len(data) < size:
            raise EOFError("unexpected EOF" if data else "EOF")
        return data


def text_of(headers: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    return {name.decode(errors="replace"): value.decode(errors="replace") for name, value in headers}


def code_name(error_code: int | None) -> str:
    """Return the name of an HTTP/2 error code."""
    return next((code.name for code in ErrorCodes if code == error_code), f"unknown error code {error_code}")


def _cut(data: bytes, size: int) -> tuple[bytes, bytes]:
    return data[:size], data[size:]


def _without_unknown_settings(frame: bytes) -> bytes:
    """Return the settings frame without unknown settings.

    h2 stores each setting, so 64 KiB from a server would become 8 MiB.
    """
    header, body = _cut(frame, _FRAME_HEADER_SIZE)
    settings = (body[start : start + _SETTING_SIZE] for start in range(0, len(body), _SETTING_SIZE))
    known = b"".join(each for each in settings if int.from_bytes(each[:2]) in _KNOWN_SETTINGS)
    return len(known).to_bytes(3) + header[3:] + known


def _check_goaway(frame: bytes) -> None:
    """Raise GoAwayError if the server will not serve the request."""
    body = frame[_FRAME_HEADER_SIZE:]
    last_stream, code = int.from_bytes(body[:4]), int.from_bytes(body[4:8])
    if not last_stream:
        raise GoAwayError(f"received prior goaway: code: {code_name(code)}")
