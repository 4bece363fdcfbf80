"""e8m0, the type of scales of blocks, beside torch: casts, bits, layers as torchao quantises them, archives."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import kiln
import kiln.dynamo
import pytest
import torch
from torch import nn
from torch._export.serde import schema

E8M0 = torch.float8_e8m0fnu
saves_it = pytest.mark.skipif(not hasattr(schema.ScalarType, "FLOAT8E8M0FNU"), reason="this torch cannot save the type")


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("KILN_STRICT", "1")
    torch._dynamo.reset()
    torch.manual_seed(0)
    yield
    torch._dynamo.reset()


def run(model: Callable[..., Any], *inputs: torch.Tensor) -> Any:
    with torch.no_grad():
        return torch.compile(model, backend=kiln.dynamo.backend)(*inputs)


def codes(scales: torch.Tensor) -> torch.Tensor:
    return scales.view(torch.uint8)


def casts(x: torch.Tensor, scales: torch.Tensor, integers: torch.Tensor) -> Any:
    return (x.to(E8M0), x.double().to(E8M0), x.bfloat16().to(E8M0), integers.to(E8M0), scales.float(), scales.double(),
            scales.to(torch.bfloat16), scales.to(torch.float16), scales[:136].to(torch.float8_e4m3fn),
            scales.view(torch.uint8), codes(scales).view(E8M0), x.to(E8M0).float())


def some_numbers() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Numbers of any exponent, what they turn at, every scale, integers."""
    bits = torch.randint(-2**31, 2**31, (1 << 16,), dtype=torch.int64).to(torch.int32)
    exponents = torch.arange(256, dtype=torch.int32) << 23
    turns = torch.cat([exponents + m for m in (0, 1, 0x3fffff, 0x400000, 0x400001, 0x7fffff)])
    every = torch.arange(256, dtype=torch.uint8).view(E8M0)
    return torch.cat([bits, turns]).view(torch.float32), every, torch.arange(-40, 300)


def equal(got: torch.Tensor, want: torch.Tensor) -> bool:
    if got.dtype != want.dtype:
        return False
    if got.dtype == E8M0:
        return torch.equal(codes(got), codes(want))
    return torch.equal(got.nan_to_num(3.0).double(), want.nan_to_num(3.0).double()) if got.is_floating_point() \
        and got.element_size() > 1 else torch.equal(got.view(torch.uint8), want.view(torch.uint8))


def test_casts_give_the_bits_that_torch_gives() -> None:
    inputs = some_numbers()
    for got, want in zip(run(casts, *inputs), casts(*inputs), strict=True):
        assert equal(got, want), want.dtype


@saves_it
def test_an_archive_of_a_torch_that_has_the_type_is_read(tmp_path: Path) -> None:
    class Casts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("scales", some_numbers()[1])

        def forward(self, x: torch.Tensor, integers: torch.Tensor) -> Any:
            return casts(x, self.get_buffer("scales"), integers)

    x, _, integers = some_numbers()
    exported = torch.export.export(Casts(), (x, integers))
    torch.export.save(exported, tmp_path / "casts.pt2")
    program = kiln.load(tmp_path / "casts.pt2")
    for got, want in zip(program(x, integers), Casts()(x, integers), strict=True):
        assert equal(got, want), want.dtype


def in_tiles(scales: torch.Tensor) -> torch.Tensor:
    """As cuBLAS has them: tiles of 128 lines and 4 blocks, of which a row of 16 bytes has every 32nd line."""
    lines, blocks = -scales.size(0) % 128, -scales.size(1) % 4
    whole = nn.functional.pad(codes(scales), (0, blocks, 0, lines))
    tiles = whole.view(whole.size(0) // 128, 4, 32, whole.size(1) // 4, 4)
    return tiles.permute(0, 3, 2, 1, 4).contiguous().view(-1).view(E8M0)


class ScaledMm(nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor, scale_a: torch.Tensor, scale_b: torch.Tensor) -> torch.Tensor:
        return torch._scaled_mm(a, b.t(), scale_a, scale_b, out_dtype=torch.float32)


class ByRecipe(nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor, scale_a: torch.Tensor, scale_b: torch.Tensor) -> torch.Tensor:
        blocks, tiles = nn.functional.ScalingType.BlockWise1x32, nn.functional.SwizzleType.SWIZZLE_32_4_4
        return nn.functional.scaled_mm(a, b.t(), scale_a, blocks, scale_b, blocks, swizzle_a=tiles, swizzle_b=tiles,
                                       output_dtype=torch.float32)


# torch has no such product on CPUs.
@pytest.mark.parametrize("product", [ScaledMm, pytest.param(ByRecipe, marks=saves_it)])
@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_products_take_scales_of_blocks_in_tiles(product: type[nn.Module], dtype: torch.dtype) -> None:
    a, b = torch.randn(130, 160).to(dtype), torch.randn(48, 160).to(dtype)
    scales = [torch.randint(117, 137, (x.size(0), 5), dtype=torch.uint8).view(E8M0) for x in (a, b)]
    left, right = (x.double() * s.double().repeat_interleave(32, 1) for x, s in zip((a, b), scales, strict=True))
    want = left @ right.t()
    inputs = (a, b, *(in_tiles(s) for s in scales))
    if product is ScaledMm:
        got = run(product(), *inputs)
    else:
        got = kiln.compile(torch.export.export(product(), inputs))(*inputs)
    assert ((got.double() - want).abs() <= 1e-6 * (left.abs() @ right.abs().t())).all()


@pytest.mark.parametrize("rows", [1, 6])
def test_a_layer_that_torchao_microscales_equals_eager(rows: int) -> None:
    workflow: Any = pytest.importorskip("torchao.prototype.mx_formats.inference_workflow")
    preference: Any = pytest.importorskip("torchao.quantization.quantize_.common").KernelPreference
    quantize: Any = pytest.importorskip("torchao.quantization").quantize_
    layer, x = nn.Linear(128, 96).bfloat16(), torch.randn(rows, 128).bfloat16()
    quantize(layer, workflow.MXDynamicActivationMXWeightConfig(kernel_preference=preference.EMULATED))
    with torch.no_grad():
        want = layer(x)
    torch.testing.assert_close(run(layer, x), want, rtol=1e-2, atol=1e-2)
    assert all(part.in_kiln for graph in kiln.explain(layer, x).graphs for part in graph.partitions)
