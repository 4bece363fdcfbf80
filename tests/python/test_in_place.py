"""Writes into what a model is given: in place where that is safe, as a KV cache's are, and right where it is not."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import kiln
import kiln.dynamo
import pytest
import torch
from kiln import _in_place

ROWS, WIDTH = 12, 6
Model = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], Any]


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("KILN_STRICT", "1")
    monkeypatch.setattr(_in_place, "LEAST_BYTES", 0)
    torch._dynamo.reset()
    torch.manual_seed(0)
    yield
    torch._dynamo.reset()


def attend(cache: torch.Tensor, query: torch.Tensor) -> torch.Tensor:
    return ((query * 2) @ cache.t()).softmax(-1) @ cache


def indexed(cache: torch.Tensor, x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
    cache[at] = x.sin()
    return attend(cache, x)


def index_copied(cache: torch.Tensor, x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
    cache.index_copy_(0, at, x.sin())
    return attend(cache, x)


def added(cache: torch.Tensor, x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
    cache.index_add_(0, at, x)
    cache.index_put_((at,), x, accumulate=True)
    return attend(cache, x)


def sliced(cache: torch.Tensor, x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
    cache[3:5].copy_(x.cos())
    return attend(cache, x)


def selected(cache: torch.Tensor, x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
    cache[2] = x[0] * 2
    return attend(cache, x)


def scattered(cache: torch.Tensor, x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
    cache.scatter_(0, at[:, None].expand(-1, WIDTH), x.exp())
    return attend(cache, x)


def twice(cache: torch.Tensor, x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
    cache[at] = x
    first = attend(cache, x)
    cache[3:5] = first
    return attend(cache, x)


def from_the_old(cache: torch.Tensor, x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
    cache[at] = attend(cache, x)  # reads the old value, but before the write
    return cache.sum(0)


def written_alone(cache: torch.Tensor, x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
    cache[at] = x * 3
    return x + 1


IN_PLACE = [indexed, index_copied, added, sliced, selected, scattered, from_the_old, written_alone, twice]


def old_and_new(cache: torch.Tensor, x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
    old = cache * 2
    cache[at] = x
    return old + cache


def old_view(cache: torch.Tensor, x: torch.Tensor, at: torch.Tensor) -> tuple[torch.Tensor, ...]:
    copied = cache[1:].clone().t()
    cache[at] = x
    return copied, cache[0]


def onto_itself(cache: torch.Tensor, x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
    cache[1:] = cache[:-1].clone() + cache[:-1]
    cache[:-1] = cache[1:].clone()
    return cache.sum()


def returned(cache: torch.Tensor, x: torch.Tensor, at: torch.Tensor) -> tuple[torch.Tensor, ...]:
    cache[at] = x
    return cache, cache.clone(), cache[1:] * 1


def all_of_it(cache: torch.Tensor, x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
    before = attend(cache, x)
    cache.mul_(2).add_(1)
    return before + attend(cache, x)


def turned(cache: torch.Tensor, x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
    part = cache.t()[:, 2:4]
    part.copy_(x.t())
    return attend(cache, x)


def expect_eager(model: Model, dynamic: bool = False,
                 cache_of: Callable[[torch.Tensor], torch.Tensor] | None = None) -> Any:
    """The compiled model, after two calls that gave what eager gives."""
    fast = torch.compile(model, backend=kiln.dynamo.backend, dynamic=dynamic)
    ours, theirs = torch.randn(2, ROWS, WIDTH)
    theirs.copy_(ours)
    if cache_of is not None:
        ours, theirs = cache_of(ours), cache_of(theirs)
    with torch.no_grad():
        for places in ((1, 7), (0, 3)):
            x, at = torch.randn(2, WIDTH), torch.tensor(places)
            torch.testing.assert_close(fast(ours, x, at), model(theirs, x, at), rtol=1e-4, atol=1e-5)
            torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
    return fast


def copies(fast: Any, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether a call copies the cache, or makes room for one like it."""
    cache, x, at = torch.randn(ROWS, WIDTH), torch.randn(2, WIDTH), torch.tensor([4, 5])
    made: list[tuple[int, ...]] = []
    allocate = torch.empty_strided

    def allocate_and_note(sizes: Any, *given: Any, **named: Any) -> torch.Tensor:
        made.append(tuple(sizes))
        return allocate(sizes, *given, **named)

    with torch.no_grad(), torch.profiler.profile(record_shapes=True) as profile, monkeypatch.context() as patched:
        patched.setattr(torch, "empty_strided", allocate_and_note)
        fast(cache, x, at)
    copied = [event.input_shapes[0] for event in profile.events() if event.name in ("aten::copy_", "aten::clone")]
    return [ROWS, WIDTH] in copied or (ROWS, WIDTH) in made


LENGTH, DEPTH = 300, 64  # of a cache that programs write in place


def in_one_row(cache: torch.Tensor, x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
    cache.index_copy_(1, at, x.sin())
    return torch.nn.functional.scaled_dot_product_attention(x, cache, cache)


def at_one_place(cache: torch.Tensor, x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
    cache[:, at] = x.cos()
    return (x * 2) @ cache.mT


def read_before(cache: torch.Tensor, x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
    cache.index_copy_(1, at, x + cache.mean(1, True))
    return x @ cache.mT


def in_two_rows(cache: torch.Tensor, x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
    cache.index_copy_(1, torch.cat([at, at + 1]), torch.cat([x, -x], 1))
    return x @ cache.mT


@pytest.mark.parametrize(("model", "in_program"), [(in_one_row, True), (at_one_place, True), (read_before, False),
                                                   (in_two_rows, False)], ids=lambda each: getattr(each, "__name__", ""))
@pytest.mark.parametrize("dynamic", [False, True])
def test_a_row_is_written_by_a_program_or_between_two(model: Model, in_program: bool, dynamic: bool) -> None:
    ours, theirs = torch.zeros(2, 4, LENGTH, DEPTH), torch.zeros(2, 4, LENGTH, DEPTH)
    fast = torch.compile(model, backend=kiln.dynamo.backend, dynamic=dynamic)
    reports: list[Any] = []
    kiln.dynamo.watch(reports)
    with torch.no_grad():
        for layer, at in ((0, 0), (1, 7), (0, LENGTH - 2)):
            x, place = torch.randn(4, 1, DEPTH), torch.tensor([at])
            torch.testing.assert_close(fast(ours[layer], x, place), model(theirs[layer], x, place),
                                       rtol=1e-4, atol=1e-5)
            torch.testing.assert_close(ours, theirs)
    kiln.dynamo.watch(None)
    programs = [program for _, program in reports[0].partitions if program is not None]
    if not dynamic:  # arithmetic on sizes runs eager, between more programs
        assert any(info.updates is not None for program in programs for info in program.outputs) == in_program
        assert len(programs) == (1 if in_program else 2)


@pytest.mark.parametrize("model", IN_PLACE, ids=lambda each: each.__name__)
def test_a_cache_is_not_copied(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not copies(expect_eager(model), monkeypatch)


def test_a_small_cache_is_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_in_place, "LEAST_BYTES", 1 << 20)
    assert copies(expect_eager(indexed), monkeypatch)


@pytest.mark.parametrize("model", [old_and_new, old_view, onto_itself, returned, all_of_it, turned],
                         ids=lambda each: each.__name__)
def test_other_writes_are_right(model: Model) -> None:
    expect_eager(model)


def test_sizes_that_calls_choose() -> None:
    expect_eager(indexed, dynamic=True)
    expect_eager(sliced, dynamic=True)


def test_a_cache_that_lies_in_a_larger_buffer() -> None:
    def within(cache: torch.Tensor) -> torch.Tensor:
        return torch.zeros(ROWS, 2 * WIDTH)[:, 1:WIDTH + 1].copy_(cache)

    for model in (indexed, sliced, old_and_new):
        expect_eager(model, cache_of=within)


def test_two_caches_of_one_buffer() -> None:
    def model(keys: torch.Tensor, values: torch.Tensor, x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
        keys[at] = x
        values[at] = x * 2
        return attend(keys, x) @ values.t()

    for apart in (True, False):
        torch._dynamo.reset()
        ours = torch.randn(2 * ROWS, WIDTH)
        theirs = ours.clone()

        def halves(buffer: torch.Tensor, apart: bool = apart) -> tuple[torch.Tensor, torch.Tensor]:
            return buffer[:ROWS], buffer[ROWS:] if apart else buffer[ROWS - 2 : 2 * ROWS - 2]

        fast = torch.compile(model, backend=kiln.dynamo.backend)
        with torch.no_grad():
            for places in ((1, 7), (0, 11)):
                x, at = torch.randn(2, WIDTH), torch.tensor(places)
                torch.testing.assert_close(fast(*halves(ours), x, at), model(*halves(theirs), x, at))
                torch.testing.assert_close(ours, theirs)


def test_training_writes_are_right() -> None:
    def model(cache: torch.Tensor, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        cache[2:4] = (x * 2).detach()
        return (cache * weight).sum()

    have, want = torch.randn(2, ROWS, WIDTH)
    want.copy_(have)
    weight, x = torch.randn(WIDTH, requires_grad=True), torch.randn(2, WIDTH)
    fast = torch.compile(model, backend=kiln.dynamo.backend)
    gradients = [torch.autograd.grad(run(cache, x, weight), weight)[0] for run, cache in ((fast, have), (model, want))]
    torch.testing.assert_close(have, want)
    torch.testing.assert_close(*gradients)


class Step(torch.nn.Module):
    """A step of decoding with a static cache, as an exported program has it: the model's buffers, or what it is given."""

    def __init__(self, rows: int) -> None:
        super().__init__()
        self.register_buffer("keys", torch.zeros(2, 4, rows, 32))
        self.register_buffer("values", torch.zeros(2, 4, rows, 32))
        self.project = torch.nn.Linear(32, 3 * 32)

    def forward(self, x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
        query, key, value = self.project(x).chunk(3, -1)
        self.keys.index_copy_(2, at, key)
        self.values.index_copy_(2, at, value)
        reach = torch.arange(self.keys.shape[2]) <= at
        return torch.nn.functional.scaled_dot_product_attention(query, self.keys, self.values, reach[None, None, None])


@pytest.mark.parametrize("rows", [8, 512])  # a small cache is copied
def test_an_exported_step_writes_its_cache_in_place(rows: int) -> None:
    model = Step(rows).eval()
    given = torch.randn(2, 4, 1, 32)
    fast = kiln.compile(torch.export.export(copy.deepcopy(model), (given, torch.tensor([0]))))
    held = [info for info in fast.program.outputs if info.mutates is not None]
    assert [info.updates for info in held] == ([info.mutates for info in held] if rows == 512 else [None, None])
    for at in (0, 1, 5, rows - 1):
        x, place = torch.randn(2, 4, 1, 32), torch.tensor([at])
        torch.testing.assert_close(fast(x, place), model(x, place))
        for name in ("keys", "values"):
            torch.testing.assert_close(fast._weights[name], getattr(model, name))


class Given(torch.nn.Module):
    def forward(self, cache: torch.Tensor, row: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
        cache.index_copy_(1, at, row)
        return cache.sum(1)


@pytest.mark.parametrize("lies", ["dense", "transposed", "a byte off"])
def test_a_cache_that_is_given_is_written_whatever_its_layout(lies: str) -> None:
    shape = (4, 512, 16)
    example = torch.zeros(shape)
    fast = kiln.compile(torch.export.export(Given(), (example, torch.zeros(4, 1, 16), torch.tensor([0]))))
    assert [info.updates for info in fast.program.outputs if info.mutates is not None] == [0]
    cache = torch.zeros(shape)
    if lies == "transposed":
        cache = torch.zeros(16, 512, 4).permute(2, 1, 0)
    elif lies == "a byte off":
        cache = torch.zeros(4 * 512 * 16 + 1)[1:].view(shape)
    want, where = torch.zeros(shape), cache.data_ptr()
    for at in (3, 511, 3):
        row = torch.randn(4, 1, 16)
        want[:, at] = row[:, 0]
        torch.testing.assert_close(fast(cache, row, torch.tensor([at])), want.sum(1))
        torch.testing.assert_close(cache, want)
    assert cache.data_ptr() == where


def test_what_is_returned_too_is_no_cache_of_the_callers() -> None:
    class Both(torch.nn.Module):
        def forward(self, cache: torch.Tensor, row: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
            return cache.index_copy(1, at, row)

    fast = kiln.compile(torch.export.export(Both(), (torch.zeros(4, 512, 16), torch.ones(4, 1, 16),
                                                     torch.tensor([0]))))
    cache, row = torch.zeros(4, 512, 16), torch.ones(4, 1, 16)
    first = fast(cache, row, torch.tensor([2]))
    second = fast(cache, row, torch.tensor([3]))
    assert cache.count_nonzero() == 0
    assert first[:, 2].eq(1).all() and first[:, 3].eq(0).all() and second[:, 3].eq(1).all()
