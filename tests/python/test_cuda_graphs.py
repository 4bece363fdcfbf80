"""Which graphs become CUDA graphs, and what torch's CUDA graph trees are told of them. There is no GPU here: a stand-in
for the trees calls the graph; tests/gpu/torch_backend.py --mode reduce-overhead replays real ones."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import kiln.dynamo
import pytest
import torch
from kiln import _cuda_graphs, _settings
from kiln._cuda_graphs import CapturePlanner
from torch import fx, nn


class Trees:
    """Stands for torch._inductor.cudagraph_trees: notes what it is told, and runs the graph as it is."""

    def __init__(self) -> None:
        self.told: list[dict[str, Any]] = []
        self.calls = 0
        self.backwards = 0  # that were announced

    def cudagraphify_impl(self, model: Callable[[list[Any]], Any], inputs: list[Any], static: Sequence[int],
                 **facts: Any) -> Callable[[list[Any]], Any]:
        self.told.append({"inputs": [tuple(getattr(each, "shape", ())) for each in inputs], "static": list(static), **facts})

        def replay(inputs: list[Any]) -> Any:
            self.calls += 1
            return model(inputs)

        return replay

    def get_manager(self, device_index: int, create_if_none_exists: bool) -> Trees:
        assert device_index == 0 and not create_if_none_exists
        return self

    def set_to_running_backward(self) -> None:
        self.backwards += 1

    def kinds(self) -> list[str]:
        return ["backward" if each["is_backward"] else "inference" if each["is_inference"] else "forward"
                for each in self.told]


@pytest.fixture(name="trees")
def _trees(monkeypatch: pytest.MonkeyPatch) -> Iterator[Trees]:
    """Every graph of these tests is on the CPU; here they are taken for a GPU's."""
    monkeypatch.setenv("KILN_STRICT", "1")
    monkeypatch.setenv("TORCHINDUCTOR_FORCE_DISABLE_CACHES", "1")
    trees = Trees()
    monkeypatch.setattr(_cuda_graphs, "_trees", lambda: trees)
    obstacles(monkeypatch)
    torch._dynamo.reset()
    torch.manual_seed(0)
    _settings._said.clear()
    yield trees
    torch._dynamo.reset()


def obstacles(monkeypatch: pytest.MonkeyPatch, **of_kind: str) -> None:
    def obstacle(planner: CapturePlanner, module: fx.GraphModule, kind: str, has_steps: bool) -> str | None:
        return "" if kind == "backward" and not planner.forward_is_captured else of_kind.get(kind)

    monkeypatch.setattr(CapturePlanner, "_obstacle", obstacle)


def compiled(model: Callable[..., Any], mode: str = "reduce-overhead") -> Callable[..., Any]:
    return torch.compile(model, backend=kiln.dynamo.backend, mode=mode)


def trained(model: nn.Module, run: Callable[..., Any], x: torch.Tensor) -> list[torch.Tensor]:
    model.zero_grad()
    loss = run(x).square().mean()
    loss.backward()
    return [loss.detach(), *(each.grad.clone() for each in model.parameters() if each.grad is not None)]


@pytest.mark.parametrize(("mode", "kiln_mode", "captures"), [
    ("default", "default", False), ("reduce-overhead", "default", True), ("max-autotune", "max-autotune", True),
    ("max-autotune-no-cudagraphs", "max-autotune", False)])
def test_modes_mean_what_they_mean_in_torch(mode: str, kiln_mode: str, captures: bool) -> None:
    settings = _settings.Settings(mode)
    assert (settings.mode, settings.captures) == (kiln_mode, captures)


def test_parameters_are_read_where_they_lie(trees: Trees) -> None:
    model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4))
    fast = compiled(model)
    x = torch.randn(3, 8)
    with torch.no_grad():
        for _ in range(3):
            torch.testing.assert_close(fast(x), model(x))
    assert trees.kinds() == ["inference"] and trees.calls == 3
    told = trees.told[0]
    copied = [shape for index, shape in enumerate(told["inputs"]) if index not in told["static"]]
    assert copied == [(3, 8)], "all but the input are parameters"
    assert told["mutated_input_idxs"] == () and len(told["placeholders"]) == 5


def test_a_training_step_is_captured_forward_and_backward(trees: Trees) -> None:
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4))
    x = torch.randn(3, 8)
    want = trained(model, model, x)
    fast = compiled(model)
    for _ in range(2):
        torch.testing.assert_close(trained(model, fast, x), want)
    assert trees.kinds() == ["forward", "backward"] and trees.calls == 4
    backward = trees.told[1]
    moving = [shape for index, shape in enumerate(backward["inputs"]) if index not in backward["static"]]
    assert moving == [(3, 4)], "what the forward saved stays where it was; the gradient of the result comes anew"


def test_what_is_written_in_place_is_told(trees: Trees) -> None:
    def step(cache: torch.Tensor, row: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
        cache.index_copy_(0, at, row)
        return cache.sum(0)

    have, want = torch.zeros(256, 128), torch.zeros(256, 128)
    row, at = torch.randn(1, 128), torch.tensor([7])
    torch.testing.assert_close(compiled(step)(have, row, at), step(want, row, at))
    torch.testing.assert_close(have, want)
    told = trees.told[0]
    assert [told["inputs"][index] for index in told["mutated_input_idxs"]] == [(256, 128)]


def test_a_backward_is_not_captured_alone(trees: Trees, monkeypatch: pytest.MonkeyPatch,
                                          caplog: pytest.LogCaptureFixture) -> None:
    obstacles(monkeypatch, forward="it is on two devices")
    model = nn.Linear(8, 4)
    x = torch.randn(3, 8)
    with caplog.at_level(logging.WARNING, "kiln"):
        torch.testing.assert_close(trained(model, compiled(model), x), trained(model, model, x))
    assert not trees.told
    said = [each.getMessage() for each in caplog.records if each.name == "kiln"]
    assert said == ["a graph is launched kernel by kernel, not as a CUDA graph: it is on two devices"]


def test_the_trees_hear_of_a_backward_that_is_not_captured(trees: Trees, monkeypatch: pytest.MonkeyPatch) -> None:
    obstacles(monkeypatch, backward="an op cannot be captured")
    model = nn.Linear(8, 4)
    x = torch.randn(3, 8)
    torch.testing.assert_close(trained(model, compiled(model), x), trained(model, model, x))
    assert trees.kinds() == ["forward"] and trees.backwards == 1


def test_modes_without_cuda_graphs_and_cpus_capture_nothing(trees: Trees, monkeypatch: pytest.MonkeyPatch,
                                                            caplog: pytest.LogCaptureFixture) -> None:
    model, x = nn.Linear(8, 4), torch.randn(3, 8)
    compiled(model, "default")(x)
    assert not trees.told
    monkeypatch.undo()
    torch._dynamo.reset()
    with caplog.at_level(logging.WARNING, "kiln"):
        torch.testing.assert_close(compiled(model)(x), model(x))
    assert not [each for each in caplog.records if each.name == "kiln"], "that a CPU has no CUDA graphs is no news"


def test_how_a_graph_is_captured_can_be_kept(trees: Trees, monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[_cuda_graphs.Capture] = []
    plan = CapturePlanner.plan

    def note(planner: CapturePlanner, *arguments: Any) -> _cuda_graphs.Capture | None:
        capture = plan(planner, *arguments)
        assert capture is not None
        kept.append(capture)
        return capture

    monkeypatch.setattr(CapturePlanner, "plan", note)
    model, x = nn.Linear(8, 4), torch.randn(3, 8)
    trained(model, compiled(model), x)
    assert [each.kind for each in kept] == ["forward", "backward"]
    for capture in kept:
        assert pickle.loads(pickle.dumps(capture)) == capture
    assert len(trees.told) == 2
