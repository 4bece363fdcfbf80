"""Language models of transformers, with two layers of 64."""

from __future__ import annotations

from typing import Any

import torch

from registry import Case, model, tokens

SMALL: dict[str, Any] = {
    "vocab_size": 96, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128,
    "max_position_embeddings": 64, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
TOKENS = {key: SMALL[key] for key in ("vocab_size", "pad_token_id", "bos_token_id", "eos_token_id")}
GPT: dict[str, Any] = {**TOKENS, "n_embd": 64, "n_head": 4, "n_layer": 2, "n_positions": 64}
HEADS: dict[str, Any] = {"num_key_value_heads": 2}
EXPERTS: dict[str, Any] = {**HEADS, "num_experts": 4, "num_experts_per_tok": 2}
LOCAL_EXPERTS: dict[str, Any] = {**HEADS, "num_local_experts": 4, "num_experts_per_tok": 2}
LATENT: dict[str, Any] = {
    "num_key_value_heads": 4, "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 64,
    "kv_lora_rank": 32, "q_lora_rank": 32, "qk_rope_head_dim": 16, "qk_nope_head_dim": 16, "v_head_dim": 16,
    "topk_group": 1, "first_k_dense_replace": 1}
WINDOWS = {"sliding_window": 8, "layer_types": ["sliding_attention", "full_attention"]}


def configured(name: str, options: dict[str, Any], without: tuple[str, ...] = (), base: dict[str, Any] | None = None,
               ) -> Any:
    import transformers

    merged = {**(SMALL if base is None else base), **options}
    return getattr(transformers, name + "Config")(**{k: v for k, v in merged.items() if k not in without})


def built(name: str, config: Any) -> torch.nn.Module:
    import transformers

    return getattr(transformers, name)(config)  # type: ignore[no-any-return]


def decoder(name: str, config: str, architecture: str = "", *, family: str = "decoder", without: tuple[str, ...] = (),
            base: dict[str, Any] | None = None, **options: Any) -> None:
    @model(name, family)
    def make() -> Case:
        module = built(architecture or config + "ForCausalLM", configured(config, options, without, base))
        return Case(module, kwargs={"input_ids": tokens(), "use_cache": False})


decoder("llama", "Llama", **HEADS)
decoder("mistral, sliding window", "Mistral", sliding_window=8, **HEADS)
decoder("qwen2", "Qwen2", **HEADS)
decoder("qwen3", "Qwen3", head_dim=16, **HEADS)
decoder("gemma", "Gemma", num_key_value_heads=1, head_dim=16)
decoder("gemma2, soft caps", "Gemma2", head_dim=16, sliding_window=8, **HEADS)
decoder("gemma3", "Gemma3Text", "Gemma3ForCausalLM", head_dim=16, **WINDOWS, **HEADS)
decoder("phi", "Phi")
decoder("phi3", "Phi3", **HEADS)
decoder("falcon", "Falcon", multi_query=True, parallel_attn=True)
decoder("falcon, ALiBi", "Falcon", alibi=True, new_decoder_architecture=False)
decoder("mpt, ALiBi", "Mpt", base=TOKENS, d_model=64, n_heads=4, n_layers=2, expansion_ratio=2, max_seq_len=64)
decoder("bloom, ALiBi", "Bloom", base=TOKENS, hidden_size=64, n_layer=2, n_head=4)
decoder("gpt_neox", "GPTNeoX")
decoder("gpt2", "GPT2", "GPT2LMHeadModel", base=GPT)
decoder("gptj", "GPTJ", base=GPT, rotary_dim=8)
decoder("codegen", "CodeGen", base=GPT, rotary_dim=8)
decoder("gpt_neo", "GPTNeo", without=("num_hidden_layers", "num_attention_heads"), num_layers=2, num_heads=4,
        attention_types=[[["global", "local"], 1]], window_size=8)
decoder("olmo", "Olmo")
decoder("olmo2", "Olmo2")
decoder("opt", "OPT", without=("intermediate_size",), ffn_dim=128, word_embed_proj_dim=64)
decoder("starcoder2", "Starcoder2", **HEADS)
decoder("cohere", "Cohere", **HEADS)
decoder("granite", "Granite", **HEADS)
decoder("smollm3", "SmolLM3", **HEADS)
decoder("glm", "Glm", head_dim=16, **HEADS)

MIXTURE = "mixture of experts"
decoder("mixtral", "Mixtral", family=MIXTURE, **LOCAL_EXPERTS)
decoder("qwen2_moe", "Qwen2Moe", family=MIXTURE, moe_intermediate_size=64, shared_expert_intermediate_size=64,
        **EXPERTS)
decoder("qwen3_moe", "Qwen3Moe", family=MIXTURE, moe_intermediate_size=64, head_dim=16, **EXPERTS)
decoder("deepseek_v2", "DeepseekV2", family=MIXTURE, n_group=1, **LATENT)
decoder("deepseek_v3", "DeepseekV3", family=MIXTURE, n_group=2, **LATENT)
decoder("olmoe", "Olmoe", family=MIXTURE, **EXPERTS)
decoder("gpt_oss", "GptOss", family=MIXTURE, head_dim=16, **WINDOWS, **LOCAL_EXPERTS)
decoder("phimoe", "Phimoe", family=MIXTURE, **LOCAL_EXPERTS)
decoder("granite_moe", "GraniteMoe", family=MIXTURE, **LOCAL_EXPERTS)

STATE = "state space"
NO_HEADS = ("num_attention_heads", "intermediate_size", "max_position_embeddings")
decoder("mamba", "Mamba", family=STATE, without=NO_HEADS, state_size=8)
decoder("mamba2", "Mamba2", family=STATE, without=NO_HEADS, state_size=8, num_heads=8, head_dim=16, n_groups=2,
        chunk_size=8)
decoder("falcon_mamba", "FalconMamba", family=STATE, without=NO_HEADS, state_size=8)
decoder("rwkv", "Rwkv", family=STATE, without=("num_attention_heads", "max_position_embeddings"),
        attention_hidden_size=64, context_length=64)
decoder("recurrent_gemma", "RecurrentGemma", family=STATE, without=("max_position_embeddings",), num_key_value_heads=1,
        lru_width=64, head_dim=16, attention_window_size=8, num_hidden_layers=3)
decoder("jamba", "Jamba", family=STATE, num_key_value_heads=2, num_experts=2, num_experts_per_tok=1,
        attn_layer_period=2, attn_layer_offset=1, expert_layer_period=2, expert_layer_offset=1,
        use_mamba_kernels=False, mamba_d_state=4, mamba_dt_rank=4)
decoder("lfm2", "Lfm2", family=STATE, layer_types=["conv", "full_attention"], **HEADS)


def encoder(name: str, config: str, base: dict[str, Any] | None = None, **options: Any) -> None:
    @model(name, "encoder")
    def make() -> Case:
        mask = torch.ones(2, 16, dtype=torch.long)
        mask[1, 12:] = 0
        module = built(config + "Model", configured(config, options, base=base))
        return Case(module, kwargs={"input_ids": tokens(), "attention_mask": mask})


encoder("bert", "Bert")
encoder("roberta", "Roberta")
encoder("distilbert", "DistilBert", TOKENS, dim=64, n_layers=2, n_heads=4, hidden_dim=128)
encoder("electra", "Electra", embedding_size=32)
encoder("albert", "Albert", embedding_size=32)
encoder("deberta", "Deberta", relative_attention=True, pos_att_type=["c2p", "p2c"], max_relative_positions=16)
encoder("deberta_v2", "DebertaV2", relative_attention=True, pos_att_type=["c2p", "p2c"], position_buckets=8,
        share_att_key=True, norm_rel_ebd="layer_norm")
encoder("modernbert", "ModernBert", local_attention=8, global_attn_every_n_layers=2, cls_token_id=1, sep_token_id=2)
encoder("mpnet", "MPNet")
encoder("xlnet", "XLNet", TOKENS, d_model=64, n_layer=2, n_head=4, d_inner=128)
encoder("convbert", "ConvBert", embedding_size=64, conv_kernel_size=3)
encoder("roformer", "RoFormer", embedding_size=64)
encoder("squeezebert", "SqueezeBert", embedding_size=64)
encoder("funnel", "Funnel", TOKENS, block_sizes=[1, 1], d_model=64, n_head=4, d_head=16, d_inner=128)
encoder("big_bird", "BigBird", attention_type="original_full")
encoder("canine", "Canine", num_hash_buckets=64, local_transformer_stride=8, downsampling_rate=4)
encoder("esm", "Esm", mask_token_id=4)


@model("fnet", "encoder")
def fnet() -> Case:
    return Case(built("FNetModel", configured("FNet", {}, ("num_attention_heads",))), kwargs={"input_ids": tokens()})


SEQUENCES: dict[str, Any] = {
    **TOKENS, "d_model": 64, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 128, "decoder_ffn_dim": 128, "max_position_embeddings": 64,
    "decoder_start_token_id": 1}
T5: dict[str, Any] = {**TOKENS, "d_model": 64, "d_kv": 16, "d_ff": 128, "num_layers": 2, "num_heads": 4,
                      "decoder_start_token_id": 1}


def sequences(name: str, config: str, architecture: str = "", base: dict[str, Any] | None = None, **options: Any,
              ) -> None:
    @model(name, "encoder-decoder")
    def make() -> Case:
        module = built(architecture or config + "Model", configured(config, options, base=base or SEQUENCES))
        return Case(module, kwargs={"input_ids": tokens(), "decoder_input_ids": tokens(2, 8), "use_cache": False})


sequences("t5", "T5", "T5ForConditionalGeneration", T5)
sequences("mt5", "MT5", base=T5, feed_forward_proj="gated-gelu")
sequences("umt5", "UMT5", base=T5)
sequences("bart", "Bart")
sequences("mbart", "MBart")
sequences("pegasus", "Pegasus")
sequences("marian", "Marian")
sequences("m2m100", "M2M100")
sequences("blenderbot", "Blenderbot")


@model("whisper", "encoder-decoder")
def whisper() -> Case:
    options = {**SEQUENCES, "num_mel_bins": 16, "max_source_positions": 32, "max_target_positions": 32}
    module = built("WhisperModel", configured("Whisper", options, ("max_position_embeddings",), {}))
    return Case(module, kwargs={"input_features": torch.randn(1, 16, 64), "decoder_input_ids": tokens(1, 8),
                                "use_cache": False})
