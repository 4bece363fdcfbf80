"""Launching programs on torch tensors: outputs and arena come from torch's allocator, and the work goes onto
torch's current stream."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from ctypes import c_int64
from struct import Struct
from typing import Any

import torch

from kiln import _native
from kiln._arrays import dense_strides
from kiln.client import Program, TensorInfo
from kiln.errors import InvalidArgument

DTYPES: dict[tuple[int, int], torch.dtype] = {
    (2, 64): torch.float64, (2, 32): torch.float32, (2, 16): torch.float16, (4, 16): torch.bfloat16,
    (10, 8): torch.float8_e4m3fn, (12, 8): torch.float8_e5m2, (14, 8): torch.float8_e8m0fnu,
    (0, 8): torch.int8, (0, 16): torch.int16, (0, 32): torch.int32, (0, 64): torch.int64, (1, 8): torch.uint8,
    (6, 8): torch.bool}
_MAX_SIZES = 1024  # that a launcher remembers
_INVALID_ARGUMENT = 1  # kiln_code
_address_of: Callable[[torch.Tensor], int] = torch.Tensor.data_ptr


def has_layout(tensor: torch.Tensor, strides: Sequence[int] | None) -> bool:
    """Whether the elements lie at these strides (None: dense row-major), for axes longer than 1."""
    if strides is None:
        return tensor.is_contiguous()
    return tensor.numel() == 0 or all(
        size == 1 or have == want for size, have, want in zip(tensor.shape, tensor.stride(), strides, strict=True))


def laid_out(tensor: torch.Tensor, strides: Sequence[int] | None) -> torch.Tensor:
    """The tensor itself when it has these strides, else a copy that has."""
    if has_layout(tensor, strides):
        return tensor
    if strides is None:
        return tensor.contiguous()
    return torch.empty_strided(tensor.shape, strides, dtype=tensor.dtype, device=tensor.device).copy_(tensor)


Orders = Sequence[Sequence[int] | None]
Pairs = Sequence[tuple[int, int]]


def allocator_of(device: torch.device) -> Callable[[Sequence[int], Sequence[int], torch.dtype], torch.Tensor]:
    """A function of sizes, strides and dtype: the one that Inductor's code calls, a third of what torch's own takes."""
    try:
        from torch._C._dynamo import guards
    except ImportError:
        guards = None  # type: ignore[assignment]
    found: Any = getattr(guards, f"_empty_strided_{device.type}", None)
    if found is not None:  # it takes the current device, which is this one when a launcher calls it
        return found  # type: ignore[no-any-return]
    return lambda sizes, strides, dtype: torch.empty_strided(sizes, strides, dtype=dtype, device=device)


class _Sized:
    """Values that follow from the sizes of a call."""

    __slots__ = ("arena_bytes", "outputs", "symbols")

    def __init__(self, program: Program, symbols: tuple[int, ...], orders: Orders) -> None:
        self.symbols = (c_int64 * len(symbols))(*symbols) if symbols else None
        self.arena_bytes = program.arena_bytes(symbols)
        self.outputs = [  # sizes, strides and dtype of each
            (*_unpermuted(sizes, order), DTYPES[info.type_code])
            for sizes, order, info in zip(program.output_sizes(symbols), orders, program.outputs, strict=True)]


def _unpermuted(sizes: tuple[int, ...], order: Sequence[int] | None) -> tuple[tuple[int, ...], tuple[int, ...]]:
    strides = dense_strides(sizes)
    if order is None:
        return sizes, strides
    places = [order.index(axis) for axis in range(len(order))]
    return tuple(sizes[place] for place in places), tuple(strides[place] for place in places)


class Launcher:
    """A program as a function of tensors on ``device``. Any number of threads and streams may call it.

    ``trusted``: inputs whose strides the caller vouches for; the others are copied where theirs differ. Their dtypes
    are looked at in the first call: what torch's metadata says of an op's results is not always what the op gives
    (batch norm's statistics on a CPU), and such inputs are converted from then on.
    ``orders``: of each output, the axes of the caller's tensor in the order in which the program has them; None:
    in their own.
    ``in_place``: outputs, each with the input whose new value it is. Where the program can, it writes the one into
    the other; the output is then the tensor that was given, unless that lay otherwise.
    """

    def __init__(self, program: Program, device: torch.device, trusted: frozenset[int] = frozenset(),
                 orders: Orders | None = None, *, in_place: Pairs = ()) -> None:
        self.program = program
        self._device = device
        self._on_gpu = device.type == "cuda"
        self._gpu = gpu_of(device)
        # Among several GPUs this one is made torch's current one for a call: outputs are allocated there.
        self._exchanges = self._on_gpu and torch.cuda.device_count() > 1
        self._function = _native.library().kiln_program_launch
        self._handle = program._handle
        self._allocate = allocator_of(device)
        self._orders = orders or [None] * len(program.outputs)
        self._shared = [(output, given) for output, given in in_place if program.outputs[output].updates == given]
        # Addresses as bytes: an array grows by one address at a time, 5 us for 256 tensors; "Q", which checks the
        # range, takes as long more.
        self._read = Struct(f"{len(program.inputs)}N").pack
        self._written = Struct(f"{len(program.outputs)}N").pack
        self._axes = [(index, axis) for index, info in enumerate(program.inputs)
                      for axis, size in enumerate(info.sizes) if size < 0]
        self._conversions: list[tuple[int, torch.dtype]] | None = None  # None: not known yet
        self._layouts = [(index, info.strides) for index, info in enumerate(program.inputs) if index not in trusted]
        self._by_size: dict[tuple[int, ...], _Sized] = {}
        self._static = None if program.symbols else _Sized(program, (), self._orders)
        self._idle_arenas: list[torch.Tensor] = []  # of the CPU, whose work is done when a launch returns

    def _sized(self, tensors: Sequence[torch.Tensor]) -> _Sized:
        key = tuple([tensors[index].shape[axis] for index, axis in self._axes])
        found = self._by_size.get(key)
        if found is None:
            found = _Sized(self.program, self.program.bind([tuple(t.shape) for t in tensors]), self._orders)
            if len(self._by_size) >= _MAX_SIZES:
                self._by_size.clear()
            self._by_size[key] = found
        return found

    def _arena(self, size: int) -> torch.Tensor:
        if not self._on_gpu:
            try:
                arena = self._idle_arenas.pop()
                if arena.numel() >= size:
                    return arena
            except IndexError:
                pass
        return self._allocate((size,), (1,), torch.uint8)

    def _outputs(self, sized: _Sized, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        shared = {output: tensors[given] for output, given in self._shared
                  if tensors[given].stride() == sized.outputs[output][1]}
        return [shared[index] if index in shared else self._allocate(*each)
                for index, each in enumerate(sized.outputs)]

    def __call__(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """The outputs, in the program's order."""
        if not self._exchanges:
            return self._run(tensors)
        before = torch._C._cuda_exchangeDevice(self._gpu)
        try:
            return self._run(tensors)
        finally:
            torch._C._cuda_maybeExchangeDevice(before)

    def _run(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        if self._conversions is None:
            # An input that the program does not read has none.
            dtypes = [DTYPES.get(info.type_code) for info in self.program.inputs]
            self._conversions = [(index, dtype) for index, dtype in enumerate(dtypes)
                                 if dtype is not None and tensors[index].dtype != dtype]
        for index, dtype in self._conversions:
            tensors = list(tensors)
            tensors[index] = tensors[index].to(dtype)
        for index, strides in self._layouts:
            if not has_layout(tensors[index], strides):
                tensors = list(tensors)
                tensors[index] = laid_out(tensors[index], strides)
        sized = self._static or self._sized(tensors)
        allocate, on_gpu = self._allocate, self._on_gpu
        outputs = self._outputs(sized, tensors) if self._shared else [allocate(*each) for each in sized.outputs]
        arena, address = None, _native.ARENA_ALIGNMENT  # where nothing is read, unless there is an arena
        if sized.arena_bytes:
            arena = self._arena(sized.arena_bytes + _native.ARENA_ALIGNMENT)
            address = -(-_address_of(arena) // _native.ARENA_ALIGNMENT) * _native.ARENA_ALIGNMENT
        stream = torch._C._cuda_getCurrentRawStream(self._gpu) if on_gpu else None
        read, written = self._read(*map(_address_of, tensors)), self._written(*map(_address_of, outputs))
        code = self._function(self._handle, read, written, address, stream, sized.symbols)
        if code == _INVALID_ARGUMENT:  # nothing ran; it may be for an address
            realigned = [_realigned(each, self.program.alignment - 1) for each in tensors]
            if self._shared:
                outputs = self._outputs(sized, realigned)
            written = self._written(*map(_address_of, outputs))
            code = self._function(self._handle, self._read(*map(_address_of, realigned)), written, address, stream,
                                  sized.symbols)
        if code:
            _native.check(code)
        if arena is not None and not on_gpu and len(self._idle_arenas) < 4:
            self._idle_arenas.append(arena)
        return outputs


class TieredLauncher:
    """A launcher of a program that was there at once, and then of the tuned one: one swap, between two calls.

    A call that runs meanwhile ends with what it began with. The first program is kept, since work that it put onto a
    stream may not be done yet.
    """

    def __init__(self, program: Program, device: torch.device, trusted: frozenset[int] = frozenset(),
                 orders: Orders | None = None, *, in_place: Pairs = ()) -> None:
        self._first, self._device, self._trusted, self._orders = program, device, trusted, orders
        self._in_place = in_place
        self._launch = Launcher(program, device, trusted, orders, in_place=in_place)
        self._awaits = True

    @property
    def program(self) -> Program:
        """The program of the next call."""
        return self._current().program

    def _current(self) -> Launcher:
        if self._awaits and not self._first.awaits_successor:
            successor = self._first.successor()  # None: it was given up
            if successor is not None:
                self._launch = Launcher(successor, self._device, self._trusted, self._orders,
                                        in_place=self._in_place)
            self._awaits = False
        return self._launch

    def __call__(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """The outputs, in the program's order."""
        return self._current()(tensors)


def launcher_of(program: Program, device: torch.device, trusted: frozenset[int] = frozenset(),
                orders: Orders | None = None, *, in_place: Pairs = ()) -> Launcher | TieredLauncher:
    """The launcher that fits the program, as Launcher() has it."""
    kind = TieredLauncher if program.awaits_successor else Launcher
    return kind(program, device, trusted, orders, in_place=in_place)


def mutations(program: Program) -> Pairs:
    """The outputs of an exported model that are new values of its inputs, each with that input."""
    return [(output, info.mutates) for output, info in enumerate(program.outputs) if info.mutates is not None]


def give_back(changed: torch.Tensor, value: torch.Tensor) -> None:
    """Gives what a model changes in place its new value, unless it was written there."""
    if changed.data_ptr() != value.data_ptr() or changed.stride() != value.stride():
        changed.copy_(value)


def _realigned(tensor: torch.Tensor, mask: int) -> torch.Tensor:
    if not tensor.data_ptr() & mask:
        return tensor
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device).copy_(tensor)


def _is_on(tensor: torch.Tensor, device: torch.device) -> bool:
    return tensor.device.type == device.type and gpu_of(tensor.device) == gpu_of(device)


def check_input(tensor: object, info: TensorInfo, device: torch.device) -> torch.Tensor:
    """The tensor, if it is one of the dtype, sizes and device that the program takes. Raises InvalidArgument."""
    if not isinstance(tensor, torch.Tensor):
        raise InvalidArgument(f"input '{info.name}' is a {type(tensor).__name__}, and the program takes a tensor")
    fits = len(tensor.shape) == len(info.sizes) and all(
        want in (-1, have) for want, have in zip(info.sizes, tensor.shape, strict=True))
    if not fits or tensor.dtype != DTYPES[info.type_code] or not _is_on(tensor, device):
        raise InvalidArgument(f"input '{info.name}' is {info.dtype}{info.shape} on {device}; it was given "
                              f"{tensor.dtype} {list(tensor.shape)} on {tensor.device}")
    if tensor.layout is not torch.strided:
        raise InvalidArgument(f"input '{info.name}' is {tensor.layout}; only dense tensors are covered")
    return tensor.resolve_conj().resolve_neg()


def libnvrtc() -> str | None:
    """The NVRTC of the PyPI packages that torch brings; None: the usual places."""
    import glob
    import os

    if torch.version.cuda is None:
        return None
    packages = os.path.join(os.path.dirname(os.path.dirname(torch.__file__)), "nvidia")
    major = torch.version.cuda.split(".")[0]
    found = [path for folder in (f"cu{major}", "cuda_nvrtc")
             for path in glob.glob(os.path.join(packages, folder, "lib", f"libnvrtc.so.{major}*"))]
    return found[0] if found else None


def target_of(device: torch.device) -> str:
    """The target of programs for tensors on ``device``. Raises InvalidArgument."""
    if device.type == "cpu":
        return "cpu"
    if device.type == "cuda":
        return "cuda"
    raise InvalidArgument(f"programs run on the CPU or on GPUs of NVIDIA, not on {device}")


def gpu_of(device: torch.device) -> int:
    """The GPU of a client for tensors on ``device``; 0 for the CPU, which every client has."""
    return device.index or 0

