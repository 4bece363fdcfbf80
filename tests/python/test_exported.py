"""kiln.compile of what torch.export gives."""

from __future__ import annotations

import doctest
from pathlib import Path

import kiln
import pytest
import torch
from kiln import _torch
from kiln.exported import program_bytes


class Model(torch.nn.Module):
    """Pytrees in and out, a number, words, a buffer that changes, a weight."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(16, 8)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: torch.Tensor, *, more: dict[str, torch.Tensor]) -> dict[str, object]:
        self.calls.add_(1)
        return {"y": self.linear(x) * more["scale"], "rest": (x.sum(), 3, None, "words")}


def test_pytrees_sizes_weights_and_buffers() -> None:
    model = Model()
    scale = torch.tensor(2.0)
    exported = torch.export.export(model, (torch.randn(5, 16),), {"more": {"scale": scale}},
                                   dynamic_shapes={"x": {0: torch.export.Dim("b", min=1, max=64)},
                                                   "more": {"scale": None}})
    fast = kiln.compile(exported)
    for calls, rows in enumerate((5, 9, 64), 1):
        x = torch.randn(rows, 16)
        out = fast(x, more={"scale": scale})
        torch.testing.assert_close(out["y"], (model.linear(x) * scale).detach())
        torch.testing.assert_close(out["rest"][0], x.sum())
        assert out["rest"][1:] == (3, None, "words")
        assert model.calls == calls  # bound by pointer: one buffer
    with torch.no_grad():
        model.linear.bias.zero_()  # seen by the next call
    torch.testing.assert_close(fast(x, more={"scale": scale})["y"], (x @ model.linear.weight.T * 2).detach())


def test_numbers_that_are_taken_out_of_tensors() -> None:
    class Taken(torch.nn.Module):
        def forward(self, x: torch.Tensor, scale: torch.Tensor, count: torch.Tensor) -> tuple[object, ...]:
            return x * scale.item() + count.item(), scale.item(), count.item()

    fast = kiln.compile(torch.export.export(Taken(), (torch.ones(3), torch.tensor(0.5), torch.tensor([2]))))
    result, scale, count = fast(torch.full((3,), 4.0), torch.tensor(0.25), torch.tensor([-7]))
    torch.testing.assert_close(result, torch.full((3,), -6.0))
    assert (scale, count) == (0.25, -7)


def test_sizes_of_numbers_that_no_input_reaches() -> None:
    class Positions(torch.nn.Module):
        """As of transformers' funnel: torch.export gives the range's bounds names, as if a call computed them."""

        def __init__(self, dtype: torch.dtype) -> None:
            super().__init__()
            self.dtype = dtype

        def forward(self, x: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
            places = torch.arange(0, x.shape[1]).to(self.dtype)
            half = places[::2]
            reach = half[0] - places[0] + 2 * len(half)
            relative = torch.arange(reach, half[0] - places[-1] - 1, -1, dtype=torch.long)[:, None] + x.shape[1]
            return x.sum() * table.gather(0, relative.expand(relative.size(0), table.shape[1]))

    x, table = torch.randn(2, 16, 4), torch.randn(64, 8)
    for dtype in (torch.long, torch.float32):
        model = Positions(dtype)
        fast = kiln.compile(torch.export.export(model, (x, table), strict=False))
        torch.testing.assert_close(fast(x, table), model(x, table))


def test_sizes_of_constant_tensors() -> None:
    class Ends(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.ends = torch.tensor([[2, 9], [5, 9]]).T  # no buffer: a constant, whose columns lie apart

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            places = torch.arange(self.ends[0, 1] - self.ends[0, 0], self.ends[1, 0], dtype=x.dtype)
            return x * places[:, None] + torch.tensor(2.5) * self.ends[0]

    model, x = Ends(), torch.randn(6, 2)
    fast = kiln.compile(torch.export.export(model, (x,), strict=False))
    torch.testing.assert_close(fast(x), model(x))


def test_inputs_that_do_not_fit_are_refused_by_name() -> None:
    fast = kiln.compile(torch.export.export(torch.nn.Linear(4, 2), (torch.ones(3, 4),)))
    with pytest.raises(kiln.InvalidArgument, match=r"input 'input' is f32\[3,4\] on cpu; .*\[3, 5\]"):
        fast(torch.ones(3, 5))
    with pytest.raises(kiln.InvalidArgument, match="structure"):
        fast(torch.ones(3, 4), torch.ones(1))
    torch.testing.assert_close(fast(torch.ones(4, 3).t()), fast(torch.ones(3, 4)))  # any strides


def test_an_op_that_is_not_covered_is_named() -> None:
    class Nonzero(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.nonzero().float().relu()

    with pytest.raises(kiln.Unsupported, match=r"aten\.nonzero"):
        kiln.compile(torch.export.export(Nonzero(), (torch.ones(3),)))


class Turned(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("by", torch.polar(torch.ones(4), torch.arange(4.0)))
        self.register_buffer("sum", torch.zeros(4, dtype=torch.complex64))

    def forward(self, z: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        turned = z * self.by
        self.sum.add_(turned.sum(0))
        return turned.transpose(0, 1), turned.abs()


def test_complex_tensors_go_in_and_come_out() -> None:
    model, plain = Turned(), Turned()
    z = torch.complex(torch.randn(3, 4), torch.randn(3, 4))
    fast = kiln.compile(torch.export.export(model, (z,)))
    for _ in range(2):
        torch.testing.assert_close(fast(z), plain(z))
        torch.testing.assert_close(model.sum, plain.sum)
    torch.testing.assert_close(fast(z.conj()), plain(z.conj()))


class FourBits(torch.nn.Module):
    """A linear layer of weights of 4 bits, as torch packs them here."""

    def __init__(self) -> None:
        super().__init__()
        weights = torch.arange(96 * 64, dtype=torch.int32).view(96, 64) * 7 % 16
        self.register_buffer("packed", torch.ops.aten._convert_weight_to_int4pack_for_cpu(weights, 1))
        self.register_buffer("factors", torch.stack([torch.rand(2, 96), torch.randn(2, 96)], -1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.ops.aten._weight_int4pack_mm_for_cpu(x, self.packed, 32, self.factors)


def test_packed_weights_are_read_where_torch_packs_them_so(monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = FourBits(), torch.randn(5, 64)
    exported = torch.export.export(model, (x,))
    if torch.backends.cpu.get_cpu_capability() == "AVX512":
        torch.testing.assert_close(kiln.compile(exported)(x), model(x), rtol=1e-4, atol=1e-4)
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX2")
    with pytest.raises(kiln.Unsupported, match="AVX-512.* AVX2 here"):
        kiln.compile(exported)


def test_vmap_is_carried_out() -> None:
    class Mapped(torch.nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return torch.func.vmap(lambda a, b: (a @ b).sum(-1))(x, y)

    x, y = torch.randn(5, 3, 4), torch.randn(5, 4, 2)
    torch.testing.assert_close(kiln.compile(torch.export.export(Mapped(), (x, y), strict=False))(x, y), Mapped()(x, y))


def test_random_programs_follow_the_seed() -> None:
    fast = kiln.compile(torch.export.export(torch.nn.Dropout(0.5).train(), (torch.ones(64, 64),)))
    torch.manual_seed(3)
    first, second = fast(torch.ones(64, 64)), fast(torch.ones(64, 64))
    torch.manual_seed(3)
    assert torch.equal(fast(torch.ones(64, 64)), first) and not torch.equal(first, second)
    assert 0.4 < first.ne(0).float().mean() < 0.6


def test_a_saved_program_is_loaded(tmp_path: Path) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.GELU())
    torch.export.save(torch.export.export(model, (torch.ones(3, 4),)), tmp_path / "model.pt2")
    torch.testing.assert_close(kiln.load(tmp_path / "model.pt2")(torch.ones(3, 4)), model(torch.ones(3, 4)).detach())
    with pytest.raises(kiln.KilnError, match="cannot read"):
        kiln.load(tmp_path / "none.pt2")


def test_the_examples_of_the_docstrings() -> None:
    import kiln.client
    import kiln.exported

    for module in (kiln.client, kiln.exported):
        assert doctest.testmod(module, extraglobs={"Client": kiln.Client}).failed == 0


def test_a_launch_is_on_its_gpu_and_gives_back_torchs(monkeypatch: pytest.MonkeyPatch) -> None:
    program = kiln.Client("", gpu=1).compile(program_bytes(torch.export.export(torch.nn.GELU(), (torch.ones(4),))))  # runs on the CPU
    current, launched = [0], []

    def exchange(gpu: int) -> int:
        before, current[0] = current[0], gpu
        return before

    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch._C, "_cuda_exchangeDevice", exchange, raising=False)
    monkeypatch.setattr(torch._C, "_cuda_maybeExchangeDevice", exchange, raising=False)
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda gpu: launched.append((gpu, current[0])),
                        raising=False)
    monkeypatch.setattr(_torch, "allocator_of", lambda device: lambda sizes, strides, dtype: torch.empty_strided(
        sizes, strides, dtype=dtype))
    x = torch.randn(4)
    launcher = _torch.Launcher(program, torch.device("cuda", 1))
    torch.testing.assert_close(launcher([x])[0], torch.nn.functional.gelu(x))
    with pytest.raises(IndexError):
        launcher([])
    assert launched == [(1, 1)] and current == [0]


def test_tensors_of_another_gpu_are_refused() -> None:
    class OnGpu(torch.Tensor):
        device = torch.device("cuda", 0)

    info = kiln.Client("").compile(program_bytes(torch.export.export(torch.nn.GELU(), (torch.ones(4),)))).inputs[0]
    x = torch.ones(4).as_subclass(OnGpu)
    assert _torch.check_input(x, info, torch.device("cuda", 0)) is not None
    with pytest.raises(kiln.InvalidArgument, match="on cuda:1; it was given .* on cuda:0"):
        _torch.check_input(x, info, torch.device("cuda", 1))
