"""Ports of the loopback for programs that are told theirs, as tests/support/loopback.h has them."""

from __future__ import annotations

import fcntl
import os
import pathlib
import random
import socket

FIRST = 10_000
LOCKS = pathlib.Path("/tmp/kiln-test-ports")
_held: list[int] = []  # descriptors of locks, until the process ends


def free_port() -> int:
    """Nobody else gets it while this process lives, also between two starts of a server: the kernel gives ports from
    higher up, and tests see each other's locks."""
    kernels = int(pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    end = kernels if kernels > FIRST + 1_000 else 65_536  # it leaves none: from all
    if not LOCKS.exists():
        LOCKS.mkdir(exist_ok=True)
        LOCKS.chmod(0o1777)
    for _ in range(10_000):
        port = random.randrange(FIRST, end)
        try:
            lock = os.open(LOCKS / str(port), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except PermissionError:
            continue  # another user's
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with socket.socket() as looking:
                looking.bind(("127.0.0.1", port))
        except OSError:
            os.close(lock)
            continue
        _held.append(lock)
        return port
    raise AssertionError("there is no free port")
