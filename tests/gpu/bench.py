"""Kiln beside PyTorch on one GPU, in one run.

    python3 bench.py --kiln BIN --graphs DIR --coordinator tcp://... [--only A,B] [--peers eager,default,max_autotune]
                     [--json FILE] [--rounds N]

For each workload (workloads.py): Kiln tunes it from an empty cache (timed), answers it from the cache to a
fresh process (timed), its kernels are checked against PyTorch's result, and then timed in turn with
PyTorch's: every arm is a captured CUDA graph on the same tensors; 256 MB of L2 are overwritten before each
replay; medians of N rounds. Exit code 1 when a result is wrong or a program cannot be compiled.

Without PyTorch only Kiln's own times are taken. With it, Kiln's package is needed too (bound.py)."""

import argparse
import json
import math
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time

try:
    import torch
except ImportError:
    torch = None
else:
    from bound import Bound, schedule_text
    from workloads import WORKLOADS

FLUSH_BYTES = 256 << 20
MODES = {"default": None, "max_autotune": "max-autotune-no-cudagraphs"}


def run_kiln(options, *arguments):
    command = [os.path.join(options.kiln, "kiln"), *arguments, "--coordinator", options.coordinator, "--json"]
    started = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True)
    wall = time.monotonic() - started
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: exit {done.returncode}: {done.stderr.strip()[-500:]}")
    return json.loads(done.stdout.splitlines()[-1]), wall


def stages(options):
    """Seconds of the last flight by stage, from what the service wrote to its log since the last call."""
    with open(options.log) as file:
        file.seek(options.log_read)
        text = file.read()
        options.log_read = file.tell()
    spent = {"plan": sum(map(float, re.findall(r"flight .* plan_s=([0-9.]+)", text)))}
    for stage, pattern in (("compile", r"waited for compilers (\d+) ms"), ("open", r", open (\d+)"),
                           ("verify", r", verify (\d+)"), ("time", r", time (\d+)")):
        spent[stage] = sum(int(ms) for ms in re.findall(pattern, text)) / 1e3
    return spent


def capture(function):
    """`function` as a CUDA graph; its first result."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(2):
            function()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = function()
    graph.kept = result, function  # a graph holds no memory that it uses
    return graph


def time_in_turn(graphs, rounds):
    """Median microseconds of each graph's replay, interleaved."""
    flush = torch.empty(FLUSH_BYTES, dtype=torch.uint8, device="cuda")
    events = {name: [] for name in graphs}
    names = list(graphs)
    for turn in range(rounds + 3):
        for name in names[turn % len(names):] + names[:turn % len(names)]:
            flush.zero_()
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            graphs[name].replay()
            end.record()
            if turn >= 3:
                events[name].append((start, end))
        torch.cuda.synchronize()
    return {name: statistics.median(a.elapsed_time(b) * 1e3 for a, b in pairs) for name, pairs in events.items()}


def relative_error(got, want):
    got, want = got.double(), want.double()
    if not torch.equal(got.isnan(), want.isnan()):
        return math.inf
    return ((got - want).norm() / want.norm().clamp_min(1e-30)).item()


def as_list(result):
    return [result] if torch.is_tensor(result) else list(result)


def check(outputs, expected):
    limits = {torch.bfloat16: 1e-2, torch.float16: 2e-3, torch.float32: 1e-4}
    errors = [relative_error(g, w) for g, w in zip(outputs, expected)]
    right = all(e <= limits[w.dtype] and g.shape == w.shape and g.dtype == w.dtype
                for e, g, w in zip(errors, outputs, expected))
    return right, max(errors)


def measure(workload, options, scratch):
    graph_file = os.path.join(options.graphs, workload.name + ".pt2")
    out = os.path.join(scratch, workload.name)
    compiled, cold = run_kiln(options, "compile", graph_file, "--target", "cuda", "--mode", "max-autotune",
                              "--out", out)
    row = {"name": workload.name, "kiln_cold_s": compiled["seconds"], "kiln_cold_wall_s": cold,
           "candidates": sum(k["candidates"] for k in compiled["kernels"])}
    if options.log:
        row["stages_s"] = stages(options)
    warm, _ = run_kiln(options, "run", graph_file, "--target", "cuda", "--mode", "max-autotune", "--runs", "3")
    row["warm"] = warm.get("timings")
    inputs = workload.make_inputs("cuda")
    program = Bound(out, inputs)
    row["schedule"] = schedule_text(program.manifest)
    expected = as_list(workload.function(*inputs))
    row["bytes"] = workload.bytes_moved(expected)
    program.launch()
    torch.cuda.synchronize()
    row["right"], row["error"] = check(program.outputs, expected)
    del expected
    source = torch.randn(row["bytes"] // 8, device="cuda")
    copied = torch.empty_like(source)
    arms = {"kiln": capture(program.launch), "copy": capture(lambda: torch.mul(source, 1.0, out=copied))}
    for peer in options.peers:
        if peer == "eager":
            arms[peer] = capture(lambda: workload.function(*inputs))
            continue
        torch._dynamo.reset()
        function = torch.compile(workload.module(), mode=MODES[peer])
        started = time.monotonic()
        function(*inputs)
        torch.cuda.synchronize()
        row[peer + "_compile_s"] = time.monotonic() - started
        arms[peer] = capture(lambda: function(*inputs))
    row["us"] = time_in_turn(arms, options.rounds)
    return row


def copy_bandwidth(options):
    """Bytes read plus written a second, of a large copy."""
    x = torch.randn(1 << 29, device="cuda")
    y = torch.empty_like(x)
    spans = []
    for _ in range(options.rounds):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        y.copy_(x)
        end.record()
        spans.append((start, end))
    torch.cuda.synchronize()
    us = statistics.median(a.elapsed_time(b) * 1e3 for a, b in spans)
    return 2 * x.numel() * x.element_size() / us * 1e6


def print_row(row, copy):
    us = row["us"]
    share = row["bytes"] / us["kiln"] * 1e6 / copy
    best = us.get("max_autotune")
    cells = [f"{row['name']:18s}", f"{us['kiln']:8.1f}", f"{share * 100:5.0f} %",
             f"{us['copy'] / us['kiln'] * 100:5.0f} %"]
    cells += [f"{us[p]:9.1f}" if p in us else "        -" for p in ("eager", "default", "max_autotune")]
    cells += [f"{best / us['kiln']:6.2f}" if best else "     -", f"{row['kiln_cold_s']:6.2f}",
              f"{row.get('max_autotune_compile_s', float('nan')):6.1f}", f"{row['error']:8.1e}",
              "" if row["right"] else "WRONG"]
    print(" ".join(cells), flush=True)


def print_header(copy):
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, copy {copy / 1e12:.2f} TB/s; times in us")
    print("share: of the bandwidth of a copy of 4 GB; alike: of a copy that moves as many bytes, timed in turn with it")
    print(f"{'workload':18s} {'kiln':>8s} {'share':>7s} {'alike':>7s} {'eager':>9s} {'default':>9s} {'autotune':>9s} {'ratio':>6s} "
          f"{'cold s':>6s} {'a.t. s':>6s} {'error':>8s}")


def print_start_up(rows):
    """Cold: where the tuning's seconds went. Warm: a fresh process up to its first finished launch."""
    print("\ncold, s           total   plan compile   open verify   time  tried   warm, ms: "
          "exec   read  fetch   load launch    sum")
    for row in rows:
        spent, warm = row.get("stages_s", {}), row["warm"]
        parts = [warm[p + "_ms"] for p in ("exec", "read", "fetch", "load", "first_launch")]
        print(f"{row['name']:18s}{row['kiln_cold_s']:5.2f}  "
              + " ".join(f"{spent.get(s, math.nan):6.3f}" for s in ("plan", "compile", "open", "verify", "time"))
              + f" {row['candidates']:6d}             "
              + " ".join(f"{p:6.2f}" for p in parts) + f" {sum(parts):6.1f}")


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kiln", required=True)
    parser.add_argument("--graphs", required=True)
    parser.add_argument("--coordinator", required=True)
    parser.add_argument("--only", type=lambda s: s.split(","), default=[])
    parser.add_argument("--peers", type=lambda s: [p for p in s.split(",") if p], default=["eager", "default", "max_autotune"])
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--log", help="what the service writes: for the table of cold times by stage")
    parser.add_argument("--json")
    return parser.parse_args()


def kiln_alone(options):
    failed = False
    for name in sorted(os.listdir(options.graphs)):
        path = os.path.join(options.graphs, name)
        if not name.endswith(".pt2") or (options.only and name[:-4] not in options.only):
            continue
        cold, _ = run_kiln(options, "compile", path, "--target", "cuda", "--mode", "max-autotune")
        warm, _ = run_kiln(options, "run", path, "--target", "cuda", "--mode", "max-autotune")
        print(f"{name:24s} {warm['median_us']:9.1f} us  cold {cold['seconds']:.2f} s", flush=True)
    return 1 if failed else 0


def main():
    options = parse()
    options.log_read = 0
    if torch is None:
        print("PyTorch is not installed: Kiln's own times only")
        return kiln_alone(options)
    if "default" in options.peers or "max_autotune" in options.peers:
        # The compiler's own start-up is not any workload's.
        torch.compile(lambda x: x.sin() + 1, mode=MODES["max_autotune"])(torch.ones(1000, device="cuda"))
    copy = copy_bandwidth(options)
    print_header(copy)
    rows, failed = [], []
    with tempfile.TemporaryDirectory() as scratch:
        for workload in WORKLOADS:
            if options.only and workload.name not in options.only:
                continue
            try:
                row = measure(workload, options, scratch)
            except Exception as error:  # the other rows still count
                failed.append(workload.name)
                print(f"{workload.name:18s} FAILED: {error}", flush=True)
                continue
            finally:
                torch.cuda.empty_cache()
            rows.append(row)
            print_row(row, copy)
            if not row["right"]:
                failed.append(workload.name)
    ratios = [r["us"]["max_autotune"] / r["us"]["kiln"] for r in rows if "max_autotune" in r["us"]]
    if ratios:
        print(f"geometric mean over max-autotune: {statistics.geometric_mean(ratios):.2f}; least {min(ratios):.2f}")
    faster = [r["max_autotune_compile_s"] / r["kiln_cold_s"] for r in rows if "max_autotune_compile_s" in r]
    if faster:
        print(f"cold tuning against max-autotune's compile: least {min(faster):.1f} times, geometric mean "
              f"{statistics.geometric_mean(faster):.1f}; Kiln's longest {max(r['kiln_cold_s'] for r in rows):.2f} s")
    if rows:
        print_start_up(rows)
    if options.json:
        with open(options.json, "w") as file:
            json.dump({"copy_bytes_s": copy, "rows": rows, "failed": failed}, file, indent=1)
    if failed:
        print("wrong or failed: " + ", ".join(failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
