"""torch.compile(backend="kiln") on this machine's GPU, beside eager and Inductor: are the numbers right, how long until
the first output, what a call costs on the host. Needs the wheel (ops/wheel), or KILN_LIBRARY and PYTHONPATH=client/python.

    python3 tests/gpu/torch_backend.py [--device cpu] [--mode max-autotune] [--coordinator tcp://...]

Every model runs in processes of its own: `cold`, with an empty cache of programs, then `warm`. Exits with 1 when a
number is wrong."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time

import torch
from torch import nn
from torch.nn import functional as F

DTYPES = {"cuda": torch.bfloat16, "cpu": torch.float32}


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Stack(nn.Module):
    def __init__(self, width: int, blocks: int) -> None:
        super().__init__()
        self.blocks = nn.Sequential(*(Block(width, width // 64) for _ in range(blocks)), nn.LayerNorm(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.blocks(x)


class Convolutions(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
            nn.Linear(64, 10))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


def pointwise(x: torch.Tensor) -> torch.Tensor:
    return (x.sin() * 2 + 1).tanh()


#: name: (model, sizes of its input, whether it trains)
MODELS = {
    "pointwise": (lambda: pointwise, (1024,), False),
    "transformer": (lambda: Stack(512, 4), (2, 128, 512), False),
    "transformer, training": (lambda: Stack(256, 2), (2, 64, 256), True),
    "convolutions, training": (Convolutions, (8, 3, 32, 32), True),
}


def synchronize(device: str) -> None:
    if device != "cpu":
        torch.cuda.synchronize()


def step(run, x: torch.Tensor, trains: bool) -> list[torch.Tensor]:
    if not trains:
        with torch.no_grad():
            return [run(x)]
    loss = run(x).float().square().mean()
    model = getattr(run, "_orig_mod", run)
    return [loss, *torch.autograd.grad(loss, list(model.parameters()))]


def distance(have: list[torch.Tensor], want: list[torch.Tensor]) -> float:
    """The largest relative error, by norms."""
    return max(((a.double() - b.double()).norm() / b.double().norm().clamp_min(1e-6)).item()
               for a, b in zip(have, want, strict=True))


def host_us(run, x: torch.Tensor, trains: bool, device: str) -> float:
    """Microseconds that a call keeps the host: the least of several rounds, the GPU's work not waited for."""
    rounds = []
    for _ in range(20 if device != "cpu" else 2):
        synchronize(device)
        begun = time.perf_counter()
        for _ in range(10):
            step(run, x, trains)
        rounds.append((time.perf_counter() - begun) / 10)
    synchronize(device)
    return min(rounds) * 1e6


def measure(name: str, backend: str, arguments: argparse.Namespace) -> dict[str, float]:
    make, sizes, trains = MODELS[name]
    device = arguments.device
    torch.manual_seed(0)
    model = make()
    reference = model
    x = torch.randn(sizes)
    if isinstance(model, nn.Module):
        reference = make().double()
        reference.load_state_dict(model.state_dict())
        model = model.to(device, DTYPES[torch.device(device).type])
    want = step(reference, x.double(), trains)
    x = x.to(device, DTYPES[torch.device(device).type])
    if device != "cpu":
        torch.ones(1, device=device).sum().item()  # the context is nobody's start-up
    options = {}
    if backend == "kiln":
        import kiln.dynamo

        backend = kiln.dynamo.backend
        options = {"options": {"mode": arguments.mode,
                               **({"coordinator": arguments.coordinator} if arguments.coordinator else {})}}
    elif backend == "inductor" and arguments.mode != "default":
        options = {"mode": arguments.mode}
    run = model if backend == "eager" else torch.compile(model, backend=backend, **options)
    begun = time.perf_counter()
    have = step(run, x, trains)
    synchronize(device)
    first = time.perf_counter() - begun
    error = distance([each.cpu() for each in have], [each.cpu() for each in want])
    took = host_us(run, x, trains, device)
    # By now a mode that replays CUDA graphs does: other numbers have to come out of other inputs.
    other = torch.randn(sizes)
    want = step(reference, other.double(), trains)
    have = step(run, other.to(device, DTYPES[torch.device(device).type]), trains)
    error = max(error, distance([each.cpu() for each in have], [each.cpu() for each in want]))
    if device != "cpu" and torch.cuda.current_device() != 0:
        raise RuntimeError(f"torch's current GPU is {torch.cuda.current_device()} now, and was 0")
    return {"first_s": first, "error": error, "host_us": took}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", help="cuda, cuda:1, cpu")
    parser.add_argument("--mode", default="default")
    parser.add_argument("--coordinator", default=os.environ.get("KILN_COORDINATOR"))
    parser.add_argument("--models", nargs="*", default=list(MODELS), help="of " + ", ".join(MODELS))
    parser.add_argument("--backends", nargs="*", default=["eager", "inductor", "kiln"])
    parser.add_argument("--one", nargs=2, metavar=("MODEL", "BACKEND"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(measure(*arguments.one, arguments)))
        return 0
    print(f"{'model':<24}{'backend':<10}{'cold':>9}{'warm':>9}{'call, host':>12}{'error':>10}")
    wrong = 0
    for name in arguments.models:
        errors = {}
        for backend in arguments.backends:
            with tempfile.TemporaryDirectory() as cache:
                environment = {**os.environ, "KILN_CACHE_DIR": cache + "/kiln", "TORCHINDUCTOR_CACHE_DIR": cache + "/torch"}
                runs = []
                for _ in ("cold", "warm"):
                    command = [sys.executable, __file__, "--device", arguments.device, "--mode", arguments.mode,
                               "--one", name, backend]
                    command += ["--coordinator", arguments.coordinator] if arguments.coordinator else []
                    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
                    if done.returncode:
                        print(done.stderr[-3000:], file=sys.stderr)
                        return 1
                    runs.append(json.loads(done.stdout.splitlines()[-1]))
                    said = [line for line in done.stderr.splitlines() if "runs eager" in line]
                for line in said:
                    print(f"  {line[:160]}")
            errors[backend] = max(run["error"] for run in runs)
            print(f"{name:<24}{backend:<10}{runs[0]['first_s']:>7.2f} s{runs[1]['first_s']:>7.2f} s"
                  f"{runs[1]['host_us']:>9.0f} us{errors[backend]:>10.1e}", flush=True)
        # Eager rounds as the dtype does, too.
        if "kiln" in errors and errors["kiln"] > 3 * errors.get("eager", 1e-2) + 1e-5:
            print(f"WRONG: {name}: kiln is off by {errors['kiln']:.1e}, eager by {errors.get('eager', 0):.1e}")
            wrong += 1
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
