"""Whole models with random weights, which tensor.py measures."""

import torch

BF16 = torch.bfloat16


def transformer(name, config, length, batch, **options):
    import transformers
    model = getattr(transformers, name)(getattr(transformers, config)(**options)).eval()
    return model, torch.randint(0, 1000, (batch, length)), {"use_cache": False} if "LM" in name else {}


LLAMA = {"hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16, "num_attention_heads": 32,
         "num_key_value_heads": 8, "vocab_size": 128256, "max_position_embeddings": 4096}
QWEN3 = {"hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 28, "num_attention_heads": 16,
         "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151936, "tie_word_embeddings": True}


def whisper_encoder():
    """Of Whisper small, 30 s of sound."""
    import transformers
    from transformers.models.whisper.modeling_whisper import WhisperEncoder
    config = transformers.WhisperConfig(d_model=768, encoder_layers=12, encoder_attention_heads=12,
                                        encoder_ffn_dim=3072)
    return WhisperEncoder(config).eval(), torch.randn(8, 80, 3000).to(BF16), {}


class CachedStep(torch.nn.Module):
    """One new token behind a cache of keys and values, which are buffers."""

    def __init__(self, model, batch, past):
        super().__init__()
        self.model = model
        config = model.config
        width = config.hidden_size // config.num_attention_heads
        for i in range(2 * config.num_hidden_layers):
            self.register_buffer(f"past{i}", torch.randn(batch, config.num_key_value_heads, past, width).to(BF16))
        self.register_buffer("position", torch.full((batch, 1), past))

    def forward(self, ids):
        from transformers.cache_utils import DynamicCache, DynamicLayer
        cache = DynamicCache()
        for number in range(self.model.config.num_hidden_layers):
            layer = DynamicLayer()  # update() would begin with tensors of nothing, which export keeps as constants
            layer.keys, layer.values = getattr(self, f"past{2 * number}"), getattr(self, f"past{2 * number + 1}")
            layer.dtype, layer.device, layer.is_initialized = layer.keys.dtype, layer.keys.device, True
            cache.layers.append(layer)
        return self.model(ids, past_key_values=cache, position_ids=self.position).logits


class StaticStep(torch.nn.Module):
    """The same with a cache of one length, of which the step writes its last position."""

    def __init__(self, model, batch, length):
        from transformers import StaticCache
        super().__init__()
        config = model.config
        self.model = model
        self.__dict__["cache"] = StaticCache(config=config, max_cache_len=length)
        width = config.hidden_size // config.num_attention_heads
        for i in range(2 * config.num_hidden_layers):
            self.register_buffer(f"past{i}", torch.randn(batch, config.num_key_value_heads, length, width).to(BF16))
        self.register_buffer("position", torch.tensor([length - 1]))

    def forward(self, ids):
        for number, layer in enumerate(self.cache.layers):
            layer.keys, layer.values = getattr(self, f"past{2 * number}"), getattr(self, f"past{2 * number + 1}")
            layer.dtype, layer.device, layer.is_initialized = layer.keys.dtype, layer.keys.device, True
            layer.cumulative_length = self.position[0] + 0  # update() adds to it in place
        return self.model(ids, past_key_values=self.cache, position_ids=self.position[None]).logits


def llama_step(batch, past, kind=CachedStep):
    model, ids, _ = transformer("LlamaForCausalLM", "LlamaConfig", 1, batch, **LLAMA)
    return kind(model, batch, past), ids, {}


TRANSFORMERS = {
    "gpt2": lambda: transformer("GPT2LMHeadModel", "GPT2Config", 1024, 1),
    "llama": lambda: transformer("LlamaForCausalLM", "LlamaConfig", 512, 1, **LLAMA),
    "bert": lambda: transformer("BertModel", "BertConfig", 512, 8),
    "llama_16": lambda: transformer("LlamaForCausalLM", "LlamaConfig", 1, 16, **LLAMA),
    "llama_step": lambda: llama_step(16, 1023),
    "llama_static": lambda: llama_step(16, 1024, StaticStep),
    "qwen3": lambda: transformer("Qwen3ForCausalLM", "Qwen3Config", 512, 1, **QWEN3),
    "gemma2": lambda: transformer("Gemma2ForCausalLM", "Gemma2Config", 512, 1),  # of 2B
    "modernbert": lambda: transformer("ModernBertModel", "ModernBertConfig", 512, 8),
    "whisper": whisper_encoder,
}
TIMM = {"resnet50": "resnet50", "convnext_tiny": "convnext_tiny", "efficientnet_b0": "efficientnet_b0",
        "vit_b": "vit_base_patch16_224", "swin_tiny": "swin_tiny_patch4_window7_224"}
MODELS = ["resnet50", "convnext_tiny", "efficientnet_b0", "gpt2", "llama", "bert", "vit_b", "swin_tiny", "llama_16",
          "llama_step", "llama_static", "qwen3", "gemma2", "modernbert", "whisper"]


class Functional(torch.nn.Module):
    """A model whose parameters and buffers are inputs, in front of its own; its first output."""

    def __init__(self, model, options):
        super().__init__()
        self.__dict__["held"] = model.requires_grad_(False)
        self.options = options
        self.names = [name for name, _ in [*model.named_parameters(), *model.named_buffers()]]

    def forward(self, weights, x):
        named = dict(zip(self.names, weights, strict=True))
        out = torch.func.functional_call(self.held, named, (x,), self.options, strict=False)
        return out if torch.is_tensor(out) else out[0]


def load_model(name, device):
    """A function of (weights, x), and both."""
    torch.manual_seed(0)
    if name in TIMM:
        import timm
        model = timm.create_model(TIMM[name]).eval()
        x, options = torch.randn(32, 3, 224, 224).to(BF16), {}
    else:
        model, x, options = TRANSFORMERS[name]()
    model = model.to(BF16).to(device)
    weights = [tensor.detach() for _, tensor in [*model.named_parameters(), *model.named_buffers()]]
    return Functional(model, options), weights, x.to(device)
