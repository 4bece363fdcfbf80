"""Runs the zoo: exports each model, compiles it with Kiln, compares with PyTorch, and writes docs/models.md.

    ops/zoo                        every model, default mode, on the CPU; writes docs/models.md
    ops/zoo llama "(timm)"         models of these names, or whose names contain what is no name; writes nothing
    ops/zoo --mode max-autotune --coordinator tcp://127.0.0.1:7557
    ops/zoo --target cuda --jobs 8 on the GPU of this machine, eight models at a time
    ops/zoo --results FILE         keeps what became of each; a second run goes on where the first one ended
    ops/zoo --times                also what a fetch from the coordinator takes, and a call, beside torch.compile's of
                                   PyTorch; of what FILE has, too. --prepare-times: has torch.compile fill Inductor's
                                   cache, so that a run that measures, and does nothing beside it, is short
    ops/zoo --part 1/2             every second model, from the second on
    ops/zoo --document FILE...     writes docs/models.md from such files and runs nothing; FILE=TEXT says what and when
                                   a file's run was that does not say so itself
    ops/zoo --archive DIR NAME...  keeps NAME.pt2 and NAME.safetensors (its inputs and PyTorch's outputs)

The reference is the model in f64, also where it asks for f32 itself (reference.py); where PyTorch cannot run it so,
that in f32 of a model of a lower precision, or PyTorch's own result, in which products of 8-bit floats are in f64. An
error is the largest difference of an output over the largest value of that output. A model is right when its error is
at most 1.2 times PyTorch's own in f32, or below 1e-6, which is a few roundings. Where it is more, the means over nine
seeds of weights and inputs are compared. Models come in turn from the families, so that what a run leaves that is ended
early has some of each; a model whose library is missing is skipped. Exits with 1 when a model is wrong or gives no
answer."""

from __future__ import annotations

import argparse
import concurrent.futures
import itertools
import json
import os
import queue
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from document import Run, described, document, row

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]


class Worker:
    """A process that runs models one after the other, so that one which crashes or hangs costs itself only."""

    def __init__(self, options: argparse.Namespace) -> None:
        command = [sys.executable, str(HERE / "one.py"), options.mode, options.target, options.coordinator,
                   options.device_lock]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put("")

    def ask(self, name: str, archive: str, timing: str, limit: float) -> dict[str, Any]:
        """What became of the model; ``lost`` when the process is of no more use."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([name, archive, timing]) + "\n")
        self._process.stdin.flush()
        begun = time.monotonic()
        while True:
            try:
                line = self._lines.get(timeout=max(0.1, limit - (time.monotonic() - begun)))
            except queue.Empty:
                self.close()
                return {"verdict": "no answer", "why": f"after {limit:.0f} s", "lost": True}
            if not line:
                self.close()
                return {"verdict": "crashed", "why": f"exit {self._process.returncode}", "lost": True}
            if line.startswith("{"):
                answer = dict(json.loads(line))
                if "CUDA error" in str(answer.get("why", "")):  # nothing can be run in its CUDA context any more
                    self.close()
                    answer["lost"] = True
                return answer

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


class Pool:
    """Workers, one for each thread that asks; a worker that is of no more use is replaced by the next question."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._workers: dict[int, Worker] = {}

    def ask(self, model: Any) -> dict[str, Any]:
        thread = threading.get_ident()
        worker = self._workers.get(thread) or self._workers.setdefault(thread, Worker(self._options))
        answer = worker.ask(model.name, self._options.archive, timing_of(self._options), self._options.limit)
        if answer.pop("lost", False):
            del self._workers[thread]
        return {"name": model.name, "family": model.family, **answer}

    def close(self) -> None:
        for worker in self._workers.values():
            worker.close()


def timing_of(options: argparse.Namespace) -> str:
    return "measure" if options.times else "prepare" if options.prepare_times else ""


def in_turn(models: list[Any]) -> list[Any]:
    """The first model of each family, then the second ones, and so on."""
    families: dict[str, list[Any]] = {}
    for each in models:
        families.setdefault(each.family, []).append(each)
    rows = itertools.zip_longest(*families.values())
    return [each for row in rows for each in row if each is not None]


def is_done(record: dict[str, Any] | None, times: bool) -> bool:
    if record is None or record["verdict"] == "skipped":
        return False
    return not times or "us" in record or record["verdict"] not in ("right", "close")


def merged(old: dict[str, Any] | None, new: dict[str, Any]) -> dict[str, Any]:
    """A second run finds in the service's cache what the first one had compiled: the first one's seconds are the cold
    ones. One that measures, and ends while torch.compile compiles, says nothing against what was found right."""
    if old and old["verdict"] in ("right", "close") and new["verdict"] in ("crashed", "no answer"):
        return {**old, "why": f"its times: {new['verdict']} {new['why']}"}
    return {**new, "seconds": old["seconds"]} if old and "seconds" in old and "kernels" in new else new


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--mode", default="default", choices=["default", "max-autotune"])
    parser.add_argument("--target", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--coordinator", default="", help="a service; without one, this machine compiles")
    parser.add_argument("--limit", type=float, default=300, metavar="SECONDS", help="for each model")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="models at a time")
    parser.add_argument("--results", type=Path, metavar="FILE",
                        help="a line of JSON for each model; those that it has are not run again")
    parser.add_argument("--times", action="store_true", help="measure fetches and calls")
    parser.add_argument("--prepare-times", action="store_true", help="have torch.compile compile each model, too")
    parser.add_argument("--device-lock", default="", metavar="FILE", help="kiln-worker's: locked while calls are timed")
    parser.add_argument("--part", default="0/1", metavar="I/N", help="every N-th model, from the I-th on; from 0")
    parser.add_argument("--archive", default="", metavar="DIR")
    parser.add_argument("--document", nargs="+", default=[], metavar="FILE")
    options = parser.parse_args()
    import registry

    known = registry.models()
    page = ROOT / "docs" / "models.md"
    if options.document:
        page.write_text(document([Run.read(each) for each in options.document], list(known)))
        return 0
    text = described(options.target, options.mode)
    done: dict[str, dict[str, Any]] = {}
    if options.results and options.results.exists():
        run = Run.read(f"{options.results}={text}")
        text, done = run.text, run.results
    elif options.results:
        options.results.write_text(json.dumps({"run": text}) + "\n")
    whole, parts = set(options.names) & set(known), set(options.names) - set(known)
    chosen = [each for each in known.values()
              if not options.names or each.name in whole or any(part in each.name for part in parts)]
    part, parts_in_all = map(int, options.part.split("/"))
    chosen = in_turn(chosen)[part::parts_in_all]
    pool = Pool(options)
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as threads:
        asked = [threads.submit(pool.ask, each) for each in chosen
                 if not is_done(done.get(each.name), options.times)]
        for answer in (each.result() for each in concurrent.futures.as_completed(asked)):
            result = merged(done.get(answer["name"]), answer)
            print(row(result), flush=True)
            if options.results:
                with options.results.open("a") as file:
                    file.write(json.dumps(result) + "\n")
            done[result["name"]] = result
    pool.close()
    if not options.names and (options.target, options.mode) == ("cpu", "default"):
        page.write_text(document([Run(text, done)], list(known)))
    return 1 if any(done[each.name]["verdict"] in ("wrong", "crashed", "no answer") for each in chosen) else 0


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "2")
    sys.exit(main())
