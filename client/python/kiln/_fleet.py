"""A fleet's artifacts for compilers that must not notice: no exception, no long wait.

A coordinator that is away or slow costs one deadline (``KILN_INDUCTOR_TIMEOUT_MS``, 200). From then on
every look-up is a miss at once, while a thread finds out, every half minute that somebody asks, whether
it is back. Values are put by a thread; the end of the process waits for it two seconds at most.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import queue
import sys
import threading
import time
from collections.abc import Callable

from kiln._settings import Settings, configure_logging
from kiln.artifacts import Artifacts
from kiln.errors import (
    Corruption,
    DeadlineExceeded,
    InvalidArgument,
    KilnError,
    NotPermitted,
    Overloaded,
    Unavailable,
    Unsupported,
)

LEASE_S = 300.0
_ASK_AGAIN_S = 30.0  # whether the coordinator is back
_PROBE_S = 2.0
_PUT_S = 10.0
_SLICE_S = 2.0  # of a wait: Ctrl-C is heard in between
_MOST_QUEUED = 64
_AT_EXIT_S = 2.0

Queued = tuple[str, str, bytes] | int  # a put, or a lease to release


def _number(variable: str, default: float) -> float:
    try:
        return max(0.0, float(os.environ.get(variable, default)))
    except ValueError:
        return default


def _is_distributed() -> bool:
    # A rank that waits for another one's lease may wait for a rank that waits for it.
    torch = sys.modules.get("torch")
    distributed = getattr(torch, "distributed", None)
    try:
        return bool(distributed is not None and distributed.is_available() and distributed.is_initialized())
    except Exception:
        return True


class Fleet:
    """The artifacts of one coordinator in this process. Threads may share it; no method raises."""

    def __init__(self, coordinator: str) -> None:
        configure_logging()
        self._coordinator = coordinator
        self._timeout_s = _number("KILN_INDUCTOR_TIMEOUT_MS", 200.0) / 1000
        self._wait_s = _number("KILN_INDUCTOR_WAIT_S", 300.0)
        self._lock = threading.Lock()
        self._artifacts: Artifacts | None = None
        self._leases: dict[tuple[str, str], int] = {}
        self._refused: set[str] = set()  # kinds that may not be put, or are not known
        self._away_since: float | None = None
        self._probing = False
        self._queue: queue.Queue[Queued] = queue.Queue(_MOST_QUEUED)
        self._writer: threading.Thread | None = None

    def get(self, kind: str, key: str, *, lease: bool = False) -> bytes | None:
        """The value, or None. ``lease``: of several that miss, one makes it and the others wait for it."""
        try:
            return self._get(kind, key, lease)
        except Exception as error:
            self._failed(kind, error)
            return None

    def put(self, kind: str, key: str, value: bytes) -> None:
        """Stores the value soon."""
        with self._lock:
            self._leases.pop((kind, key), None)
            if kind in self._refused or self._away_since is not None:
                return
        self._enqueue((kind, key, value))

    def release(self, kind: str, key: str | None = None) -> None:
        """Gives up the leases of a kind, or of one key, that nothing was put under."""
        with self._lock:
            mine = [at for at in self._leases if at[0] == kind and key in (None, at[1])]
            leases = [self._leases.pop(at) for at in mine]
        for lease in leases:
            self._enqueue(lease)

    def flush(self, timeout_s: float) -> None:
        """Waits for what was put, at most so long."""
        until = time.monotonic() + timeout_s
        while self._queue.unfinished_tasks and self._away_since is None and time.monotonic() < until:
            time.sleep(0.005)

    def _get(self, kind: str, key: str, lease: bool) -> bytes | None:
        with self._lock:
            if kind in self._refused:
                return None
            if self._away_since is not None:
                self._probe_later()
                return None
            mine = (kind, key) in self._leases
        wants_lease = lease and not mine
        until = time.monotonic() + (self._wait_s if wants_lease and not _is_distributed() else 0.0)
        while True:
            wait_s = min(_SLICE_S, max(0.0, until - time.monotonic()))
            found = self._opened().get(kind, key, timeout_s=self._timeout_s, wait_s=wait_s,
                                       lease_s=LEASE_S if wants_lease else 0.0)
            if found.lease:
                with self._lock:
                    self._leases[(kind, key)] = found.lease
            if found.value is not None or not found.leased or wait_s <= 0:
                return found.value

    def _opened(self) -> Artifacts:
        with self._lock:
            if self._artifacts is None:
                self._artifacts = Artifacts(self._coordinator)
            return self._artifacts

    def _failed(self, kind: str, error: Exception) -> None:
        if isinstance(error, (Unavailable, DeadlineExceeded, Overloaded)):
            with self._lock:
                first = self._away_since is None
                self._away_since = time.monotonic()
                self._leases.clear()
            if first:
                Settings.say_once(f"the coordinator at {self._coordinator} does not answer in time ({error}); "
                                  "Inductor's entries are not shared until it does", "")
            return
        if isinstance(error, (NotPermitted, Unsupported, InvalidArgument)):
            with self._lock:
                self._refused.add(kind)
        what = "was refused" if isinstance(error, Corruption) else "is not shared"
        why = str(error) if isinstance(error, KilnError) else repr(error)
        Settings.say_once(f"an artifact of the kind {kind} {what}: {why}", "")

    def _probe_later(self) -> None:
        # REQUIRES: the lock is held.
        if self._probing or self._away_since is None or time.monotonic() - self._away_since < _ASK_AGAIN_S:
            return
        self._probing = True
        threading.Thread(target=self._probe, name="kiln-probe", daemon=True).start()

    def _probe(self) -> None:
        back = False
        with contextlib.suppress(Exception):
            self._opened().get("inductor.gemm", "is the coordinator back?", timeout_s=_PROBE_S)
            back = True
        with self._lock:
            self._probing = False
            self._away_since = None if back else time.monotonic()

    def _enqueue(self, what: Queued) -> None:
        with self._lock:
            if self._writer is None:
                self._writer = threading.Thread(target=self._write, name="kiln-artifacts", daemon=True)
                self._writer.start()
        with contextlib.suppress(queue.Full):  # a lease then ends with its time
            self._queue.put_nowait(what)

    def _write(self) -> None:
        while True:
            what = self._queue.get()
            kind = ""
            try:
                if isinstance(what, int):
                    self._opened().release(what)
                else:
                    kind = what[0]
                    self._opened().put(*what, timeout_s=_PUT_S)
            except Exception as error:
                self._failed(kind, error)
            finally:
                self._queue.task_done()


_lock = threading.Lock()
_fleets: dict[str, Fleet] = {}
_inherited: list[Fleet] = []


def fleet_of(coordinator: str) -> Fleet:
    """This process's one fleet of a coordinator."""
    with _lock:
        if coordinator not in _fleets:
            _fleets[coordinator] = Fleet(coordinator)
        return _fleets[coordinator]


def _forget_after_fork() -> None:
    # The parent's connections and threads are no use here, and closing them would speak for the parent.
    global _lock
    _lock = threading.Lock()
    _inherited.extend(_fleets.values())
    _fleets.clear()


def _flush_all() -> None:
    for fleet in list(_fleets.values()):
        fleet.flush(_AT_EXIT_S)


_after_fork: Callable[[], None] = _forget_after_fork
os.register_at_fork(after_in_child=_after_fork)
atexit.register(_flush_all)
