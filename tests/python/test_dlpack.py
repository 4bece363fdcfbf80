"""The C interface on DLPack's tensors, with PyTorch's own: in and out, every dtype, and what does not fit."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import kiln
import pytest
import torch
from kiln import _native

NAME = b"dltensor"  # of a capsule that nobody has taken


def address_of(capsule: object) -> int:
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    return int(get(capsule, NAME))


def tensor_at(address: int) -> torch.Tensor:
    """The tensor that owns what lies there: PyTorch calls its deleter."""
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    return torch.from_dlpack(new(address, NAME, None))


def run(program: kiln.Program, tensors: Sequence[torch.Tensor | None]) -> list[torch.Tensor]:
    library: Any = _native.library()
    function = library.kiln_program_run_dlpack
    function.restype, function.argtypes = ctypes.c_int32, [ctypes.c_void_p] * 4
    capsules = [None if each is None else torch.utils.dlpack.to_dlpack(each) for each in tensors]
    inputs = (ctypes.c_void_p * len(tensors))(*[None if each is None else address_of(each) for each in capsules])
    outputs = (ctypes.c_void_p * len(program.outputs))()
    _native.check(function(program._handle, inputs, outputs, None))
    return [tensor_at(int(each or 0)) for each in outputs]


def compiled(tmp_path: Path, model: torch.nn.Module, *inputs: torch.Tensor, **options: Any) -> kiln.Program:
    path = tmp_path / "model.pt2"
    torch.export.save(torch.export.export(model, inputs, **options), path)
    return kiln.Client(None).compile(str(path))


class Both(torch.nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x + y.t(), (x * 2).sum(-1)


class Same(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([x, x])


def test_tensors_go_in_and_come_out(tmp_path: Path) -> None:
    rows = torch.export.Dim("rows", min=2, max=64)
    program = compiled(tmp_path, Both(), torch.ones(4, 8), torch.ones(8, 4),
                       dynamic_shapes=({0: rows}, {1: rows}))
    for count in (2, 7, 64):
        x, y = torch.randn(count, 8), torch.randn(8, count)
        made = run(program, [x, y])
        torch.testing.assert_close(made, list(Both()(x, y)))
        del x, y
        assert made[0].add_(1).shape == (count, 8)  # their memory is their own


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64,
                                   torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool])
def test_every_dtype_is_dlpacks(tmp_path: Path, dtype: torch.dtype) -> None:
    x = torch.arange(24).reshape(4, 6).remainder(2).to(dtype)
    [made] = run(compiled(tmp_path, Same(), x), [x])
    assert made.dtype == dtype and torch.equal(made, Same()(x))


def test_parts_of_tensors_and_empty_ones(tmp_path: Path) -> None:
    rows = torch.export.Dim("rows", min=0, max=64)
    program = compiled(tmp_path, Same(), torch.ones(4, 6), dynamic_shapes=({0: rows},))
    wide = torch.randn(20, 6)
    assert torch.equal(run(program, [wide[8:12]])[0], Same()(wide[8:12]))  # 192 bytes further
    assert run(program, [wide[:0]])[0].shape == (0, 6)


def test_what_does_not_fit_is_named(tmp_path: Path) -> None:
    program = compiled(tmp_path, Same(), torch.ones(4, 6))
    for wrong, why in ((torch.ones(4, 6, dtype=torch.float64), "dtype"), (torch.ones(4, 5), r"sizes \[4,5\]"),
                       (torch.ones(6, 4).t(), r"strides \[1,4\]"), (torch.ones(24), "sizes"), (None, "NULL")):
        with pytest.raises(kiln.InvalidArgument, match=f"input 'x' .*{why}"):
            run(program, [wrong])
