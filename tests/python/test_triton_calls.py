"""Triton kernels inside of models. No GPU is needed: Triton analyses each kernel for sm_90, and what it would launch is
done by torch on the CPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import kiln
import kiln.dynamo
import pytest
import torch
import triton
import triton.language as tl
from kiln import _triton_calls
from kiln._graphs import GraphCompiler
from kiln._steps import EagerStep
from kiln._triton_calls import launch_triton
from torch._higher_order_ops.triton_kernel_wrap import kernel_side_table
from torch._library.triton import wrap_triton
from triton.backends.compiler import GPUTarget
from triton.runtime.jit import JITFunction


@triton.jit
def scaled_sum(x, y, out, size, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < size
    tl.store(out + at, tl.load(x + at, mask=inside) * 3 + tl.load(y + at, mask=inside), mask=inside)


@triton.jit
def double(x, size, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + at, tl.load(x + at, mask=at < size) * 2, mask=at < size)


ON_CPU: dict[str, Callable[..., Any]] = {
    "scaled_sum": lambda x, y, out, size, BLOCK: out.view(-1)[:size].copy_((x * 3 + y).view(-1)[:size]),
    "double": lambda x, size, BLOCK: x.view(-1)[:size].mul_(2)}


class Driver:
    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", 90, 32)


@pytest.fixture(autouse=True)
def launched(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[str, tuple[int, ...]]]]:
    """Each launch: the kernel's name, and the addresses of the tensors that it was given."""
    launches: list[tuple[str, tuple[int, ...]]] = []

    def run(self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> None:
        launches.append((self.fn.__name__, tuple(each.data_ptr() for each in args if isinstance(each, torch.Tensor))))
        ON_CPU[self.fn.__name__](*args, **kwargs)

    monkeypatch.setattr(JITFunction, "run", run)
    monkeypatch.setattr("torch.utils._triton.has_triton", lambda **_: True)  # else Dynamo takes kernels for functions
    monkeypatch.setattr(triton.runtime.driver, "_active", Driver(), raising=False)
    monkeypatch.setenv("KILN_STRICT", "1")
    torch._dynamo.reset()
    kernel_side_table.reset_table()
    yield launches
    torch._dynamo.reset()


def sum_of(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    scaled_sum[(triton.cdiv(x.numel(), 128),)](x, y, out, x.numel(), BLOCK=128)
    return out


def model(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return sum_of(x.exp() + 1, y.sin()).tanh() * 2


def compiled(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    run: Callable[..., Any] = torch.compile(function, backend=kiln.dynamo.backend, **options)
    return run


def test_a_model_with_a_triton_kernel_is_kilns_but_for_the_launch(launched: list[Any]) -> None:
    x, y = torch.randn(7, 33), torch.randn(7, 33)
    told = kiln.explain(model, x, y)
    assert [part.in_kiln for part in told.graphs[0].partitions] == [True, False, True], told
    launched.clear()
    with torch.no_grad():
        torch.testing.assert_close(compiled(model)(x, y), (x.exp() * 3 + 3 + y.sin()).tanh() * 2)
    assert [name for name, _ in launched] == ["scaled_sum"]


def test_what_a_model_allocates_for_a_kernel_is_not_cloned(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[str]] = []
    step = EagerStep.__init__

    def note(self: EagerStep, module: Any, *rest: Any) -> None:
        seen.append([str(node.target) for node in module.graph.nodes if node.op == "call_function"])
        step(self, module, *rest)

    monkeypatch.setattr(EagerStep, "__init__", note)
    x, y = torch.randn(4, 8), torch.randn(4, 8)
    with torch.no_grad():
        compiled(model)(x, y)
    assert not any("clone" in target for target in seen[0]), seen


def test_a_tensor_that_the_caller_gave_is_written(launched: list[Any]) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        before = x + 1
        double[(1,)](x, x.numel(), BLOCK=64)
        return before * x

    x = torch.randn(5, 6)
    given = x.clone()
    with torch.no_grad():
        torch.testing.assert_close(compiled(f)(given), (x + 1) * x * 2)
    torch.testing.assert_close(given, x * 2)
    assert [name for name, _ in launched] == ["double"]


def test_a_value_that_is_still_read_is_not_overwritten() -> None:
    def f(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = x.exp()
        z = y * 1
        double[(1,)](y, y.numel(), BLOCK=64)
        return z.sin(), y.cos()

    x = torch.randn(5, 6)
    with torch.no_grad():
        have = compiled(f)(x)
    torch.testing.assert_close(have, (x.exp().sin(), (x.exp() * 2).cos()))


def test_dynamic_sizes(launched: list[Any]) -> None:
    run = compiled(model, dynamic=True)
    with torch.no_grad():
        for rows in (3, 5, 9):
            x, y = torch.randn(rows, 33), torch.randn(rows, 33)
            torch.testing.assert_close(run(x, y), (x.exp() * 3 + 3 + y.sin()).tanh() * 2)
    assert len(launched) == 3


def register(name: str) -> Any:
    @torch.library.triton_op(name, mutates_args={})
    def op(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        wrap_triton(scaled_sum)[(1,)](x, y, out, x.numel(), BLOCK=128)
        return out

    return op


def test_a_triton_op_is_one_too(launched: list[Any]) -> None:
    op = register("kiln_test::scaled_sum")

    def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return op(x.exp(), y).sin()

    x, y = torch.randn(4, 8), torch.randn(4, 8)
    with torch.no_grad():
        torch.testing.assert_close(compiled(f)(x, y), (x.exp() * 3 + y).sin())
    assert [name for name, _ in launched] == ["scaled_sum"]


@pytest.mark.parametrize("through_op", [False, True])
def test_a_cached_graph_names_kernels_by_what_they_are(launched: list[Any], monkeypatch: pytest.MonkeyPatch,
                                                       through_op: bool) -> None:
    graphs: list[str] = []
    compile_graph = GraphCompiler.compile

    def count(self: GraphCompiler) -> Any:
        graphs.append(self.report.name)
        return compile_graph(self)

    monkeypatch.setattr(GraphCompiler, "compile", count)
    op = register("kiln_test::cached") if through_op else sum_of

    def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return op(x.exp(), y).sin()  # type: ignore[no-any-return]

    x, y = torch.randn(4, 8), torch.randn(4, 8)
    want = (x.exp() * 3 + y).sin()
    with torch.no_grad():
        torch.testing.assert_close(compiled(f)(x, y), want)
        # Another process: its table has other kernels at other places, unless the graph's key, torch's own, has those.
        torch._dynamo.reset()
        kernel_side_table.reset_table()
        if through_op:
            kernel_side_table.add_kernel(double)
            kernel_side_table.add_constant_args({"BLOCK": 1})
        torch.testing.assert_close(compiled(f)(x, y), want)
    assert graphs == ["inference"] and [name for name, _ in launched] == ["scaled_sum"] * 2


def test_a_launch_can_be_traced() -> None:
    """PyTorch 2.10 does so with a graph that it loads from its cache."""
    def model(x: torch.Tensor) -> Any:
        return launch_triton(kwargs={"x": x, "BLOCK": 1}, written=["x"], kernel_idx=0)["x"]

    [launch] = torch.fx.symbolic_trace(model).graph.find_nodes(op="call_function", target=launch_triton)
    assert launch.kwargs["written"] == ["x"] and launch.kwargs["kernel_idx"] == 0


def test_a_kernel_that_is_not_here_makes_the_entry_a_miss() -> None:
    graph = torch.fx.Graph()
    place = kernel_side_table.add_kernel(double)
    constants = kernel_side_table.add_constant_args({})
    graph.call_function(_triton_calls.launch_triton, (), {
        "kernel_idx": place, "constant_args_idx": constants, "grid": [(1,)], "tma_descriptor_metadata": {}, "kwargs": {},
        "written": []})
    named = _triton_calls.named_kernels(graph)
    kernel_side_table.reset_table()
    with pytest.raises(kiln.NotFound, match="not in this process"):
        _triton_calls.rename_kernels(graph, named)
