"""Steps of decoding: language models of transformers with one new token behind a cache of keys and values."""

from __future__ import annotations

from typing import Any

import torch

from language import HEADS, built, configured
from registry import Case, model, tokens
from tiny import TINY

PAST = 600  # tokens in the cache, more than attention in one kernel pays for


class Step(torch.nn.Module):
    """The logits and the new cache. ``static``: a cache of a fixed length, of which the step writes one position."""

    def __init__(self, decoder: torch.nn.Module, static: bool) -> None:
        super().__init__()
        self.decoder = decoder
        self._static = static

    def forward(self, ids: torch.Tensor, position: torch.Tensor, *past: torch.Tensor) -> tuple[torch.Tensor, ...]:
        import transformers

        pairs = list(zip(past[::2], past[1::2], strict=True))
        if self._static:
            cache: Any = transformers.StaticCache(config=self.decoder.config, max_cache_len=PAST)
            for layer, (keys, values) in zip(cache.layers, pairs, strict=True):
                layer.lazy_initialization(keys, values)
                layer.keys, layer.values = keys.clone(), values.clone()
        else:
            cache = transformers.DynamicCache()
            for at, (keys, values) in enumerate(pairs):
                cache.update(keys, values, at)
        made = self.decoder(ids, past_key_values=cache, position_ids=position[None], cache_position=position)
        kept = [each for layer in cache.layers for each in (layer.keys, layer.values)]
        return (made.logits, *kept)


def step(name: str, config: str, static: bool, *, base: dict[str, Any] | None = None, family: str = "decoder",
         batch: int = 2, **options: Any) -> None:
    @model(name, family)
    def make() -> Case:
        settings = configured(config, {"max_position_embeddings": 1024, **options}, base=base)
        heads = settings.num_key_value_heads
        width = getattr(settings, "head_dim", None) or settings.hidden_size // settings.num_attention_heads
        past = [torch.randn(batch, heads, PAST, width) for _ in range(2 * settings.num_hidden_layers)]
        position = torch.tensor([PAST - 100 if static else PAST])
        module = Step(built(config + "ForCausalLM", settings), static)
        return Case(module, (tokens(batch, 1, 32), position, *past))


for kind, static in (("a growing cache", False), ("a static cache", True)):
    step(f"llama, a step with {kind}", "Llama", static, **HEADS)
    step(f"qwen3, a step with {kind}", "Qwen3", static, head_dim=16, **HEADS)
    step(f"gemma, a step with {kind}", "Gemma", static, num_key_value_heads=1, head_dim=16)
step("tiny growing cache", "Llama", False, base=TINY, family="archived", batch=1, num_attention_heads=4,
     num_key_value_heads=2)
step("tiny static cache", "Llama", True, base=TINY, family="archived", batch=1, num_attention_heads=4,
     num_key_value_heads=2)
