"""Diffusion models, recommenders, decode steps with caches, sizes known only at run time, low precision, other ways to
write a model down, and training steps."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from language import built, configured
from registry import Case, model, tokens


class Decoder(nn.Module):
    def __init__(self, autoencoder: Any) -> None:
        super().__init__()
        self.autoencoder = autoencoder

    def forward(self, z: torch.Tensor) -> torch.Tensor:
        return self.autoencoder.decode(z, return_dict=False)[0]  # type: ignore[no-any-return]


@model("unet (diffusers)", "diffusion")
def unet() -> Case:
    import diffusers

    module = diffusers.UNet2DModel(
        sample_size=16, block_out_channels=(16, 32), down_block_types=("DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D"), layers_per_block=1, norm_num_groups=8, attention_head_dim=8)
    return Case(module, (torch.randn(1, 3, 16, 16), torch.tensor(7)), {"return_dict": False})


@model("unet, conditional (diffusers)", "diffusion")
def conditional_unet() -> Case:
    import diffusers

    module = diffusers.UNet2DConditionModel(
        sample_size=8, block_out_channels=(16, 32), down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"), layers_per_block=1, norm_num_groups=8,
        attention_head_dim=8, cross_attention_dim=32)
    return Case(module, (torch.randn(1, 4, 8, 8), torch.tensor(7), torch.randn(1, 6, 32)), {"return_dict": False})


@model("dit (diffusers)", "diffusion")
def dit() -> Case:
    import diffusers

    module = diffusers.DiTTransformer2DModel(
        num_attention_heads=2, attention_head_dim=16, in_channels=4, num_layers=2, sample_size=8, patch_size=2,
        num_embeds_ada_norm=10, norm_num_groups=4)
    return Case(module, (torch.randn(2, 4, 8, 8),), {"timestep": torch.tensor([3, 7]),
                                                     "class_labels": torch.tensor([1, 2]), "return_dict": False})


@model("vae decoder (diffusers)", "diffusion")
def vae_decoder() -> Case:
    import diffusers

    autoencoder = diffusers.AutoencoderKL(
        block_out_channels=(16, 32), down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2, norm_num_groups=8, latent_channels=4)
    return Case(Decoder(autoencoder), (torch.randn(1, 4, 8, 8),))


class Recommender(nn.Module):
    """DLRM: embedding bags and a bottom net, their inner products, a top net."""

    def __init__(self) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.EmbeddingBag(50, 16, mode="sum") for _ in range(3))
        self.bottom = nn.Sequential(nn.Linear(13, 32), nn.ReLU(), nn.Linear(32, 16), nn.ReLU())
        self.top = nn.Sequential(nn.Linear(16 + 6, 32), nn.ReLU(), nn.Linear(32, 1), nn.Sigmoid())

    def forward(self, dense: torch.Tensor, sparse: torch.Tensor) -> torch.Tensor:
        x = self.bottom(dense)
        features = torch.stack([x] + [table(sparse[:, i]) for i, table in enumerate(self.tables)], 1)
        products = features @ features.transpose(1, 2)
        row, column = torch.tril_indices(4, 4, -1)
        return self.top(torch.cat([x, products[:, row, column]], 1))  # type: ignore[no-any-return]


@model("dlrm", "recommender")
def dlrm() -> Case:
    return Case(Recommender(), (torch.randn(8, 13), torch.randint(0, 50, (8, 3, 4))))


class DecodeStep(nn.Module):
    """A token of a Llama against a static cache."""

    def __init__(self, config: str, **options: Any) -> None:
        super().__init__()
        from transformers.integrations.executorch import TorchExportableModuleWithStaticCache

        settings = configured(config, options)
        settings._attn_implementation = "sdpa"
        causal: Any = built(config + "ForCausalLM", settings).eval()
        causal.generation_config = type(causal.generation_config)(
            use_cache=True, cache_implementation="static", max_length=32,
            cache_config={"batch_size": 1, "max_cache_len": 32})
        self.step = TorchExportableModuleWithStaticCache(causal, batch_size=1, max_cache_len=32)

    def forward(self, token: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        return self.step(input_ids=token, cache_position=position)  # type: ignore[no-any-return]


def decode_step(name: str, config: str, **options: Any) -> None:
    @model(f"{name}, decode step with a static cache", "decode step")
    def make() -> Case:
        return Case(DecodeStep(config, **options), (torch.tensor([[5]]), torch.tensor([3])))


decode_step("llama", "Llama", num_key_value_heads=2)
decode_step("qwen3", "Qwen3", num_key_value_heads=2, head_dim=16)


class PagedAttention(nn.Module):
    """A token's attention over keys and values that lie in pages, which a table names."""

    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(64, 192)
        self.register_buffer("keys", torch.randn(12, 8, 4, 16))
        self.register_buffer("values", torch.randn(12, 8, 4, 16))

    def forward(self, x: torch.Tensor, table: torch.Tensor, length: torch.Tensor) -> torch.Tensor:
        batch = x.shape[0]
        query, key, value = self.project(x).view(batch, 3, 4, 16).unbind(1)
        page, row = table.gather(1, (length // 8).unsqueeze(1)).squeeze(1), length % 8
        self.keys[page, row] = key
        self.values[page, row] = value
        keys, values = (each[table].view(batch, -1, 4, 16).transpose(1, 2) for each in (self.keys, self.values))
        seen = torch.arange(keys.shape[2], device=x.device).unsqueeze(0) <= length.unsqueeze(1)
        return F.scaled_dot_product_attention(query.unsqueeze(2), keys, values, seen[:, None, None])


@model("paged attention", "decode step")
def paged() -> Case:
    return Case(PagedAttention(), (torch.randn(2, 64), torch.tensor([[3, 7, 1], [5, 0, 9]]), torch.tensor([11, 20])))


def of_any_size(name: str, config: str, **options: Any) -> None:
    @model(f"{name}, any batch and length", "dynamic sizes")
    def make() -> Case:
        from torch.export import Dim

        module = built(config, configured(config.removesuffix("ForCausalLM").removesuffix("Model"), options))
        sizes = {0: Dim.DYNAMIC(max=8), 1: Dim.DYNAMIC(max=64)}
        call: dict[str, Any] = {"input_ids": tokens(2, 16)}
        dynamic: dict[str, Any] = {"input_ids": sizes}
        more: dict[str, Any] = {"input_ids": tokens(3, 11)}
        if config.endswith("ForCausalLM"):
            call["use_cache"] = more["use_cache"] = False
            dynamic["use_cache"] = None
        return Case(module, (), call, dynamic, [((), more)])


of_any_size("llama", "LlamaForCausalLM", num_key_value_heads=2)
of_any_size("qwen3", "Qwen3ForCausalLM", num_key_value_heads=2, head_dim=16)
of_any_size("gpt_neox", "GPTNeoXForCausalLM")
of_any_size("bert", "BertModel")
of_any_size("mixtral", "MixtralForCausalLM", num_key_value_heads=2, num_local_experts=4, num_experts_per_tok=2)


class ComplexRope(nn.Module):
    """Attention as Llama's first reference writes it: rotations are complex numbers, kept as a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(64, 192)
        angles = torch.outer(torch.arange(32.0), 1.0 / 10000.0 ** (torch.arange(0, 16, 2) / 16.0))
        self.register_buffer("rotations", torch.polar(torch.ones_like(angles), angles))

    def rotated(self, x: torch.Tensor) -> torch.Tensor:
        pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
        turned = pairs * self.rotations[: x.shape[1]].view(1, x.shape[1], 1, -1)  # type: ignore[index]
        return torch.view_as_real(turned).flatten(3).type_as(x)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (each.view(*x.shape[:2], 4, 16) for each in self.project(x).chunk(3, -1))
        q, k, v = (each.transpose(1, 2) for each in (self.rotated(q), self.rotated(k), v))
        return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)


@model("complex rotary embedding", "complex numbers")
def complex_rope() -> Case:
    return Case(ComplexRope(), (torch.randn(2, 16, 64),))


class Spectrum(nn.Module):
    """A log power spectrogram, and a filter in the frequency domain."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("window", torch.hann_window(64))
        self.filter = nn.Parameter(torch.randn(129, dtype=torch.complex64))

    def forward(self, wave: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        frames = torch.stft(wave, 64, hop_length=16, window=self.window, return_complex=True)  # type: ignore[arg-type]
        filtered = torch.fft.irfft(torch.fft.rfft(wave) * self.filter, n=256)
        return (frames.abs() ** 2 + 1e-6).log(), filtered


@model("spectrogram", "complex numbers")
def spectrum() -> Case:
    return Case(Spectrum(), (torch.randn(2, 256),))


class Int8Linear(nn.Module):
    """Weights of eight bits with a scale for each row, as torchao's weight-only quantisation has them."""

    def __init__(self, wide: int, narrow: int) -> None:
        super().__init__()
        weight = torch.randn(narrow, wide)
        scale = weight.abs().amax(1, keepdim=True) / 127
        self.register_buffer("weight", (weight / scale).round().to(torch.int8))
        self.register_buffer("scale", scale)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.linear(x, self.weight.to(x.dtype) * self.scale.to(x.dtype))  # type: ignore[operator,union-attr]


class Int8Dynamic(nn.Module):
    """Activations quantised row by row as they come, products of integers."""

    def __init__(self, wide: int, narrow: int) -> None:
        super().__init__()
        self.inner = Int8Linear(wide, narrow)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scale = x.abs().amax(-1, keepdim=True).clamp(min=1e-6) / 127
        rows = (x / scale).round().clamp(-128, 127).to(torch.int8)
        return torch._int_mm(rows, self.inner.weight.t()).to(x.dtype) * scale * self.inner.scale.t()  # type: ignore


@model("int8 weights", "low precision")
def int8_weights() -> Case:
    return Case(nn.Sequential(Int8Linear(64, 128), nn.SiLU(), Int8Linear(128, 64)), (torch.randn(32, 64),))


@model("int8 weights and activations", "low precision")
def int8_products() -> Case:
    return Case(nn.Sequential(Int8Dynamic(64, 128), nn.SiLU(), Int8Dynamic(128, 64)), (torch.randn(32, 64),))


class Quantised(nn.Module):
    """What torch.export's quantisation flow writes: quantize and dequantize around a layer."""

    def __init__(self) -> None:
        super().__init__()
        import torch.ao.quantization.fx._decomposed

        self.register_buffer("weight", torch.randint(-128, 127, (32, 64), dtype=torch.int8))
        self.register_buffer("scales", torch.rand(32) * 0.01 + 0.001)
        self.register_buffer("zeros", torch.zeros(32, dtype=torch.int64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        ops: Any = torch.ops.quantized_decomposed
        weight = ops.dequantize_per_channel(self.weight, self.scales, self.zeros, 0, -127, 127, torch.int8)
        rows = ops.quantize_per_tensor(x, 0.03, 5, -128, 127, torch.int8)
        rows = ops.dequantize_per_tensor(rows, 0.03, 5, -128, 127, torch.int8)
        return F.relu(F.linear(rows, weight))


@model("quantised linear (quantized_decomposed)", "low precision")
def quantised() -> Case:
    return Case(Quantised(), (torch.randn(16, 64),))


class BatchedByVmap(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(16, 16)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.func.vmap(lambda a, b: (self.layer(a) * b).sum(-1).softmax(-1))(x, y)  # type: ignore[no-any-return]


@model("vmap", "other outputs and regions")
def vmap() -> Case:
    return Case(BatchedByVmap(), (torch.randn(4, 8, 16), torch.randn(4, 8, 16)))


class ManyKindsOfOutputs(nn.Module):
    def forward(self, x: torch.Tensor) -> dict[str, Any]:
        with torch.no_grad():
            y = x * 2
        with torch.autocast("cpu", torch.bfloat16):
            z = x @ x.transpose(0, 1)
        return {"size": x.shape[0], "nothing": None, "number": 2.5, "flag": True, "itself": x, "y": y, "view": y[0],
                "z": z, "twice": y}


@model("sizes, numbers, None, inputs and views as outputs", "other outputs and regions")
def many_kinds() -> Case:
    from torch.export import Dim

    return Case(ManyKindsOfOutputs(), (torch.randn(4, 8),), {}, {"x": {0: Dim("n", min=2, max=32)}},
                [((torch.randn(7, 8),), {})])


class Scanned(nn.Module):
    """A gated recurrence by torch's scan."""

    def forward(self, gate: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        from torch._higher_order_ops.scan import scan

        def step(state: torch.Tensor, now: tuple[torch.Tensor, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
            state = torch.sigmoid(now[0]) * state + now[1]
            return state, state.tanh()

        last, states = scan(step, torch.zeros_like(x[0]), (gate, x))
        return torch.cat([states, last.unsqueeze(0)])


@model("scan", "loops")
def scanned() -> Case:
    return Case(Scanned(), (torch.randn(12, 2, 16), torch.randn(12, 2, 16)))


class Looped(nn.Module):
    """Newton's iteration for square roots, by while_loop."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        from torch._higher_order_ops.while_loop import while_loop

        def going_on(i: torch.Tensor, root: torch.Tensor) -> torch.Tensor:
            return i < 6

        def step(i: torch.Tensor, root: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return i + 1, 0.5 * (root + x / root)

        begin = torch.zeros((), dtype=torch.long, device=x.device)
        return while_loop(going_on, step, (begin, torch.ones_like(x)))[1]  # type: ignore


@model("while_loop", "loops")
def looped() -> Case:
    return Case(Looped(), (torch.rand(32) + 0.5,))


class Converging(nn.Module):
    """The same until it changes little, in at most 8 steps."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        from torch._higher_order_ops.while_loop import while_loop

        def going_on(i: torch.Tensor, root: torch.Tensor) -> torch.Tensor:
            return (i < 8) & ((root * root - x).abs().max() > 1e-2)

        def step(i: torch.Tensor, root: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return i + 1, 0.5 * (root + x / root)

        begin = torch.zeros((), dtype=torch.long, device=x.device)
        return while_loop(going_on, step, (begin, torch.ones_like(x)))  # type: ignore


@model("while_loop, until it converges", "loops")
def converging() -> Case:
    return Case(Converging(), (torch.rand(32) + 0.5,), others=[((torch.rand(32) * 100 + 0.5,), {}),
                                                               ((torch.ones(32),), {})])


class WithLoss(nn.Module):
    """A model's mean square of its first floating result: something to differentiate."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        from torch.utils._pytree import tree_leaves

        first = next(each for each in tree_leaves(self.inner(*args, **kwargs)) if each.is_floating_point())
        return first.float().square().mean()  # type: ignore[no-any-return]


def training_step(name: str, make: Any) -> None:
    @model(f"{name}, training step", "training", training=True)
    def step() -> Case:
        module, args, kwargs = make()
        return Case(WithLoss(module), args, kwargs)


def _causal(config: str, **options: Any) -> Any:
    return built(config + "ForCausalLM", configured(config, options)), (), {"input_ids": tokens(), "use_cache": False}


training_step("llama", lambda: _causal("Llama", num_key_value_heads=2))
training_step("gpt_neox", lambda: _causal("GPTNeoX", attention_dropout=0.0, hidden_dropout=0.0))
training_step("bert", lambda: (built("BertModel", configured(
    "Bert", {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0})), (), {"input_ids": tokens()}))
training_step("convolutions", lambda: (nn.Sequential(
    nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 8, 3, stride=2), nn.GELU(),
    nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(32, 4)), (torch.randn(2, 3, 16, 16),), {}))
training_step("vit", lambda: (built("ViTModel", configured("ViT", {
    "image_size": 32, "patch_size": 8, "hidden_dropout_prob": 0.0})), (), {"pixel_values": torch.randn(2, 3, 32, 32)}))
