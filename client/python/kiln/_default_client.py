"""The clients of this process: one for each coordinator and GPU, opened when first used, and again after a fork."""

from __future__ import annotations

import os
import threading

from kiln.client import Client
from kiln.errors import KilnError

_lock = threading.Lock()
_clients: dict[tuple[int, str | None, int], Client] = {}


def client_for(coordinator: str | None = None, gpu: int = 0) -> Client:
    """The client of ``coordinator`` whose programs run on ``gpu``; None: of ``$KILN_COORDINATOR``, or local.

    A local one keeps its programs beside torch's own caches, unless ``$KILN_CACHE_DIR`` says where, or is empty.
    """
    from kiln._torch import libnvrtc

    key = (os.getpid(), coordinator or os.environ.get("KILN_COORDINATOR"), gpu)
    with _lock:
        if key not in _clients:
            own = None if os.environ.get("KILN_LIBNVRTC") else libnvrtc()
            if key[1] or "KILN_CACHE_DIR" in os.environ:
                _clients[key] = Client(coordinator, libnvrtc=own, gpu=gpu)
            else:
                _clients[key] = _local(own, gpu)
        return _clients[key]


def _local(libnvrtc: str | None, gpu: int) -> Client:
    from torch._inductor.runtime.runtime_utils import cache_dir  # type: ignore[attr-defined]

    try:
        return Client(cache_dir=os.path.join(cache_dir(), "kiln"), libnvrtc=libnvrtc, gpu=gpu)
    except KilnError:  # others may write there, or nobody
        return Client(libnvrtc=libnvrtc, gpu=gpu)


def _forget_after_fork() -> None:
    # The parent's connections are no use here, and closing them would speak for the parent.
    global _lock
    _lock = threading.Lock()
    _inherited.extend(_clients.values())
    _clients.clear()


_inherited: list[Client] = []
os.register_at_fork(after_in_child=_forget_after_fork)
