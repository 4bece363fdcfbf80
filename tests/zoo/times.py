"""What a model takes: to be fetched from a service that has it, and to be called, beside torch.compile's."""

from __future__ import annotations

import contextlib
import fcntl
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import kiln
import kiln.exported
import torch

Call = Callable[[], Any]
ROUNDS = 9
ROUND_S = 0.02  # of one arm, at least
MOST_CALLS = 200  # in a round


def fetch_ms(exported: torch.export.ExportedProgram, mode: Any, coordinator: str) -> float:
    """Of a program that the service has, for a client that has nothing: contact, answer, loading. Median of three."""
    took = []
    for _ in range(3):
        begun = time.perf_counter()
        kiln.compile(exported, mode=mode, client=kiln.Client(coordinator))
        took.append(time.perf_counter() - begun)
    return 1e3 * statistics.median(took)


@contextlib.contextmanager
def held(lock: str) -> Iterator[None]:
    """With a file that others lock while they measure on the device, if there is one."""
    if not lock:
        yield
        return
    with Path(lock).open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def medians_us(arms: dict[str, Call], wait: Callable[[], None]) -> dict[str, float]:
    """Microseconds a call, of each arm: many calls, then one wait for the device; rounds of the arms alternate, and
    each begins with another one."""

    def seconds(call: Call, count: int) -> float:
        wait()
        begun = time.perf_counter()
        for _ in range(count):
            call()
        wait()
        return time.perf_counter() - begun

    counts = {}
    for name, call in arms.items():
        seconds(call, 2)
        counts[name] = max(1, min(MOST_CALLS, round(ROUND_S / max(1e-9, seconds(call, 2) / 2))))
    names = list(arms)
    took: dict[str, list[float]] = {name: [] for name in names}
    for turn in range(ROUNDS):
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            took[name].append(seconds(arms[name], counts[name]) / counts[name])
    return {name: 1e6 * statistics.median(each) for name, each in took.items()}


def beside_torch(ours: Call, other: Call, device: torch.device, timing: str, lock: str = "") -> dict[str, Any]:
    """``us`` and ``torch_compile_us``, or ``torch_compile_why`` where torch.compile fails. With ``timing`` "prepare"
    the other one is compiled only: Inductor keeps what it made for the process that measures."""
    wait: Callable[[], None] = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    arms = {"us": ours}
    failed = {}
    try:
        other()
        wait()
        arms["torch_compile_us"] = other
    except Exception as error:
        failed = {"torch_compile_why": f"{type(error).__name__}: {error}"}
    if timing == "prepare":
        return failed
    with held(lock):
        return {**medians_us(arms, wait), **failed}
