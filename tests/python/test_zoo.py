"""What tests/zoo measures and writes, of records and of functions: its models need libraries from PyPI."""

import copy
import itertools
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "zoo"))

import document
import one
import reference
import run as zoo_run
import times

CPU = torch.device("cpu")
PLAIN = {"family": "decoder", "verdict": "right", "kernels": 3, "error": 1e-7, "torch_error": 2e-7, "seconds": 1.25}
TIMED = {**PLAIN, "fetch_ms": 12.4, "us": 250.2, "torch_compile_us": 310.6}


def table(text: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("|")]


def test_columns_of_times_are_of_the_runs_that_have_them() -> None:
    without = document.Run("no times", {"a": {"name": "a", **PLAIN}, "b": {"name": "b", **PLAIN}})
    with_times = document.Run("times", {"a": {"name": "a", **TIMED}})
    heads, _, a, b = table(document.document([without, with_times], ["a", "b"]))
    same = ["kernels", "error", "PyTorch's", "cold"]
    assert heads == ["model", "1", *same, "2", *same, "fetch", "us", "torch.compile's", ""]
    assert a[11:14] == ["12", "250", "311"]
    assert b[11:14] == ["", "", ""]
    assert len({len(each) for each in (heads, a, b)}) == 1
    assert "fetch" not in document.document([without], ["a", "b"])


def test_a_model_that_torch_compile_fails_says_so() -> None:
    record = {"name": "a", **{key: value for key, value in TIMED.items() if key != "torch_compile_us"},
              "torch_compile_why": "Unsupported: that"}
    assert table(document.document([document.Run("times", {"a": record})], ["a"]))[2][6:9] == ["12", "250", "fails"]


class Narrow(torch.nn.Module):
    """Asks for f32 itself, and mixes it with what it is given: PyTorch refuses that once the rest is f64."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(64, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        steps = torch.arange(64, dtype=torch.float32) / 64
        return self.layer(x.float().exp() * steps) @ torch.full((8, 2), 0.1)  # type: ignore[no-any-return]


def outputs(module: torch.nn.Module, call: reference.Call) -> list[torch.Tensor]:
    with torch.no_grad():
        return [module(*call[0], **call[1])]


def test_the_reference_is_f64_where_a_model_asks_for_f32() -> None:
    torch.manual_seed(0)
    module, x = Narrow(), torch.randn(4, 64)
    with pytest.raises(RuntimeError, match="dtype"):
        outputs(Narrow().double(), ((x.double(),), {}))
    want = outputs(module, ((x,), {}))
    exact, kind = reference.reference(module, [((x,), {})], outputs, [want], 0.0)
    assert kind == "f64" and exact[0][0].dtype == torch.float64
    steps = torch.arange(64, dtype=torch.float64) / 64
    by_hand = (x.double().exp() * steps) @ module.layer.weight.double().t() + module.layer.bias.double()
    assert reference.difference(exact[0], [by_hand @ torch.full((8, 2), 0.1, dtype=torch.float64)]) < 1e-14
    assert 1e-9 < reference.difference(want, exact[0]) < 1e-6
    assert torch.get_default_dtype() == torch.float32


def test_products_of_groups_have_an_f64_reference() -> None:
    offs = torch.tensor([2, 2, 5], dtype=torch.int32)
    x, weight, wide = torch.randn(5, 16), torch.randn(3, 16, 8), torch.randn(16, 24)
    for a, b in ((x, weight), (x.t().contiguous(), torch.randn(5, 8))):
        spans = [slice(0, 2), slice(2, 2), slice(2, 5)]
        with reference.all_wide():
            have = torch._grouped_mm(a.double(), b.double(), offs=offs)
        parts = [a.double()[each] @ b.double()[i] if b.dim() == 3 else a.double()[:, each] @ b.double()[each]
                 for i, each in enumerate(spans)]
        assert torch.equal(have, torch.cat(parts) if b.dim() == 3 else torch.stack(parts))
    columns = reference.grouped_mm(torch.ones(3, 4, 16), wide, torch.tensor([8, 8, 24]))
    assert torch.equal(columns, torch.ones(4, 16) @ wide)


def test_products_of_8_bit_floats_are_rounded_once_in_a_reference() -> None:
    class Scaled(torch.nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
            one = torch.ones(1, y.shape[1])
            return torch._scaled_mm(x, y, rows, one, out_dtype=torch.float32)

    x, y = torch.randn(32, 64).to(torch.float8_e4m3fn), torch.randn(48, 64).to(torch.float8_e4m3fn).t()
    rows = torch.rand(32, 1)
    exact = ((x.double() * rows.double()) @ y.double()).float()
    coarse = [exact * (1 + 2.0 ** -12)]  # as a card that keeps few bits
    made, kind = reference.reference(Scaled(), [((x, y, rows), {})], outputs, [coarse], 0.0)
    assert kind == "own" and torch.equal(made[0][0], exact)
    blocks: reference.Call = ((x, y, torch.rand(32, 2)), {})
    assert reference.reference(Scaled(), [blocks], outputs, [coarse], 0.0)[0][0] is coarse


def test_what_a_model_keeps_beside_its_buffers_is_wide_too() -> None:
    class Kept:
        def __init__(self) -> None:
            self.rows = [torch.zeros(2, 4)]

    class WithCache(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.kept = torch.nn.Linear(4, 4), Kept()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.kept.rows[0].index_copy_(0, torch.tensor([1]), self.layer(x)) * 2

    module, call = WithCache(), ((torch.randn(1, 4),), {})
    want = outputs(copy.deepcopy(module), call)
    exact, kind = reference.reference(module, [call], outputs, [want], 0.0)
    assert kind == "f64" and exact[0][0].dtype == torch.float64
    assert module.kept.rows[0].dtype == torch.float32


def test_a_model_without_a_wider_run_says_so() -> None:
    class Fixed(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if x.dtype != torch.float32:
                raise TypeError
            return x.exp()

    call: reference.Call = ((torch.randn(4),), {})
    want = outputs(Fixed(), call)
    exact, kind = reference.reference(Fixed(), [call], outputs, [want], 0.0)
    assert kind == "own" and exact[0] is want
    record = {"name": "a", **PLAIN, "reference": kind}
    assert table(document.document([document.Run("", {"a": record})], ["a"]))[2][4] == "own"


def test_skipped_models_are_no_share_of_those_that_ran() -> None:
    run = document.Run("", {"a": {"name": "a", **PLAIN}, "b": {"name": "b", "verdict": "skipped"}})
    assert document.summary(run) == ("2 models: 1 right, 1 skipped (100.0 % right). "
                                     "Errors of 1: 0.50 of PyTorch's in the median")


def test_a_run_goes_on_with_what_has_no_times_or_was_skipped() -> None:
    assert zoo_run.is_done(PLAIN, times=False)
    assert not zoo_run.is_done(PLAIN, times=True)
    assert zoo_run.is_done(TIMED, times=True)
    assert zoo_run.is_done({"verdict": "refused"}, times=True)
    assert not zoo_run.is_done({"verdict": "skipped"}, times=False)
    assert not zoo_run.is_done(None, times=False)


def test_cold_seconds_are_those_of_the_first_run() -> None:
    assert zoo_run.merged(PLAIN, {**TIMED, "seconds": 0.02})["seconds"] == 1.25
    assert zoo_run.merged(PLAIN, {"verdict": "right", "kernels": 3})["seconds"] == 1.25
    assert zoo_run.merged(None, TIMED)["seconds"] == 1.25
    assert "seconds" not in zoo_run.merged(None, {"verdict": "no answer", "why": "after 120 s"})


def test_what_was_right_stays_so_where_its_times_could_not_be_measured() -> None:
    kept = zoo_run.merged(PLAIN, {"verdict": "no answer", "why": "after 120 s"})
    assert kept == {**PLAIN, "why": "its times: no answer after 120 s"}
    assert zoo_run.merged({**PLAIN, "verdict": "wrong"}, {"verdict": "crashed", "why": "exit 1"})["verdict"] == "crashed"
    assert zoo_run.merged(PLAIN, {"verdict": "wrong", "why": "results differ"})["verdict"] == "wrong"


def test_a_place_of_the_dtype_is_no_difference_from_a_reference_that_has_no_more() -> None:
    x = torch.tensor([1.0, -3.0, 0.5]).bfloat16()
    next_ones = torch.tensor([1.0078125, -3.015625, 0.501953125]).bfloat16()
    further = torch.tensor([1.0, -3.046875, 0.5]).bfloat16()

    def verdict(have: torch.Tensor, exact: torch.Tensor, wide: str) -> str:
        result = one.compared([[have, x]], [[x, x]], [[exact, x]], wide)
        assert result["reference"] == wide and result["error"] == reference.difference([have], [exact])
        return str(result["verdict"])

    assert verdict(next_ones, x, "own") == verdict(next_ones, x, "f64") == "right"
    assert verdict(further, x, "own") == "wrong"
    assert verdict(next_ones.float(), x.float(), "own") == "wrong"  # f32 has closer places
    assert verdict(next_ones, x.double(), "f64") == "wrong"  # PyTorch found the nearest one
    assert one.compared([[torch.tensor([1, 2])]], [[torch.tensor([1, 3])]], [[torch.tensor([1, 3])]], "own")["verdict"] \
        == "wrong"


def test_batch_norms_are_as_after_training() -> None:
    net = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 1), torch.nn.BatchNorm2d(8), torch.nn.BatchNorm1d(8, affine=False))
    before = net[0].weight.clone()
    one.give_statistics(net)
    assert torch.equal(net[0].weight, before)
    for norm in (net[1], net[2]):
        assert isinstance(norm, torch.nn.modules.batchnorm._BatchNorm)
        assert norm.running_mean is not None and norm.running_var is not None
        assert norm.running_mean.unique().numel() > 1 and norm.running_mean.abs().max() <= 0.5
        assert norm.running_var.unique().numel() > 1 and 0.5 <= norm.running_var.min() <= norm.running_var.max() <= 1.5


class Seeds(one.Runner):
    """Its run of a seed is the record of that number."""

    def __init__(self, results: list[dict[str, Any]]) -> None:
        self._models, self._results = {"a": SimpleNamespace(name="a")}, results
        self.asked: list[int] = []

    def _run(self, model: Any, seed: int, archive: str = "", timing: str = "") -> dict[str, Any]:
        self.asked.append(seed)
        return self._results[min(seed, len(self._results) - 1)]


def found(verdict: str, error: float, own: float) -> dict[str, Any]:
    return {"verdict": verdict, "error": error, "torch_error": own, "counted": error, "kernels": 2}


def test_what_is_close_with_one_seed_is_judged_by_the_means_of_nine() -> None:
    unlucky, usual = found("close", 3e-6, 1e-6), found("right", 1e-6, 1e-6)
    runner = Seeds([unlucky, usual])
    result = runner("a", "")
    assert runner.asked == list(range(9))
    assert result["verdict"] == "close" and result["seeds"] == 9  # 11 to 9
    assert result["error"] == pytest.approx(11e-6 / 9) and result["torch_error"] == pytest.approx(1e-6)
    assert Seeds([found("close", 2e-6, 1e-6), usual])("a", "")["verdict"] == "right"  # 10 to 9
    assert table(document.document([document.Run("", {"a": {"name": "a", "family": "decoder", **result}})],
                                   ["a"]))[2][1] == "close (9 seeds)"


def test_more_seeds_are_asked_for_only_where_a_model_is_close_and_hide_nothing() -> None:
    for verdict in ("right", "wrong"):
        runner = Seeds([found(verdict, 1e-3, 1e-6)])
        assert runner("a", "") == found(verdict, 1e-3, 1e-6) and runner.asked == [0]
    bad = found("wrong", 1e-3, 1e-6)
    assert Seeds([found("close", 2e-6, 1e-6), bad])("a", "") == bad
    assert Seeds([found("close", 2e-6, 1e-6), {"verdict": "refused", "why": "x"}])("a", "")["verdict"] == "refused"


def test_the_summary_says_how_calls_compare_with_torch_compile() -> None:
    assert "torch.compile" not in document.summary(document.Run("", {"a": PLAIN}))
    slower = {**TIMED, "us": 100.0, "torch_compile_us": 50.0}
    faster = {**TIMED, "us": 10.0, "torch_compile_us": 80.0}
    text = document.summary(document.Run("", {"a": slower, "b": faster, "c": PLAIN}))
    assert text.endswith("2 timed beside `torch.compile`: 2.0 times as fast in the geometric mean, 1 slower")


def test_models_come_in_turn_from_the_families() -> None:
    models = [SimpleNamespace(name=name, family=name[0]) for name in ("a1", "a2", "a3", "b1", "c1", "c2")]
    assert [each.name for each in zoo_run.in_turn(models)] == ["a1", "b1", "c1", "a2", "c2", "a3"]


def test_arms_are_timed_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    now, calls = [0.0], []
    monkeypatch.setattr(times, "time", SimpleNamespace(perf_counter=lambda: now[0]))

    def arm(name: str, seconds: float) -> times.Call:
        def call() -> None:
            calls.append(name)
            now[0] += seconds * (100 if len(calls) == 30 else 1)  # one call is held up

        return call

    found = times.beside_torch(arm("ours", 0.004), arm("other", 0.010), CPU, "measure")
    assert found == {"us": pytest.approx(4000), "torch_compile_us": pytest.approx(10000)}
    rounds = [calls[0], *(b for a, b in itertools.pairwise(calls) if a != b)]
    assert len(rounds) >= times.ROUNDS
    assert calls.count("ours") > calls.count("other")  # rounds of the same length


def test_an_arm_that_fails_is_said_and_the_other_is_timed() -> None:
    def fails() -> None:
        raise ValueError("no such op")

    found = times.beside_torch(lambda: time.sleep(1e-4), fails, CPU, "measure")
    assert found["torch_compile_why"] == "ValueError: no such op"
    assert found["us"] > 0 and "torch_compile_us" not in found
    assert times.beside_torch(fails, lambda: None, CPU, "prepare") == {}
