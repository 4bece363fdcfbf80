"""``kiln.warm``: has a fleet tune a model before anybody waits for it."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from kiln import dynamo
from kiln._explain import call_with_backward
from kiln._settings import Settings
from kiln._torch import libnvrtc, target_of
from kiln.client import Client, Program, Progress
from kiln.errors import InvalidArgument, KilnError, Unavailable, Unsupported
from kiln.exported import covered, device_of, program_bytes, read_archive


class Warmed(NamedTuple):
    """The programs that the fleet has for a model."""

    name: str
    target: str  #: "cuda:sm_90a"; "" where no op of the model is Kiln's
    kernels: int
    outcomes: tuple[str, ...]  #: of each program: "hit", "tuned", ...; a model that is called may be several programs
    seconds: float


class _Recorded(Settings):
    """Settings that ask the fleet alone. They keep the programs that it gave, and the last error."""

    def __init__(self, mode: str, options: Mapping[str, Any]) -> None:
        super().__init__(mode, options)
        self._clients: dict[int, Client] = {}  # by GPU
        self.programs: list[Program] = []
        self.error: KilnError | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        """In an entry of AOTAutogradCache they are settings like any other's."""
        own = ("_clients", "programs", "error")
        return Settings.of, ({name: value for name, value in vars(self).items() if name not in own},)

    def client(self, gpu: int = 0) -> Client:
        """The client whose programs are loaded on ``gpu``."""
        if gpu not in self._clients:  # no fallback and no cache on disk: only an answer of the fleet counts
            self._clients[gpu] = Client(self.coordinator, fallback=False, cache_dir="", libnvrtc=libnvrtc(), gpu=gpu)
        return self._clients[gpu]

    def compile(self, model_json: bytes, target: str, gpu: int = 0) -> Program:
        try:
            program = self.client(gpu).compile(model_json, mode=self.mode, target=target, deadline_s=self.deadline_s,
                                          verify=self.mode == "default")
        except Unsupported:  # torch.compile runs such a graph eager, as replicas will
            raise
        except KilnError as error:
            self.error = error
            raise
        self.programs.append(program)
        return program


def warm(model: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None, *,
         mode: str = "max-autotune", target: str | None = None, coordinator: str | None = None,
         deadline_s: float = 3600.0, name: str | None = None,
         on_progress: Callable[[Progress], object] | None = None) -> Warmed:
    """Tunes what replicas will ask for, and returns when the fleet has it, verified.

    >>> import torch, kiln
    >>> model = torch.nn.Linear(4, 2).eval()
    >>> kiln.warm(torch.export.export(model, (torch.ones(3, 4),)), mode="default").kernels
    1

    Args:
        model: an ``ExportedProgram`` or the path of a ``.pt2`` file, for replicas that use kiln.compile or kiln.load;
            or a module or function with its ``args`` and ``kwargs``, for those that use torch.compile(backend="kiln"):
            it is called once, and its backward where the outputs need gradients.
        mode: as replicas will ask: one of torch.compile's.
        target: of an exported program, also of a device that this machine does not have: "cuda:sm_90a". Default: the
            device that it was exported on. A model that is called is compiled for the device of its arguments.
        coordinator: default ``$KILN_COORDINATOR``.
        name: for the answer; default: the file's or the class's.
        on_progress: as Client.compile; of exported programs.

    Raises:
        KilnError: as Client.compile; Unavailable also without a coordinator. Unsupported: an op of an exported program
            that Kiln does not cover; of a model that is called, such ops run eager.
    """
    begun = time.monotonic()
    if isinstance(model, (str, os.PathLike)):
        name = name or os.fspath(model)
        model = read_archive(model)
    if not (coordinator or os.environ.get("KILN_COORDINATOR")):
        raise Unavailable("there is no fleet to warm: give coordinator, or set KILN_COORDINATOR")
    settings = _Recorded(mode, {"coordinator": coordinator, "deadline_s": deadline_s})
    if isinstance(model, torch.export.ExportedProgram):
        if args or kwargs:
            raise InvalidArgument("an exported program takes no arguments here: it has its sizes already")
        exported = covered(model)
        programs = [settings.client().compile(
            program_bytes(exported), mode=settings.mode, target=target or target_of(device_of(exported)),
            deadline_s=deadline_s, load=False, verify=settings.mode == "default", on_progress=on_progress)]
    else:
        if target is not None:
            raise InvalidArgument("a model that is called is compiled for the device of its arguments: export it to "
                                  "warm another target")
        torch._dynamo.reset()  # what this process has compiled already asks nobody

        def backend(module: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
            return dynamo.compile_graph(module, example_inputs, settings)

        call_with_backward(torch.compile(model, backend=backend), model, args, kwargs or {})
        torch._dynamo.reset()
        if settings.error is not None:
            raise settings.error
        programs = settings.programs
    return Warmed(name or str(getattr(model, "__name__", type(model).__name__)), programs[0].target if programs else "",
                  sum(len(json.loads(program.manifest)["kernels"]) for program in programs),
                  tuple(program.outcome for program in programs), time.monotonic() - begun)
