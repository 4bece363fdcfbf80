"""torch.compile(backend=kiln.dynamo.backend) against eager: inference, training, sizes, mutation, what is not covered."""

from __future__ import annotations

import copy
import gc
import logging
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import kiln
import kiln.dynamo
import pytest
import torch
from kiln import _native, _settings
from kiln._generator_state import ignore_generator_state
from kiln._graphs import _nodes_to_blame
from kiln._partition import refusals, sums_too_deep
from kiln._torch import TieredLauncher
from torch import fx, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional as F
from torch_backend import Block


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("KILN_STRICT", "1")
    torch._dynamo.reset()
    torch.manual_seed(0)
    _settings._said.clear()
    yield
    torch._dynamo.reset()


def compiled(model: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    return torch.compile(model, backend=kiln.dynamo.backend, **options)


def partitions(model: Callable[..., Any], *inputs: Any) -> list[list[bool]]:
    return [[part.in_kiln for part in graph.partitions] for graph in kiln.explain(model, *inputs).graphs]


class Convolutions(nn.Module):
    """With batch statistics, which change in place."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, 8, 3, padding=1, stride=2), nn.BatchNorm2d(8)
        self.last = nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(F.adaptive_avg_pool2d(F.relu(self.norm(self.first(x))), 1).flatten(1))


def gradients(model: nn.Module, *inputs: torch.Tensor, run: Callable[..., Any] | None = None) -> list[torch.Tensor]:
    model.zero_grad()
    loss = (model if run is None else run)(*inputs).square().mean()
    loss.backward()
    return [loss.detach()] + [p.grad.clone() for p in model.parameters() if p.grad is not None]


def test_inference_of_a_transformer_is_one_program() -> None:
    block, x = Block(32, 2), torch.randn(2, 16, 32)
    with torch.no_grad():
        torch.testing.assert_close(compiled(block)(x), block(x), rtol=1e-4, atol=1e-5)
        assert partitions(block, x) == [[True]]


@pytest.mark.parametrize("model,sizes", [(lambda: Block(32, 2), (2, 16, 32)), (Convolutions, (2, 3, 8, 8))],
                         ids=["transformer", "convolutions"])
def test_training_steps_equal_eager(model: Callable[[], nn.Module], sizes: tuple[int, ...]) -> None:
    one = model()
    other = model()
    other.load_state_dict(one.state_dict())
    fast = compiled(other)
    optimizers = [torch.optim.AdamW(each.parameters(), 1e-3) for each in (one, other)]
    for _ in range(3):
        x = torch.randn(*sizes)
        want, have = gradients(one, x), gradients(other, x, run=fast)
        torch.testing.assert_close(have, want, rtol=2e-3, atol=2e-5)
        for optimizer in optimizers:
            optimizer.step()
    torch.testing.assert_close(dict(other.named_buffers()), dict(one.named_buffers()), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("dtype,causal,mask", [(torch.float32, False, ""), (torch.bfloat16, True, ""),
                                               (torch.float32, False, "bool"), (torch.float16, False, "blind"),
                                               (torch.bfloat16, False, "float")])
def test_gradients_of_attention_are_as_near_as_eager(dtype: torch.dtype, causal: bool, mask: str) -> None:
    torch.manual_seed(0)
    keys = 33 if causal else 20
    query, key, value, grad = (torch.randn(2, 3, tokens, 16).to(dtype) for tokens in (33, keys, keys, 33))
    seen: Any = torch.rand(2, 3, 33, 20) > 0.3 if mask else None
    if mask == "blind":
        seen[:, :, 3] = False  # a row that sees nothing
    elif mask == "bool":
        seen[..., 0] = True
    elif mask == "float":
        seen = torch.randn(33, 20).to(dtype)

    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        bias = seen.to(q.dtype) if mask == "float" else seen
        return F.scaled_dot_product_attention(q, k, v, attn_mask=bias, is_causal=causal)

    def results(function: Callable[..., torch.Tensor], of: torch.dtype) -> list[torch.Tensor]:
        leaves = [x.detach().to(of).requires_grad_() for x in (query, key, value)]
        out = function(*leaves)
        out.backward(grad.to(of))  # type: ignore[no-untyped-call]
        return [torch.nan_to_num(x.detach().double()) for x in (out, *(leaf.grad for leaf in leaves)) if x is not None]

    exact = results(attend, torch.float64)
    for want, have, reference in zip(results(attend, dtype), results(compiled(attend), dtype), exact):
        assert (have - reference).norm() <= 1.3 * (want - reference).norm() + 1e-6 * reference.norm()


@pytest.mark.parametrize("rows, keys", [(32, 32), (17, 40), (100, 100), (40, 17)])
def test_windows_hide_what_they_hide_in_eager(rows: int, keys: int) -> None:
    def near(past: int, ahead: int) -> torch.Tensor:
        behind = torch.arange(rows)[:, None] - torch.arange(keys)
        return behind.abs() <= past if past == ahead else (behind >= -ahead) & (behind <= past)

    def model(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> list[torch.Tensor]:
        attended = [F.scaled_dot_product_attention(q, k, v, near(past, ahead))
                    for past, ahead in ((0, 0), (7, 0), (9, 9), (30, 5), (200, 100), (3, -2))]
        scores = q @ k.mT
        return [*attended, scores.masked_fill(~near(5, 3), 0.0).amax(-1), scores.masked_fill(~near(5, 5), 0.0).sum(-1)]

    q, k, v = torch.randn(1, 2, rows, 16), torch.randn(1, 2, keys, 16), torch.randn(1, 2, keys, 16)
    torch.testing.assert_close(compiled(model, fullgraph=True)(q, k, v), model(q, k, v), rtol=2e-5, atol=2e-6)


def test_dynamic_sizes_compile_once_forward_and_backward() -> None:
    model, compiles = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 3)), []
    fast = torch.compile(model, dynamic=True, backend=lambda *a, **k: compiles.append(1) or kiln.dynamo.backend(*a, **k))
    seen = None
    for sizes in ((4, 6), (3, 9), (11, 2)):
        x = torch.randn(*sizes, 8)
        torch.testing.assert_close(gradients(model, x, run=fast), gradients(model, x), rtol=2e-3, atol=2e-5)
        seen = seen or len(compiles)
        assert len(compiles) == seen


def test_sizes_that_are_returned_and_computed_with() -> None:
    def f(x: torch.Tensor) -> tuple[Any, ...]:
        n = x.shape[0]
        return x.relu() * n, n * 2 + 1, x.new_zeros(n + 3).sin() + 1, x

    fast = compiled(f, dynamic=True)
    for rows in (5, 8):
        x = torch.randn(rows, 3)
        have = fast(x)
        torch.testing.assert_close(have[:3], f(x)[:3])
        assert have[3] is x


def test_inputs_that_are_changed_in_place() -> None:
    def f(cache: torch.Tensor, x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
        cache.index_copy_(0, at, x * 2)
        return cache.sum(0)

    cache, other = torch.zeros(6, 4), torch.zeros(6, 4)
    fast = compiled(f)
    with torch.no_grad():
        for at in (1, 4):
            x, place = torch.randn(1, 4), torch.tensor([at])
            torch.testing.assert_close(fast(cache, x, place), f(other, x, place))
        torch.testing.assert_close(cache, other)


def test_outputs_have_the_strides_that_eager_gives() -> None:
    def f(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x.sin()
        return y.t(), y.permute(1, 0)[:, 1:], (x + 1).unsqueeze(1).expand(-1, 3, -1), y.to(torch.float64).t() * 2, x.t()

    x = torch.randn(4, 6)
    for have, want in zip(compiled(f)(x), f(x), strict=True):
        torch.testing.assert_close(have, want)
        assert have.stride() == want.stride()
    parts = torch.randn(4, 6, 5)  # views, though no schema says so
    assert [each.stride() for each in compiled(lambda x: torch.unsafe_chunk(x, 3, 1))(parts)] == [(30, 5, 1)] * 3
    images = torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last)
    have = compiled(lambda x: x.relu() + 1)(images)
    assert have.is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(have, images.relu() + 1)


def test_what_is_not_covered_runs_eager_and_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        y = (x * 2).relu()
        z = torch.fft.rfft(y).abs()
        return (z.exp() + 1).sum() + torch.linalg.inv(y[:4, :4] + 9 * torch.eye(4)).sum().sin()

    x = torch.rand(8, 16)
    with caplog.at_level(logging.WARNING, "kiln"):
        torch.testing.assert_close(compiled(f)(x), f(x), rtol=1e-4, atol=1e-4)
        torch._dynamo.reset()
        compiled(f)(x)
    said = [record.message for record in caplog.records if "_fft_r2c" in record.message]
    assert len(said) == 1 and "runs eager" in said[0]
    explanation = kiln.explain(f, x)
    assert [part.in_kiln for part in explanation.graphs[0].partitions].count(True) >= 2
    assert any("_fft_r2c" in each.op and "test_dynamo.py" in each.place for each in explanation.graphs[0].refused)
    assert "aten._fft_r2c.default runs eager" in str(explanation)


def test_inductor_compiles_what_is_not_covered_where_it_is_asked_to() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        spectrum = torch.linalg.cholesky_ex(x @ x.t() + 8 * torch.eye(8)).L
        return torch.relu(torch.logcumsumexp(spectrum.sin(), 0)) * x.exp() + F.dropout(x, 0.5)

    x = torch.rand(8, 8)
    results = []
    for options in ({}, {"uncovered": "inductor"}):
        torch._dynamo.reset()
        torch.manual_seed(5)
        results.append(compiled(f, options=options)(x))
    torch.manual_seed(5)
    want = f(x)
    for result in results:
        torch.testing.assert_close(result, want)
    graph = kiln.explain(f, x, options={"uncovered": "inductor"}).graphs[0]
    by_inductor = {op for part in graph.partitions if part.in_inductor for op in part.ops}
    assert any("cholesky" in op for op in by_inductor)
    assert not any("dropout" in op or "bernoulli" in op for op in by_inductor)
    assert any(each.in_inductor and "cholesky" in each.op for each in graph.refused)
    with pytest.raises(kiln.InvalidArgument, match="uncovered is 'nowhere'"):
        _settings.Settings(options={"uncovered": "nowhere"})


def test_random_ops_give_the_numbers_of_eager() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return F.dropout(x.sin(), 0.5).cos() + F.dropout(x, 0.25) + torch.rand_like(x)

    x = torch.randn(32, 32)
    torch.manual_seed(7)
    have = compiled(f)(x)
    torch.manual_seed(7)
    torch.testing.assert_close(have, f(x))


def test_dropout_in_training_has_the_mask_of_the_forward() -> None:
    model = nn.Sequential(nn.Linear(16, 16), nn.Dropout(0.5), nn.GELU(), nn.Linear(16, 4))
    x = torch.randn(8, 16)
    fast = compiled(model)
    torch.manual_seed(5)
    have = gradients(model, x, run=fast)
    torch.manual_seed(5)
    torch.testing.assert_close(have, gradients(model, x), rtol=1e-4, atol=1e-6)


def test_autocast_and_half_types() -> None:
    model, x = nn.Sequential(nn.Linear(32, 16), nn.Softmax(-1)), torch.randn(16, 32)
    fast = compiled(model)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        have, want = fast(x), model(x)
        assert have.dtype == want.dtype
        torch.testing.assert_close(have, want, rtol=0.05, atol=0.05)


def test_graph_breaks_and_python_between() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        y = x.sin() * 2
        if y.sum() > 0:
            return y + 1
        return y - 1

    for sign in (1, -1):
        x = torch.full((8,), 0.5 * sign)
        torch.testing.assert_close(compiled(f)(x), f(x))


def test_threads_share_a_compiled_model() -> None:
    block = Block(32, 2)
    fast = compiled(block)
    wrong: list[float] = []

    def work(seed: int) -> None:
        x = torch.randn(2, 16, 32, generator=torch.Generator().manual_seed(seed))
        with torch.no_grad():
            want = block(x)
            for _ in range(30):
                difference = (fast(x) - want).abs().max().item()
                if difference > 1e-4:
                    wrong.append(difference)

    with torch.no_grad():
        fast(torch.randn(2, 16, 32))
    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_inputs_of_any_alignment_and_kind() -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x * 2 + y

    fast = compiled(f)
    base = torch.randn(40)
    for x in (base[1:33], base[:32], base[8:40]):
        torch.testing.assert_close(fast(x, x), x * 3)
    z = torch.randn(8, dtype=torch.complex64)
    torch.testing.assert_close(fast(z, z), z * 3)  # no dtype of Kiln's
    torch.testing.assert_close(fast(torch.empty(0, 4), torch.empty(0, 4)), torch.empty(0, 4))
    torch.testing.assert_close(fast(torch.tensor(2), torch.tensor(1)), torch.tensor(5))


def test_a_model_runs_though_kiln_cannot(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    x = torch.randn(8)

    def refuse(*_: Any, **__: Any) -> Any:
        raise kiln.Unavailable("nobody answers")

    with monkeypatch.context() as patched, caplog.at_level(logging.WARNING, "kiln"):
        patched.setattr(kiln.Client, "compile", refuse)
        torch.testing.assert_close(compiled(lambda x: x.sin() + 1)(x), x.sin() + 1)
    assert "a part of the model runs eager: nobody answers" in caplog.text
    monkeypatch.delenv("KILN_STRICT")
    monkeypatch.setattr("kiln._graphs.partitions", refuse)
    torch.testing.assert_close(compiled(lambda x: x.cos() + 1)(x), x.cos() + 1)


def test_a_model_that_trains_is_explained_and_runs_without_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing that is compiled then comes from AOTAutogradCache, nor is made to go there."""
    model, x = nn.Sequential(nn.Linear(8, 16), nn.GELU()), torch.randn(4, 8)
    assert [graph.name for graph in kiln.explain(model, x).graphs] == ["forward", "backward"]
    monkeypatch.setattr(torch._inductor.config, "force_disable_caches", True)
    loss = compiled(model)(x).sum()
    wanted = torch.autograd.grad(model(x).sum(), list(model.parameters()))
    torch.testing.assert_close(torch.autograd.grad(loss, list(model.parameters())), wanted)


def test_options_are_checked(service: str) -> None:
    x = torch.randn(8, 24)
    for options, message in (({"coordinater": "x"}, "no such option: coordinater"), ({"mode": "fast"}, "mode is 'fast'")):
        with pytest.raises(Exception, match=message):
            compiled(torch.sin, options=options)(x)
    report = kiln.explain(lambda x: x.softmax(-1) * 3, x, mode="max-autotune", options={"coordinator": service})
    (kernel,) = report.graphs[0].partitions[0].kernels
    assert kernel.best_us > 0  # measured


def test_a_model_that_need_not_wait_is_tuned_behind_its_calls(service: str) -> None:
    model = nn.Sequential(nn.Linear(24, 40), nn.GELU(), nn.LayerNorm(40)).eval()
    x = torch.randn(12, 24)
    with torch.no_grad():
        expected = model(x)
        fast = compiled(model, options={"coordinator": service, "mode": "max-autotune", "now": True})
        assert torch.allclose(fast(x), expected, atol=1e-5)
        tiered = [each for each in gc.get_objects() if type(each) is TieredLauncher]
        assert tiered
        until = time.monotonic() + 120
        while any(each._first.awaits_successor for each in tiered) and time.monotonic() < until:
            assert torch.allclose(fast(x), expected, atol=1e-5)
            time.sleep(0.05)
        assert torch.allclose(fast(x), expected, atol=1e-5)
        assert all(each.program is each._first.successor() for each in tiered)


def test_without_the_library_a_model_runs_eager_and_strict_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_native, "_library", None)
    monkeypatch.setenv("KILN_LIBRARY", "/nowhere/libkiln.so")
    x = torch.randn(4)
    with pytest.raises(Exception, match="cannot open /nowhere/libkiln.so"):
        compiled(torch.sin)(x)
    torch._dynamo.reset()
    monkeypatch.delenv("KILN_STRICT")
    torch.testing.assert_close(compiled(torch.sin)(x), torch.sin(x))


@pytest.mark.parametrize("model,x", [
    (lambda x: torch.as_strided(x + 1, (2, 3), (1, 2)) * 2, torch.randn(3, 2).t()),
    (lambda x: torch.as_strided(torch.as_strided(x + 1, (4, 2), (1, 4)), (2, 2), (4, 2)) * 2, torch.randn(2, 4)),
    (lambda x: torch.as_strided((x * 2)[1:], (2, 2), (1, 2), 0) + 1, torch.randn(3, 4)),
], ids=["of a transposed value", "of another", "of a part"])
def test_as_strided_looks_into_storage(model: Callable[..., Any], x: torch.Tensor) -> None:
    with torch.no_grad():
        torch.testing.assert_close(compiled(model)(x), model(x))


def test_results_that_share_memory_share_it() -> None:
    def model(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x * 2
        return y, y.t(), y[1:].reshape(-1), y + 1

    with torch.no_grad():
        y, turned, part, other = compiled(model)(torch.randn(3, 4))
    y.zero_()
    assert not turned.any() and not part.any() and other.any()


def test_results_with_gaps_have_them() -> None:
    def model(x: torch.Tensor) -> torch.Tensor:
        result = torch.empty_strided((4, 3), (8, 1))
        result[:] = x * x
        return result

    x = torch.randn(4, 3)
    assert compiled(model)(x).stride() == (8, 1)
    torch.testing.assert_close(compiled(model)(x), x * x)


def test_what_is_scaled_by_nothing_is_not_looked_at() -> None:
    bias, x, y = torch.full((2, 2), torch.nan), torch.randn(3, 2, 2), torch.randn(3, 2, 2)
    for op in (lambda: torch.addmm(bias, x[0], y[0], beta=0), lambda: torch.baddbmm(bias, x, y, beta=0, alpha=3),
               lambda: torch.addbmm(bias, x, y, beta=0), lambda: torch.addmv(bias[0], x[0], y[0, 0], beta=0)):
        torch.testing.assert_close(compiled(op)(), op())


def test_flash_attention_in_training_does_not_wait_for_a_generators_state() -> None:
    """As AOTAutograd has it on a GPU: the state is of a dtype that Kiln does not have, and passes from forward to backward."""
    aten = torch.ops.aten

    def forward(q: torch.Tensor, dropped: float) -> tuple[torch.Tensor, ...]:
        results = aten._scaled_dot_product_flash_attention(q, q, q, dropped, True)
        return results[0], results[1], results[6], results[7]

    def backward(q: torch.Tensor, log_sums: torch.Tensor, state: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return aten._scaled_dot_product_flash_attention_backward(  # type: ignore[no-any-return]
            q, q, q, q, q, log_sums, None, None, 64, 64, 0.0, True, state, state)

    def refused(function: Callable[..., object], *arguments: object) -> list[str]:
        module = make_fx(function)(*arguments)
        module.graph.eliminate_dead_code()
        ignore_generator_state(module.graph)
        module.graph.lint()
        return [str(each.op) for each in refusals(module.graph, torch.device("cuda", 0))]

    with FakeTensorMode(allow_non_fake_inputs=True):
        q = torch.empty(2, 4, 64, 64, dtype=torch.bfloat16, device="cuda")
        log_sums, state = torch.empty(2, 4, 64, device="cuda"), torch.empty(2, dtype=torch.uint64, device="cuda")
        assert refused(lambda q: forward(q, 0.0), q) == ["aten.empty.memory_format"] * 2
        assert refused(lambda q: forward(q, 0.5), q) == ["aten._scaled_dot_product_flash_attention.default"]
        assert refused(backward, q, log_sums, state) == []


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("autocast", [True, False])
def test_batch_norms_of_halves_train(dtype: torch.dtype, autocast: bool) -> None:
    """Torch's metadata has statistics on a CPU as halves where they are f32, and running ones as f32 where not."""
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 4, 3), nn.BatchNorm2d(4))
    x = torch.randn(8, 3, 12, 12)
    if not autocast:
        model, x = model.to(dtype), x.to(dtype)
    other = copy.deepcopy(model)
    results = []
    for trained, run in ((model, model), (other, compiled(other))):
        with torch.autocast("cpu", dtype=dtype, enabled=autocast):
            y = run(x)
        (y.float() * torch.arange(y.numel()).reshape(y.shape).sin()).sum().backward()
        weights = [trained[i].weight.grad.float() for i in (1, 3, 4)]
        results.append(weights + [each.float() for each in trained.buffers()])
    for want, have in zip(*results, strict=True):
        assert ((have - want).norm() / want.norm()).item() < 0.05
    if not autocast:
        assert partitions(model, x) == [[True], [True]]  # forward and backward


def test_results_of_another_dtype_than_torch_was_told_are_converted() -> None:
    @torch.library.custom_op("kiln_tests::doubled", mutates_args=())
    def doubled(x: torch.Tensor) -> torch.Tensor:
        return 2 * x

    @doubled.register_fake
    def _(x: torch.Tensor) -> torch.Tensor:
        return torch.empty_like(x, dtype=torch.bfloat16)

    x = torch.randn(5, 7)
    run = compiled(lambda x: doubled(x) * 3 + 1)
    for _ in range(2):
        torch.testing.assert_close(run(x), (2 * x).bfloat16() * 3 + 1)


def test_what_no_kernel_was_made_of_runs_eager_and_the_rest_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    compile_as_it_is = _settings.Settings.compile

    def compile(self: _settings.Settings, model_json: bytes, *rest: Any) -> Any:
        if b"aten.convolution" in model_json:
            raise kiln.InternalError("no candidate of the convolution kernel 0123 survived on cpu: 3 wrong_result")
        return compile_as_it_is(self, model_json, *rest)

    monkeypatch.setattr(_settings.Settings, "compile", compile)
    monkeypatch.setattr(torch._functorch.config, "enable_autograd_cache", False)
    model, x = Convolutions(), torch.randn(4, 3, 8, 8)
    want = gradients(copy.deepcopy(model), x)
    for have, expected in zip(gradients(model, x, run=compiled(model)), want, strict=True):
        torch.testing.assert_close(have, expected, rtol=1e-3, atol=1e-5)
    for graph in kiln.explain(model, x).graphs:
        assert any(part.in_kiln for part in graph.partitions)
        assert all("convolution" in each.op for each in graph.refused)


def test_deep_gradients_of_weights_run_eager_on_a_gpu() -> None:
    def backward(size: int, wanted: list[bool]) -> fx.Node:
        def run(g: torch.Tensor, x: torch.Tensor, w: torch.Tensor) -> Any:
            return torch.ops.aten.convolution_backward(g, x, w, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1, wanted)

        graph = make_fx(run, tracing_mode="fake")(torch.ones(2, 4, size, size), torch.ones(2, 3, size, size),
                                                  torch.ones(4, 3, 3, 3)).graph
        return next(node for node in graph.nodes if "convolution" in str(node.target))

    assert sums_too_deep(backward(32, [True, True, False]), "cuda")
    assert not sums_too_deep(backward(32, [True, True, False]), "cpu")
    assert not sums_too_deep(backward(32, [True, False, False]), "cuda")  # the images' alone
    assert not sums_too_deep(backward(16, [True, True, False]), "cuda")


def test_a_failed_kernel_blames_the_ops_that_it_may_compute() -> None:
    graph = make_fx(lambda x: torch.lgamma(x) @ x + F.interpolate(x[None, None], scale_factor=1.0, mode="bilinear"))
    nodes = list(graph(torch.ones(3, 3)).graph.nodes)
    said = "no candidate of the matmul kernel 0123 survived on cuda: 3 wrong_result"
    assert [str(node.target) for node in _nodes_to_blame(nodes, said)] == ["aten.mm.default"]
    assert _nodes_to_blame(nodes, "no candidate of the pointwise kernel 0123 survived on cuda: 1 device_lost") == []
