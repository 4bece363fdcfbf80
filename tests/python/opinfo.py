"""Every op that torch has samples for (OpInfo), through torch.compile(backend=kiln), forward and backward, beside eager.

    KILN_LIBRARY=build/release/client/libkiln.so PYTHONPATH=client/python build/python/bin/python tests/python/opinfo.py \
        [--ops REGEX] [--samples N] [--backward] [--dtype float32]

An op counts where aot_eager gives eager's result; Kiln must too, or be at most 1.2 times as far from the op in f64 as
eager is: eager rounds halves more often. Ops that order values get no equal ones, whose order torch leaves open. Prints
what was wrong or crashed, how many ops ran in Kiln, and the pass rate; exits with 1 when a result is wrong. Minutes for
all ops: not part of ctest."""

from __future__ import annotations

import argparse
import copy
import os
import re
import sys
import time
import warnings
from typing import Any

import torch

os.environ.setdefault("KILN_STRICT", "1")
os.environ.setdefault("KILN_LOGS", "off")
warnings.simplefilter("ignore")

import kiln.dynamo
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_leaves, tree_map

# Their results are no function of the operands alone.
SKIPPED = re.compile(r"empty|new_empty|uninitialized|_like$|rand|normal|bernoulli|multinomial|dropout|exponential|"
                     r"cauchy|geometric|uniform|log_normal|rrelu|to_sparse|sparse|svd|eig|qr|lstsq|pca")
# Ops that order values: torch leaves the order of equal ones open.
ORDERING = re.compile(r"^(sort|argsort|msort|kthvalue|topk|median|nanmedian|mode)$")


def distinct(values: torch.Tensor) -> torch.Tensor:
    """As many values of the dtype, no two of them equal."""
    order = torch.randperm(values.numel()).reshape(values.shape)
    found = order.to(torch.int16).view(values.dtype) if values.dtype.itemsize == 2 else order.to(values.dtype)
    return found.requires_grad_(values.requires_grad)


def in_f64(values: Any) -> Any:
    return tree_map(lambda x: x.detach().double().requires_grad_(x.requires_grad)
                    if isinstance(x, torch.Tensor) and x.is_floating_point() else x, values)


def copied(values: Any) -> Any:
    return tree_map(lambda x: x.detach().clone().requires_grad_(x.requires_grad) if isinstance(x, torch.Tensor) else x,
                    values)


def results(function: Any, sample: Any, backward: bool) -> list[Any]:
    """Outputs, then gradients."""
    operands = copied((sample.input, sample.args, sample.kwargs))
    outputs = function(operands[0], *operands[1], **operands[2])
    leaves = tree_leaves(outputs)
    found = [each.detach() if isinstance(each, torch.Tensor) else each for each in leaves]
    if backward:
        needing = [each for each in leaves if isinstance(each, torch.Tensor) and each.requires_grad]
        wanted = [each for each in tree_leaves(operands) if isinstance(each, torch.Tensor) and each.requires_grad]
        if needing and wanted:
            total = sum(each.abs().square().sum() for each in needing)
            found += torch.autograd.grad(total, wanted, allow_unused=True)
    return found


def value_difference(have: list[Any], want: list[Any], tolerance: float) -> str:
    """Why the values are not the same; empty when they are."""
    try:
        torch.testing.assert_close(have, want, rtol=tolerance, atol=tolerance, equal_nan=True)
    except AssertionError as error:
        return " ".join(str(error).split())[:160]
    return ""


def stride_difference(have: list[Any], want: list[Any]) -> str:
    for a, b in zip(have, want, strict=True):
        if isinstance(a, torch.Tensor) and a.layout is torch.strided and a.numel() > 1 and a.stride() != b.stride():
            return f"strides {a.stride()} instead of {b.stride()}"
    return ""


def exact_of(sample: Any) -> Any:
    """The sample in f64."""
    found = copy.copy(sample)
    found.input, found.args, found.kwargs = in_f64((sample.input, sample.args, sample.kwargs))
    return found


def as_near(have: list[Any], want: list[Any], exact: list[Any]) -> bool:
    """Whether no result is farther from the exact one than 1.2 times what eager's is. A NaN is near to nothing."""
    for found, eager, true in zip(have, want, exact, strict=True):
        if not isinstance(found, torch.Tensor) or not found.is_floating_point():
            if value_difference([found], [true], 0):
                return False
        elif found.numel() and not (found - true).abs().max() <= 1.2 * (eager - true).abs().max():
            return False
    return True


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ops", default="", help="names that this finds; all by default")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="each N-th op only")
    parser.add_argument("--samples", type=int, default=2, help="for each op")
    parser.add_argument("--backward", action="store_true")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--seconds", type=float, default=0, help="stop after so long")
    arguments = parser.parse_args()
    dtype = getattr(torch, arguments.dtype)
    tolerance = {torch.float64: 1e-6, torch.float32: 1e-4}.get(dtype, 2e-2)
    counts = {"passed": 0, "in kiln": 0, "wrong": 0, "crashed": 0, "not by aot_eager either": 0}
    begun = time.monotonic()
    ops = [op for op in op_db if re.search(arguments.ops, op.name) and not SKIPPED.search(op.name)
           and dtype in op.supported_dtypes("cpu")
           and not (dtype is torch.bool and ORDERING.search(op.name))][:: arguments.every]
    for number, op in enumerate(ops):
        if arguments.seconds and time.monotonic() - begun > arguments.seconds:
            print(f"stopped after {number} of {len(ops)} ops")
            break
        torch.manual_seed(0)
        backward = arguments.backward and op.supports_autograd and dtype.is_floating_point
        samples = list(op.sample_inputs("cpu", dtype, requires_grad=backward))[: arguments.samples]
        verdict, why, in_kiln = "passed", "", False
        for sample in samples:
            def call(*args: Any, **kwargs: Any) -> Any:
                return op(*args, **kwargs)

            if ORDERING.search(op.name):
                sample.input = distinct(sample.input)

            torch._dynamo.reset()
            try:
                want = results(call, sample, backward)
                baseline = results(torch.compile(call, backend="aot_eager"), sample, backward)
                if value_difference(baseline, want, tolerance) or stride_difference(baseline, want):
                    raise RuntimeError
            except Exception:
                verdict = "not by aot_eager either"
                break
            torch._dynamo.reset()
            reports: list[Any] = []
            kiln.dynamo.watch(reports)
            try:
                have = results(torch.compile(call, backend=kiln.dynamo.backend), sample, backward)
                why = value_difference(have, want, tolerance)
                if why and dtype.is_floating_point and as_near(have, want, results(call, exact_of(sample), backward)):
                    why = ""
                why = why or stride_difference(have, want)
                verdict = "wrong" if why else verdict
            except Exception as error:
                verdict, why = "crashed", f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
            finally:
                kiln.dynamo.watch(None)
            in_kiln = in_kiln or any(program is not None for report in reports for _, program in report.partitions)
            if why:
                break
        counts[verdict] += 1
        counts["in kiln"] += in_kiln
        if why:
            print(f"{verdict}: {op.name} {op.variant_test_name}: {why}", flush=True)
    judged = counts["passed"] + counts["wrong"] + counts["crashed"]
    print(f"{counts['passed']} of {judged} passed ({100 * counts['passed'] / max(judged, 1):.1f} %), {counts['in kiln']} "
          f"of them with a part in Kiln; {counts['wrong']} wrong, {counts['crashed']} crashed; "
          f"{counts['not by aot_eager either']} not judged")
    return 1 if counts["wrong"] or counts["crashed"] else 0


if __name__ == "__main__":
    sys.exit(main())
