"""The workloads that Kiln is measured on beside PyTorch on a GPU: functions of tensors, as a user would
write them, with the shapes they are measured at.

    python3 workloads.py export DIR     writes DIR/NAME.pt2 (torch.export) for each
"""

import sys

import torch
import torch.nn.functional as F

bf16, f16, f32, i64 = torch.bfloat16, torch.float16, torch.float32, torch.int64


class Workload:
    """`make(*inputs)`; inputs are (dtype, sizes), i64 ones in [0, limit)."""

    def __init__(self, name, function, inputs, limit=0, group="round"):
        self.name, self.function, self.inputs = name, function, inputs
        self.limit, self.group = limit, group

    def module(self):
        function = self.function

        class Program(torch.nn.Module):
            def forward(self, *args):
                return function(*args)

        return Program()

    def make_inputs(self, device, seed=0):
        generator = torch.Generator(device=device).manual_seed(seed)
        tensors = []
        for dtype, sizes in self.inputs:
            if dtype == i64:
                tensors.append(torch.randint(self.limit, sizes, generator=generator, device=device))
            else:
                tensors.append(torch.randn(sizes, generator=generator, device=device, dtype=dtype))
        return tensors

    def bytes_moved(self, outputs):
        """The fewest bytes a launch moves: each input read once, each output written once."""
        inputs = sum(torch.empty(0, dtype=d).element_size() * torch.Size(s).numel() for d, s in self.inputs)
        return inputs + sum(o.element_size() * o.numel() for o in outputs)


def gelu_chain(x):
    return 0.5 * x * (1 + torch.tanh(0.7978845608 * (x + 0.044715 * x * x * x)))


def residual_rmsnorm(x, residual, weight):
    h = x + residual
    y = h.float()
    y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-6)
    return h, y.to(h.dtype) * weight


def layernorm(x, weight, bias):
    return F.layer_norm(x, (x.shape[-1],), weight, bias)


def rmsnorm(x, weight):
    y = x.float()
    return (y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype) * weight


WORKLOADS = [
    # The memory-bound rows of the table of peers.
    Workload("sincos", lambda x, y: torch.sin(x) + torch.cos(y), [(f32, (10000, 10000))] * 2),
    Workload("gelu_chain", gelu_chain, [(bf16, (8192, 8192))]),
    Workload("swiglu", lambda g, u: F.silu(g) * u, [(bf16, (8192, 14336))] * 2),
    Workload("softmax_4096", lambda x: torch.softmax(x, -1), [(bf16, (16384, 4096))]),
    Workload("softmax_32768", lambda x: torch.softmax(x, -1), [(bf16, (4096, 32768))]),
    Workload("layernorm_4096", layernorm, [(bf16, (16384, 4096)), (bf16, (4096,)), (bf16, (4096,))]),
    Workload("residual_rmsnorm", residual_rmsnorm,
             [(bf16, (16384, 8192)), (bf16, (16384, 8192)), (bf16, (8192,))]),
    Workload("colsum", lambda x: x.sum(0), [(f32, (16384, 4096))]),
    Workload("cross_entropy", lambda x, t: F.cross_entropy(x.float(), t), [(bf16, (8192, 32000)), (i64, (8192,))],
             limit=32000),
    Workload("layernorm_gelu", lambda x, w, b: F.gelu(layernorm(x, w, b)),
             [(bf16, (4096, 4096)), (bf16, (4096,)), (bf16, (4096,))]),
    # Shapes that are not round.
    Workload("softmax_odd", lambda x: torch.softmax(x, -1), [(f32, (16384, 4095))], group="odd"),
    Workload("layernorm_64", layernorm, [(bf16, (1 << 20, 64)), (bf16, (64,)), (bf16, (64,))], group="odd"),
    Workload("softmax_131072", lambda x: torch.softmax(x, -1), [(f32, (512, 131072))], group="odd"),
    Workload("rmsnorm_odd", rmsnorm, [(f16, (16384, 5003)), (f16, (5003,))], group="odd"),
    Workload("transposed", lambda x, y: x.t() * 2 + y, [(f32, (8192, 8192))] * 2, group="odd"),
    Workload("bias_columns", lambda x, b: F.relu(x + b), [(f16, (16383, 8191)), (f16, (8191,))], group="odd"),
    Workload("scale_rows", lambda x, s: x * s, [(f32, (10001, 8191)), (f32, (10001, 1))], group="odd"),
    Workload("unaligned_slice", lambda x, y: x[:, 1:] * 0.5 + y, [(f16, (16384, 8193)), (f16, (16384, 8192))],
             group="odd"),
    Workload("colmean_odd", lambda x: x.float().mean(0), [(bf16, (40000, 3001))], group="odd"),
    Workload("log_softmax_50257", lambda x: torch.log_softmax(x, -1), [(f16, (4096, 50257))], group="odd"),
]


def by_name(name):
    return next(w for w in WORKLOADS if w.name == name)


def export(directory):
    for workload in WORKLOADS:
        inputs = tuple(torch.empty(s, dtype=d, device="meta") if d != i64 else torch.zeros(s, dtype=d, device="meta")
                       for d, s in workload.inputs)
        program = torch.export.export(workload.module(), inputs)
        torch.export.save(program, f"{directory}/{workload.name}.pt2")


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] != "export":
        sys.exit(__doc__)
    export(sys.argv[2])
