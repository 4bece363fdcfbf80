"""Rules of a search that are replayed on records (tests/gpu/replay_tuning.py)."""

import json
import math
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "gpu"))

import replay_tuning  # noqa: E402


def kernels_of(times: dict[str, float | None]) -> list[replay_tuning.Candidates]:
    """One kernel whose candidates are listed in this order; what was not timed spilled."""
    listed = json.dumps({"kernels": [{"workload": "w", "candidates": [
        {"template": name.split()[0], "schedule": name} for name in ["cublaslt.matmul rank=0", *times]]}]})
    records = [json.dumps({"workload": "w", "schedule": name, "verdict": "ok" if us else "compile_failed",
                           "median_us": us}) for name, us in {"cublaslt.matmul rank=0": 1.0, **times}.items()]
    return replay_tuning.read_kernels(records, [listed])


def test_what_a_rule_builds_and_loses() -> None:
    near, far = "cuda.matmul.wgmma bm={}", "cuda.matmul bm={}"
    kernels = kernels_of({near.format(1): 12.0, near.format(2): 10.0, far.format(1): 20.0, far.format(2): 8.0})
    share, slower = replay_tuning.judge(replay_tuning.RULES["all"], kernels)
    assert (share, slower) == (1, [1])
    share, slower = replay_tuning.judge(replay_tuning.RULES["without what is expected to be far"], kernels)
    assert (share, slower) == (0.5, [1.25])
    share, slower = replay_tuning.judge(replay_tuning.first(1), kernels)
    assert (share, slower) == (0.25, [1.5])
    one, two = (replay_tuning.leaders(replay_tuning.template_of, count, 1.1) for count in (1, 2))
    assert replay_tuning.judge(one, kernels) == (0.75, [1.25])
    assert replay_tuning.judge(two, kernels) == (1, [1])


def test_the_far_are_built_where_no_other_is_right() -> None:
    kernels = kernels_of({"cuda.matmul.wgmma bm=1": None, "cuda.matmul bm=1": 20.0, "cuda.matmul bm=2": 8.0})
    assert replay_tuning.judge(replay_tuning.without_far, kernels) == (1, [1])


def test_forms_are_told_apart_by_what_is_no_size() -> None:
    schedule = "cuda.convolution.wgmma bm=64 bn=128 im2col=1 shared=0"
    assert replay_tuning.form_of(schedule) == "cuda.convolution.wgmma im2col=1 shared=0"
    assert math.isinf(replay_tuning.best_of([(schedule, None)]))


def test_what_is_like_something_far_behind_is_passed_over() -> None:
    first, second = "cuda.matmul bm={} splits=1", "cuda.matmul bm={} splits=0"
    times = {first.format(64): 10.0, second.format(64): 12.0, first.format(128): 9.0, second.format(128): 8.0}
    rule = replay_tuning.without_followers(2.5, 1.1)
    assert replay_tuning.judge(rule, kernels_of(times)) == (0.75, [9 / 8])
    assert replay_tuning.judge(rule, kernels_of({**times, second.format(64): 11.0})) == (1, [1])
    assert replay_tuning.judge(rule, kernels_of({**times, second.format(64): None})) == (1, [1])


def test_distances_are_those_of_the_coordinator() -> None:
    assert replay_tuning.distance("a bm=64 bn=128", "a bm=256 bn=128") == 1
    assert math.isclose(replay_tuning.distance("a bm=64 bn=128", "a bm=64 bn=192"), math.log2(1.5))
    assert math.isinf(replay_tuning.distance("a bm=64 bn=0", "a bm=64 bn=1"))
    assert math.isinf(replay_tuning.distance("a bm=64", "b bm=64"))


def test_kernels_are_written_as_the_simulation_takes_them() -> None:
    lists = [json.dumps({"kernels": [{"workload": "w", "candidates": [
        {"template": "cuda.pointwise", "schedule": f"cuda.pointwise lanes={lanes}"} for lanes in (1, 2)]}]})]
    records = [{"workload": "w", "kernel_key": "0123456789abcdef", "template": "cuda.pointwise", "verdict": "ok",
                "schedule": "cuda.pointwise lanes=1", "median_us": 5.0},
               {"workload": "w", "kernel_key": "0123456789abcdef", "template": "cublaslt.matmul", "verdict": "ok",
                "schedule": "cublaslt.matmul rank=0", "median_us": 6.0}]
    line = "lease 1: {} candidates of pointwise 0123456789ab, best 5 us; waited for compilers 0 ms, open {}, {}\n"
    log = line.format(3, 7, "verify 2, time 4") + line.format(2, 1, "verify 0, time 8")
    builds = {("w", f"cuda.pointwise lanes={lanes}"): 100.0 * lanes for lanes in (1, 2)}
    assert list(replay_tuning.recorded(records, lists, builds, log)) == [
        "kernel 0 7 4.0", "candidate 100.0 4.0 5.000 cuda.pointwise lanes=1",
        "candidate 200.0 2.0 0.000 cuda.pointwise lanes=2"]
