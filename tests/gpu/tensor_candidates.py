"""Every candidate of tensor.py's cases beside PyTorch on one GPU: what to look at before a search space changes.

    python3 tensor_candidates.py --make DIR --groups channels_last,plain_weights      exports programs (.pt2), without a GPU
    candidates DIR/*.pt2 --out DIR/out [--schedule TEXT]...      compiles candidates, and schedules that are none
                                                                 (tests/bench/candidates.cc)
    python3 tensor_candidates.py --run DIR --groups channels_last,plain_weights [--rounds N]      on a GPU

All candidates of a case and PyTorch's own are timed in turn, L2 overwritten before each; a line each, fastest first, with
PyTorch's time over the candidate's (above 1 Kiln is faster). Exit code 1 when a result is wrong, 3 when a kernel does not
end: it is named then, and DIR/hangs has it, so that another --run goes on without it and without the cases before."""

import argparse
import os
import sys
import time

import torch

import tensor_cases

MOST_ERROR = 2e-2  # of bf16 results, by norms
MOST_SECONDS = 5.0  # that a launch may take


def cases_of(groups):
    """{name of its archive: case}"""
    return {f"{group}{i}": case for group in groups for i, case in enumerate(tensor_cases.cases_of(group))}


class Plain(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *inputs):
        return self.function(*inputs)


def make(folder, groups):
    os.makedirs(folder, exist_ok=True)
    tensor_cases.DEVICE = "cpu"
    for name, case in cases_of(groups).items():
        inputs = [torch.empty_like(x) for x in case.make_inputs()]
        program = torch.export.export(Plain(case.function), tuple(inputs), strict=False)
        program._example_inputs = None
        torch.export.save(program, os.path.join(folder, name + ".pt2"))
    return 0


def ends():
    """Whether what was launched ends in time."""
    event = torch.cuda.Event()
    event.record()
    begun = time.monotonic()
    while not event.query():
        if time.monotonic() - begun > MOST_SECONDS:
            return False
        time.sleep(0.0005)
    return True


def time_case(case, directory, rounds, hangs):
    """Whether all are right. `hangs`: a file of those that do not end."""
    from bench import capture, relative_error, time_in_turn
    from bound import Bound, natural, schedule_text
    inputs = case.make_inputs()
    begun = time.monotonic()
    expected = case.function(*inputs)
    torch.cuda.synchronize()
    print(f"{case.name}: PyTorch's first call {time.monotonic() - begun:.1f} s", flush=True)
    with open(hangs, "a+") as file:
        file.seek(0)
        known = file.read().split()
    arms, texts, right = {}, {}, True
    for name in sorted(os.listdir(directory), key=natural):
        if os.path.join(directory, name) in known:
            continue
        program = Bound(os.path.join(directory, name), inputs)
        program.poison()
        program.launch()
        if not ends():
            print(f"  HANGS {name} {schedule_text(program.manifest)}", flush=True)
            with open(hangs, "a") as file:
                print(os.path.join(directory, name), file=file)
            os._exit(3)
        error = relative_error(program.outputs[0].reshape(expected.shape), expected)
        texts[name] = schedule_text(program.manifest) + ("" if error < MOST_ERROR else f"  WRONG {error:.1e}")
        right &= error < MOST_ERROR
        arms[name] = capture(program.launch)
    for name, peer in case.peers.items():
        arms[name] = capture(peer(*inputs) if peer else lambda: case.function(*inputs))
    us = time_in_turn(arms, rounds)
    best = min(us[name] for name in case.peers)
    print(f"{case.name}: " + ", ".join(f"{name} {us[name]:.1f} us" for name in case.peers))
    for name in sorted(texts, key=us.get):
        print(f"  {best / us[name]:5.2f} {us[name]:8.1f} us  {name:6s} {texts[name]}", flush=True)
    return right


def run(folder, groups, rounds):
    torch.backends.cudnn.benchmark = True
    print(torch.cuda.get_device_name(), flush=True)
    right = True
    with open(os.path.join(folder, "timed"), "a+") as file:
        file.seek(0)
        timed = file.read().split()
    for name, case in cases_of(groups).items():
        directory = os.path.join(folder, "out", name)
        if os.path.isdir(directory) and name not in timed:
            right &= time_case(case, directory, rounds, os.path.join(folder, "hangs"))
            torch.cuda.empty_cache()
            with open(os.path.join(folder, "timed"), "a") as file:
                print(name, file=file)
    return 0 if right else 1


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--make", default="", help="a folder to export programs into")
    parser.add_argument("--run", default="", help="that folder, with the candidates")
    parser.add_argument("--groups", default="channels_last", help="of tensor_cases.py, by commas")
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    groups = options.groups.split(",")
    return make(options.make, groups) if options.make else run(options.run, groups, options.rounds)


if __name__ == "__main__":
    sys.exit(main())
