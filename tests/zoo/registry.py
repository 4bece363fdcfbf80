"""The list of models: what each is, and how a small one of random weights is made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch


@dataclass
class Case:
    """A model with what it is called with."""

    module: torch.nn.Module
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    dynamic: Any = None  #: torch.export's dynamic_shapes
    #: Further calls, of other sizes, of the program that the first one exported.
    others: list[tuple[tuple[Any, ...], dict[str, Any]]] = field(default_factory=list)


@dataclass(frozen=True)
class Model:
    """``training``: run by torch.compile(backend="kiln"), with gradients; the others by kiln.compile."""

    name: str
    family: str
    make: Callable[[], Case]
    training: bool = False


_models: dict[str, Model] = {}


def model(name: str, family: str, training: bool = False) -> Callable[[Callable[[], Case]], Callable[[], Case]]:
    """Puts what a function makes on the list."""

    def put(make: Callable[[], Case]) -> Callable[[], Case]:
        if name in _models:
            raise ValueError(f"{name} is on the list already")
        _models[name] = Model(name, family, make, training)
        return make

    return put


def models() -> dict[str, Model]:
    """All of them, in the order of the document."""
    import blocks  # noqa: F401
    import decoding  # noqa: F401
    import images  # noqa: F401
    import language  # noqa: F401
    import perception  # noqa: F401
    import programs  # noqa: F401
    import tiny  # noqa: F401

    return dict(_models)


def tokens(batch: int = 2, length: int = 16, vocabulary: int = 96) -> torch.Tensor:
    """Token numbers, none of which pads."""
    return torch.randint(3, vocabulary, (batch, length))
