"""Serve a directory and the files below it.

Go: net/http/fs.go
"""

from __future__ import annotations

import datetime
import email.utils
import errno
import html
import os
import posixpath
import stat
from dataclasses import dataclass
from typing import BinaryIO
from urllib.parse import quote

from pkg.golang.http.mux import MAX_LOCATION_BYTES
from pkg.golang.http.request import Request
from pkg.golang.http.response import ClientGone, HTTPError, ResponseWriter, error
from pkg.util import securejoin

_BLOCK_SIZE = 64 * 1024
_INDEX_PAGE = "index.html"
# A position in a file has at most this many digits.
_MAX_DIGITS = 19
# These characters stay unquoted in a link, like letters and digits.
_UNQUOTED = "/$&+,:;=@-_.~"


@dataclass(frozen=True, slots=True)
class FileServer:
    """Serve the file or directory below `root` that a path names.

    DIVERGES (safer): in this kubelet, no symbolic link leads out of the root.
    Go: net/http/fs.go, Dir.Open: the Go kubelet follows all links.
    Why: anybody who can create a link in the log directory could read every file of the machine.
    Test: fs_test.py:test_files

    DIVERGES (safer): this kubelet responds to a request for several ranges with the whole file, as HTTP allows.
    Go: net/http/fs.go, serveContent: in the Go kubelet, each range becomes a part of the response.
    Why: a short head could ask for thousands of parts.
    Test: fs_test.py:test_ranges
    """

    root: str

    def serve(self, w: ResponseWriter, r: Request, path: str) -> None:
        """Serve the request; `path` is the request's path relative to the root. Raise HTTPError."""
        clean = posixpath.normpath("/" + path.lstrip("/"))
        if f"/{path}".endswith(f"/{_INDEX_PAGE}"):
            _redirect(w, r, "./")
            return
        with _open(self.root, clean) as f:
            info = os.fstat(f.fileno())
            if stat.S_ISDIR(info.st_mode):
                self._serve_directory(w, r, path, clean, info, f.fileno())
            elif path.endswith("/"):
                _redirect(w, r, "../" + quote(posixpath.basename(clean), safe=_UNQUOTED))
            else:
                _serve_content(w, r, info, f)

    def _serve_directory(
        self, w: ResponseWriter, r: Request, path: str, clean: str, info: os.stat_result, fd: int
    ) -> None:
        if path and not path.endswith("/"):
            _redirect(w, r, quote(posixpath.basename(clean), safe=_UNQUOTED) + "/")
            return
        try:
            with _open(self.root, posixpath.join(clean, _INDEX_PAGE)) as index:
                index_info = os.fstat(index.fileno())
                if stat.S_ISREG(index_info.st_mode):
                    _serve_content(w, r, index_info, index)
                    return
        except HTTPError:
            pass
        if _not_modified(r, info):
            w.write_header(304)
            return
        _set_last_modified(w, info)
        _list_directory(w, fd)


class _Opened:
    """Hold the descriptor of a file or a directory; Python's file objects cannot be directories."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def __enter__(self) -> _Opened:
        return self

    def __exit__(self, *exc_info: object) -> None:
        os.close(self._fd)

    def fileno(self) -> int:
        return self._fd


def _open(root: str, path: str) -> _Opened:
    """Open the path. Raise HTTPError with the status that fits the failure."""
    try:
        return _Opened(securejoin.open_in_root(root, path))
    except (FileNotFoundError, NotADirectoryError) as err:
        raise HTTPError(404, "404 page not found") from err
    except PermissionError as err:
        raise HTTPError(403, "403 Forbidden") from err
    except OSError as err:
        # DIVERGES (fault of Go): this kubelet responds with 404 for a name that no file can have.
        # Go: net/http/fs.go, toHTTPError: the Go kubelet responds with 500.
        # Why: the client made the mistake, and a count of server errors would blame the kubelet.
        # Test: fs_test.py:test_files
        if err.errno in (errno.ENAMETOOLONG, errno.ELOOP, errno.EINVAL):
            raise HTTPError(404, "404 page not found") from err
        # A disk failed, or no descriptor is left. The details are not for the client.
        raise HTTPError(500, "500 Internal Server Error") from err


def _redirect(w: ResponseWriter, r: Request, location: str) -> None:
    """Redirect to a path relative to the request's path, and keep the query.

    Go: localRedirect
    """
    query = r.raw_query
    if len(query) > MAX_LOCATION_BYTES:
        raise HTTPError(414, "414 Request URI Too Long")
    w.headers.set("Location", f"{location}?{query}" if query else location)
    w.write_header(301)


def _list_directory(w: ResponseWriter, fd: int) -> None:
    with os.scandir(fd) as entries:
        names = sorted(entry.name + ("/" if entry.is_dir(follow_symlinks=False) else "") for entry in entries)
    w.headers.set("Content-Type", "text/html; charset=utf-8")
    w.write(b'<!doctype html>\n<meta name="viewport" content="width=device-width">\n<pre>\n')
    for name in names:
        shown = os.fsencode(name).decode(errors="replace")
        # A colon would make the text before it look like a scheme.
        prefix = "./" if ":" in name.split("/")[0] else ""
        link = prefix + quote(os.fsencode(name), safe=_UNQUOTED)
        w.write(f'<a href="{html.escape(link)}">{html.escape(shown)}</a>\n'.encode())
    w.write(b"</pre>\n")


def _serve_content(w: ResponseWriter, r: Request, info: os.stat_result, f: _Opened) -> None:
    _set_last_modified(w, info)
    if _precondition_failed(r, info):
        w.write_header(412)
        return
    if _not_modified(r, info):
        w.headers.delete("Content-Type")
        w.write_header(304)
        return
    wanted = _wanted_range(w, r, info)
    if wanted is None:
        w.headers.set("Content-Range", f"bytes */{info.st_size}")
        error(w, "invalid range: failed to overlap", 416)
        return
    start, end = wanted
    w.headers.set("Accept-Ranges", "bytes")
    w.headers.set("Content-Length", str(end - start))
    if r.method == "HEAD":
        w.flush()
        return
    with open(f.fileno(), "rb", buffering=0, closefd=False) as source:
        source.seek(start)
        _copy(w, source, end - start)


def _copy(w: ResponseWriter, source: BinaryIO, size: int) -> None:
    """Send `size` bytes, even if the file grows meanwhile."""
    while size > 0:
        data = source.read(min(size, _BLOCK_SIZE))
        if not data:
            # Only an early end of the connection can tell the client that bytes are missing.
            raise ClientGone("file was truncated while it was being sent")
        w.write(data)
        size -= len(data)


def _wanted_range(w: ResponseWriter, r: Request, info: os.stat_result) -> tuple[int, int] | None:
    """Return the bytes to send, as (first, last + 1), and set the status of the response.

    Return None for a range after the end of the file. Raise HTTPError for an invalid range.
    """
    size = info.st_size
    wanted = r.headers.get("Range")
    if not wanted or "," in wanted or not _range_still_valid(r, info):
        return 0, size
    unit, _, positions = wanted.partition("=")
    first, dash, last = (part.strip() for part in positions.partition("-"))
    if unit != "bytes" or not dash or not (first or last):
        raise HTTPError(416, "invalid range")
    if first == "":
        start, end = max(size - _position(last), 0), size
    else:
        start = _position(first)
        end = size if last == "" else min(_position(last) + 1, size)
        if last != "" and _position(last) < start:
            raise HTTPError(416, "invalid range")
    if start >= size:
        if size == 0:
            # An empty file has no ranges. Go too sends it whole.
            return 0, 0
        return None
    w.headers.set("Content-Range", f"bytes {start}-{end - 1}/{size}")
    w.write_header(206)
    return start, end


def _position(text: str) -> int:
    """Parse a position. Raise HTTPError if it is invalid."""
    if len(text) > _MAX_DIGITS or not (text.isascii() and text.isdigit()):
        raise HTTPError(416, "invalid range")
    return int(text)


def _range_still_valid(r: Request, info: os.stat_result) -> bool:
    """Report whether the file is unchanged since the client got its part. This server sends no ETags."""
    condition = r.headers.get("If-Range")
    return not condition or _seconds(condition) == int(info.st_mtime)


def _not_modified(r: Request, info: os.stat_result) -> bool:
    if r.method not in ("GET", "HEAD") or r.headers.get("If-None-Match"):
        return False
    since = _seconds(r.headers.get("If-Modified-Since"))
    return since is not None and int(info.st_mtime) <= since


def _precondition_failed(r: Request, info: os.stat_result) -> bool:
    since = _seconds(r.headers.get("If-Unmodified-Since"))
    return since is not None and int(info.st_mtime) > since


def _seconds(date: str) -> int | None:
    """Return the Unix time of an HTTP date, or None if the text is not a date."""
    if not date:
        return None
    try:
        parsed = email.utils.parsedate_to_datetime(date)
        return int(parsed.replace(tzinfo=parsed.tzinfo or datetime.UTC).timestamp())
    except (ValueError, OverflowError, TypeError):
        return None


def _set_last_modified(w: ResponseWriter, info: os.stat_result) -> None:
    """Set Last-Modified, unless the time cannot be written as a date.

    Anybody who can write a file can set its time to any value.

    Go: setLastModified
    """
    try:
        date = email.utils.formatdate(int(info.st_mtime), usegmt=True)
    except (ValueError, OverflowError, OSError):
        return
    w.headers.set("Last-Modified", date)
