"""Products, attention, convolutions and whole models by Kiln beside PyTorch on one GPU.

    python3 tensor.py --kiln BUILD/bin [--groups products,fused,deep,low_precision,grouped,attention,caches,training,convolutions,
                      channels_last,depthwise,models] [--only NAME,...] [--models resnet50,...] [--max-autotune] [--dynamic]
                      [--before BUILD/bin] [--alone] [--seconds N] [--rounds N] [--json FILE]

Every case is exported with torch.export (weights are inputs), tuned by a service of its own from an empty cache
(`kiln compile --mode max-autotune --out`, all cases of a group asked for at once; cuBLASLt's algorithms are candidates),
checked against PyTorch's result, and then timed in turn with PyTorch's own on the same tensors: each arm a captured
CUDA graph, 256 MB of L2 overwritten before each replay, medians of N rounds. `own`: Kiln's kernels without a library's.
`ratio`: PyTorch's time over Kiln's, of models with --alone the other build's; above 1 Kiln is faster. Models are beside torch.compile (default mode; with
--max-autotune its max-autotune-no-cudagraphs too, and the ratio is to the better), compiled in processes of their own
meanwhile; with --dynamic of any batch and length, by both. Below a model stand its kernels, by the share of its time that they had when they
were tuned; with --before BIN the programs of another build, tuned by a service of that build, are timed in turn with these.
A group that has taken --seconds ends there, and says so. Exit code 1 when a result is wrong."""

import argparse
import concurrent.futures
import functools
import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import time

import torch

import tensor_cases
import tensor_models
from bench import capture, relative_error, run_kiln, time_in_turn
from bound import Bound
from matmul_ratio import loaded_cublaslt, start_service

GROUPS = ["products", "fused", "deep", "low_precision", "grouped", "attention", "caches", "training", "convolutions", "channels_last",
          "depthwise", "chains", "models"]
MOST_ERROR = 2e-2  # of bf16 results, by norms; of models below
MOST_MODEL_ERROR = 6e-2


def export(module, inputs, path, dynamic=None):
    program = torch.export.export(module, inputs, strict=False, dynamic_shapes=dynamic)
    program._example_inputs = None  # weights need not travel
    torch.export.save(program, path)


class Plain(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *inputs):
        return self.function(*inputs)


def compile_kiln(options, path, suffix=""):
    """Seconds; what `kiln compile --out` wrote is beside the archive."""
    compiled, _ = run_kiln(options, "compile", path, "--target", "cuda", "--mode", "max-autotune", "--no-fallback",
                           "--out", path[:-4] + suffix)
    return compiled["seconds"]


def compile_all(options, paths, suffix=""):
    """compile_kiln() of each at once, as futures that are done."""
    with concurrent.futures.ThreadPoolExecutor(len(paths) or 1) as pool:
        return [pool.submit(compile_kiln, options, path, suffix) for path in paths]


def compile_before(options, paths, scratch):
    """The same by the build of --before. Nothing else is tuned meanwhile."""
    other = argparse.Namespace(kiln=options.before)
    folder = os.path.join(scratch, "before")
    os.makedirs(folder, exist_ok=True)
    service = start_service(other, folder)
    try:
        for path, one in zip(paths, compile_all(other, paths, ".before")):
            if one.exception():  # its row has no such arm
                print(f"before: {os.path.basename(path)}: {one.exception()}", flush=True)
    finally:
        service.terminate()
        service.wait()


def bind(directory, inputs):
    """The program on these inputs, without libraries where it calls one, and that of another build where there is one."""
    programs = {"kiln": Bound(directory, inputs)}
    if os.path.exists(directory + ".before"):
        programs["before"] = Bound(directory + ".before", inputs)
    if any("fallback" in kernel for kernel in programs["kiln"].manifest["kernels"]):
        programs["own"] = Bound(directory, inputs, libraries=False)
    return programs


def tensors(result):
    return [result] if isinstance(result, torch.Tensor) else list(result)


def describe(manifest):
    return "; ".join(f"{kernel['schedule']}" for kernel in manifest["kernels"])


def measure(case, directory, options):
    inputs = case.make_inputs()
    programs = bind(directory, inputs)
    expected = tensors(case.function(*inputs))
    row = {"group": case.group, "name": case.name, "schedule": describe(programs["kiln"].manifest)}
    arms = {}
    for name, program in programs.items():
        program.launch()
        torch.cuda.synchronize()
        row[name + "_error"] = max(relative_error(have.reshape(want.shape), want)
                                   for have, want in zip(program.outputs, expected, strict=True))
        arms[name] = capture(program.launch)
    row["right"] = all(row[name + "_error"] < MOST_ERROR for name in programs)
    for name, make in case.peers.items():
        function = make(*inputs) if make else lambda: case.function(*inputs)
        arms[name] = capture(function)
    if case.compiled:
        torch._dynamo.reset()
        compiled = torch.compile(Plain(case.function), mode=case.compiled)
        arms[case.compiled] = capture(lambda: compiled(*inputs))
    row["us"] = time_in_turn(arms, options.rounds)
    best = min(us for name, us in row["us"].items() if name not in programs and not name.startswith("beside"))
    row["ratio"] = best / row["us"]["kiln"]
    row["own_ratio"] = best / row["us"].get("own", row["us"]["kiln"])
    return row


def print_row(row):
    us = "  ".join(f"{name} {value:.1f}" for name, value in row["us"].items())
    print(f"{row['group']:<13}{row['name']:<34} ratio {row['ratio']:.2f}  own {row['own_ratio']:.2f}  {us} us  "
          f"tuned {row['tuned_s']:.1f} s  {'' if row['right'] else 'WRONG '}{row['schedule'][:150]}", flush=True)


def run_cases(group, options, scratch):
    begun = time.monotonic()
    cases = [case for case in tensor_cases.cases_of(group)
             if not options.only or any(name in case.name for name in options.only)]
    paths = []
    for case in cases:
        inputs = case.make_inputs()  # for their shapes
        paths.append(os.path.join(scratch, f"{group}{len(paths)}.pt2"))
        export(Plain(case.exported or case.function), tuple(inputs), paths[-1])
        del inputs
    rows = []
    tuned = []
    for case, one in zip(cases, compile_all(options, paths)):
        try:
            tuned.append(one.result())
        except RuntimeError as error:
            print(f"{group} {case.name}: {error}", flush=True)
            tuned.append(None)
    if options.before:
        compile_before(options, paths, scratch)
    for case, path, seconds in zip(cases, paths, tuned):
        if time.monotonic() - begun > options.seconds:
            print(f"{group}: {options.seconds} s are over before {case.name}", flush=True)
            break
        if seconds is None:
            rows.append({"group": group, "name": case.name, "right": False})
            continue
        try:
            row = {**measure(case, path[:-4], options), "tuned_s": seconds}
            print_row(row)
        except Exception as error:  # the others are measured all the same
            print(f"{group} {case.name}: {type(error).__name__}: {str(error)[:600]}", flush=True)
            row = {"group": group, "name": case.name, "right": False}
        rows.append(row)
    return rows


def compile_first(compiled, x, module):
    """Seconds of its first call."""
    begun = time.monotonic()
    compiled(x, **module.options)
    torch.cuda.synchronize()
    return time.monotonic() - begun


def compiled_by_torch(module, options, **more):
    return torch.compile(module.held, dynamic=True if options.dynamic else None, **more)


def prepare_model(name, options):
    """In a process of its own: the archive, and torch.compile's kernels in the cache that others find."""
    begun = time.monotonic()
    scratch = options.scratch
    module, weights, x = tensor_models.load_model(name, "cuda")
    dynamic = None
    if options.dynamic:  # the batch, and of tokens how many each has
        axes = range(1 if x.dtype.is_floating_point else x.dim())
        dynamic = ([None] * len(weights), dict.fromkeys(axes, torch.export.Dim.AUTO))
    with torch.no_grad():
        export(module, (weights, x), os.path.join(scratch, name + ".pt2.part"), dynamic)
        os.rename(os.path.join(scratch, name + ".pt2.part"), os.path.join(scratch, name + ".pt2"))
        exported = time.monotonic() - begun
        text = f"{name}: exported in {exported:.1f} s"
        if not options.alone:
            text += f", compiled by torch.compile in {compile_first(compiled_by_torch(module, options), x, module):.1f} s"
    print(text)


def breakdown(manifest):
    """[(us of all launches, launches, the kernel's text)], longest first, as it was measured when tuned."""
    launches = [launch["kernel"] for launch in manifest["launches"]]
    found = []
    for number, kernel in enumerate(manifest["kernels"]):
        count = launches.count(number)
        found.append((kernel["report"]["best_us"] * count, count, f"{kernel.get('family', '')} {kernel['schedule']}"))
    return sorted(found, reverse=True)


def lifted(path, device):
    """What the model made of numbers, which its program has in front of its inputs."""
    program = torch.export.load(path)
    return [program.constants[spec.target].to(device) for spec in program.graph_signature.input_specs
            if spec.kind == torch.export.graph_signature.InputKind.CONSTANT_TENSOR]


def measure_model(name, options, scratch):
    module, weights, x = tensor_models.load_model(name, "cuda")
    path = os.path.join(scratch, name)
    with torch.no_grad():
        expected = module(weights, x)
        program = Bound(path, [*lifted(path + ".pt2", "cuda"), *weights, x], in_place=True)
        program.launch()
        torch.cuda.synchronize()
        result = next(x for x, info in zip(program.outputs, program.program.outputs) if info.updates is None)
        error = relative_error(result.reshape(expected.shape), expected)
        arms = {"kiln": capture(program.launch)}
        if os.path.exists(path + ".before"):
            before = Bound(path + ".before", program.inputs, in_place=True)
            arms["before"] = capture(before.launch)
        if not options.alone:
            arms["torch.compile"] = capture(functools.partial(compiled_by_torch(module, options), x, **module.options))
        if options.max_autotune:  # here, since no cache keeps what it has timed
            compiled = compiled_by_torch(module, options, mode="max-autotune-no-cudagraphs")
            print(f"{name}: compiled by max-autotune in {compile_first(compiled, x, module):.1f} s", flush=True)
            arms["max-autotune"] = capture(functools.partial(compiled, x, **module.options))
        us = time_in_turn(arms, max(10, options.rounds // 2))
    others = [us[arm] for arm in us if arm not in ("kiln", "before")] or [us.get("before", us["kiln"])]
    row = {"group": "models", "name": name, "us": us, "ratio": min(others) / us["kiln"],
           "kiln_error": error, "right": error < MOST_MODEL_ERROR, "launches": program.launches,
           "cuts": program.manifest.get("cuts"), "kernels": breakdown(program.manifest)}
    return row


def print_model(row, most):
    times = "  ".join(f"{arm} {us:.0f} us" for arm, us in row["us"].items())
    print(f"models       {row['name']:<18} ratio {row['ratio']:.2f}  {times}  tuned {row['tuned_s']:.1f} s  launches "
          f"{row['launches']}  error {row['kiln_error']:.1e}  {'' if row['right'] else 'WRONG'} {row['cuts'] or ''}")
    for total, count, text in row["kernels"][:most]:
        print(f"    {total:8.0f} us  {count:3} x {total / count:7.1f}  {text[:150]}")
    rest = sum(total for total, _, _ in row["kernels"][most:])
    print(f"    {rest:8.0f} us  the rest", flush=True)


def prepared(process, name, seconds):
    """Waits for prepare_model()'s process and prints what it said, or the end of what went wrong."""
    try:
        text = process.communicate(timeout=max(1, seconds))[0]
        print("\n".join(text.strip().splitlines()[-1 if process.returncode == 0 else -12:]), flush=True)
    except subprocess.TimeoutExpired:  # an archive is there by now, most likely
        os.killpg(process.pid, signal.SIGKILL)  # its compilers too
        print(f"models {name}: torch.compile takes too long", flush=True)


def run_models(options, scratch):
    begun = time.monotonic()
    names = options.models.split(",")
    own = [sys.executable, __file__, "--scratch", scratch, "--kiln", options.kiln,
           *(["--dynamic"] if options.dynamic else []), *(["--alone"] if options.alone else []), "--prepare"]
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", os.path.join(scratch, "inductor"))
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "16" if options.max_autotune else "4")

    def left():
        return options.seconds - (time.monotonic() - begun)

    def archive(name):
        return os.path.join(scratch, name + ".pt2")

    def prepare(name):
        return subprocess.Popen([*own, name], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                start_new_session=True)

    def measured(name, tune):
        if left() < 0:
            print(f"models: {options.seconds} s are over before {name}", flush=True)
            return None
        try:
            seconds = tune()
            row = {**measure_model(name, options, scratch), "tuned_s": seconds}
            print_model(row, options.kernels)
            return row
        except Exception as error:
            print(f"models {name}: {type(error).__name__}: {str(error)[:600]}", flush=True)
            return {"group": "models", "name": name, "right": False}

    rows = []
    if options.max_autotune:  # which times kernels itself: one model at a time has the GPU
        for name in names:
            prepared(prepare(name), name, left())
            rows.append(measured(name, functools.partial(compile_kiln, options, archive(name))))
        return [row for row in rows if row]
    for name, process in [(name, prepare(name)) for name in names]:
        prepared(process, name, left() - options.seconds / 2)
    asked = compile_all(options, [archive(name) for name in names])
    if options.before:
        compile_before(options, [archive(name) for name in names], scratch)
    rows = [measured(name, one.result) for name, one in zip(names, asked)]
    return [row for row in rows if row]


def mean(values):
    return math.exp(sum(map(math.log, values)) / len(values)) if values else float("nan")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kiln", required=True, help="folder of the programs kiln, kiln-worker, ...")
    parser.add_argument("--coordinator", default="", help="an own service else")
    parser.add_argument("--groups", default=",".join(GROUPS))
    parser.add_argument("--only", default="", help="parts of names, by commas")
    parser.add_argument("--models", default=",".join(tensor_models.MODELS))
    parser.add_argument("--seconds", type=float, default=240, help="of one group")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--max-autotune", action="store_true",
                        help="models also beside torch.compile's max-autotune, one at a time; the ratio is to the better")
    parser.add_argument("--before", default="", help="folder of another build's programs, a further arm of each row")
    parser.add_argument("--alone", action="store_true", help="models not beside torch.compile")
    parser.add_argument("--dynamic", action="store_true", help="models of any batch, and of any number of tokens")
    parser.add_argument("--kernels", type=int, default=12, help="so many of a model's kernels are printed")
    parser.add_argument("--json", default="")
    parser.add_argument("--prepare", default="", help=argparse.SUPPRESS)
    parser.add_argument("--scratch", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.only = [name for name in options.only.split(",") if name]
    if options.prepare:
        prepare_model(options.prepare, options)
        return 0
    os.environ.setdefault("KILN_LIBCUBLASLT", loaded_cublaslt())
    torch.backends.cudnn.benchmark = True
    torch.set_float32_matmul_precision("high")
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}")
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        service = None if options.coordinator else start_service(options, scratch)
        try:
            for group in options.groups.split(","):
                found = run_models(options, scratch) if group == "models" else run_cases(group, options, scratch)
                rows += found
                timed = [row for row in found if "ratio" in row]
                if timed:
                    print(f"== {group}: {mean([row['ratio'] for row in timed]):.3f} in the geometric mean of {len(timed)}, "
                          f"least {min(row['ratio'] for row in timed):.2f}" +
                          ("" if group == "models" else
                           f"; own kernels {mean([row['own_ratio'] for row in timed]):.3f}, "
                           f"least {min(row['own_ratio'] for row in timed):.2f}"), flush=True)
                if options.json:
                    with open(options.json, "w") as file:
                        json.dump(rows, file, indent=1)
        finally:
            if service is not None:
                service.terminate()
                service.wait()
    wrong = [row["name"] for row in rows if not row["right"]]
    if wrong:
        print("wrong or not compiled: " + ", ".join(wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
