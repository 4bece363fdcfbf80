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
