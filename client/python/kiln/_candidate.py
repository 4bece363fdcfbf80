"""``kiln.candidate``: a kernel of your own, tried beside Kiln's for what a function computes."""

from __future__ import annotations

import ctypes
import inspect
import os
import re
from collections.abc import Callable, Mapping, Sequence
from ctypes import byref, c_int32
from typing import Any, NamedTuple

import torch
from torch.export.graph_signature import InputKind, TensorArgument

from kiln import _native
from kiln._torch import libnvrtc
from kiln.errors import InvalidArgument, KilnError, Unsupported
from kiln.exported import program_bytes, without_vmap

_ALIGNMENT = 16  # of a GPU's buffers
_SCALARS = {torch.float32: "fp32", torch.float64: "fp64", torch.float16: "fp16", torch.bfloat16: "bf16",
            torch.int8: "i8", torch.int16: "i16", torch.int32: "i32", torch.int64: "i64", torch.uint8: "u8",
            torch.bool: "i1", torch.float8_e4m3fn: "fp8e4nv", torch.float8_e5m2: "fp8e5"}
Grid = int | Sequence[int] | Callable[[dict[str, Any]], Sequence[int]]


class _Binary(NamedTuple):
    entry: str
    cubin: bytes
    threads: int
    shared_bytes: int
    null_pointers: int
    dependent_launch: bool


class _Function(NamedTuple):
    """A function of torch's as Kiln takes it. ``places`` has the tensors by name: inputs from 0 on, outputs -1, -2."""

    graph: bytes
    places: dict[str, int]
    dtypes: dict[str, torch.dtype]


class _Module(torch.nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self._function = function

    def forward(self, *args: Any) -> Any:
        return self._function(*args)


def candidate(function: Callable[..., Any] | torch.nn.Module, args: Sequence[Any], kernel: Any, *,
              arguments: Sequence[str], name: str | None = None, grid: Grid | None = None,
              constants: Mapping[str, Any] | None = None, items: int = 0, block: int = 0, threads: int = 0,
              shared_bytes: int = 0, target: str | None = None, coordinator: str | None = None,
              key_file: str | os.PathLike[str] | None = None, timeout_s: float = 30.0, **options: Any) -> str:
    """Offers a kernel as a candidate for what ``function`` computes with arguments like ``args``.

    The service keeps the kernel. Where ``max-autotune`` tunes what the function computes, in whatever model and for
    whomever, a worker compares the kernel's results with the reference and times it beside Kiln's own; if it is right
    and the fastest, it is what programs run. Programs that were tuned without it are served as stale until they are
    tuned again.

    Args:
        function: what the kernel computes: of tensors, with static sizes. Kiln must make one kernel of it.
        args: its arguments. Of tensors only dtypes, sizes and device count.
        kernel: a ``@triton.jit`` function, compiled here (no GPU is needed); or source as text, C++ for a CPU and CUDA
            for a GPU, in the form of docs/custom_call.md.
        arguments: what the kernel's pointers are, in order: names of the function's parameters (and of a module's
            weights), and ``"out"``, or ``"out0"``, ``"out1"``, … where it returns several tensors.
        name: a word for people and logs; default the kernel's. A source's function has this name.
        grid: of a Triton kernel, as it is launched: a number, a tuple of one axis, or a function of ``constants``.
        constants: a Triton kernel's other parameters, all of them: the kernel is compiled for these.
        items, block, threads, shared_bytes: of a source: what its grid is divided into (default: the elements of the
            first output), how many of those are a block (1024), and of a GPU a block's threads (256) and dynamic
            shared memory.
        target: default ``"cpu"``, or the GPU of ``args``; a GPU that is not here is named: ``"cuda:sm_90a"``.
        options: Triton's: ``num_warps``, ``num_stages``, ….

    Returns:
        The name of the candidate in ``kiln explain`` and the tuning log: ``"offered.NAME.DIGEST"``.

    Raises:
        InvalidArgument: the function is several kernels of Kiln's, the arguments are not its, or the kernel does not
            compile; the message says which.
        Unsupported: sizes that depend on the call, or something of the kernel's that cannot be carried: a grid of
            several axes, scratch memory, descriptors made by the host, a cooperative launch.
        NotPermitted: the key's role is not ``publish``.
    """
    where = coordinator or os.environ.get("KILN_COORDINATOR")
    if not where:
        raise InvalidArgument("a kernel is offered to a service: name it with coordinator=, or KILN_COORDINATOR")
    from kiln.artifacts import Artifacts

    asked = target or _target_of(args)
    described = _described(function, args)
    unknown = [each for each in arguments if each not in described.places]
    if unknown:
        raise InvalidArgument(f"the function has no {', '.join(map(repr, unknown))}; it has "
                              f"{', '.join(described.places)}")
    made = _native.CandidateStructure(size=ctypes.sizeof(_native.CandidateStructure), target=asked.encode(),
                                      arguments=(c_int32 * max(1, len(arguments)))(
                                          *(described.places[each] for each in arguments)),
                                      arguments_size=len(arguments))
    if isinstance(kernel, str):
        if grid is not None or constants or options:
            raise InvalidArgument("grid, constants and options are a Triton kernel's; of a source, say items and block")
        if name is None:
            raise InvalidArgument("name the source's function with name=")
        made.name = made.function = name.encode()
        made.source, made.items, made.block = kernel.encode(), items, block
        made.threads, made.shared_bytes = threads, shared_bytes
        made.compiler = _given("KILN_CXX")
        made.libnvrtc = _given("KILN_LIBNVRTC") or (libnvrtc() or "").encode() or None
    else:
        fixed = dict(constants or {})
        binary = _compiled(kernel, asked, _pointers(kernel, arguments, described.dtypes, fixed), fixed, options)
        made.blocks = _blocks(grid, fixed)
        made.name, made.function = (name or kernel.__name__).encode(), binary.entry.encode()
        made.binary, made.binary_size = binary.cubin, len(binary.cubin)
        made.threads, made.shared_bytes = binary.threads, binary.shared_bytes
        made.null_pointers, made.dependent_launch = binary.null_pointers, binary.dependent_launch
    artifacts, called = Artifacts(where, key_file=key_file), ctypes.create_string_buffer(256)
    _native.check(_native.library().kiln_candidate_put(
        artifacts._handle, described.graph, len(described.graph), byref(made), called, len(called),
        max(1, int(timeout_s * 1000))))
    return called.value.decode()


def _given(variable: str) -> bytes | None:
    return os.environ.get(variable, "").encode() or None


def _target_of(args: Sequence[Any]) -> str:
    devices = {each.device for each in args if isinstance(each, torch.Tensor)}
    device = next((each for each in devices if each.type != "cpu"), torch.device("cpu"))
    if device.type == "cpu":
        return "cpu"
    if device.type != "cuda":
        raise InvalidArgument(f"programs run on the CPU or on GPUs of NVIDIA, not on {device}")
    capability = "".join(map(str, torch.cuda.get_device_capability(device)))
    return f"cuda:sm_{capability}{'a' if capability == '90' else ''}"


def _parameters(function: Callable[..., Any]) -> list[str]:
    try:
        return list(inspect.signature(function).parameters)
    except ValueError as error:  # torch.abs is such a one
        raise InvalidArgument(f"{function} does not say what its parameters are called: give a lambda") from error


def _described(function: Callable[..., Any] | torch.nn.Module, args: Sequence[Any]) -> _Function:
    for each in args:
        if isinstance(each, torch.Tensor) and not each.is_contiguous():
            raise Unsupported("a kernel is offered for dense row-major tensors: give contiguous ones")
    module = function if isinstance(function, torch.nn.Module) else _Module(function)
    with torch.no_grad():
        exported = without_vmap(torch.export.export(module, tuple(args)))
    values = {node.name: node.meta.get("val") for node in exported.graph.nodes}
    given = _parameters(function.forward if isinstance(function, torch.nn.Module) else function)
    places: dict[str, int] = {}
    dtypes: dict[str, torch.dtype] = {}
    users = 0
    for spec in exported.graph_signature.input_specs:
        is_user = spec.kind == InputKind.USER_INPUT
        users += is_user
        if not isinstance(spec.arg, TensorArgument):
            continue  # a number, which is a constant of the graph
        called = given[users - 1] if is_user and users <= len(given) else str(spec.target or spec.arg.name)
        dtypes[called] = values[spec.arg.name].dtype
        places[called] = len(places)
    outputs = [spec.arg for spec in exported.graph_signature.output_specs]
    for at, argument in enumerate(outputs):
        for called in ([f"out{at}", "out"] if len(outputs) == 1 else [f"out{at}"]):
            places[called] = -1 - at
            dtypes[called] = values[argument.name].dtype if isinstance(argument, TensorArgument) else torch.float32
    return _Function(program_bytes(exported), places, dtypes)


def _pointers(kernel: Any, arguments: Sequence[str], dtypes: Mapping[str, torch.dtype],
              constants: Mapping[str, Any]) -> dict[str, str]:
    """Triton's types of a kernel's parameters that are no constants, in order."""
    if not hasattr(kernel, "arg_names"):
        raise InvalidArgument("the kernel is neither text nor a function of @triton.jit (of an autotuned kernel, offer "
                              "its fn once for each configuration worth trying)")
    names = [each for each in kernel.arg_names if each not in constants]
    if len(names) != len(arguments):
        raise InvalidArgument(f"the kernel's parameters without a constant are {', '.join(names) or 'none'}; "
                              f"arguments has {len(arguments)} names: {', '.join(arguments)}")
    return {name: "*" + _SCALARS[dtypes[argument]] for name, argument in zip(names, arguments, strict=True)}


def _compiled(kernel: Any, target: str, pointers: dict[str, str], constants: dict[str, Any],
              options: dict[str, Any]) -> _Binary:
    """A Triton kernel that takes pointers alone: everything else is a constant of it."""
    if not target.startswith("cuda:sm_"):
        raise Unsupported(f"Triton compiles for GPUs, and this is offered for {target}: give target='cuda:sm_90a', "
                          "say, or C++ as text")
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    signature = dict.fromkeys(kernel.arg_names, "constexpr") | pointers
    attributes = {(kernel.arg_names.index(each),): [["tt.divisibility", _ALIGNMENT]] for each in pointers}
    capability = int(re.sub(r"\D", "", target.partition("sm_")[2]))
    source = ASTSource(fn=kernel, signature=signature, attrs=attributes,
                       constexprs={(kernel.arg_names.index(each),): value for each, value in constants.items()})
    try:
        made = triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options)
    except Exception as error:  # Triton has no one class of errors
        raise InvalidArgument(f"Triton does not compile the kernel: {error}") from error
    meta = made.metadata
    for what, is_there in (("scratch memory", getattr(meta, "global_scratch_size", 0)),
                           ("a cooperative launch", getattr(meta, "launch_cooperative_grid", False)),
                           ("descriptors made by the host", getattr(meta, "tensordesc_meta", None)),
                           ("clusters of blocks", getattr(meta, "num_ctas", 1) != 1)):
        if is_there:
            raise Unsupported(f"the kernel needs {what}, which an offered kernel cannot have")
    entry = re.search(r"\.entry\s+(\w+)\s*\(([^)]*)\)", made.asm["ptx"])
    if entry is None:
        raise KilnError("Triton made a kernel without an entry")
    return _Binary(meta.name, made.asm["cubin"], 32 * meta.num_warps, meta.shared,
                   entry.group(2).count(".param") - len(pointers), bool(getattr(meta, "launch_pdl", False)))


def _blocks(grid: Grid | None, constants: dict[str, Any]) -> int:
    if grid is None:
        raise InvalidArgument("say the Triton kernel's grid")
    asked = grid(constants) if callable(grid) else grid
    axes = [asked] if isinstance(asked, int) else list(asked)
    if any(each != 1 for each in axes[1:]):
        raise Unsupported(f"a grid of several axes, {tuple(axes)}: number the blocks along one")
    return int(axes[0])
