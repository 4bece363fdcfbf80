"""docs/models.md: what became of the models, of one run of the zoo or of several beside one another."""

from __future__ import annotations

import collections
import importlib.metadata
import json
import os
import platform
import re
import statistics
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

LIBRARIES = ("torch", "torchvision", "timm", "transformers", "diffusers")


@dataclass
class Run:
    """``text`` says where, how and when; ``results`` has a record for each model by its name."""

    text: str
    results: dict[str, dict[str, Any]] = field(default_factory=dict)

    @staticmethod
    def read(argument: str) -> Run:
        """Of FILE, or FILE=TEXT where the file may not say what its run was. A later record of a model counts."""
        path, _, text = argument.partition("=")
        run = Run(text)
        for record in map(json.loads, Path(path).read_text().splitlines()):
            if "run" in record:
                run.text = record["run"]
            else:
                run.results[record["name"]] = record
        if not run.text:
            raise SystemExit(f"{path} does not say what its run was: give {path}=TEXT")
        return run


def machine(target: str) -> str:
    if target == "cuda":
        import torch

        return f"a machine with {torch.cuda.get_device_name()}"
    model = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    return f"{os.cpu_count()} cores of {model[1] if model else platform.machine()}"


def described(target: str, mode: str) -> str:
    installed = {each.metadata["Name"]: each.version.split("+")[0] for each in importlib.metadata.distributions()}
    versions = ", ".join(f"{each} {installed.get(each, 'missing')}" for each in LIBRARIES)
    return f"target `{target}`, mode `{mode}`, on {time.strftime('%-d %B %Y')}, {machine(target)}; {versions}"


def shortened(text: str, length: int = 150) -> str:
    text = re.sub(r"/\S*/site-packages/", "", " ".join(text.split())).replace("|", "/")
    return text if len(text) <= length else text[: length - 1] + "…"


def number(value: float | None) -> str:
    return "" if value is None else f"{value:.1e}"


def figure(result: dict[str, Any], key: str, form: str) -> str:
    return format(result[key], form) if key in result else ""


def cells(result: dict[str, Any] | None, times: bool) -> list[str]:
    """``times``: with those of what a model takes."""
    if result is None:
        return [""] * (8 if times else 5)
    torch_has = "own" if result.get("reference") == "own" else number(result.get("torch_error"))
    verdict = result["verdict"] + (f" ({result['seeds']} seeds)" if "seeds" in result else "")
    found = [verdict, str(result.get("kernels", "")), number(result.get("error")), torch_has,
             figure(result, "seconds", ".1f")]
    if not times:
        return found
    other = "fails" if "torch_compile_why" in result else figure(result, "torch_compile_us", ".0f")
    return [*found, figure(result, "fetch_ms", ".0f"), figure(result, "us", ".0f"), other]


def has_times(run: Run) -> bool:
    return any("us" in result for result in run.results.values())


def row(result: dict[str, Any]) -> str:
    return "| " + " | ".join([result["name"], *cells(result, "us" in result), shortened(result.get("why", ""))]) + " |"


def summary(run: Run) -> str:
    verdicts = collections.Counter(str(result["verdict"]) for result in run.results.values())
    ran = len(run.results) - verdicts["skipped"]
    return (f"{len(run.results)} models: " + ", ".join(f"{count} {each}" for each, count in verdicts.most_common())
            + f" ({100 * verdicts['right'] / max(1, ran):.1f} % right)"
            + beside_pytorch(run) + beside_torch_compile(run))


def beside_pytorch(run: Run) -> str:
    errors = [each["error"] / each["torch_error"] for each in run.results.values()
              if each.get("error") and each.get("torch_error")]
    if not errors:
        return ""
    return f". Errors of {len(errors)}: {statistics.median(errors):.2f} of PyTorch's in the median"


def beside_torch_compile(run: Run) -> str:
    times = [each["torch_compile_us"] / each["us"] for each in run.results.values() if "torch_compile_us" in each]
    if not times:
        return ""
    return (f". {len(times)} timed beside `torch.compile`: {statistics.geometric_mean(times):.1f} times as fast in the "
            f"geometric mean, {sum(each < 1 for each in times)} slower")


def document(runs: list[Run], listed: list[str]) -> str:
    """``listed``: the names of the models in their order; a model that no run had is left out."""
    lines = [
        "# Models", "",
        "The zoo: models from the libraries that people take them from, as they export, with random weights and small",
        f"configurations. `tests/zoo` lists {len(listed)}; `ops/zoo` runs them and wrote this page, of these runs:", "",
        *(f"{i}. {run.text}. {summary(run)}." for i, run in enumerate(runs, 1)), "",
        "*error* is the largest difference from the model in f64 over the largest value of the output, *PyTorch's*",
        "that of PyTorch. *own*: PyTorch has no wider run of the model, so that the difference is from PyTorch's",
        "result, in which products of 8-bit floats are in f64. *right*: at most 1.2 times PyTorch's, or below 1e-6, or",
        "a place of the output's dtype where the reference has no more places. *close*: at most ten times PyTorch's.",
        "*seeds*: with one seed of weights and inputs the error was more than 1.2 times PyTorch's: errors are means.",
        "*cold*: seconds to compile all kernels of the program, nothing of it cached, on cores that other work shared.",
        "The last column has the reason of what is not right.",
    ]
    if any(has_times(run) for run in runs):
        lines += [
            "*fetch*: milliseconds until a client that has nothing has a program that the service has. *us*:",
            "microseconds of a call from Python, *torch.compile's* those of `torch.compile` in its default mode in",
            "the same process: medians of alternating rounds of many calls. *fails*: `torch.compile` raises an error.",
        ]
    shown = [each for each in listed if any(each in run.results for run in runs)]
    records = {each: [run.results.get(each) for run in runs] for each in shown}
    families: dict[str, list[str]] = {}
    for each in shown:
        family = next(record["family"] for record in records[each] if record)
        families.setdefault(family, []).append(each)
    for family, names in families.items():
        heads = ""
        for i, run in enumerate(runs, 1):
            heads += f" {i if len(runs) > 1 else ''} | kernels | error | PyTorch's | cold |"
            heads += " fetch | us | torch.compile's |" if has_times(run) else ""
        lines += ["", f"## {family[0].upper()}{family[1:]}", "",
                  f"| model |{heads} |", "|---|" + "---|" * heads.count("|") + "---|"]
        for name in names:
            why = next((record["why"] for record in records[name] if record and record.get("why")), "")
            parts = [part for run, record in zip(runs, records[name], strict=True)
                     for part in cells(record, has_times(run))]
            lines.append("| " + " | ".join([name, *parts, shortened(why)]) + " |")
    return "\n".join(lines) + "\n"
