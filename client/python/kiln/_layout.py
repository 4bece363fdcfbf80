"""Where the elements of a traced tensor lie, without asking: comparing symbolic sizes would guard on them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch


class Layout(NamedTuple):
    """``order``: the axes in the order in which the elements lie, None when that is row-major. ``dense``: without gaps
    and overlaps."""

    order: tuple[int, ...] | None
    dense: bool


def _expression(size: int | torch.SymInt) -> Any:
    return size.node.expr if isinstance(size, torch.SymInt) else size


def _hint(size: int | torch.SymInt) -> int:
    if isinstance(size, torch.SymInt):
        hint = size.node.hint
        return hint if isinstance(hint, int) else 2
    return size


def _is_dense(sizes: Sequence[Any], strides: Sequence[Any]) -> bool:
    step: Any = 1
    for size, stride in zip(reversed(sizes), reversed(strides), strict=True):
        if size == 1:
            continue
        if stride != step:
            return False
        step = step * size
    return True


def layout_of(value: torch.Tensor) -> Layout:
    """The layout of a tensor whose sizes may be symbolic. Adds no guard."""
    sizes, strides = [_expression(each) for each in value.shape], [_expression(each) for each in value.stride()]
    if 0 in sizes or _is_dense(sizes, strides):
        return Layout(None, True)
    hints = [_hint(each) for each in value.stride()]
    order = tuple(sorted(range(len(sizes)), key=lambda axis: (-hints[axis], axis)))
    if _is_dense([sizes[axis] for axis in order], [strides[axis] for axis in order]):
        return Layout(order, True)
    return Layout(None, False)
