"""How long a replica waits: from `import torch` done to a model's first output, with torch.compile's backends beside
each other. Each row is a process of its own. Needs the wheel, or KILN_LIBRARY and PYTHONPATH=client/python.

    python3 tests/gpu/warm_start.py --kiln DIR [--models gpt2,llama] [--device cpu] [--mode max-autotune] [--profile]

`dynamo`: backend="eager"; `aot`: backend="aot_eager"; both compile nothing, and others' times are given beyond theirs,
the quicker of two.
`inductor` and `kiln`: `empty`, nothing was ever compiled; `fleet` (Kiln), tuned by another machine: a coordinator, and
empty caches here; `warm`, the caches of a process before, and no coordinator. Exits with 1 when an output is wrong.

`--profile` says what the steps of Kiln's rows take, by the clock and in the thread's CPU seconds, which other work on the
machine does not change; a step has its indented ones in it."""

from __future__ import annotations

import argparse
import functools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

DTYPES = {"cuda": torch.bfloat16, "cpu": torch.float32}
LLAMA = {"hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16, "num_attention_heads": 32,
         "num_key_value_heads": 8, "vocab_size": 128256, "max_position_embeddings": 4096}
SMALL = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 2, "vocab_size": 256, "max_position_embeddings": 64}
#: name: (class, configuration, its options, tokens)
MODELS = {"gpt2": ("GPT2LMHeadModel", "GPT2Config", {}, 1024),
          "llama": ("LlamaForCausalLM", "LlamaConfig", LLAMA, 512),
          "small": ("LlamaForCausalLM", "LlamaConfig", SMALL, 32)}


def synchronize(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


class Profile:
    """What steps take, in the order in which they first begin. ``steps``: name -> [seconds by the clock, of CPU]."""

    def __init__(self) -> None:
        self.steps: dict[str, list[float]] = {}

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        taken = self.steps.setdefault(name, [0.0, 0.0])
        wall, cpu = time.perf_counter(), time.thread_time()
        try:
            yield
        finally:
            taken[0] += time.perf_counter() - wall
            taken[1] += time.thread_time() - cpu

    def watch(self, owner: Any, function: str, name: str) -> None:
        """From here on the function is a step."""
        found = vars(owner)[function]
        plain: Callable[..., Any] = found.__func__ if isinstance(found, (staticmethod, classmethod)) else found

        @functools.wraps(plain)
        def watched(*args: Any, **kwargs: Any) -> Any:
            with self.step(name):
                return plain(*args, **kwargs)

        setattr(owner, function, type(found)(watched) if plain is not found else watched)

    def watch_kiln(self) -> None:
        import kiln._steps
        from kiln import _settings, _warm_start
        from torch._dynamo.output_graph import OutputGraph
        from torch._functorch import aot_autograd
        from torch._functorch._aot_autograd import autograd_cache

        for owner, function, name in (
                (OutputGraph, "_call_user_compiler", "the backend"),
                (aot_autograd, "prepare_aot_module_simplified", "  AOTAutograd's fake inputs"),
                (autograd_cache, "autograd_cache_key", "  key of the entry"),
                (autograd_cache.AOTAutogradCache, "_lookup", "  entry read and unpickled"),
                (_warm_start.KilnCode, "post_compile", "  entry made runnable"),
                (_settings.Settings, "compile", "    programs: looked up, checked, loaded"),
                (kiln._steps, "launcher_of", "    launchers"),
                (kiln._steps.CompiledGraph, "__call__", "the first call: memory, launches")):
            self.watch(owner, function, name)


def measure(name: str, backend: str, options: argparse.Namespace) -> dict[str, Any]:
    import transformers

    profile = Profile()
    kind, config, sizes, tokens = MODELS[name]
    torch.manual_seed(0)
    model = getattr(transformers, kind)(getattr(transformers, config)(**sizes)).eval().to(
        options.device, DTYPES[options.device])
    x = torch.randint(0, 250, (1, tokens), device=options.device)
    with torch.no_grad():
        want = model(x, use_cache=False).logits  # and the context, cuBLAS's handles: nobody's start-up
        synchronize(options.device)
        begun = time.perf_counter()
        given = {}
        if backend == "kiln":
            with profile.step("import kiln.dynamo"):
                import kiln.dynamo

            backend = kiln.dynamo.backend
            given = {"options": {"mode": options.mode}}
            if options.profile:
                profile.watch_kiln()
        run = torch.compile(model, backend=backend, **given)
        with profile.step("torch.compile and the first call, Dynamo's part with it"):
            have = run(x, use_cache=False).logits
        with profile.step("waiting for the device"):
            synchronize(options.device)
        first = time.perf_counter() - begun
        steps = {step: list(taken) for step, taken in profile.steps.items()}
        rounds = []
        for _ in range(5):
            begun = time.perf_counter()
            run(x, use_cache=False)
            synchronize(options.device)
            rounds.append(time.perf_counter() - begun)
    error = ((have.double() - want.double()).norm() / want.double().norm()).item()
    found = {"first_s": first, "call_ms": min(rounds) * 1e3, "error": error}
    return {**found, "steps": steps} if options.profile else found


def one(name: str, backend: str, options: argparse.Namespace, cache: str, coordinator: str = "") -> dict[str, Any]:
    environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": cache + "/torch", "TRITON_CACHE_DIR": cache + "/triton",
                   "KILN_CACHE_DIR": cache + "/kiln"}
    environment.pop("KILN_COORDINATOR", None)
    if coordinator:
        environment["KILN_COORDINATOR"] = coordinator
    command = [sys.executable, __file__, "--device", options.device, "--mode", options.mode, "--kiln", options.kiln,
               "--one", name, backend] + ["--profile"] * options.profile
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr[-3000:])
    for line in done.stderr.splitlines():
        if line.startswith("kiln:") or "eager" in line:
            print(f"    {line[:200]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def start_service(kiln: str, folder: str) -> tuple[subprocess.Popen[str], str]:
    service = subprocess.Popen([os.path.join(kiln, "kiln"), "up", "--data-dir", folder, "--listen", "tcp://127.0.0.1:0"],
                               stdout=subprocess.PIPE, stderr=open(os.path.join(folder, "..", "log"), "w"), text=True)
    assert service.stdout is not None
    for line in service.stdout:
        if line.startswith("ready "):
            return service, line.split()[1]
    raise RuntimeError("kiln up did not start")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kiln", required=True, help="folder of the programs kiln, kiln-worker, ...")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--mode", default="max-autotune-no-cudagraphs", help="of Kiln")
    parser.add_argument("--models", default="gpt2,llama", help="of " + ", ".join(MODELS))
    parser.add_argument("--no-inductor", action="store_true")
    parser.add_argument("--profile", action="store_true", help="what Kiln's steps take")
    parser.add_argument("--json", default="")
    parser.add_argument("--one", nargs=2, metavar=("MODEL", "BACKEND"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(*options.one, options)))
        return 0
    print(f"{'model':<8}{'backend':<10}{'state':<8}{'first':>9}{'- dynamo':>10}{'- aot':>9}{'a call':>11}{'error':>10}")
    rows = []

    def row(name: str, backend: str, state: str, found: dict[str, Any], base: dict[str, float]) -> None:
        base[backend] = min(base.get(backend, found["first_s"]), found["first_s"])
        beyond = [found["first_s"] - base[each] if each in base else float("nan") for each in ("eager", "aot_eager")]
        print(f"{name:<8}{backend:<10}{state:<8}{found['first_s']:>7.2f} s{beyond[0]:>8.2f} s{beyond[1]:>7.2f} s"
              f"{found['call_ms']:>8.2f} ms{found['error']:>10.1e}", flush=True)
        for step, (wall, cpu) in found.get("steps", {}).items() if backend == "kiln" else ():
            print(f"    {step:<56}{wall * 1e3:>9.1f} ms{cpu * 1e3:>9.1f} ms of CPU", flush=True)
        rows.append({"model": name, "backend": backend, "state": state, **found})

    for name in options.models.split(","):
        with tempfile.TemporaryDirectory() as scratch:
            base: dict[str, float] = {}
            for backend in ("eager", "eager", "aot_eager", "aot_eager"):  # the first reads files that lie on a disk
                row(name, backend, "", one(name, backend, options, scratch + "/none"), base)
            for state in () if options.no_inductor else ("empty", "warm"):
                row(name, "inductor", state, one(name, "inductor", options, scratch + "/inductor"), base)
            os.makedirs(scratch + "/data")
            service, endpoint = start_service(options.kiln, scratch + "/data")
            try:
                row(name, "kiln", "empty", one(name, "kiln", options, scratch + "/first", endpoint), base)
                row(name, "kiln", "fleet", one(name, "kiln", options, scratch + "/second", endpoint), base)
            finally:
                service.terminate()
                service.wait()
            row(name, "kiln", "warm", one(name, "kiln", options, scratch + "/second"), base)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(rows, file, indent=1)
    limit = 3e-2 if options.device == "cuda" else 1e-3
    wrong = [each for each in rows if each["error"] > limit]
    for each in wrong:
        print(f"WRONG: {each['model']} {each['backend']} {each['state']}: {each['error']:.1e}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
