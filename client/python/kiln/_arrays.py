"""Memory of the host behind NumPy arrays and whatever speaks DLPack, read where it lies."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import POINTER, Structure, c_int32, c_int64, c_uint8, c_uint16, c_uint64, c_void_p
from typing import Any

from kiln.errors import InvalidArgument, KilnError

TypeCode = tuple[int, int]
_CPU_DEVICES = (1, 3)  # kDLCPU, kDLCUDAHost
# NumPy has no bf16 and no f8: their bytes come as unsigned integers.
_NUMPY_NAMES = {(2, 64): "f8", (2, 32): "f4", (2, 16): "f2", (4, 16): "u2", (10, 8): "u1", (12, 8): "u1",
                (0, 8): "i1", (0, 16): "i2", (0, 32): "i4", (0, 64): "i8", (1, 8): "u1", (6, 8): "?"}
_CODES = {"f": 2, "i": 0, "u": 1, "b": 6}


class _DLTensor(Structure):
    _fields_ = [("data", c_void_p), ("device_type", c_int32), ("device_id", c_int32), ("ndim", c_int32),
                ("code", c_uint8), ("bits", c_uint8), ("lanes", c_uint16), ("shape", POINTER(c_int64)),
                ("strides", POINTER(c_int64)), ("byte_offset", c_uint64)]


def dense_strides(sizes: Sequence[Any]) -> tuple[Any, ...]:
    """The strides of a row-major tensor, in elements, as torch has them: a size of 0 counts as 1. Sizes may be
    symbolic."""
    strides: list[Any] = []
    step: Any = 1
    for size in reversed(sizes):
        strides.append(step)
        step = step * (max(size, 1) if isinstance(size, int) else size)
    return tuple(reversed(strides))


def _same_layout(sizes: Sequence[int], a: Sequence[int], b: Sequence[int]) -> bool:
    if 0 in sizes:
        return True
    return all(size == 1 or x == y for size, x, y in zip(sizes, a, b, strict=True))


class Borrowed:
    """Memory of another owner, kept alive by ``owner``. Strides are in elements."""

    def __init__(self, owner: Any, address: int, type_code: TypeCode, sizes: Sequence[int],
                 strides: Sequence[int]) -> None:
        self.owner, self.address, self.type_code = owner, address, type_code
        self.sizes, self.strides = tuple(sizes), tuple(strides)

    def laid_out(self, strides: Sequence[int] | None, alignment: int) -> Borrowed:
        """Itself when it has these strides (None: dense) and this alignment, else a copy that has."""
        wanted = dense_strides(self.sizes) if strides is None else tuple(strides)
        if _same_layout(self.sizes, self.strides, wanted) and self.address % alignment == 0:
            return self
        import numpy

        if 0 in self.sizes:
            return new_arrays([(self.type_code, self.sizes)], alignment)[0]
        reach = 1 + sum((size - 1) * step for size, step in zip(self.sizes, wanted, strict=True))
        flat = new_arrays([(self.type_code, (reach,))], alignment)[0]
        item = self.type_code[1] // 8
        target = numpy.lib.stride_tricks.as_strided(flat.owner, self.sizes, [step * item for step in wanted])
        extent = 1 + sum((size - 1) * step for size, step in zip(self.sizes, self.strides, strict=True))
        raw: Any = (ctypes.c_char * (extent * item)).from_address(self.address)
        source = numpy.frombuffer(raw, dtype=_NUMPY_NAMES[self.type_code])
        target[...] = numpy.lib.stride_tricks.as_strided(source, self.sizes, [step * item for step in self.strides])
        return Borrowed(flat.owner, flat.address, self.type_code, self.sizes, wanted)


def new_arrays(tensors: Sequence[tuple[TypeCode, Sequence[int]]], alignment: int) -> list[Borrowed]:
    """Dense NumPy arrays, not initialised."""
    import numpy

    made = []
    for code, sizes in tensors:
        dtype = numpy.dtype(_NUMPY_NAMES[code])
        count = 1
        for size in sizes:
            count *= size
        room = numpy.empty(count * dtype.itemsize + alignment, numpy.uint8)
        skipped = -room.ctypes.data % alignment
        array = room[skipped: skipped + count * dtype.itemsize].view(dtype).reshape(sizes)
        made.append(Borrowed(array, room.ctypes.data + skipped, code, sizes, dense_strides(sizes)))
    return made


def borrow(array: Any) -> Borrowed:
    """The memory of a NumPy array or of an object with ``__dlpack__``. Raises InvalidArgument."""
    interface = getattr(array, "__array_interface__", None)
    if interface is not None:
        order, kind, item = interface["typestr"][0], interface["typestr"][1], int(interface["typestr"][2:])
        if kind not in _CODES or (order == ">" and item > 1):
            raise InvalidArgument(f"an array of dtype {interface['typestr']} has no dtype that Kiln knows")
        sizes = interface["shape"]
        steps = interface.get("strides")
        strides = dense_strides(sizes) if steps is None else [step // item for step in steps]
        if steps is not None and any(step < 0 or step % item for step in steps):
            import numpy

            return borrow(numpy.ascontiguousarray(array))
        return Borrowed(array, interface["data"][0], (_CODES[kind], item * 8), sizes, strides)
    if hasattr(array, "__dlpack__"):
        return _from_dlpack(array)
    if isinstance(array, (bool, int, float)):
        import numpy

        return borrow(numpy.asarray(array))
    raise InvalidArgument(f"{type(array).__name__} is no array: give NumPy arrays, or what has __dlpack__")


def _from_dlpack(array: Any) -> Borrowed:
    device = array.__dlpack_device__()[0]
    if device not in _CPU_DEVICES:
        raise InvalidArgument("an array is not in the host's memory: copy it there first")
    capsule = array.__dlpack__()
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = c_void_p, [ctypes.py_object, ctypes.c_char_p]
    address = get(capsule, b"dltensor")
    if not address:
        raise KilnError("a DLPack capsule of an unknown version")
    tensor = _DLTensor.from_address(address)
    sizes = tensor.shape[: tensor.ndim]
    strides = tensor.strides[: tensor.ndim] if tensor.strides else dense_strides(sizes)
    # The capsule was not consumed: when it goes, it gives the memory back.
    return Borrowed((array, capsule), (tensor.data or 0) + tensor.byte_offset, (tensor.code, tensor.bits), sizes,
                    strides)
