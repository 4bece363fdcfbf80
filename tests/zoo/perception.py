"""Vision, speech, multimodal and time series models of transformers."""

from __future__ import annotations

from typing import Any

import torch

from language import built, configured
from registry import Case, model, tokens

PATCHES: dict[str, Any] = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
                           "intermediate_size": 128, "image_size": 32, "patch_size": 8}
PYRAMID: dict[str, Any] = {"hidden_sizes": [16, 32, 32, 64], "depths": [1, 1, 1, 1],
                           "num_attention_heads": [1, 2, 2, 4]}


def image(name: str, config: str, architecture: str = "", base: dict[str, Any] | None = None, size: int = 32,
          **options: Any) -> None:
    @model(name, "vision")
    def make() -> Case:
        module = built(architecture or config + "Model", configured(config, options, base=base or {}))
        return Case(module, kwargs={"pixel_values": torch.randn(1, 3, size, size)})


image("vit", "ViT", base=PATCHES)
image("deit", "DeiT", base=PATCHES)
image("beit", "Beit", base=PATCHES, use_relative_position_bias=True)
image("dinov2", "Dinov2", base=PATCHES)
image("dinov2, registers", "Dinov2WithRegisters", base=PATCHES)
image("dinov3", "DINOv3ViT", base=PATCHES)
image("yolos", "Yolos", "YolosForObjectDetection", {**PATCHES, "image_size": [32, 32]})
image("swin", "Swin", image_size=32, patch_size=2, embed_dim=16, depths=[2, 2], num_heads=[2, 4], window_size=4)
image("swinv2", "Swinv2", image_size=32, patch_size=2, embed_dim=16, depths=[2, 2], num_heads=[2, 4], window_size=4)
image("convnext", "ConvNext", hidden_sizes=[16, 32], depths=[1, 2], num_stages=2)
image("convnextv2", "ConvNextV2", hidden_sizes=[16, 32], depths=[1, 2], num_stages=2)
image("segformer", "Segformer", "SegformerForSemanticSegmentation", PYRAMID, 64, decoder_hidden_size=32)
image("mobilevit", "MobileViT", size=64, image_size=64, hidden_sizes=[16, 24, 32],
      neck_hidden_sizes=[8, 8, 16, 16, 24, 32, 32])
image("poolformer", "PoolFormer", hidden_sizes=[16, 32, 32, 32], depths=[1, 1, 1, 1])
image("pvt", "Pvt", base=PYRAMID, image_size=32)
image("resnet", "ResNet", embedding_size=16, hidden_sizes=[16, 32], depths=[1, 1])
image("regnet", "RegNet", embedding_size=16, hidden_sizes=[16, 32, 32, 32], depths=[1, 1, 1, 1], groups_width=8)
image("hiera", "Hiera", size=64, image_size=[64, 64], embed_dim=16, depths=[1, 1, 1, 1], num_heads=[1, 2, 4, 8])
image("levit", "Levit", size=64, image_size=64, hidden_sizes=[32, 48, 64], num_attention_heads=[2, 3, 4],
      depths=[1, 1, 1], key_dim=[8, 8, 8])
image("focalnet", "FocalNet", image_size=32, embed_dim=16, hidden_sizes=[16, 32], depths=[1, 1], focal_levels=[2, 2],
      focal_windows=[3, 3], patch_size=2)
image("dpt", "DPT", "DPTForDepthEstimation", {**PATCHES, "num_hidden_layers": 4}, backbone_out_indices=[0, 1, 2, 3],
      neck_hidden_sizes=[8, 8, 16, 16], fusion_hidden_size=16)
image("glpn", "GLPN", "GLPNForDepthEstimation", PYRAMID, 64, decoder_hidden_size=16)
image("sam encoder", "SamVision", size=64, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, image_size=64,
      patch_size=8, output_channels=16, window_size=4, global_attn_indexes=[1], mlp_dim=64)


@model("detr", "vision")
def detr() -> Case:
    backbone = configured("ResNet", {"embedding_size": 16, "hidden_sizes": [16, 32, 32, 64], "depths": [1, 1, 1, 1],
                                     "layer_type": "basic", "out_features": ["stage4"]}, base={})
    options = {"use_timm_backbone": False, "use_pretrained_backbone": False, "backbone_config": backbone,
               "backbone": None, "d_model": 64, "encoder_layers": 1, "decoder_layers": 1,
               "encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 64,
               "decoder_ffn_dim": 64, "num_queries": 8}
    return Case(built("DetrForObjectDetection", configured("Detr", options, base={})),
                kwargs={"pixel_values": torch.randn(1, 3, 64, 64), "pixel_mask": torch.ones(1, 64, 64).long()})


WAVES: dict[str, Any] = {
    "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128, "vocab_size": 32,
    "conv_dim": (16, 16, 16), "conv_stride": (5, 4, 2), "conv_kernel": (10, 3, 2), "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 4}


def speech(name: str, config: str, **options: Any) -> None:
    @model(name, "speech")
    def make() -> Case:
        module = built(config + "Model", configured(config, options, base=WAVES))
        return Case(module, kwargs={"input_values": torch.randn(1, 1600)})


speech("wav2vec2", "Wav2Vec2")
speech("hubert", "Hubert")
speech("wavlm", "WavLM", num_buckets=8, max_bucket_distance=16)
speech("data2vec_audio", "Data2VecAudio", num_conv_pos_embeddings=2, conv_pos_kernel_size=3)
speech("unispeech", "UniSpeech")
speech("sew", "SEW", squeeze_factor=2)


@model("audio spectrogram transformer", "speech")
def audio_spectrogram() -> Case:
    options = {**PATCHES, "frequency_stride": 8, "time_stride": 8, "max_length": 64, "num_mel_bins": 16}
    return Case(built("ASTModel", configured("AST", options, ("image_size",), {})),
                kwargs={"input_values": torch.randn(1, 64, 16)})


TEXT: dict[str, Any] = {
    "vocab_size": 96, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
    "max_position_embeddings": 16, "eos_token_id": 2, "bos_token_id": 1, "pad_token_id": 0}


def text_and_image(name: str, config: str, architecture: str = "", **options: Any) -> None:
    @model(name, "multimodal")
    def make() -> Case:
        merged = configured(config, {"text_config": TEXT, "vision_config": PATCHES, **options}, base={})
        return Case(built(architecture or config + "Model", merged),
                    kwargs={"input_ids": tokens(), "pixel_values": torch.randn(2, 3, 32, 32)})


text_and_image("clip", "CLIP", projection_dim=32)
text_and_image("siglip", "Siglip")
text_and_image("clipseg", "CLIPSeg", "CLIPSegForImageSegmentation", projection_dim=64, extract_layers=[0, 1],
               reduce_dim=16, decoder_num_attention_heads=2, decoder_intermediate_size=32)


@model("blip encoder", "multimodal")
def blip() -> Case:
    return Case(built("BlipVisionModel", configured("BlipVision", PATCHES, base={})),
                kwargs={"pixel_values": torch.randn(1, 3, 32, 32)})


class ImageInText(torch.nn.Module):
    """A LLaVA: an image's features, projected, in the places that the prompt leaves for them."""

    def __init__(self) -> None:
        super().__init__()
        self.vision = built("CLIPVisionModel", configured("CLIPVision", PATCHES, base={}))
        self.projector = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.GELU(), torch.nn.Linear(64, 64))
        self.language: Any = built("LlamaForCausalLM", configured("Llama", {"num_key_value_heads": 2}))

    def forward(self, input_ids: torch.Tensor, pixel_values: torch.Tensor) -> torch.Tensor:
        words = self.language.get_input_embeddings()(input_ids)
        image = self.projector(self.vision(pixel_values).last_hidden_state[:, 1:])
        place = (input_ids == 95).cumsum(1) - 1
        there = image.gather(1, place.clamp(min=0).unsqueeze(-1).expand(-1, -1, 64))
        mixed = torch.where((input_ids == 95).unsqueeze(-1), there, words)
        return self.language(inputs_embeds=mixed, use_cache=False).logits  # type: ignore[no-any-return]


@model("llava-like", "multimodal")
def llava() -> Case:
    prompt = torch.randint(3, 90, (1, 24))
    prompt[0, 2:18] = 95
    return Case(ImageInText(), (prompt, torch.randn(1, 3, 32, 32)))


@model("patchtst", "time series")
def patchtst() -> Case:
    options = {"num_input_channels": 3, "context_length": 32, "patch_length": 4, "patch_stride": 4, "d_model": 32,
               "num_attention_heads": 4, "num_hidden_layers": 2, "ffn_dim": 64, "prediction_length": 8,
               "do_mask_input": False}
    return Case(built("PatchTSTForPrediction", configured("PatchTST", options, base={})),
                kwargs={"past_values": torch.randn(2, 32, 3)})


@model("patchtsmixer", "time series")
def patchtsmixer() -> Case:
    options = {"num_input_channels": 3, "context_length": 32, "patch_length": 8, "patch_stride": 8, "d_model": 16,
               "num_layers": 2, "prediction_length": 8}
    return Case(built("PatchTSMixerForPrediction", configured("PatchTSMixer", options, base={})),
                kwargs={"past_values": torch.randn(2, 32, 3)})
