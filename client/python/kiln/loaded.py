"""``kiln.load``: programs as functions, from a file of torch.export or from what a fleet has compiled before."""

from __future__ import annotations

import os
from collections.abc import Mapping

import torch

from kiln._default_client import client_for
from kiln._torch import check_input, give_back, laid_out, launcher_of, mutations
from kiln.client import Client, Mode, Program, TensorInfo
from kiln.errors import InvalidArgument
from kiln.exported import CompiledModule, as_parts, compile, read_archive


class LoadedModule:
    """A program that was loaded without its model: a function of tensors, which returns a tuple of tensors.

    Arguments are the model's tensors in order, without the weights that it was given. Weights are bound by pointer; an
    input that the model changes, weight or argument, is changed in place. The structures (pytrees) of arguments and
    results are not known here, and a complex result is a tensor of its real and imaginary parts along a last axis.

    Raises InvalidArgument when an input has another dtype, size or device than the program takes.
    """

    def __init__(self, program: Program, weights: Mapping[str, torch.Tensor] | None = None, gpu: int = 0) -> None:
        self._device = torch.device("cuda", gpu) if program.target.startswith("cuda") else torch.device("cpu")
        self._inputs = [self._source(info, weights) for info in program.inputs]
        self._weights = {info.name: as_parts(weights[info.name].detach()) for info in program.inputs
                         if weights is not None and info.name in weights}
        bound = frozenset(i for i, each in enumerate(self._inputs) if each is not None)
        self._arguments = sum(each is None and info.kind != "seed"
                              for each, info in zip(self._inputs, program.inputs, strict=True))
        self._launch = launcher_of(program, self._device, bound, in_place=mutations(program))

    def _source(self, info: TensorInfo, weights: Mapping[str, torch.Tensor] | None) -> torch.Tensor | None:
        # The tensor that each call takes; None: it is an argument, or the seed.
        if info.kind in ("user", "seed") or weights is None:
            return None
        if info.dtype == "none":
            return torch.empty(1, dtype=torch.uint8, device=self._device)
        if info.name not in weights:
            raise InvalidArgument(
                f"the program takes the {info.kind} '{info.name}', and weights has none of that name: give the model's "
                "state_dict(), and what is not in there, as its constants and non-persistent buffers, by name too")
        return laid_out(check_input(as_parts(weights[info.name].detach()), info, self._device), info.strides)

    @property
    def program(self) -> Program:
        """The :class:`kiln.Program` that runs."""
        return self._launch.program

    def __repr__(self) -> str:
        return f"<kiln.LoadedModule of {self.program!r}>"

    def __call__(self, *args: torch.Tensor) -> tuple[torch.Tensor, ...]:
        if len(args) != self._arguments:
            taken = [info.name or "no name" for info, each in zip(self.program.inputs, self._inputs, strict=True)
                     if each is None and info.kind != "seed"]
            raise InvalidArgument(f"the program takes {self._arguments} tensors ({', '.join(taken)}); {len(args)} were "
                                  "given")
        arguments = iter(args)
        tensors: list[torch.Tensor] = []
        changed: dict[int, torch.Tensor] = {}  # by input, where a new value goes
        for index, (info, source) in enumerate(zip(self.program.inputs, self._inputs, strict=True)):
            if source is not None:
                tensors.append(source)
                changed[index] = self._weights.get(info.name, source)
            elif info.kind == "seed":
                tensors.append(torch.randint(0, 2**62, (), dtype=torch.int64).to(self._device))
            else:
                given = next(arguments)
                changed[index] = as_parts(given)
                tensors.append(torch.empty(1, dtype=torch.uint8, device=self._device) if info.dtype == "none"
                               else check_input(changed[index], info, self._device))
        outputs = self._launch(tensors)
        for info, value in zip(self.program.outputs, outputs, strict=True):
            if info.mutates is not None:
                give_back(changed[info.mutates], value)
        return tuple(value for info, value in zip(self.program.outputs, outputs, strict=True) if info.mutates is None)


def _is_digest(source: object) -> bool:
    return isinstance(source, str) and len(source) == 64 and set(source) <= set("0123456789abcdef")


def _is_lock(path: str | os.PathLike[str]) -> bool:
    try:
        with open(path, "rb") as file:
            return file.read(10) == b"kiln-lock "
    except OSError:
        return False  # whoever reads it next says why


def _takes_no(source: str, **options: object) -> None:
    given = [name for name, value in options.items() if value is not None and value is not False]
    if given:
        raise InvalidArgument(f"{source} takes no " + ", ".join(given))


def load(source: str | os.PathLike[str], name: str | None = None, *, weights: Mapping[str, torch.Tensor] | None = None,
         mode: Mode | None = None, target: str | None = None, client: Client | None = None,
         coordinator: str | None = None, deadline_s: float = 600.0, strict: bool = False, verify: bool = False,
         now: bool = False, signer: str | os.PathLike[str] | None = None) -> CompiledModule | LoadedModule:
    """A program as a function.

    Args:
        source: one of

            - the path of a ``.pt2`` file that torch.export.save wrote: ``kiln.compile`` of what is in it, weights too;
            - the path of a file that ``kiln lock`` wrote: the program ``name`` of it, as it was locked, with its target
              and mode. The model is not needed, nor torch.export;
            - the digest of a graph, 64 hex digits as ``kiln digest`` prints it: its program for ``target`` (default
              "cpu") and ``mode``, of whose inputs only their order in the program is known;
            - the directory that ``kiln compile --out`` wrote: the program in it. Nobody is asked.

            The last three start nothing: NotFound says that the program is not there.
        name: the model's file as the lock file has it, or its stem; default: the only one.
        weights: with a lock file, the model's state_dict(), and its constants by name; default: weights are arguments,
            in their places among the others, as they always are with a digest or a directory.
        client: a ``Client(gpu=1)`` loads programs for GPUs onto ``cuda:1``; default: the one of ``coordinator``, on the
            first GPU.
        signer: of a directory, as Client.open_exported() has it.

    Raises:
        NotFound, Unavailable, InvalidArgument, and KilnError as Client.load(), load_locked() and open_exported().
    """
    def chosen() -> Client:
        return client or client_for(coordinator)

    def loaded(program: Program) -> LoadedModule:
        return LoadedModule(program, weights, client.gpu if client is not None else 0)

    if os.path.isdir(source):
        _takes_no("a directory", name=name, weights=weights, mode=mode, target=target, verify=verify, now=now)
        return loaded(chosen().open_exported(source, signer=signer))
    _takes_no("what is no directory", signer=signer)
    if _is_digest(source):
        _takes_no("a digest", name=name, weights=weights, verify=verify, now=now)
        return loaded(chosen().load(os.fspath(source), mode=mode or "default", target=target or "cpu",
                                    deadline_s=deadline_s, strict=strict))
    if _is_lock(source):
        _takes_no("a lock file", mode=mode, verify=verify, now=now)
        return loaded(chosen().load_locked(source, name, target=target, deadline_s=deadline_s, strict=strict))
    _takes_no("a file of torch.export", name=name, weights=weights, target=target)
    return compile(read_archive(source), mode=mode or "default", client=client, coordinator=coordinator,
                   deadline_s=deadline_s, strict=strict, verify=verify, now=now)
