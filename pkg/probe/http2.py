"""HTTP/2 to servers that nobody trusts: those of containers, asked by probes.

Go: golang.org/x/net/http2 (transport.go), google.golang.org/grpc/internal/transport/http2_client.go

The library h2 reads and writes it, in Python and without threads, and no more of one connection is read than it may
hold.
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

# The client reads no more than this from one connection. It counts _FRAME_COST bytes more for each frame, since even an
# empty frame takes a tenth of a millisecond of processor time, and _HEADER_COST bytes more for each header. One byte
# may stand for a header, and 64 KiB of these took twenty times as long as 64 KiB of frames.
# DIVERGES (safer): what a probe's server sends by HTTP/2 beyond MAX_RECEIVED_BYTES is not read; a gRPC probe fails.
# Go: pkg/probe/grpc/grpc.go, grpcProber.Probe: takes a message of 4 MiB, and has no bound for what comes beside it.
# Why: a container that sends without an end would keep a processor busy and fill the memory.
# Test: grpc_test.py:test_server_that_sends_without_an_end,
# http2_test.py:test_header_costs_more_than_the_byte_that_stands_for_it
MAX_RECEIVED_BYTES = 64 * 1024
_FRAME_COST = 256
_HEADER_COST = 32
# How often a server may change the size of the table that it keeps headers in. One byte asks for a change, which takes
# a microsecond, and before the first header of an answer there may be as many as there are bytes. No answer needs more
# than two.
# DIVERGES (safer): a probe by HTTP/2 fails when its server changes the size of its table of headers more than
# MAX_TABLE_CHANGES times.
# Go: golang.org/x/net/http2/hpack/hpack.go, (*Decoder).parseDynamicTableSizeUpdate: has no bound.
# Why: each byte of such an answer would cost a microsecond of the one interpreter lock.
# Test: http2_test.py:test_server_changes_the_size_of_its_table_of_headers_no_more_often_than_it_may
MAX_TABLE_CHANGES = 100

_READ_SIZE = 4096
# What this client sends is right already: to look at each header again takes a tenth of a call's time. Of what it
# receives, the library would look at each byte, and 64 KiB of a server may become 160 MiB of headers. It would also
# refuse what Go takes, such as values that begin with a blank.
_CONFIGURATION = H2Configuration(
    validate_outbound_headers=False,
    normalize_outbound_headers=False,
    validate_inbound_headers=False,
    normalize_inbound_headers=False,
)
# What begins a frame: its length in three bytes, its type, its flags, its stream.
_FRAME_HEADER_SIZE = 9
_SETTINGS, _GOAWAY = 4, 7
_SETTING_SIZE = 6
_KNOWN_SETTINGS = frozenset(SettingCodes)
_WITH_HEADERS = (InformationalResponseReceived, ResponseReceived, TrailersReceived)


class _Encoder(Encoder):
    """Writes headers in no more time than their length takes: each as it is, none kept in a table for later ones.

    By itself the library has a Huffman code for each, which takes the square of its length. It also looks through all
    that it keeps for each header, and the server says how much that is. A pod's spec has room for a header of a
    mebibyte, or for a hundred thousand headers: minutes, in which other threads hardly run Python. What a server
    redirects to is sent as well.
    """

    def add(self, to_add: tuple[bytes, bytes], sensitive: bool, huffman: bool = False) -> bytes:
        return super().add(to_add, True, False)


class _Decoder(Decoder):
    """Reads headers, and refuses those before which the size of the table is changed again and again."""

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
    """The server has sent more than is read of it."""

    def __init__(self) -> None:
        super().__init__(f"received more than {MAX_RECEIVED_BYTES} bytes")


class GoAwayError(ConnectionError):
    """The server does not serve the request, the first one of its connection."""


class ClientConn:
    """One connection, for one request by one thread; both end with the connection's context. Go: http2.ClientConn

    All methods raise OSError and H2Error; those that receive, EOFError, GoAwayError and TooMuchError too.
    """

    def __init__(self, connection: dialer.Connection) -> None:
        self._connection = connection
        self._reader = io.BufferedReader(connection, _READ_SIZE)
        self._http2 = H2Connection(_CONFIGURATION)
        self._http2.encoder, self._http2.decoder = _Encoder(), _Decoder()
        # As those of a client: those of a server must not speak of push, which Go takes as well.
        self._http2.remote_settings = Settings(client=True)
        self._http2.local_settings = Settings(client=True, initial_values={SettingCodes.ENABLE_PUSH: 0})
        self._room = MAX_RECEIVED_BYTES

    def start(self) -> None:
        """Begin to speak HTTP/2, and wait until the server does."""
        self._http2.initiate_connection()
        while not any(isinstance(event, RemoteSettingsChanged) for event in self.receive()):
            pass

    def send_headers(self, headers: list[tuple[str, str]], *, end: bool = False) -> int:
        """Prepare to send the headers of the request, and its end. Returns the number of its stream."""
        stream = self._http2.get_next_available_stream_id()
        self._http2.send_headers(stream, headers, end_stream=end)
        return stream

    def send_data(self, stream: int, data: bytes) -> bytes:
        """Prepare to send as much of the data as the server takes now, and the end with it. Returns the rest."""
        while data and (window := self._http2.local_flow_control_window(stream)) > 0:
            part, data = _cut(data, min(window, self._http2.max_outbound_frame_size))
            self._http2.send_data(stream, part, end_stream=not data)
        return data

    def receive(self) -> list[Event]:
        """What the server's next frame says, after it was sent what is to be said."""
        if unsent := self._http2.data_to_send():
            self._connection.send(unsent)
        self._room -= _FRAME_COST
        header = self._read(_FRAME_HEADER_SIZE)
        frame = header + self._read(int.from_bytes(header[:3]))
        if header[3] == _GOAWAY:
            # h2 would refuse every later frame. The server still answers the streams up to the one that GOAWAY names.
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
    """The error code of HTTP/2, as it is written."""
    return next((code.name for code in ErrorCodes if code == error_code), f"unknown error code {error_code}")


def _cut(data: bytes, size: int) -> tuple[bytes, bytes]:
    return data[:size], data[size:]


def _without_unknown_settings(frame: bytes) -> bytes:
    """The frame of settings, for h2, which keeps each of them: the 64 KiB of a server would become 8 MiB."""
    header, body = _cut(frame, _FRAME_HEADER_SIZE)
    settings = (body[start : start + _SETTING_SIZE] for start in range(0, len(body), _SETTING_SIZE))
    known = b"".join(each for each in settings if int.from_bytes(each[:2]) in _KNOWN_SETTINGS)
    return len(known).to_bytes(3) + header[3:] + known


def _check_goaway(frame: bytes) -> None:
    """Raises GoAwayError if the server will not serve the request."""
    body = frame[_FRAME_HEADER_SIZE:]
    last_stream, code = int.from_bytes(body[:4]), int.from_bytes(body[4:8])
    if not last_stream:
        raise GoAwayError(f"received prior goaway: code: {code_name(code)}")
