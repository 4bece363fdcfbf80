#!/usr/bin/env python3
"""Where the seconds of tuning a program go: one coordinator, one worker, an empty cache.

    tests/bench/tuning_stages.py [--json] FILE...       default: tests/graphs/small/llama.pt2

Prints for each program the seconds from request to answer, the candidates by family, and how they divide
among the stages of the worker: compiling (all compilers together, and what the runner waited for them),
opening, verifying, timing, and the rest, in which the device was idle. Reads the worker's log.
"""
import argparse
import collections
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
CANDIDATE = re.compile(
    r"candidate \d+ \[(\w+)[^\]]*\]: (\w+), .*\(compile (\d+), verify ([\d.]+), time ([\d.]+) ms\)"
)
LEASE = re.compile(r"waited for compilers (\d+) ms, open (\d+), verify (\d+), time (\d+)")


def tune(binaries, file):
    with tempfile.TemporaryDirectory() as scratch:
        coordinator = subprocess.Popen(
            [binaries / "kiln-coordinator", "--data-dir", f"{scratch}/data", "--listen", "tcp://127.0.0.1:0"],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        endpoint = coordinator.stdout.readline().split()[1]
        log_path = pathlib.Path(scratch, "worker.log")
        with open(log_path, "w") as log:
            worker = subprocess.Popen(
                [binaries / "kiln-worker", "--coordinator", endpoint, "--log-level", "debug",
                 "--cache-dir", f"{scratch}/objects"], stdout=log, stderr=log)
            try:
                while "connected to" not in log_path.read_text():
                    if worker.poll() is not None:
                        sys.exit(f"the worker ended: {log_path.read_text()}")
                    time.sleep(0.05)
                start = time.monotonic()
                done = subprocess.run(
                    [binaries / "kiln", "compile", file, "--mode", "max-autotune", "--coordinator",
                     endpoint, "--json"], capture_output=True, text=True)
                seconds = time.monotonic() - start
                if done.returncode != 0:
                    sys.exit(f"{file}: {done.stdout}{done.stderr}")
            finally:
                worker.terminate()
                worker.wait()
                coordinator.terminate()
                coordinator.wait()
        return summarise(file, seconds, log_path.read_text())


def summarise(file, seconds, log):
    families, verdicts = collections.Counter(), collections.Counter()
    compile_s = 0.0
    for family, verdict, compiled, _, _ in CANDIDATE.findall(log):
        families[family] += 1
        verdicts[verdict] += 1
        compile_s += int(compiled) / 1000
    waited, opened, verified, timed = (sum(int(lease[i]) for lease in LEASE.findall(log)) / 1000
                                       for i in range(4))
    return {
        "program": pathlib.Path(file).stem,
        "seconds": round(seconds, 2),
        "candidates": dict(families),
        "verdicts": dict(verdicts),
        "compile_s_all_compilers": round(compile_s, 2),
        "waited_for_compilers_s": round(waited, 2),
        "open_s": round(opened, 2),
        "verify_s": round(verified, 2),
        "time_s": round(timed, 2),
        "idle_s": round(max(0.0, seconds - opened - verified - timed), 2),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one object a line")
    parser.add_argument("--binaries", type=pathlib.Path, default=ROOT / "build/release/bin")
    parser.add_argument("files", nargs="*", default=[str(ROOT / "tests/graphs/small/llama.pt2")])
    options = parser.parse_args()
    for file in options.files:
        result = tune(options.binaries, file)
        if options.json:
            print(json.dumps(result))
            continue
        print(f"{result['program']}: {result['seconds']} s")
        for name in ("candidates", "verdicts"):
            print(f"  {name:<26}" + ", ".join(f"{v} {k}" for k, v in result[name].items()))
        for name in ("compile_s_all_compilers", "waited_for_compilers_s", "open_s", "verify_s", "time_s", "idle_s"):
            print(f"  {name:<26}{result[name]:8.2f}  {100 * result[name] / result['seconds']:5.1f} % of the wall")


if __name__ == "__main__":
    main()
