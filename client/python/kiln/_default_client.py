"""The clients of this process: one for each coordinator, opened when first used, and again after a fork."""

from __future__ import annotations

import os
import threading

from kiln.client import Client

_lock = threading.Lock()
_clients: dict[tuple[int, str | None], Client] = {}


def client_for(coordinator: str | None = None) -> Client:
    """The client of ``coordinator``; None: of ``$KILN_COORDINATOR``, or local."""
    from kiln._torch import libnvrtc

    key = (os.getpid(), coordinator or os.environ.get("KILN_COORDINATOR"))
    with _lock:
        if key not in _clients:
            own = None if os.environ.get("KILN_LIBNVRTC") else libnvrtc()
            _clients[key] = Client(coordinator, libnvrtc=own)
        return _clients[key]


def _forget_after_fork() -> None:
    # The parent's connections are no use here, and closing them would speak for the parent.
    global _lock
    _lock = threading.Lock()
    _inherited.extend(_clients.values())
    _clients.clear()


_inherited: list[Client] = []
os.register_at_fork(after_in_child=_forget_after_fork)
