"""Reads what links to a service's object store lead to, for libkiln, which checks every byte of it."""

from __future__ import annotations

import os
import ssl
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from ctypes import c_char_p, c_void_p
from http.client import HTTPException, HTTPResponse
from typing import TYPE_CHECKING, Any

from kiln import _native

if TYPE_CHECKING:
    from ctypes import _Pointer

_AT_ONCE = 8
_PIECE_BYTES = 1 << 16
_MOST_BYTES = 16 << 20  # schema/messages.h, kMaxBlobBytes


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


def _opener() -> urllib.request.OpenerDirector:
    tls = ssl.create_default_context(cafile=os.environ.get("AWS_CA_BUNDLE") or None)
    return urllib.request.build_opener(_NoRedirect, urllib.request.HTTPSHandler(context=tls))


def _read(answer: HTTPResponse, end: float) -> bytes | None:
    """The body, or None where it is larger than any binary, or does not come before `end`."""
    body = bytearray()
    while piece := answer.read1(_PIECE_BYTES):
        body += piece
        if len(body) > _MOST_BYTES or time.monotonic() > end:
            return None
    return bytes(body)


def fetch(urls: list[str], timeout_s: float) -> list[bytes | None]:
    """The bytes at each URL, or None where they cannot be had in time."""
    end = time.monotonic() + timeout_s
    try:
        opener = _opener()
    except OSError:  # no such file of certificates
        return [None] * len(urls)

    def get(url: str) -> bytes | None:
        left = end - time.monotonic()
        if left <= 0 or not url.startswith(("http://", "https://")):
            return None
        try:
            with opener.open(url, timeout=left) as answer:
                return _read(answer, end)
        except (OSError, ValueError, HTTPException):
            return None

    with ThreadPoolExecutor(min(_AT_ONCE, max(len(urls), 1))) as pool:
        return list(pool.map(get, urls))


def _read_links(_user: c_void_p, urls: _Pointer[c_char_p], count: int, timeout_ms: int, links: c_void_p) -> None:
    bodies = fetch([(urls[i] or b"").decode() for i in range(count)], timeout_ms / 1000)
    for i, body in enumerate(bodies):
        if body is not None:
            _native.library().kiln_link_read(links, i, body, len(body))


# A kiln_read_links (kiln.h). Programs that wait for their successors call it after their client is gone.
READ_LINKS = _native.ReadLinks(_read_links)
