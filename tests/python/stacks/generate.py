"""transformers, generation: the decode step through Kiln, which writes the static KV cache in place."""

from __future__ import annotations

import torch
from transformers import CompileConfig, LlamaConfig, LlamaForCausalLM

torch.manual_seed(0)
config = LlamaConfig(vocab_size=96, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                     intermediate_size=128, max_position_embeddings=512, pad_token_id=0, bos_token_id=1,
                     eos_token_id=None)
model = LlamaForCausalLM(config).eval()
prompt = torch.randint(3, 96, (1, 7))

compiled = CompileConfig(backend="kiln")
compiled._compile_all_devices = True  # transformers compiles on a GPU alone unless it is told to
tokens = model.generate(prompt, max_new_tokens=300, do_sample=False, cache_implementation="static",
                        compile_config=compiled)

eager = model.generate(prompt, max_new_tokens=300, do_sample=False, cache_implementation="static",
                       disable_compile=True)
assert torch.equal(tokens, eager), (tokens, eager)
print("generated", tokens.shape[1] - prompt.shape[1])
