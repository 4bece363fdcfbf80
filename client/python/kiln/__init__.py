"""Kiln: torch.compile's max-autotune, done once for a whole fleet.

>>> import kiln, torch
>>> model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU())
>>> fast = torch.compile(model, backend="kiln")        # tuned by the service at $KILN_COORDINATOR
>>> fast(torch.ones(2, 8)).shape
torch.Size([2, 8])

``kiln.Client`` compiles captured graphs without PyTorch. ``kiln.compile`` takes what torch.export gave,
``kiln.load`` a ``.pt2`` file, or what a lock file names; ``kiln.explain`` says what became of a model under
torch.compile, and ``kiln.candidate`` offers a kernel of your own beside Kiln's, and ``kiln.warm`` tunes a model before
it ships. Nothing here imports torch before it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kiln.client import Client, Program, Progress, Symbol, TensorInfo
from kiln.errors import (
    Corruption,
    DeadlineExceeded,
    InternalError,
    InvalidArgument,
    KilnError,
    NotFound,
    NotPermitted,
    Overloaded,
    Unavailable,
    Unsupported,
)

if TYPE_CHECKING:
    from kiln._candidate import candidate
    from kiln._explain import Explanation, explain
    from kiln._warm import Warmed, warm
    from kiln.exported import CompiledModule, compile
    from kiln.loaded import LoadedModule, load

__version__ = "0.1.0"
__all__ = ["Client", "CompiledModule", "Corruption", "DeadlineExceeded", "Explanation", "InternalError",
           "InvalidArgument", "KilnError", "LoadedModule", "NotFound", "NotPermitted", "Overloaded", "Program",
           "Progress", "Symbol", "TensorInfo", "Unavailable", "Unsupported",
           "Warmed", "candidate", "compile", "explain", "load", "warm"]

_LAZY = {"compile": "kiln.exported", "CompiledModule": "kiln.exported",
         "load": "kiln.loaded", "LoadedModule": "kiln.loaded",
         "candidate": "kiln._candidate", "explain": "kiln._explain", "Explanation": "kiln._explain",
         "Warmed": "kiln._warm", "warm": "kiln._warm"}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        import importlib

        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'kiln' has no attribute {name!r}")
