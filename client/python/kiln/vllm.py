"""vLLM's pieces compiled by Kiln: ``KILN_VLLM=default`` or ``max-autotune`` in vLLM's environment.

vLLM (mode 3, its default) traces a model, cuts it at its attention and gives each piece, for each range of sizes, to a
compiler that has its ``CompilerInterface``. Pieces that Kiln compiled go into vLLM's own compiled models with the
captured graphs; whoever loads one gets the programs where programs come from.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import fx
from vllm.compilation.compiler_interface import CompilerInterface

from kiln._pieces import Piece, compile_piece, identity, settings_of


class KilnCompiler(CompilerInterface):  # type: ignore[misc]
    """The cost model's first choices. vLLM makes one for each model."""

    name = "kiln"
    mode = "default"

    def __init__(self) -> None:
        self._settings = settings_of(self.mode)

    def compute_hash(self, vllm_config: Any) -> str:
        """What vLLM's cached models depend on beside its own configuration."""
        del vllm_config
        return identity(self._settings)

    def compile(self, graph: fx.GraphModule, example_inputs: Sequence[Any], compiler_config: dict[str, Any],
                compile_range: Any, key: str | None = None) -> tuple[Piece, None]:
        """The piece, and no handle: a piece is found again by its graph, in torch's cache and among Kiln's programs."""
        del compiler_config, compile_range, key  # Inductor's; one program serves every size
        return compile_piece(graph, example_inputs, self._settings), None


class MaxAutotuneCompiler(KilnCompiler):
    """What the service found by measuring. A class of its own, since vLLM names compiled models by their compiler."""

    mode = "max-autotune"
