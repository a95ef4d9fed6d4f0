"""Define the dictionary for the compression of headers, which must be identical on both sides.

Go: github.com/moby/spdystream/spdy/dictionary.go; draft 3 of the protocol has it in section 2.6.10.1
"""

from __future__ import annotations

# The length of each word precedes it. The header values that follow have no lengths.
_WORDS = (
    "options|head|post|put|delete|trace|accept|accept-charset|accept-encoding|accept-language|accept-ranges|age|"
    "allow|authorization|cache-control|connection|content-base|content-encoding|content-language|content-length|"
    "content-location|content-md5|content-range|content-type|date|etag|expect|expires|from|host|if-match|"
    "if-modified-since|if-none-match|if-range|if-unmodified-since|last-modified|location|max-forwards|pragma|"
    "proxy-authenticate|proxy-authorization|range|referer|retry-after|server|te|trailer|transfer-encoding|"
    "upgrade|user-agent|vary|via|warning|www-authenticate|method|get|status|200 OK|version|HTTP/1.1|url|public|"
    "set-cookie|keep-alive|origin"
)
_VALUES = (
    "100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505203 Non-Authoritat"
    "ive Information204 No Content301 Moved Permanently400 Bad Request401 Unauthorized403 Forbidden404 Not Found5"
    "00 Internal Server Error501 Not Implemented503 Service UnavailableJan Feb Mar Apr May Jun Jul Aug Sept Oct N"
    "ov Dec 00:00:00 Mon, Tue, Wed, Thu, Fri, Sat, Sun, GMTchunked,text/html,image/png,image/jpg,image/gif,applic"
    "ation/xml,application/xhtml+xml,text/plain,text/javascript,publicprivatemax-age=gzip,deflate,sdchcharset=utf"
    "-8charset=iso-8859-1,utf-,*,enq=0."
)


def _with_length(word: str) -> bytes:
    return len(word).to_bytes(4, "big") + word.encode()


HEADER_DICTIONARY = b"".join(map(_with_length, _WORDS.split("|"))) + _VALUES.encode()
