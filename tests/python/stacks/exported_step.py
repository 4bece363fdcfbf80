"""transformers' own export of a decode step, whose static KV cache is buffers: a row of it is written in place."""

from __future__ import annotations

import copy

import kiln
import torch
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM
from transformers.integrations.executorch import TorchExportableModuleWithStaticCache

torch.manual_seed(0)
BATCH, LENGTH, STEPS = 2, 512, 24
config = LlamaConfig(vocab_size=96, hidden_size=128, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                     intermediate_size=128, max_position_embeddings=LENGTH)
model = LlamaForCausalLM(config).eval()
model.generation_config = GenerationConfig(use_cache=True, cache_implementation="static", max_length=LENGTH,
                                           cache_config={"batch_size": BATCH, "max_cache_len": LENGTH})


def step() -> torch.nn.Module:
    return TorchExportableModuleWithStaticCache(copy.deepcopy(model), batch_size=BATCH, max_cache_len=LENGTH)


with torch.no_grad():
    example = {"input_ids": torch.zeros(BATCH, 1, dtype=torch.long), "cache_position": torch.tensor([0])}
    eager, fast = step(), kiln.compile(torch.export.export(step(), (), example, strict=False))
    caches = [info for info in fast.program.outputs if info.mutates is not None and len(info.sizes) == 4]
    assert caches and all(info.updates == info.mutates for info in caches), caches
    tokens = torch.randint(0, 96, (BATCH, 1))
    for place in range(STEPS):
        given = {"input_ids": tokens, "cache_position": torch.tensor([place])}
        logits = eager(**given)
        torch.testing.assert_close(fast(**given), logits, rtol=1e-4, atol=1e-5)
        tokens = logits[:, -1:].argmax(-1)
print("generated", STEPS)
