"""Times every candidate that `candidates` (tests/bench/candidates.cc) wrote, in turn, on this GPU.

    python3 candidates.py DIR [--only A,B] [--rounds N]

Prints for each program the candidates, fastest first, with their share of a copy's bandwidth; a wrong one
is marked."""

import argparse
import json
import os

import kiln
import torch

import bench
from bound import Bound, natural
from workloads import by_name


def time_program(name, directory, copy, rounds):
    workload = by_name(name)
    inputs = workload.make_inputs("cuda")
    expected = bench.as_list(workload.function(*inputs))
    programs, wrong = {}, {}
    for candidate in sorted(os.listdir(directory), key=natural):
        try:
            program = Bound(os.path.join(directory, candidate), inputs)
            program.launch()
            torch.cuda.synchronize()
        except (RuntimeError, kiln.KilnError) as error:
            print(f"  {candidate}: {error}")
            if "illegal" in str(error).lower():
                raise
            continue
        right, wrong[candidate] = bench.check(program.outputs, expected)
        if not right:
            print(f"  {candidate} WRONG: error {wrong[candidate]:.2e}: {program.manifest['kernels'][0]['schedule']}")
        program.graph = bench.capture(program.launch)
        programs[candidate] = program
    times = bench.time_in_turn({c: p.graph for c, p in programs.items()}, rounds)
    moved = workload.bytes_moved(expected)
    print(f"{name}: floor {moved / copy * 1e6:.1f} us")
    for candidate in sorted(times, key=times.get):
        kernel = programs[candidate].manifest["kernels"][int(candidate.split("-")[0])]
        print(f"  {times[candidate]:8.1f} us {moved / times[candidate] * 1e6 / copy * 100:4.0f} %  {candidate:6s} "
              f"{kernel['schedule']}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory")
    parser.add_argument("--only", type=lambda s: s.split(","), default=[])
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    copy = bench.copy_bandwidth(options)
    print(f"copy {copy / 1e12:.3f} TB/s")
    for name in sorted(os.listdir(options.directory), key=natural):
        if options.only and name not in options.only:
            continue
        time_program(name, os.path.join(options.directory, name), copy, options.rounds)
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
