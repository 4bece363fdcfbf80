"""Programs of torch.export as functions: ``kiln.compile``."""

from __future__ import annotations

import io
import json
import os
import zipfile
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch.export.graph_signature import ConstantArgument, InputKind, OutputKind, TensorArgument

from kiln._default_client import client_for
from kiln._emit import foreign_layout
from kiln._torch import check_input, give_back, gpu_of, laid_out, launcher_of, mutations, target_of
from kiln.client import Client, Mode, Program
from kiln.errors import InvalidArgument, KilnError, Unsupported


def model_json(exported: torch.export.ExportedProgram) -> bytes:
    """The ``models/model.json`` that torch.export.save would write, without the weights."""
    from torch._export.serde import schema, serialize

    module = serialize.GraphModuleSerializer(exported.graph_signature, exported.module_call_graph).serialize(
        exported.graph_module)
    version = schema.SchemaVersion(major=schema.SCHEMA_VERSION[0], minor=schema.SCHEMA_VERSION[1])
    program = schema.ExportedProgram(
        graph_module=module, opset_version={}, schema_version=version, verifiers=[], torch_version=torch.__version__,
        range_constraints=serialize.serialize_range_constraints(exported.range_constraints))
    return bytes(serialize._to_json_bytes(program))


_MOST_KNOWN_ELEMENTS = 4096


def program_bytes(exported: torch.export.ExportedProgram) -> bytes:
    """The program as it is compiled: its graph, and with it the elements of small constant tensors, if it has any.

    Numbers that the model takes out of such a tensor may be sizes; everything else reads it when it is called.
    """
    from torch._export.serde import serialize

    known = {}
    for spec in exported.graph_signature.input_specs:
        constant = exported.constants.get(str(spec.target)) if spec.kind == InputKind.CONSTANT_TENSOR else None
        if type(constant) is torch.Tensor and constant.numel() <= _MOST_KNOWN_ELEMENTS and not constant.is_complex():
            known[str(spec.target)] = constant.detach().cpu().contiguous()
    graph = model_json(exported)
    if not known:
        return graph
    config = {}
    kept = io.BytesIO()
    with zipfile.ZipFile(kept, "w") as archive:
        archive.writestr("program/byteorder", "little")
        archive.writestr("program/models/model.json", graph)
        for i, (name, constant) in enumerate(known.items()):
            meta = serialize.serialize_tensor_meta(constant)
            config[name] = {"path_name": f"tensor_{i}", "is_param": False, "use_pickle": False,
                            "tensor_meta": json.loads(serialize._to_json_bytes(meta))}
            archive.writestr(f"program/data/constants/tensor_{i}", bytes(constant.view(-1).view(torch.uint8).numpy()))
        archive.writestr("program/data/constants/model_constants_config.json", json.dumps({"config": config}))
    return kept.getvalue()


def without_vmap(exported: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """A program in which torch.func.vmap has been carried out: torch.export keeps its steps, and cannot save them."""
    if any(getattr(node.target, "__module__", "") == "torch._functorch.predispatch" for node in exported.graph.nodes):
        decomposed: torch.export.ExportedProgram = exported.run_decompositions({})
        return decomposed
    return exported


def covered(exported: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """The program as it is sent. Raises Unsupported: a tensor that has no strides, such as a sparse one."""
    exported = without_vmap(exported)
    for node in exported.graph.nodes:
        if why := foreign_layout(node):
            raise Unsupported(f"{node.target} {why}")
    return exported


def read_archive(path: str | os.PathLike[str]) -> torch.export.ExportedProgram:
    """torch.export.load. Raises KilnError."""
    try:
        return torch.export.load(os.fspath(path))
    except (RuntimeError, OSError, AssertionError) as error:
        raise KilnError(f"torch cannot read {os.fspath(path)}: {error}") from error


def as_parts(tensor: Any) -> Any:
    """A tensor of complex numbers as programs take it: real and imaginary parts along a last axis."""
    if isinstance(tensor, torch.Tensor) and tensor.is_complex():
        return torch.view_as_real(tensor.resolve_conj())
    return tensor


class CompiledModule:
    """A compiled ``ExportedProgram``: called as the model is, with the same pytrees of tensors.

    Weights are bound by pointer: they stay where the exported program has them, and a change of one in place is
    seen by the next call. Buffers that the model changes are changed here too. A model on a GPU may have tensors of the
    CPU, as numbers and indices often are: weights of that kind are copied to the GPU once, arguments in each call,
    and outputs are given on the device where the model has them. Raises InvalidArgument when an input has another
    structure, dtype, size or device than the program takes.
    """

    def __init__(self, exported: torch.export.ExportedProgram, program: Program, device: torch.device) -> None:
        self._device = device
        call_spec = exported.call_spec
        if call_spec.in_spec is None or call_spec.out_spec is None:
            raise InvalidArgument("the exported program says nothing of how it is called")
        self._in_spec, self._out_spec = call_spec.in_spec, call_spec.out_spec
        self._inputs: list[torch.Tensor | int | None] = []  # a weight, the place of a leaf, or None: the seed
        self._weights: dict[str, torch.Tensor] = {}
        traced = {node.name: node.meta["val"] for node in exported.graph.nodes
                  if isinstance(node.meta.get("val"), torch.Tensor)}
        self._on_host = {name for name, value in traced.items() if device.type != "cpu" and value.device.type == "cpu"}
        self._host_leaves: set[int] = set()
        changed = {program.inputs[info.mutates].name for info in program.outputs if info.mutates is not None}
        infos, leaves = iter(program.inputs), 0
        for spec in exported.graph_signature.input_specs:
            leaves += spec.kind == InputKind.USER_INPUT
            if not isinstance(spec.arg, TensorArgument):
                continue  # a number, which is a constant of the program
            info = next(infos)
            if spec.kind == InputKind.USER_INPUT:
                self._inputs.append(leaves - 1)
                if spec.arg.name in self._on_host:
                    self._host_leaves.add(leaves - 1)
                continue
            name = str(spec.target)
            weight = exported.state_dict.get(name, exported.constants.get(name))
            if not isinstance(weight, torch.Tensor):
                raise InvalidArgument(f"the exported program has no tensor '{name}'")
            weight = as_parts(weight.detach())
            if spec.arg.name in self._on_host and info.name not in changed:
                weight = weight.to(device)
            weight = check_input(weight, info, device)
            self._inputs.append(laid_out(weight, info.strides))
            self._weights[name] = weight
        self._inputs += [None for info in program.inputs if info.kind == "seed"]
        self._outputs = exported.graph_signature.output_specs
        self._complex = {name for name, value in traced.items() if value.is_complex()}
        weights = frozenset(i for i, each in enumerate(self._inputs) if isinstance(each, torch.Tensor))
        self._launch = launcher_of(program, device, weights, in_place=mutations(program))

    @property
    def program(self) -> Program:
        """The :class:`kiln.Program` that runs: with ``now``, the tuned one once that is there."""
        return self._launch.program

    def __repr__(self) -> str:
        return f"<kiln.CompiledModule of {self.program!r}>"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        leaves, spec = pytree.tree_flatten((args, kwargs))
        if spec != self._in_spec:
            raise InvalidArgument(f"the model was exported for arguments of the structure {self._in_spec}, and this "
                                  f"call has {spec}")
        tensors = []
        program = self.program
        for info, source in zip(program.inputs, self._inputs, strict=True):
            if source is None:
                tensors.append(torch.randint(0, 2**62, (), dtype=torch.int64).to(self._device))
            elif isinstance(source, int):
                leaf = as_parts(leaves[source])
                if source in self._host_leaves and isinstance(leaf, torch.Tensor):
                    leaf = leaf.to(self._device)
                tensors.append(check_input(leaf, info, self._device))
            else:
                tensors.append(source)
        outputs = self._launch(tensors)
        values = iter(outputs)
        results = [self._user_output(output.arg, values) for output in self._outputs
                   if output.kind == OutputKind.USER_OUTPUT]
        for info, value in zip(program.outputs, outputs, strict=True):
            if info.mutates is not None:
                source = self._inputs[info.mutates]
                give_back(as_parts(leaves[source] if isinstance(source, int) else self._weights[info.name]), value)
        return pytree.tree_unflatten(results, self._out_spec)

    def _user_output(self, argument: Any, values: Any) -> Any:
        if isinstance(argument, TensorArgument):
            value = next(values)
            value = torch.view_as_complex(value) if argument.name in self._complex else value
            return value.cpu() if argument.name in self._on_host else value
        if isinstance(argument, ConstantArgument) and (argument.value is None or isinstance(argument.value, str)):
            return argument.value
        return next(values).item()  # a number or a size


def device_of(exported: torch.export.ExportedProgram) -> torch.device:
    """The GPU that a tensor of the program is on, else the CPU."""
    for node in exported.graph.nodes:
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor) and value.device.type != "cpu":
            return value.device
    return torch.device("cpu")


def compile(exported: torch.export.ExportedProgram, *, mode: Mode = "default", client: Client | None = None,
            coordinator: str | None = None, deadline_s: float = 600.0, strict: bool = False,
            verify: bool = False, now: bool = False) -> CompiledModule:
    """Compiles what ``torch.export.export`` gave; the result is called like the model.

    >>> import torch, kiln
    >>> model = torch.nn.Linear(4, 2).eval()
    >>> fast = kiln.compile(torch.export.export(model, (torch.ones(3, 4),)))
    >>> fast(torch.ones(3, 4)).shape
    torch.Size([3, 2])

    Args:
        exported: sizes may be dynamic (``torch.export.Dim``).
        mode: "default", or "max-autotune": the service searches and measures.
        client: default: the one of ``coordinator``, or of ``$KILN_COORDINATOR``, or this machine's own compiler.
        strict: take no program that kernel templates of another version made, but wait for its successor.
        verify: in mode "default", wait until the results of every kernel are compared with a reference.
        now: in mode "max-autotune", take what there is at once; calls run the tuned program once that is there.

    Raises:
        Unsupported: an op that Kiln does not cover; the message names it and its line. torch.compile(model,
            backend="kiln") runs such models, with those ops eager.
        KilnError: as Client.compile.
    """
    exported = covered(exported)
    device = device_of(exported)
    client = client or client_for(coordinator, gpu_of(device))
    if device.type == "cuda" and client.gpu != gpu_of(device):
        raise InvalidArgument(f"the program was exported on {device}, and the client runs programs on "
                              f"cuda:{client.gpu}: open one with kiln.Client(gpu={gpu_of(device)})")
    program = client.compile(
        program_bytes(exported), mode=mode, target=target_of(device), deadline_s=deadline_s, strict=strict,
        verify=verify, now=now)
    return CompiledModule(exported, program, device)
