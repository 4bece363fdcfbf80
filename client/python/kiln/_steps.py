"""A compiled AOT graph: steps that run in Kiln, steps that run eager, and where each finds its inputs.

It can be pickled: of a program the captured graph travels, and the process that loads it gets the program where
programs come from (``CompiledGraph.load``).
"""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import torch
from torch import fx

from kiln._cuda_graphs import Boxed, Capture, announced, captured
from kiln._inductor_parts import InductorPart
from kiln._settings import Settings
from kiln._torch import Orders, Pairs, give_back, gpu_of, launcher_of, target_of
from kiln._triton_calls import named_kernels, rename_kernels
from kiln.client import Program

Slots = list[Any]
_one_traces = threading.Lock()


def _taker(indices: list[int]) -> Callable[[Slots], Sequence[Any]]:
    """What takes these slots' values; of several in a third of a comprehension's time."""
    return itemgetter(*indices) if len(indices) > 1 else lambda slots: [slots[index] for index in indices]


class Step:
    """A function of slots: reads some, writes some, clears those that nobody reads any more."""

    def __init__(self, reads: list[int], writes: list[int]) -> None:
        self.reads, self.writes = reads, writes
        self.clears: list[int] = []
        self.run: Callable[[Sequence[Any]], Sequence[Any]]
        self._take = _taker(reads)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in ("run", "_take", "_launch")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._take = _taker(self.reads)

    def load(self, settings: Settings, device: torch.device) -> None:
        """Makes the step runnable. Raises KilnError."""

    def __call__(self, slots: Slots) -> None:
        inputs = self._take(slots)
        for index in self.clears:
            slots[index] = None
        for index, value in zip(self.writes, self.run(inputs), strict=True):
            slots[index] = value


class EagerStep(Step):
    """Nodes that torch runs, one after the other; or Inductor, where it is asked to."""

    def __init__(self, module: fx.GraphModule, reads: list[int], writes: list[int], in_inductor: bool = False) -> None:
        super().__init__(reads, writes)
        self._module, self._in_inductor = module, in_inductor

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_module": pickle.dumps(self._module),
                "_kernels": named_kernels(self._module.graph)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        # torch traces a module to unpickle it, and while it does every thread's modules are traced.
        with _one_traces:
            module = pickle.loads(state["_module"])
        super().__setstate__({**state, "_module": module})

    def load(self, settings: Settings, device: torch.device) -> None:
        kernels = self.__dict__.pop("_kernels", None)
        if kernels:  # those of another process
            rename_kernels(self._module.graph, kernels)
            self._module.recompile()
        forward = self._module.forward
        self.run = InductorPart(self._module, settings) if self._in_inductor else lambda inputs: forward(*inputs)


class KilnStep(Step):
    """One program. ``trusted`` and ``orders``: as Launcher has them. Inputs of ``changed`` have their new values once
    the step has run."""

    def __init__(self, model_json: bytes, reads: list[int], writes: list[int], trusted: frozenset[int],
                 orders: Orders, *, changed: Pairs = ()) -> None:
        super().__init__(reads, writes)
        self._model_json, self._trusted, self._orders, self._changed = model_json, trusted, orders, changed

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        if state.pop("_portable", False) and self.program.signature:
            state["_bundle"] = (self.program.bundle(), self.program.signature.split()[1])
        return state

    def load(self, settings: Settings, device: torch.device) -> None:
        bundle = self.__dict__.pop("_bundle", None)
        if bundle is not None:
            content, signer = bundle
            settings.add_bundle(content, signer, gpu_of(device))
        self._portable = settings.portable
        program = settings.compile(self._model_json, target_of(device), gpu_of(device))
        self._launch = launcher_of(program, device, self._trusted, self._orders, in_place=self._changed)
        self.run = self._run_and_give_back if self._changed else self._launch

    def _run_and_give_back(self, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        outputs = self._launch(inputs)
        for output, given in self._changed:
            give_back(inputs[given], outputs[output])
        return outputs

    @property
    def written_in_place(self) -> list[int]:
        """The slots of outputs that the program writes into the inputs whose new values they are."""
        return [self.writes[output] for output, given in self._changed if self.program.outputs[output].updates == given]

    @property
    def program(self) -> Program:
        """The program of the next call. REQUIRES: it is loaded."""
        return self._launch.program


@dataclass
class CompiledGraph:
    """The steps of a graph as a function of a list that it empties. Re-entrant."""

    device: torch.device
    slot_count: int
    constants: dict[int, Any]  #: values of slots that no argument has
    steps: list[Step]
    results: list[Any]  #: a tuple of one slot, or the value itself
    said: list[tuple[str, str]]  #: sentences on what runs eager, each with its place in the source
    capture: Capture | None = None  #: how it becomes a CUDA graph
    announces: bool = False  #: a backward that is not captured, of a forward that is

    def __post_init__(self) -> None:
        self._boxed_call = True  # no attribute of the class, which torch's wrapper of a backward does not copy

    def load(self, settings: Settings) -> None:
        """Makes every step runnable, in the process that has unpickled the graph. Raises KilnError."""
        for step in self.steps:
            step.load(settings, self.device)
        for sentence, place in self.said:
            settings.say_once(sentence, place)

    def runnable(self) -> Boxed:
        """What is called: this, or its CUDA graphs. REQUIRES: it is loaded."""
        if self.announces:
            return announced(self, self.device.index or 0)
        return captured(self, self.capture)

    def __call__(self, args: list[Any]) -> list[Any]:
        slots: Slots = args + [None] * (self.slot_count - len(args))
        args.clear()
        for index, value in self.constants.items():
            slots[index] = value
        for step in self.steps:
            step(slots)
        return [slots[result[0]] if isinstance(result, tuple) else result for result in self.results]
