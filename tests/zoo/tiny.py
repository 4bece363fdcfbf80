"""The models that tests/graphs/zoo archives: one of each kind, of tens of kilobytes."""

from __future__ import annotations

from typing import Any

import torch

from language import built, configured
from registry import Case, model, tokens

TINY: dict[str, Any] = {
    "vocab_size": 32, "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32,
    "max_position_embeddings": 32, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
WORDS = {key: TINY[key] for key in ("vocab_size", "pad_token_id", "bos_token_id", "eos_token_id")}
LATENT: dict[str, Any] = {
    "num_key_value_heads": 2, "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16,
    "kv_lora_rank": 16, "q_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "v_head_dim": 16,
    "topk_group": 1, "n_group": 1, "first_k_dense_replace": 0}


def tiny(name: str, architecture: str, inputs: Any, base: dict[str, Any] | None = None, *,
         without: tuple[str, ...] = (), **options: Any) -> None:
    @model(f"tiny {name}", "archived")
    def make() -> Case:
        named = architecture.removesuffix("ForCausalLM").removesuffix("Model")
        module = built(architecture, configured(named, options, without, TINY if base is None else base))
        return Case(module, kwargs=inputs())


def prompt() -> dict[str, Any]:
    return {"input_ids": tokens(1, 8, 32), "use_cache": False}


def masked() -> dict[str, Any]:
    mask = torch.ones(2, 8, dtype=torch.long)
    mask[1, 5:] = 0
    return {"input_ids": tokens(2, 8, 32), "attention_mask": mask}


def picture() -> dict[str, Any]:
    return {"pixel_values": torch.randn(1, 3, 16, 16)}


tiny("llama", "LlamaForCausalLM", prompt, num_key_value_heads=1)
tiny("gemma2", "Gemma2ForCausalLM", prompt, num_key_value_heads=1, head_dim=16, sliding_window=4)
tiny("mixtral", "MixtralForCausalLM", prompt, num_key_value_heads=1, num_local_experts=4, num_experts_per_tok=2)
tiny("qwen3 moe", "Qwen3MoeForCausalLM", prompt, num_key_value_heads=1, num_experts=4, num_experts_per_tok=2,
     moe_intermediate_size=16, head_dim=16)
tiny("deepseek", "DeepseekV2ForCausalLM", prompt, **LATENT)
tiny("mamba", "MambaForCausalLM", prompt, state_size=4,
     without=("num_attention_heads", "intermediate_size", "max_position_embeddings"))
tiny("deberta", "DebertaV2Model", masked, relative_attention=True, pos_att_type=["c2p", "p2c"], position_buckets=4,
     share_att_key=True, norm_rel_ebd="layer_norm")
tiny("t5", "T5Model", lambda: {**prompt(), "decoder_input_ids": tokens(1, 5, 32)}, WORDS, d_model=32, d_kv=16, d_ff=32,
     num_layers=1, num_heads=2, decoder_start_token_id=1)
tiny("fnet", "FNetModel", lambda: {"input_ids": tokens(1, 8, 32)}, without=("num_attention_heads",))
tiny("vit", "ViTModel", picture, image_size=16, patch_size=4,
     without=("vocab_size", "max_position_embeddings", "pad_token_id", "bos_token_id", "eos_token_id"))
tiny("swin", "SwinModel", picture, {}, image_size=16, patch_size=2, embed_dim=8, depths=[2], num_heads=[2],
     window_size=4)
tiny("convnext", "ConvNextModel", picture, {}, hidden_sizes=[8, 16], depths=[1, 1], num_stages=2)
tiny("wav2vec2", "Wav2Vec2Model", lambda: {"input_values": torch.randn(1, 400)},
     without=("max_position_embeddings", "pad_token_id", "bos_token_id", "eos_token_id"), conv_dim=(8, 8),
     conv_stride=(5, 4), conv_kernel=(10, 3), num_conv_pos_embeddings=8, num_conv_pos_embedding_groups=2)
