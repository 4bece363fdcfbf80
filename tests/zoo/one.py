"""The process that runs models: reads [name, archive folder, times] lines, answers each with a JSON object. See run.py.
``times``: "" for none, "prepare" or "measure"."""

from __future__ import annotations

import copy
import io
import json
import os
import statistics
import sys
import time
import warnings
import zipfile
from pathlib import Path
from typing import Any

import kiln
import kiln.exported
import torch
from kiln.exported import as_parts
from torch.utils._pytree import tree_leaves

from reference import Call, copied, difference, mapped, reference
from registry import Case, Model, models
from times import beside_torch, fetch_ms

GRADIENT = 1e-3  # of the largest gradient: what a smaller one's error is measured by
SEEDS = 9  # of the weights and inputs over which the errors of a model that is close are averaged


def gradients(module: torch.nn.Module, function: Any, call: Call) -> list[Any]:
    """The loss and the gradient of every parameter that it depends on."""
    module.zero_grad(set_to_none=True)
    loss = function(*call[0], **call[1])
    loss.backward()
    return [loss.detach()] + [each.grad.clone() for each in module.parameters() if each.grad is not None]


def give_statistics(module: torch.nn.Module) -> None:
    """Batch norms as after training. New ones have mean 0, variance 1, weight 1 and bias 0: where one of these is left
    out, results are right all the same, and every channel of every layer has the rounding of the same 1 + eps."""
    with torch.no_grad():
        for each in module.modules():
            if not isinstance(each, torch.nn.modules.batchnorm._NormBase):
                continue
            for middle, values in ((0.0, each.running_mean), (1.0, each.running_var), (1.0, each.weight),
                                   (0.0, each.bias)):
                if values is not None:
                    values.uniform_(middle - 0.5, middle + 0.5)


def flat(outputs: Any) -> list[Any]:
    return [as_parts(each) for each in tree_leaves(outputs)]


def place_of(value: Any) -> float:
    """What two right results of its dtype may differ by, over their largest value, when their reference is one of them:
    a place of a dtype that outputs are rounded to. None of f32 and wider."""
    if not isinstance(value, torch.Tensor) or not value.is_floating_point() or value.dtype.itemsize >= 4:
        return 0.0
    return torch.finfo(value.dtype).eps


def judged(have: float, torch_has: float) -> str:
    if have <= max(1.2 * torch_has, 1e-6):
        return "right"
    return "close" if have <= max(10 * torch_has, 1e-5) else "wrong"


def kernels_of(manifest: str) -> int:
    return len(json.loads(manifest)["launches"])


class Runner:
    def __init__(self, mode: Any, target: str, coordinator: str, lock: str = "") -> None:
        self._mode, self._coordinator, self._lock = mode, coordinator or None, lock
        self._device = torch.device("cuda" if target == "cuda" else "cpu")
        self._models = models()
        torch.backends.cudnn.allow_tf32 = False  # the reference, and PyTorch's own error, are of f32

    def __call__(self, name: str, archive: str, timing: str = "") -> dict[str, Any]:
        model = self._models[name]
        first = self._run(model, 0, archive, timing)
        if first["verdict"] != "close":
            return first
        return over_seeds([first, *(self._run(model, seed) for seed in range(1, SEEDS))])

    def _run(self, model: Model, seed: int, archive: str = "", timing: str = "") -> dict[str, Any]:
        """The model with the random weights and inputs of ``seed``."""
        torch.manual_seed(seed)
        try:
            with self._device:  # what a model keeps beside its parameters and buffers lies there too
                case = model.make()
        except ModuleNotFoundError as error:
            return {"verdict": "skipped", "why": f"{error.name} is not installed"}
        give_statistics(case.module)
        calls: list[Call] = [(case.args, case.kwargs), *case.others]
        calls = [mapped(call, lambda each: each.to(self._device)) for call in calls]
        case.args, case.kwargs = calls[0]
        case.module.to(self._device)
        if model.training:
            return self._training(case, calls, timing)
        return self._inference(model, case, calls, archive, timing)

    def _inference(self, model: Model, case: Case, calls: list[Call], archive: str, timing: str) -> dict[str, Any]:
        case.module.eval()
        try:
            with torch.no_grad():
                exported = torch.export.export(case.module, case.args, case.kwargs, dynamic_shapes=case.dynamic,
                                               strict=False)
            exported = kiln.exported.without_vmap(exported)
            kiln.exported.model_json(exported)
        except Exception as error:
            return {"verdict": "not exported", "why": f"{type(error).__name__}: {error}"}
        begun = time.monotonic()
        try:
            fast = kiln.compile(exported, mode=self._mode, coordinator=self._coordinator)
        except kiln.Unsupported as error:
            return {"verdict": "refused", "why": str(error)}
        except kiln.KilnError as error:
            return {"verdict": "wrong", "why": f"{type(error).__name__}: {error}"}
        seconds = time.monotonic() - begun

        def eager(module: torch.nn.Module, call: Call) -> list[Any]:
            with torch.no_grad():
                return copied(flat(module(*call[0], **call[1])))  # type: ignore[no-any-return]

        plain = copy.deepcopy(case.module)  # the program changes the model's buffers where the model would
        have = [copied(flat(fast(*call[0], **call[1]))) for call in calls]
        want = [eager(copy.deepcopy(plain), copied(call)) for call in calls]
        exact, wide = reference(plain, calls, eager, want, 0.0)
        if archive:
            keep(Path(archive), model.name, exported, calls[0], want[0])
        result = compared(have, want, exact, wide)
        if result["verdict"] == "wrong":
            traced = [flat(exported.module()(*copied(call)[0], **copied(call)[1])) for call in calls]
            if compared(traced, want, exact, wide)["verdict"] == "wrong":
                return {"verdict": "not exported", "why": "PyTorch's own run of the exported program differs"}
        result["kernels"] = kernels_of(fast.program.manifest)
        if fast.program.outcome != "hit":  # else it was fetched
            result["seconds"] = seconds
        if timing == "measure" and self._coordinator:
            result["fetch_ms"] = fetch_ms(exported, self._mode, self._coordinator)
        if timing:
            args, kwargs = calls[0]
            other = torch.compile(copy.deepcopy(plain))

            def call_other() -> Any:
                with torch.no_grad():
                    return other(*args, **kwargs)

            result.update(beside_torch(lambda: fast(*args, **kwargs), call_other, self._device, timing, self._lock))
        return result

    def _training(self, case: Case, calls: list[Call], timing: str) -> dict[str, Any]:
        import kiln.dynamo

        case.module.train()
        plain = copy.deepcopy(case.module)
        torch._dynamo.reset()
        reports: list[Any] = []
        kiln.dynamo.watch(reports)
        fast = torch.compile(case.module, backend=kiln.dynamo.backend, options={"mode": self._mode})
        begun = time.monotonic()
        try:
            have = [gradients(case.module, fast, copied(call)) for call in calls]
        except Exception as error:
            return {"verdict": "wrong", "why": f"{type(error).__name__}: {error}"}
        finally:
            kiln.dynamo.watch(None)
        seconds = time.monotonic() - begun

        def eager(module: torch.nn.Module, call: Call) -> list[Any]:
            return gradients(module, module, call)

        want = [eager(copy.deepcopy(plain), copied(call)) for call in calls]
        exact, wide = reference(plain, calls, eager, want, GRADIENT)
        programs = [program for report in reports for _, program in report.partitions]
        result = {**compared(have, want, exact, wide, GRADIENT), "seconds": seconds,
                  "kernels": sum(kernels_of(each.manifest) for each in programs if each is not None)}
        refused = [f"{each.op} {each.why}" for report in reports for each in report.refused]
        if any(each is None for each in programs) or refused:
            result["why"] = "part runs eager: " + "; ".join(dict.fromkeys(refused))
        if timing:
            other_module = copy.deepcopy(plain)
            other = torch.compile(other_module)
            result.update(beside_torch(lambda: gradients(case.module, fast, calls[0]),
                                       lambda: gradients(other_module, other, calls[0]), self._device, timing,
                                       self._lock))
        return result


def compared(have: list[list[Any]], want: list[list[Any]], exact: list[list[Any]], wide: str, least: float = 0.0,
             ) -> dict[str, Any]:
    """``have`` and ``want``, PyTorch's, by their differences from ``exact``. ``wide``: what that is (reference.py).
    ``counted``: the part of the error that the verdict is of."""
    error = max(difference(a, b, least) for a, b in zip(have, exact, strict=True))
    own = max(difference(a, b, least) for a, b in zip(want, exact, strict=True))
    counted = max(beyond_a_place(a, b, least) for a, b in zip(have, exact, strict=True))
    why = "" if error <= 1e-2 else "results differ"
    return {"verdict": judged(counted, own), "why": why, "error": error, "torch_error": own, "counted": counted,
            "reference": wide}


def beyond_a_place(have: list[Any], exact: list[Any], least: float) -> float:
    """The difference of those outputs that are further from a reference of their own dtype than a place of it."""
    if len(have) == len(exact):
        pairs = [(a, b) for a, b in zip(have, exact, strict=True)
                 if place_of(b) == 0.0 or difference([a], [b]) > place_of(b)]
        have, exact = [a for a, _ in pairs], [b for _, b in pairs]
    return difference(have, exact, least)


def over_seeds(results: list[dict[str, Any]]) -> dict[str, Any]:
    """The first of these with the means of all errors, judged by them: one largest error is as much luck as arithmetic.
    A run that is wrong or has no errors stays what became of the model."""
    for each in results:
        if each["verdict"] not in ("right", "close"):
            return each
    error, own, counted = (statistics.fmean(each[key] for each in results)
                           for key in ("error", "torch_error", "counted"))
    return {**results[0], "verdict": judged(counted, own), "error": error, "torch_error": own, "counted": counted,
            "seeds": len(results)}


def number(value: float) -> torch.Tensor:
    """As a program returns it."""
    return torch.tensor(value, dtype=torch.float64 if isinstance(value, float) else None)


def keep(folder: Path, name: str, exported: Any, call: Call, outputs: list[Any]) -> None:
    """The archive, compressed and without what Kiln does not read, and beside it what `kiln run --expect` compares."""
    from safetensors.torch import save_file

    stem = "".join(each if each.isalnum() else "_" for each in name.replace(":", "")).strip("_")
    folder.mkdir(parents=True, exist_ok=True)
    for part in exported.graph_module.modules():
        if isinstance(part, torch.fx.GraphModule):
            for node in part.graph.nodes:  # whose source lines name this machine's folders
                node.meta.pop("stack_trace", None)
    whole = io.BytesIO()
    torch.export.save(exported, whole)
    with zipfile.ZipFile(whole) as source, zipfile.ZipFile(folder / f"{stem}.pt2", "w", zipfile.ZIP_DEFLATED) as target:
        for entry in source.namelist():
            path = entry.split("/", 1)[1]
            if path in ("byteorder", "archive_format", "archive_version", "version") or path.startswith(
                    ("models/", "data/weights/", "data/constants/")):
                target.writestr(zipfile.ZipInfo(f"model/{path}"), source.read(entry), zipfile.ZIP_DEFLATED, 9)
    inputs = [as_parts(leaf) for leaf in tree_leaves(call) if isinstance(leaf, torch.Tensor)]
    results = [leaf if isinstance(leaf, torch.Tensor) else number(leaf)
               for leaf in outputs if not isinstance(leaf, str)]
    tensors = {f"in{i}": each for i, each in enumerate(inputs)} | {f"out{i}": each for i, each in enumerate(results)}
    save_file({key: value.contiguous() for key, value in tensors.items()}, folder / f"{stem}.safetensors")


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is no answer
    warnings.simplefilter("ignore")
    runner = Runner(*sys.argv[1:5])
    for line in sys.stdin:
        name, archive, timing = json.loads(line)
        try:
            result = runner(name, archive, timing)
        except Exception as error:
            result = {"verdict": "crashed", "why": f"{type(error).__name__}: {error}"}
        print(json.dumps(result), file=answers, flush=True)


if __name__ == "__main__":
    main()
