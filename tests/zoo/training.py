"""Training steps of whole models through torch.compile(backend="kiln"), beside eager and Inductor: each step's loss.

    ops/zoo --training [--models gpt2,bert,resnet18,vit] [--steps N] [--backends kiln,inductor] [--device cuda]
                       [--json FILE]

Models have random weights, small sizes and f32; each starts from the same weights in every run, gets the same batches,
and AdamW changes it after each step. Prints how far the losses of each backend are from eager's at most, over the first
loss; beside them those of eager run again, which differ where PyTorch's own kernels add in an order of chance. Two
right compilers differ from eager, and from each other, in the order of sums. Exits with 1 where Kiln is further away
than ten times the further of Inductor and eager, and than 1e-4; what Kiln cannot run fails rather than runs eager."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from typing import Any

import kiln.dynamo
import torch
from torch.nn import functional as F
from torch.utils._pytree import tree_map

MOST_TIMES, MOST = 10.0, 1e-4  # of others' distance from eager; of the first loss
BATCHES = 4  # in turn
Step = Callable[[Any], torch.Tensor]


def token_batches() -> Any:
    return [torch.randint(0, 512, (4, 64)) for _ in range(BATCHES)]


def images(classes: int, size: int) -> Any:
    return [(torch.randn(8, 3, size, size), torch.randint(0, classes, (8,))) for _ in range(BATCHES)]


def gpt2() -> tuple[torch.nn.Module, Any, Step]:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(vocab_size=512, n_positions=64, n_embd=128, n_layer=4, n_head=4, resid_pdrop=0.0,
                        embd_pdrop=0.0, attn_pdrop=0.0, use_cache=False)
    return GPT2LMHeadModel(config), token_batches(), lambda model: lambda x: model(input_ids=x, labels=x).loss


def bert() -> tuple[torch.nn.Module, Any, Step]:
    from transformers import BertConfig, BertForMaskedLM

    config = BertConfig(vocab_size=512, hidden_size=128, num_hidden_layers=4, num_attention_heads=4,
                        intermediate_size=512, max_position_embeddings=64, hidden_dropout_prob=0.0,
                        attention_probs_dropout_prob=0.0)
    return BertForMaskedLM(config), token_batches(), lambda model: lambda x: model(input_ids=x, labels=x).loss


def resnet18() -> tuple[torch.nn.Module, Any, Step]:
    from torchvision.models import resnet18 as made

    return made(num_classes=16), images(16, 64), lambda model: lambda x: F.cross_entropy(model(x[0]), x[1])


def vit() -> tuple[torch.nn.Module, Any, Step]:
    from timm.models.vision_transformer import VisionTransformer

    model = VisionTransformer(img_size=64, patch_size=8, embed_dim=192, depth=4, num_heads=3, num_classes=16)
    return model, images(16, 64), lambda model: lambda x: F.cross_entropy(model(x[0]), x[1])


MODELS = {"gpt2": gpt2, "bert": bert, "resnet18": resnet18, "vit": vit}


def losses(name: str, backend: str, steps: int, device: str) -> tuple[list[float], float]:
    """Of each step; and the seconds until the first was done."""
    torch.manual_seed(5)
    model, batches, step_of = MODELS[name]()
    model.to(device).train()
    batches = tree_map(lambda each: each.to(device), batches)
    torch._dynamo.reset()
    step: Any = step_of(model)
    reports: list[Any] = []
    kiln.dynamo.watch(reports)
    if backend == "kiln":
        step = torch.compile(step, backend=kiln.dynamo.backend)
    elif backend != "eager":
        step = torch.compile(step, backend=backend)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    found: list[float] = []
    begun, first = time.monotonic(), 0.0
    for number in range(steps):
        optimizer.zero_grad()
        loss = step(batches[number % len(batches)])
        loss.backward()
        optimizer.step()
        found.append(loss.item())
        first = first or time.monotonic() - begun
    kiln.dynamo.watch(None)
    if backend == "kiln":
        programs = [program for report in reports for _, program in report.partitions]
        if not programs or None in programs:
            raise SystemExit(f"{name}: a part runs eager: {[each for report in reports for each in report.failures]}")
    return found, first


def distance(have: list[float], want: list[float]) -> float:
    return max(abs(a - b) for a, b in zip(have, want, strict=True)) / abs(want[0])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--backends", default="kiln,inductor")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--json", default="")
    options = parser.parse_args()
    torch.backends.cudnn.allow_tf32 = False
    where = torch.cuda.get_device_name() if options.device == "cuda" else "the CPU"
    print(f"torch {torch.__version__}, f32 on {where}, {options.steps} steps of AdamW; distances from eager's losses")
    rows: list[dict[str, Any]] = []
    for name in options.models.split(","):
        eager, _ = losses(name, "eager", options.steps, options.device)
        row: dict[str, Any] = {"model": name, "losses": {"eager": eager}, "distance": {}, "first_step_s": {}}
        for backend in ["eager", *options.backends.split(",")]:
            found, row["first_step_s"][backend] = losses(name, backend, options.steps, options.device)
            row["distance"][backend] = distance(found, eager)
            if backend != "eager":
                row["losses"][backend] = found
        others = [each for backend, each in row["distance"].items() if backend != "kiln"]
        row["right"] = row["distance"].get("kiln", 0.0) <= max(MOST, MOST_TIMES * max(others))
        print(f"{name:<10} loss {eager[0]:.4f} to {eager[-1]:.4f}  "
              + "  ".join(f"{backend} {each:.1e} (first step {row['first_step_s'][backend]:.1f} s)"
                          for backend, each in row["distance"].items())
              + ("" if row["right"] else "  WRONG"), flush=True)
        rows.append(row)
    if options.json:
        with open(options.json, "w") as file:
            json.dump(rows, file, indent=1)
    return 0 if all(row["right"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
