"""The decoder that the examples of vLLM and SGLang compile: layers with an attention that the stacks cut at."""

from __future__ import annotations

import torch

WIDTH, HEADS, LAYERS = 64, 4, 3


@torch.library.custom_op("kiln_example::attention", mutates_args=("out",))
def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, out: torch.Tensor) -> None:
    """Where the stacks cut; a server's reads a cache of keys and values, and is not compiled."""
    split = [each.unflatten(-1, (HEADS, -1)).transpose(0, 1) for each in (q, k, v)]
    out.copy_(torch.nn.functional.scaled_dot_product_attention(*split, is_causal=True).transpose(0, 1).flatten(1))


@attention.register_fake
def _(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, out: torch.Tensor) -> None:
    del q, k, v, out


class Layer(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv = torch.nn.Linear(WIDTH, 3 * WIDTH)
        self.project = torch.nn.Linear(WIDTH, WIDTH)
        self.up, self.down = torch.nn.Linear(WIDTH, 4 * WIDTH), torch.nn.Linear(4 * WIDTH, WIDTH)
        self.first, self.second = torch.nn.RMSNorm(WIDTH), torch.nn.RMSNorm(WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(self.first(x)).chunk(3, dim=-1)
        attended = torch.empty_like(q)
        torch.ops.kiln_example.attention(q, k, v, attended)
        x = x + self.project(attended)
        return x + self.down(torch.nn.functional.silu(self.up(self.second(x))))


class Decoder(torch.nn.Module):
    """Rows of WIDTH to rows of WIDTH. ``**named``: what vLLM gives its models."""

    def __init__(self, **named: object) -> None:
        del named
        super().__init__()
        self.layers = torch.nn.ModuleList(Layer() for _ in range(LAYERS))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return x
