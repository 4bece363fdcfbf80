"""Programs of many ops, so that each way to write an op down is compared with torch's numbers. They are archived in
tests/graphs/zoo, where C++ tests run them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from registry import Case, model

Function = Callable[..., Any]


class Program(nn.Module):
    def __init__(self, function: Function) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.function(*inputs)


def program(name: str, *inputs: Callable[[], torch.Tensor]) -> Callable[[Function], Function]:
    def put(function: Function) -> Function:
        @model(f"ops: {name}", "programs of ops")
        def make() -> Case:
            return Case(Program(function), tuple(each() for each in inputs))

        return function

    return put


def normal(*sizes: int) -> Callable[[], torch.Tensor]:
    return lambda: torch.randn(sizes)


def halves(*sizes: int) -> Callable[[], torch.Tensor]:
    return lambda: torch.randn(sizes).bfloat16()


@program("groups of rows", halves(24, 8), halves(5, 8, 16), lambda: torch.tensor([3, 3, 10, 17, 24], dtype=torch.int32),
         halves(8, 24), halves(24, 16), halves(5, 8, 8), halves(8, 24), halves(600, 8),
         lambda: torch.tensor([90, 350, 350, 592, 600], dtype=torch.int32), halves(2, 8), halves(16, 8, 8),
         lambda: torch.tensor([0] * 5 + [1] * 7 + [2] * 4, dtype=torch.int32))
def groups(*operands: Any) -> Any:
    rows, matrices, ends, left, right, stacked, columns, many, many_ends, two, experts, two_ends = operands
    return (torch._grouped_mm(rows, matrices, ends), torch._grouped_mm(left, right, ends),
            torch._grouped_mm(many, matrices, many_ends), torch._grouped_mm(two, experts, two_ends),
            torch._grouped_mm(stacked, columns, ends), torch._grouped_mm(rows[:20].view(5, 4, 8), matrices),
            torch._grouped_mm(rows, matrices.transpose(1, 2).contiguous().transpose(1, 2), ends))


@program("histograms", lambda: torch.tensor([0, 3, 1, 1, 2, 3, 3, 7, -1, 0]), normal(50))
def histograms(experts: Any, x: Any) -> Any:
    counts = torch.histc(experts.float(), bins=4, min=0, max=3)
    return counts, counts.cumsum(0, dtype=torch.int32), torch.histc(x, 10, -1, 1), torch.histc(x, bins=7)


@program("complex arithmetic", normal(3, 4, 2), normal(4, 2), normal(3, 4), lambda: torch.rand(4) + 0.5)
def complex_arithmetic(x: Any, y: Any, real: Any, positive: Any) -> Any:
    a, b = torch.view_as_complex(x), torch.view_as_complex(y)
    turned = torch.polar(positive, positive * 3)
    return (a * b, a / b, a + b, a - real, a * real, a * 2.5, a / 3, -a, a.reciprocal(), a.abs(), a.angle(), a.exp(),
            (a * b).log(), a.conj().resolve_conj() * 1, a.real, a.imag, torch.complex(real, real * 2), turned,
            torch.view_as_real(a * turned), a.square(), a**2, a @ b, a.transpose(0, 1) @ a, a == a * 1, a != b)


@program("complex numbers moved", normal(3, 4, 2), normal(3, 4), lambda: torch.tensor([2, 0]))
def complex_moves(x: Any, real: Any, index: Any) -> Any:
    a = torch.view_as_complex(x)
    halves = a.chunk(2, 1)
    return (a.transpose(0, 1), a[:, 1:3], a.reshape(12)[::2], torch.cat([a, a]), torch.stack([a, a * 2], 1), a[index],
            a.index_select(0, index), a.unsqueeze(1).expand(3, 2, 4), a.sum(), a.sum(1), a.mean(0), a.cumsum(1),
            torch.where(real > 0, a, a * 2), halves[0] * halves[1], a.flip(0), a.roll(1, 1), a.clone(), a.permute(1, 0),
            a.to(torch.complex128), a.squeeze(), a.contiguous().view(2, 6), real.to(torch.complex64))


@program("fourier transforms", normal(2, 12), normal(3, 4, 10), normal(2, 9, 2))
def fourier(x: Any, cube: Any, pairs: Any) -> Any:
    fft, z = torch.fft, torch.view_as_complex(pairs)
    return (fft.fft(x), fft.fft(z), fft.ifft(z), fft.fft(z, n=5), fft.fft(z, n=12, norm="ortho"), fft.rfft(x),
            fft.rfft(x, n=9), fft.rfft(cube, dim=1, norm="forward"), fft.irfft(z), fft.irfft(z, n=15),
            fft.irfft(z, n=8), fft.fft2(cube), fft.ifft2(torch.complex(cube, cube)), fft.rfft2(cube),
            fft.irfft2(fft.rfft2(cube), s=(4, 10)),
            fft.fftn(cube), fft.fftn(cube, dim=(0, 2)), fft.ifftn(torch.complex(cube, cube)), fft.rfftn(cube),
            fft.irfftn(fft.rfftn(cube), s=(3, 4, 10)), fft.fft(x[:1]).real)


@program("fourier primitives", normal(3, 4, 10), normal(2, 64), lambda: torch.hann_window(12))
def primitives(cube: Any, wave: Any, window: Any) -> Any:
    half = torch._fft_r2c(cube, [1, 2], 0, True)
    return (half, torch._fft_c2c(torch.complex(cube, cube), [0, 2], 1, True),
            torch._fft_c2c(torch.complex(cube, cube), [1], 2, False), torch._fft_c2r(half, [1, 2], 2, 10),
            torch.stft(wave, 16, 4, 12, window, return_complex=True),
            torch.stft(wave[0], 16, 8, center=False, normalized=True, return_complex=True,
                       window=torch.ones(16, device=wave.device)))


@program("long fourier transforms", normal(600), normal(301, 2))
def long_transforms(x: Any, pairs: Any) -> Any:
    fft, z = torch.fft, torch.view_as_complex(pairs)
    return fft.rfft(x), fft.ifft(z, n=520), fft.irfft(z), fft.irfft(z, n=515, norm="ortho")


@program("windows and spectra", normal(2, 40), normal(3, 9, 2))
def windows(wave: Any, pairs: Any) -> Any:
    fft, z, on = torch.fft, torch.view_as_complex(pairs), {"device": wave.device}
    return (torch.stft(wave, 16, 4, window=torch.hann_window(16, **on), return_complex=True),
            torch.hann_window(1, **on), torch.hamming_window(9, periodic=False, **on),
            torch.blackman_window(7, **on), torch.hamming_window(8, True, 0.6, 0.4, **on),
            fft.fftfreq(7, 0.5, **on), fft.rfftfreq(10, **on), fft.fftshift(wave), fft.ifftshift(pairs, dim=(1,)),
            fft.fftshift(z), fft.hfft(z), fft.hfft(z, 8, norm="ortho"), fft.ihfft(wave), z * 2j, (1 + 2j) - z,
            wave * 1j, z / (3 - 1j), z**3, z**-0.5, z.sqrt(), torch.sgn(z), z.mH, pairs.mH,
            torch.linalg.vector_norm(z, dim=1))


@program("numbers out of tensors", normal(4, 6), lambda: torch.tensor(3.5), lambda: torch.tensor([7]),
         lambda: torch.tensor(True))
def numbers(x: Any, scale: Any, count: Any, flag: Any) -> Any:
    return (x * scale.item(), x.bfloat16() * scale.item(), count + count.item(), x + count.item(),
            x / x.abs().max().item(), torch.clamp(x, max=scale.item()), x.long() - count.item(),
            "a name", x.shape[0], scale.item(), torch.tensor([1.5, 2.5], device=x.device)[1].item() * x,
            x * (2 * count.item() + 1), (3 - count.item()) - x, x * (1 / (scale.item() + 1)))


def sizes(x: Any) -> Any:
    rows, columns = x.shape
    return x * (1.0 / rows), x.sum() * (rows / columns), rows / 2, x + (rows * 0.5 - columns)


@model("ops: numbers of sizes", "programs of ops")
def numbers_of_sizes() -> Case:
    from torch.export import Dim

    return Case(Program(sizes), (torch.randn(4, 6),), {}, {"inputs": ({0: Dim("rows", min=2, max=64)},)},
                [((torch.randn(7, 6),), {})])


@program("quantised", normal(6, 16), lambda: torch.randint(-128, 127, (8, 16), dtype=torch.int8),
         lambda: torch.rand(8) * 0.1 + 0.01, lambda: torch.randint(-3, 4, (8,)))
def quantised(x: Any, weight: Any, scales: Any, zeros: Any) -> Any:
    import torch.ao.quantization.fx._decomposed

    ops: Any = torch.ops.quantized_decomposed
    one, nought = scales[:1], zeros[:1]
    rows = ops.quantize_per_tensor(x, 0.03, 5, -128, 127, torch.int8)
    bytes_ = ops.quantize_per_tensor.tensor(x, one, nought.clamp(min=0), 0, 255, torch.uint8)
    token, nothing = x.abs().amax(1, keepdim=True) / 127, torch.zeros(6, 1, dtype=torch.int64, device=x.device)
    by_token = ops.quantize_per_token(x, token, nothing, -128, 127, torch.int8)
    grouped = ops.quantize_per_channel_group(x, token.expand(6, 4), nothing.expand(6, 4), -8, 7, torch.int8, 4)
    channels = ops.quantize_per_channel(x[:, :8], scales, zeros, 1, -128, 127, torch.int8)
    return (rows, bytes_, by_token, grouped, channels, ops.dequantize_per_tensor(rows, 0.03, 5, -128, 127, torch.int8),
            ops.dequantize_per_tensor.tensor(bytes_, one, nought, 0, 255, torch.uint8),
            ops.dequantize_per_channel(weight, scales, zeros, 0, -128, 127, torch.int8),
            ops.dequantize_per_channel(weight, scales, None, 0, -128, 127, torch.int8),
            ops.dequantize_per_token(by_token, token, nothing, -128, 127, torch.int8, torch.float32),
            ops.dequantize_per_channel_group(grouped, token.expand(6, 4), nothing.expand(6, 4), -8, 7, torch.int8, 4,
                                             torch.float32),
            torch.fake_quantize_per_tensor_affine(x, 0.05, 3, -128, 127),
            torch.fake_quantize_per_channel_affine(x[:, :8], scales, zeros.int(), 1, -128, 127))


@program("products of int8", lambda: torch.randint(-128, 128, (32, 16), dtype=torch.int8),
         lambda: torch.randint(-128, 128, (16, 24), dtype=torch.int8), normal(32, 16), lambda: torch.rand(24) * 0.1)
def int8(x: Any, y: Any, real: Any, scales: Any) -> Any:
    packed = torch._weight_int8pack_mm(real.bfloat16(), y.t().contiguous(), scales.bfloat16())
    return torch._int_mm(x, y), packed


@program("weights of four bits", halves(5, 64), lambda: torch.randint(0, 16, (176, 64), dtype=torch.int32),
         lambda: torch.stack([torch.rand(2, 176) * 0.1, torch.randn(2, 176)], -1).bfloat16(), normal(3, 64),
         lambda: torch.randint(0, 256, (48, 32), dtype=torch.uint8), lambda: torch.rand(48, 2) * 0.1,
         lambda: torch.randint(0, 16, (48, 2), dtype=torch.uint8))
def four_bits(*operands: Any) -> Any:
    x, weight, factors, y, packed, scales, zeros = operands
    ops: Any = torch.ops.aten
    if x.is_cuda:  # each target has its own ops
        own = ops._convert_weight_to_int4pack((weight[:, ::2] << 4 | weight[:, 1::2]).to(torch.uint8), 2)
        results = [ops._weight_int4pack_mm(x, own, 32, factors)]
    else:
        own = ops._convert_weight_to_int4pack_for_cpu(weight, 1)
        results = [own, ops._weight_int4pack_mm_for_cpu(x, own, 32, factors),
                   ops._weight_int4pack_mm_for_cpu(x.float(), own, 32, factors.float())]
    low, high = packed & 15, packed >> 4
    for q in (torch.stack([low, high], -1).view(48, 64), torch.stack([high, low], -1).view(48, 64),
              torch.cat([low, high], -1)):
        groups = (q.view(48, 2, 32).to(y.dtype) - zeros[:, :, None].to(y.dtype)) * scales[:, :, None]
        results.append(nn.functional.linear(y, groups.view(48, 64)))
    return results


class Quantised(nn.Module):
    """Layers of which torchao quantises each in its own way, behind a norm."""

    def __init__(self) -> None:
        super().__init__()
        from torchao.quantization import (
            Float8WeightOnlyConfig,
            Int8DynamicActivationInt8WeightConfig,
            Int8DynamicActivationIntxWeightConfig,
            Int8WeightOnlyConfig,
            IntxWeightOnlyConfig,
            PerGroup,
            quantize_,
        )
        from torchao.utils import unwrap_tensor_subclass

        ways: list[Any] = [
            Int8WeightOnlyConfig(version=2), Int8DynamicActivationInt8WeightConfig(version=2), Float8WeightOnlyConfig(),
            IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=PerGroup(32)),
            Int8DynamicActivationIntxWeightConfig(weight_dtype=torch.int4, weight_granularity=PerGroup(32)),
        ]
        self.norm = nn.RMSNorm(64, eps=1e-6)
        self.layers = nn.ModuleList(nn.Linear(64, 48, bias=False).bfloat16() for _ in ways)
        for layer, way in zip(self.layers, ways, strict=True):
            quantize_(layer, way)
        unwrap_tensor_subclass(self)

    def forward(self, x: torch.Tensor) -> Any:
        rows = self.norm(x).bfloat16()
        return [layer(rows) for layer in self.layers]


@model("torchao, layers", "programs of ops")
def torchao_layers() -> Case:
    return Case(Quantised(), (torch.randn(6, 64),))


# Sums and quotients of halves decide which integer is nearest: kernels round them where torch does.
def blocks_of_torchao(x: Any, y: Any) -> Any:
    ops: Any = torch.ops.torchao
    results: list[Any] = []
    for rows, block, mapping in ((x, [1, 32], "ASYMMETRIC"), (y, [12, 16], "SYMMETRIC_NO_CLIPPING_ERR")):
        keep = mapping == "ASYMMETRIC"
        scale, zero = ops.choose_qparams_affine(rows, mapping, block, torch.int8, -8, 7, None, torch.float32,
                                                torch.int8, keep)
        q = ops.quantize_affine(rows, block, scale, zero, torch.int8, -8, 7)
        results += [scale, zero, q, ops.dequantize_affine(q, block, scale, zero, torch.int8, -8, 7, rows.dtype)]
    scale = ops.choose_scale_float8(x, [12, 16], torch.float8_e4m3fn, torch.float32, 1e-3, 2.0)
    q = ops.quantize_affine_float8_non_decomposed(x, scale, torch.float8_e4m3fn)
    results += [scale, q, ops.dequantize_affine_float8_non_decomposed(q, scale, torch.bfloat16)]
    return results


@model("torchao, blocks", "programs of ops")
def torchao_blocks() -> Case:
    import torchao  # noqa: F401

    return Case(Program(blocks_of_torchao), (torch.randn(12, 64).bfloat16(), torch.randn(12, 64)))


@program("float8", normal(32, 64), normal(48, 64), lambda: torch.rand(48))
def float8(x: Any, weight: Any, bias: Any) -> Any:
    one, scale = torch.ones((), device=x.device), x.abs().amax() / 448
    a, b = (x / scale).to(torch.float8_e4m3fn), weight.to(torch.float8_e4m3fn).t()
    return (a, x.to(torch.float8_e5m2), a.to(torch.bfloat16), b.float(), (x * 1000).to(torch.float8_e4m3fn).float(),
            torch._scaled_mm(a, b, scale, one, bias=bias.bfloat16(), out_dtype=torch.bfloat16),
            torch._scaled_mm(a, b, scale, one, out_dtype=torch.float32))


@program("loops", normal(6, 2, 4), normal(6, 2, 4))
def loops(gate: Any, x: Any) -> Any:
    from functorch.experimental.control_flow import map as mapped
    from torch._higher_order_ops.associative_scan import associative_scan
    from torch._higher_order_ops.scan import scan
    from torch._higher_order_ops.while_loop import while_loop

    def step(state: Any, now: Any) -> Any:
        state = torch.sigmoid(now[0]) * state + now[1]
        return state, state.tanh()

    def newton(i: Any, root: Any) -> Any:
        return i + 1, 0.5 * (root + (x.abs() + 1) / root)

    last, states = scan(step, torch.zeros_like(x[0]), (gate, x))
    later, _ = scan(step, last.clone(), (gate, x), reverse=True)
    sums = associative_scan(lambda a, b: a + b.cos() * 0.5 + b, x, 0, combine_mode="generic")
    begin = torch.zeros((), dtype=torch.long, device=x.device)
    count, root = while_loop(lambda i, root: i < 5, newton, (begin, torch.ones_like(x)))
    return last, states, later, sums, count, root, mapped(lambda each, by: each * by.sum(), x, gate[0])


@program("numbers as places", normal(8, 4), normal(2, 4), lambda: torch.tensor([5, 2]))
def places(x: Any, rows: Any, at: Any) -> Any:
    n, m = at[0].item(), at[1].item()
    torch._check(n >= 0)
    torch._check(n + 2 <= x.shape[0])
    torch._check(m >= 0)
    torch._check(m < x.shape[1])
    cache = x.clone()
    cache.narrow(0, n, 2).copy_(rows)
    cache.select(1, m).mul_(2.0)
    return x.select(0, n), x.select(1, m), x.narrow(0, n, 2) + rows, cache


@program("splits", normal(6, 10))
def splits(x: Any) -> Any:
    return (*torch.ops.aten.split.sizes(x, [1, 2, 3]), *x.split(4, 1), *x.split([3, 7], 1), *x.tensor_split(4),
            *x.tensor_split((2, 5), 1), *x.hsplit(2), *x.vsplit([1, 4]), *x.unbind(0))


@program("autocast", normal(8, 16), normal(16, 16), normal(1, 4, 8, 8), normal(4, 4, 3, 3))
def autocast(x: Any, weight: Any, image: Any, filters: Any) -> Any:
    with torch.autocast("cpu", torch.bfloat16):
        y = x @ weight
        z = torch.nn.functional.linear(y, weight)
        a = torch.nn.functional.scaled_dot_product_attention(z.view(1, 1, 8, 16), x.view(1, 1, 8, 16),
                                                             y.view(1, 1, 8, 16))
        with torch.autocast("cpu", enabled=False):
            exact = x @ weight
        pictures = torch.nn.functional.conv2d(image, filters)
        return y, z, y + x, y.softmax(-1), a, exact, pictures, torch.nn.functional.layer_norm(y, (16,))
