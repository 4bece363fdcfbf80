"""Processes of torch.distributed (gloo) that compile through one coordinator, some of them warm, and some killed.

    distributed.py COORDINATOR [--repetitions N] [--processes N] [--seconds S] [--folder DIR] [--seed N]

In each repetition every rank times products, where of those that miss one takes a lease, compiles and runs a training
step through Kiln, and meets the others in collectives in between. A warm rank has a disk on which the step's graphs
lie; in every second repetition one rank is killed at a time drawn from the seed. What must hold: without a kill every
rank ends well; with one every other rank ends, well or with the error of its collective. A rank that is still there
after 300 s hangs: the run ends with 1. ``--seconds`` bounds the whole; one JSON object says how many repetitions there
were.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import sys
import time
import traceback
from datetime import timedelta
from pathlib import Path
from typing import Any

HANGS_AFTER_S, COLLECTIVE_FAILED = 300, 3
PATIENCE_S, PATIENCE_WITH_A_KILL_S = 240, 30  # of collectives; who is killed before it joins is waited for so long


def rank_main(rank: int, processes: int, repetition: int, folder: Path, patience_s: int) -> int:
    import kiln.dynamo
    import torch
    import torch.distributed as dist
    from torch._inductor.codecache import PersistentCache

    class Choice:
        def __init__(self, name: str) -> None:
            self.name = name

        def hash_key(self) -> str:
            return self.name

    def timings(choices: list[Choice]) -> dict[Choice, float]:
        return {choice: 1.0 + index for index, choice in enumerate(choices)}

    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo", init_method=f"file://{folder / f'store{repetition}'}", rank=rank,
                            world_size=processes, timeout=timedelta(seconds=patience_s))
    # Whoever makes the timings meets the others before they are stored, which must not wait for that.
    choices = [Choice("a"), Choice("b")]

    def timings_after_meeting(of: list[Choice]) -> dict[Choice, float]:
        time.sleep(0.05)
        return timings(of)

    found = PersistentCache().lookup(choices, "mm", f"({repetition})", timings_after_meeting)
    assert found[choices[1]] == 2.0
    dist.barrier()
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU(), torch.nn.LayerNorm(8))
    x = torch.randn(4 + repetition % 3, 8)
    torch.compile(model, backend=kiln.dynamo.backend)(x).square().sum().backward()
    for parameter in model.parameters():
        have = parameter.grad.clone()
        dist.all_reduce(parameter.grad)
        torch.testing.assert_close(parameter.grad, have * processes, rtol=1e-3, atol=1e-4)
    dist.barrier()
    return 0


def start(rank: int, processes: int, repetition: int, folder: Path, patience_s: int) -> int:
    """The process of a rank."""
    disk = folder / "warm" if rank % 2 else folder / f"cold{repetition}-{rank}"
    child = os.fork()
    if child:
        return child
    code = COLLECTIVE_FAILED
    try:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(disk)
        code = rank_main(rank, processes, repetition, folder, patience_s)
    except AssertionError:
        traceback.print_exc()
        code = 1
    except Exception as error:
        print(f"rank {rank}: {str(error).splitlines()[0][:200]}", file=sys.stderr)
    finally:
        sys.stderr.flush()
        os._exit(code)


def repeat(repetition: int, processes: int, folder: Path, chance: random.Random, kills: bool) -> dict[str, Any]:
    """One repetition: how the ranks ended."""
    patience_s = PATIENCE_WITH_A_KILL_S if kills else PATIENCE_S
    children = {start(rank, processes, repetition, folder, patience_s): rank for rank in range(processes)}
    victim = chance.choice(list(children)) if kills else None
    killed_at = time.monotonic() + chance.uniform(0, 8)
    until, ended = time.monotonic() + HANGS_AFTER_S, {}
    while children and time.monotonic() < until:
        if victim in children and time.monotonic() > killed_at:
            with contextlib.suppress(ProcessLookupError):
                os.kill(victim, signal.SIGKILL)
        for child in list(children):
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                ended[children.pop(child)] = os.waitstatus_to_exitcode(status)
        time.sleep(0.02)
    for child in children:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    bad = {1} if kills else {1, COLLECTIVE_FAILED}
    return {"hung": sorted(children.values()), "killed": -signal.SIGKILL in ended.values(),
            "failed": sorted(rank for rank, code in ended.items() if code in bad)}


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("coordinator")
    parser.add_argument("--repetitions", type=int, default=200)
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=3600)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    # Before torch is imported: its hooks look at the environment then.
    os.environ.update(KILN_COORDINATOR=given.coordinator, KILN_INDUCTOR_TIMEOUT_MS="2000", KILN_STRICT="1")
    import kiln.dynamo  # noqa: F401  (once for all ranks, which are forked)

    chance, began = random.Random(given.seed), time.monotonic()
    counted = {"repetitions": 0, "killed": 0, "hung": 0, "failed": 0}
    while counted["repetitions"] < given.repetitions and time.monotonic() - began < given.seconds:
        told = repeat(counted["repetitions"], given.processes, given.folder, chance,
                      kills=counted["repetitions"] % 2 == 1)
        counted["repetitions"] += 1
        counted["killed"] += told["killed"]
        counted["hung"] += bool(told["hung"])
        counted["failed"] += bool(told["failed"])
        if told["hung"] or told["failed"]:
            print(f"repetition {counted['repetitions'] - 1}: {told}", file=sys.stderr, flush=True)
    print(json.dumps({**counted, "seconds": round(time.monotonic() - began, 1)}))
    return 1 if counted["hung"] or counted["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
