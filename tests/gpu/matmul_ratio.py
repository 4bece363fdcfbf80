"""bf16 products by Kiln beside torch.matmul on one GPU, in one process and on the same tensors.

    python3 matmul_ratio.py --kiln BUILD/bin [--coordinator tcp://...] [--only 4096x4096x4096] [--rounds N] [--json FILE]

For each shape: `kiln compile --mode max-autotune --out` tunes the product (cuBLASLt's algorithms are candidates
beside Kiln's own kernels), `kiln run` runs and times it, and then the same kernels and torch.matmul are timed in
turn as captured CUDA graphs: 256 MB of L2 are overwritten before each replay, medians of N rounds. `ratio` is
torch's time over Kiln's: 1.0 is as fast, more is faster. `run_us` is what `kiln run` said (warm L2, no flush).
`own_us` is Kiln's best kernel of its own, from the same tuning. Exit code 1 when a result is wrong, or 4096 cubed
is below 0.97.

Without --coordinator it starts a service of its own (`kiln up`) in a temporary folder and ends it. cuBLASLt is
looked for where torch has it: KILN_LIBCUBLASLT is set to the file that this process has loaded."""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile

import torch

from bench import capture, relative_error, run_kiln, time_in_turn
from bound import Bound, schedule_text

# m, k, n, and whether the second operand is stored as a Linear's weight [n, k].
SHAPES = [(4096, 4096, 4096, False), (4096, 4096, 4096, True), (8192, 8192, 8192, False), (2048, 2048, 2048, False),
          (1024, 1024, 1024, False), (1, 4096, 4096, True), (16, 4096, 14336, True), (512, 4096, 14336, True),
          (4095, 4095, 4095, False)]
GOAL_SHAPE, GOAL = "4096x4096x4096", 0.97


def name_of(shape):
    m, k, n, by_columns = shape
    return f"{m}x{k}x{n}" + ("t" if by_columns else "")


def graph_text(shape):
    m, k, n, by_columns = shape
    lines = ["kiln.graph 1", f"%0 = input 0 : bf16[{m},{k}]", f"%1 = input 1 : bf16[{n},{k}]" if by_columns
             else f"%1 = input 1 : bf16[{k},{n}]"]
    second = "%1"
    if by_columns:
        lines.append(f"%2 = view %1 strides=[1,{k}] offset=[0] : bf16[{k},{n}]")
        second = "%2"
    at = len(lines) - 1
    lines += [f"%{at} = matmul %0 {second} : f32[{m},{n}]", f"%{at + 1} = cast %{at} : bf16[{m},{n}]",
              f"return %{at + 1}"]
    return "\n".join(lines) + "\n"


def loaded_cublaslt():
    """The file of cuBLASLt that torch has opened; empty: none yet."""
    torch.matmul(*(torch.ones(64, 64, dtype=torch.bfloat16, device="cuda") for _ in range(2)))
    with open("/proc/self/maps") as maps:
        found = re.search(r"\S*/libcublasLt\.so\S*", maps.read())
    return found.group(0) if found else ""


def start_service(options, folder):
    service = subprocess.Popen([os.path.join(options.kiln, "kiln"), "up", "--data-dir", folder, "--listen",
                                "tcp://127.0.0.1:0", "--device", "cuda:0", "--http", "none"], stdout=subprocess.PIPE,
                               stderr=open(os.path.join(folder, "log"), "w"), text=True)
    for line in service.stdout:
        if line.startswith("ready "):
            options.coordinator = line.split()[1]
            return service
    raise RuntimeError("kiln up did not start: " + open(os.path.join(folder, "log")).read()[-2000:])


def measure(shape, options, scratch):
    m, k, n, by_columns = shape
    graph = os.path.join(scratch, name_of(shape) + ".kiln")
    with open(graph, "w") as file:
        file.write(graph_text(shape))
    out = os.path.join(scratch, name_of(shape))
    common = ("--target", "cuda", "--mode", "max-autotune", "--no-fallback")
    compiled, _ = run_kiln(options, "compile", graph, *common, "--out", out)
    ran, _ = run_kiln(options, "run", graph, *common, "--runs", "20", "--reduce-overhead")
    a = torch.randn(m, k, dtype=torch.bfloat16, device="cuda")
    stored = torch.randn((n, k) if by_columns else (k, n), dtype=torch.bfloat16, device="cuda")
    b = stored.t() if by_columns else stored
    program = Bound(out, [a, stored])
    program.launch()
    torch.cuda.synchronize()
    expected = torch.matmul(a, b)
    error = relative_error(program.outputs[0].reshape(m, n), expected)
    times = time_in_turn({"kiln": capture(program.launch), "torch": capture(lambda: torch.matmul(a, b))},
                         options.rounds)
    kernel = program.manifest["kernels"][0]
    own = kernel["fallback"]["us"] if "fallback" in kernel else kernel["report"]["best_us"]
    return {"shape": name_of(shape), "kiln_us": times["kiln"], "torch_us": times["torch"],
            "ratio": times["torch"] / times["kiln"], "run_us": ran["median_us"], "own_us": own,
            "tuned_s": compiled["seconds"], "error": error, "right": error < 1e-2,
            "schedule": schedule_text(program.manifest)}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--kiln", required=True, help="folder of the programs kiln, kiln-worker, ...")
    parser.add_argument("--coordinator", default="")
    parser.add_argument("--only", default="")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--json", default="")
    options = parser.parse_args()
    os.environ.setdefault("KILN_LIBCUBLASLT", loaded_cublaslt())
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, cuBLASLt {os.environ['KILN_LIBCUBLASLT'] or '?'}")
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        service = None if options.coordinator else start_service(options, scratch)
        try:
            for shape in SHAPES:
                if options.only and name_of(shape) not in options.only.split(","):
                    continue
                row = measure(shape, options, scratch)
                rows.append(row)
                print(f"{row['shape']:>18} kiln {row['kiln_us']:9.1f} us  torch {row['torch_us']:9.1f} us  "
                      f"ratio {row['ratio']:.3f}  own {row['own_us']:9.1f}  run {row['run_us']:9.1f}  "
                      f"tuned {row['tuned_s']:.2f} s  {'' if row['right'] else 'WRONG '}{row['schedule']}", flush=True)
        finally:
            if service is not None:
                service.terminate()
                service.wait()
    if options.json:
        with open(options.json, "w") as file:
            json.dump(rows, file, indent=1)
    missed = [row for row in rows if row["shape"] == GOAL_SHAPE and row["ratio"] < GOAL]
    return 0 if all(row["right"] for row in rows) and not missed else 1


if __name__ == "__main__":
    sys.exit(main())
