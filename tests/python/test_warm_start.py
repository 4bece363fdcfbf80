"""Compiled graphs in AOTAutogradCache: on the disk, through a coordinator, and in torch's portable caches."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import kiln
import kiln.dynamo
import pytest
import torch
from fleet import CHILD_S, install
from fleet import kiln as run_kiln
from kiln import _settings, _warm_start
from kiln._emit import frames_that_count
from kiln._graphs import GraphCompiler
from torch import nn
from torch._dynamo.utils import counters

MODELS, GRAPHS = 2, 3  # of warm_child.py; each model is one entry


def child(disk: Path, *arguments: object, **environment: str) -> dict[str, Any]:
    """What a process of its own took to run the models of warm_child.py."""
    given = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(disk), "KILN_STRICT": "1", **environment}
    if not {"KILN_COORDINATOR", "KILN_CACHE_DIR"} & set(environment):
        del given["KILN_CACHE_DIR"]
    done = subprocess.run([sys.executable, Path(__file__).parent / "warm_child.py", *map(str, arguments)], env=given,
                          check=False, capture_output=True, text=True, timeout=CHILD_S)
    assert done.returncode == 0, done.stdout + done.stderr
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert told["error"] < 1e-3, told
    return told


def entries_asked_for(service: str) -> int:
    """How often a coordinator was asked for an entry of AOTAutogradCache."""
    kept = json.loads(run_kiln("stats", "--json", "--coordinator", service))["artifacts"]
    return sum(each["hits"] + each["misses"] for each in kept if each["kind"] == "inductor.aot_autograd")


def test_a_second_process_calls_no_compiler(tmp_path: Path) -> None:
    first = child(tmp_path / "disk")
    assert first["graphs"] == GRAPHS and first["saved"] == MODELS and first["hit"] == 0 and first["bypass"] == 0, first
    assert set(first["outcomes"]) == {"local"}
    second = child(tmp_path / "disk", KILN_CXX="/bin/false")
    assert second["graphs"] == 0 and second["hit"] == MODELS, second
    assert set(second["outcomes"]) == {"hit"} and len(second["outcomes"]) == len(first["outcomes"])
    assert not second["inductor"]  # which takes longer to import than everything else that a warm start does


def test_a_fleet_traces_and_compiles_once(service: str, tmp_path: Path) -> None:
    installed = install(tmp_path / "site")
    fleet = {"KILN_COORDINATOR": service, "PYTHONPATH": f"{installed}:{os.environ['PYTHONPATH']}",
             "KILN_INDUCTOR_TIMEOUT_MS": "60000"}
    first = child(tmp_path / "first", "--save", tmp_path / "portable", **fleet)
    assert first["graphs"] == GRAPHS and first["saved"] == MODELS, first
    second = child(tmp_path / "second", **fleet)
    assert second["graphs"] == 0 and second["hit"] == MODELS and set(second["outcomes"]) == {"hit"}, second
    # The same from torch's portable caches: the coordinator is asked for programs, and for no entry.
    before = entries_asked_for(service)
    third = child(tmp_path / "third", "--load", tmp_path / "portable", **fleet)
    assert third["graphs"] == 0 and third["hit"] == MODELS and set(third["outcomes"]) == {"hit"}, third
    assert entries_asked_for(service) == before


def test_portable_caches_have_binaries_where_that_is_asked_for(service: str, tmp_path: Path) -> None:
    blob = tmp_path / "portable"
    child(tmp_path / "first", "--portable", "--save", blob, KILN_COORDINATOR=service)
    # No coordinator, no caches, no compiler.
    alone = {"KILN_CXX": "/bin/false", "KILN_CACHE_DIR": ""}
    second = child(tmp_path / "second", "--portable", "--load", blob, **alone)
    assert second["graphs"] == 0 and second["hit"] == MODELS and set(second["outcomes"]) == {"hit"}, second


@pytest.fixture
def graphs_compiled(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The names of the graphs that Kiln compiles."""
    names: list[str] = []
    compile_graph = GraphCompiler.compile

    def compile_and_note(self: GraphCompiler) -> Any:
        names.append(self.report.name)
        return compile_graph(self)

    monkeypatch.setattr(GraphCompiler, "compile", compile_and_note)
    monkeypatch.setenv("KILN_STRICT", "1")
    torch._dynamo.reset()
    _settings._said.clear()
    yield names
    torch._dynamo.reset()


def again(model: Callable[..., Any], *inputs: torch.Tensor, **options: Any) -> Any:
    """What the model gives after it is compiled anew, as in a new process."""
    torch._dynamo.reset()
    with torch.no_grad():
        return torch.compile(model, backend=kiln.dynamo.backend, **options)(*inputs)


def test_what_runs_eager_is_said_by_who_loads_it_too(graphs_compiled: list[str],
                                                     caplog: pytest.LogCaptureFixture) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return torch.fft.rfft(x * 2).abs()

    x = torch.randn(4, 8)
    again(f, x)
    _settings._said.clear()
    caplog.clear()
    with caplog.at_level(logging.WARNING, "kiln"):
        torch.testing.assert_close(again(f, x), f(x))
    assert graphs_compiled == ["inference"]
    assert "_fft_r2c.default runs eager" in caplog.text


def test_whoever_loads_uses_its_own_options(graphs_compiled: list[str], service: str,
                                            monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, Any]] = []
    compile_program = kiln.Client.compile

    def compile_and_note(self: kiln.Client, *given: Any, **named: Any) -> kiln.Program:
        asked.append({**named, "service": self.service})
        return compile_program(self, *given, **named)

    monkeypatch.setattr(kiln.Client, "compile", compile_and_note)
    x = torch.randn(5, 8)
    again(torch.sin, x)
    again(torch.sin, x, options={"coordinator": service, "verify": True, "deadline_s": 77})
    assert graphs_compiled == ["inference"]
    assert [each["verify"] for each in asked] == [False, True] and asked[1]["deadline_s"] == 77
    again(torch.sin, x, options={"coordinator": service, "mode": "max-autotune"})
    assert graphs_compiled == ["inference"] * 2 and asked[2]["mode"] == "max-autotune"


def test_an_entry_whose_programs_are_not_to_be_had_is_a_miss(graphs_compiled: list[str],
                                                             monkeypatch: pytest.MonkeyPatch) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return x.cos() * 3

    def refuse(*_: Any, **__: Any) -> Any:
        raise kiln.Unavailable("nobody answers")

    x = torch.randn(6, 8)
    again(f, x)
    with monkeypatch.context() as patched:
        patched.setattr(kiln.Client, "compile", refuse)
        torch.testing.assert_close(again(f, x), f(x))
    assert graphs_compiled == ["inference"] * 2
    # What ran eager then was not kept in its place.
    counters.clear()
    again(f, x)
    assert graphs_compiled == ["inference"] * 2 and counters["aot_autograd"]["autograd_cache_hit"] == 1


def test_what_failed_is_not_kept(graphs_compiled: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise kiln.Unavailable("nobody answers")

    x, counted = torch.randn(7, 8), counters["aot_autograd"]
    counters.clear()
    with monkeypatch.context() as patched:
        patched.setattr(kiln.Client, "compile", refuse)
        again(torch.tanh, x)
    assert counted["autograd_cache_saved"] == 0
    torch.testing.assert_close(again(torch.tanh, x), x.tanh())
    assert counters["aot_autograd"]["autograd_cache_hit"] == 0 and graphs_compiled == ["inference"] * 2


def test_autocast_to_another_type_is_another_entry(graphs_compiled: list[str]) -> None:
    model, x = nn.Linear(8, 8), torch.randn(4, 8)
    for dtype in (torch.bfloat16, torch.float16):
        with torch.autocast("cpu", dtype):
            assert again(model, x).dtype == dtype
    assert graphs_compiled == ["inference"] * 2


def test_what_the_key_has_makes_another_entry(graphs_compiled: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(4, 8)
    again(torch.erf, x)
    again(torch.erf, x)
    assert graphs_compiled == ["inference"]
    monkeypatch.setattr(torch, "__version__", "another")
    again(torch.erf, x)
    assert graphs_compiled == ["inference"] * 2
    torch.set_float32_matmul_precision("high")
    try:
        again(torch.erf, x)
    finally:
        torch.set_float32_matmul_precision("highest")
    assert graphs_compiled == ["inference"] * 3
    again(torch.erf, x.t().contiguous().t())
    assert graphs_compiled == ["inference"] * 4


def of_a_submodule(x: torch.Tensor) -> torch.Tensor:
    return torch.cond(x.sum() > 0, lambda x: x * 2, lambda x: x * 3, (x,))


def of_another(x: torch.Tensor) -> torch.Tensor:
    return torch.cond(x.sum() > 0, lambda x: x * 2, lambda x: x * 4, (x,))


@pytest.mark.parametrize(("functions", "inputs"), [
    ([lambda x: x * 2.0, lambda x: x * 2.5, lambda x: x * -0.0, lambda x: x * 0.0], 1),
    ([lambda x: x.sum(0), lambda x: x.sum(1), lambda x: x.mean(0), lambda x: x.sum(0, keepdim=True)], 1),
    ([lambda x: x.to(torch.float64), lambda x: x.to(torch.float16)], 1),
    ([lambda x: x[1:3], lambda x: x[1:3:2], lambda x: x[0:2]], 1),
    ([lambda x: x.clamp(max=float("inf")), lambda x: x.clamp(min=float("inf"))], 1),
    ([lambda x, y: x - y, lambda x, y: y - x], 2),
    ([of_a_submodule, of_another], 1),
])
def test_every_part_of_a_graph_makes_another_entry(functions: list[Callable[..., Any]], inputs: int) -> None:
    args = [torch.randn(4, 8) for _ in range(inputs)]
    for _ in range(2):
        for function in functions:
            torch.testing.assert_close(again(function, *args), function(*args))


def test_every_part_of_an_input_makes_another_entry(graphs_compiled: list[str]) -> None:
    x = torch.randn(4, 4)
    others = [x, x.t(), x[:2], x.double(), x[:, ::2], torch.randn(1, 4).expand(4, 4), x.to(torch.complex64).conj(),
              x.to(torch.complex64)]
    for _ in range(2):
        for each in others:
            torch.testing.assert_close(again(torch.square, each), each * each)
    assert graphs_compiled == ["inference"] * len(others)


def test_a_trace_keeps_the_frames_that_kiln_names() -> None:
    def frame(file: str, line: int) -> str:
        return f'  File "{file}", line {line}, in forward\n    return {line}\n'

    model, package, torchs = "/home/ann/model.py", "/v/site-packages/transformers/llama.py", "/v/site-packages/torch/nn.py"
    trace = "".join([frame(model, 1), frame(model, 2), frame(package, 3), frame(package, 4), frame(torchs, 5),
                     frame(torchs, 6)])
    assert frames_that_count(trace) == frame(model, 2) + frame(package, 4) + frame(torchs, 6)
    assert frames_that_count(frame(model, 1) + frame(model, 2)) == frame(model, 2)
    assert frames_that_count(frame(torchs, 1) + frame("<eval_with_key>.3", 2)) == frame("<eval_with_key>.3", 2)
    assert frames_that_count("no trace") == "no trace"


def test_without_torchs_private_names_nothing_is_cached(graphs_compiled: list[str], monkeypatch: pytest.MonkeyPatch,
                                                        caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(_warm_start, "_missing", "no module named x")
    x = torch.randn(4, 8)
    with caplog.at_level(logging.WARNING, "kiln"):
        for _ in range(2):
            torch.testing.assert_close(again(torch.exp, x), x.exp())
    assert graphs_compiled == ["inference"] * 2
    assert caplog.text.count("is not as Kiln knows it") == 1
