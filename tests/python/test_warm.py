"""kiln.warm and python -m kiln warm: replicas find later what the fleet tuned now."""

from __future__ import annotations

import doctest
import json
import os
import subprocess
import sys
from pathlib import Path

import kiln
import kiln.dynamo
import kiln.exported
import pytest
import torch
from torch._dynamo.utils import counters

MODELS = """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.linear = torch.nn.Linear(24, 8)

    def forward(self, x):
        return torch.nn.functional.gelu(self.linear(x)).softmax(-1)

def exported():
    return torch.export.export(Model().eval(), (torch.ones(5, 24),))

def both():
    return {"a": exported(), "b": (Model().eval().requires_grad_(False), (torch.ones(6, 24),))}

def wrong():
    raise ValueError("no weights here")

def missing():
    return "no_such_file.pt2"

def bad_call():
    return {"short": (Model(), (torch.ones(5, 3),)), "good": exported()}
"""


@pytest.fixture
def models(tmp_path: Path) -> Path:
    (tmp_path / "models_to_warm.py").write_text(MODELS)
    return tmp_path


def run(folder: Path, *arguments: str, coordinator: str = "") -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **({"KILN_COORDINATOR": coordinator} if coordinator else {})}
    return subprocess.run([sys.executable, "-m", "kiln", "warm", *arguments], cwd=folder, env=environment, text=True,
                          capture_output=True, timeout=300, check=False)


def test_exported_programs_are_had_by_who_comes_later(service: str) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(12, 6), torch.nn.Tanh()).eval()
    exported = torch.export.export(model, (torch.ones(3, 12),))
    first = kiln.warm(exported, coordinator=service, mode="default")
    assert first.target.startswith("cpu:")
    assert first.kernels >= 1
    assert first.outcomes != ("hit",)
    assert kiln.warm(exported, coordinator=service, mode="default").outcomes == ("hit",)
    assert kiln.compile(exported, coordinator=service).program.outcome == "hit"


def test_models_that_are_called_are_had_by_torch_compile(service: str) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(10, 4), torch.nn.Sigmoid())  # with a backward
    x = torch.ones(7, 10)
    warmed = kiln.warm(model, (x,), coordinator=service, mode="default")
    assert len(warmed.outcomes) == 2
    assert all(parameter.grad is None for parameter in model.parameters())
    again = kiln.warm(model, (x,), coordinator=service, mode="default")
    assert set(again.outcomes) == {"hit"}
    assert again.kernels == warmed.kernels
    counters.clear()
    fast = torch.compile(model, backend=kiln.dynamo.backend, options={"coordinator": service, "mode": "default"})
    torch.testing.assert_close(fast(x), model(x))
    assert counters["aot_autograd"]["autograd_cache_hit"] == 1  # its entry is there too


def test_a_program_for_a_device_that_is_not_here_describes_itself_and_does_not_run(service: str) -> None:
    exported = torch.export.export(torch.nn.Softplus(), (torch.ones(9, 3),))
    program = kiln.Client(service).compile(kiln.exported.model_json(exported), load=False)
    assert program.inputs[0].sizes == (9, 3)
    with pytest.raises(kiln.Unsupported, match="load"):
        program(torch.ones(9, 3).numpy())


def test_without_a_fleet_nothing_is_warm() -> None:
    exported = torch.export.export(torch.nn.Tanh(), (torch.ones(3),))
    with pytest.raises(kiln.Unavailable, match="KILN_COORDINATOR"):
        kiln.warm(exported)
    for what in ((exported,), (torch.nn.Tanh(), (torch.ones(3),))):
        with pytest.raises(kiln.Unavailable):
            kiln.warm(*what, coordinator="tcp://127.0.0.1:9", mode="default", deadline_s=20)


def test_the_command(service: str, models: Path) -> None:
    done = run(models, "models_to_warm:both", "--mode", "default", "--json", coordinator=service)
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["name"] for row in rows] == ["a", "b"]
    assert all(row["kernels"] >= 1 and row["target"].startswith("cpu:") for row in rows)
    again = run(models, "models_to_warm:exported", "--mode", "default", "--coordinator", service)
    assert again.returncode == 0
    assert again.stdout.startswith("exported  cpu:")
    assert "  hit  " in again.stdout


def test_what_goes_wrong_has_its_exit_code(service: str, models: Path) -> None:
    assert run(models, "models_to_warm:exported").returncode == 3
    assert run(models, "models_to_warm").returncode == 2
    wrong = run(models, "models_to_warm:wrong", coordinator=service)
    assert (wrong.returncode, "no weights here" in wrong.stderr) == (2, True)
    assert run(models, "no_such_module:f", coordinator=service).returncode == 2
    assert run(models, "models_to_warm:missing", coordinator=service).returncode == 2
    some = run(models, "models_to_warm:bad_call", "--mode", "default", coordinator=service)
    assert some.returncode == 2
    assert "short" in some.stderr
    assert some.stdout.startswith("good  ")  # the others are warmed all the same
    away = run(models, "models_to_warm:exported", "--deadline", "10", coordinator="tcp://127.0.0.1:9")
    assert away.returncode == 3, away.stderr


def test_examples_of_the_docstrings(service: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import kiln._warm

    monkeypatch.setenv("KILN_COORDINATOR", service)
    assert doctest.testmod(kiln._warm).attempted > 0
    assert doctest.testmod(kiln._warm).failed == 0
