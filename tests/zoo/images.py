"""Convolutional nets and vision transformers of torchvision and timm. What a library has no smaller configuration
of has its own sizes, on a small image."""

from __future__ import annotations

from typing import Any

import torch

from registry import Case, model


def vision(name: str, size: int = 64, **options: Any) -> None:
    @model(f"{name} (torchvision)", "convolutional")
    def make() -> Case:
        import torchvision

        return Case(torchvision.models.get_model(name, weights=None, **options), (torch.randn(1, 3, size, size),))


vision("resnet18")
vision("alexnet")
vision("vgg11", 32)
vision("squeezenet1_1")
vision("shufflenet_v2_x0_5")
vision("mobilenet_v2")
vision("mobilenet_v3_small")
vision("mobilenet_v3_large")
vision("mnasnet0_5")
vision("efficientnet_b0")
vision("regnet_y_400mf")
vision("densenet121")
vision("googlenet", aux_logits=False, init_weights=False)
vision("deeplabv3_mobilenet_v3_large", weights_backbone=None)
vision("lraspp_mobilenet_v3_large", weights_backbone=None)
vision("swin_v2_t")


@model("r3d_18 (torchvision)", "convolutional")
def r3d() -> Case:
    import torchvision

    return Case(torchvision.models.get_model("r3d_18", weights=None), (torch.randn(1, 3, 4, 32, 32),))


@model("raft_small (torchvision)", "convolutional")
def raft() -> Case:
    import torchvision

    pair = torch.randn(1, 3, 128, 128), torch.randn(1, 3, 128, 128)
    return Case(torchvision.models.get_model("raft_small", weights=None), (*pair, 2))


def timm(name: str, size: int = 64, **options: Any) -> None:
    @model(f"{name} (timm)", "vision")
    def make() -> Case:
        import timm

        module = timm.create_model(name, pretrained=False, num_classes=10, **options)
        return Case(module, (torch.randn(1, 3, size, size),))


SHALLOW: dict[str, Any] = {"img_size": 64, "depth": 2}
timm("efficientvit_b0")
timm("ghostnet_050")
timm("vit_tiny_patch16_224", **SHALLOW)
timm("vit_small_patch16_rope_224", **SHALLOW)
timm("maxvit_rmlp_pico_rw_256", img_size=64)
timm("coatnet_pico_rw_224", img_size=64)
timm("xcit_nano_12_p16_224", depth=2)
timm("cait_xxs24_224", **SHALLOW)
timm("eva02_tiny_patch14_224", 56, img_size=56, depth=2)
timm("levit_128s", img_size=64)
timm("edgenext_xx_small")
timm("fastvit_t8")
timm("mobileone_s0")
timm("repvgg_a0")
timm("resnest14d")
timm("rexnet_100")
timm("sequencer2d_s", img_size=64, layers=(1, 1, 1, 1))
timm("davit_tiny", depths=(1, 1, 1, 1))
timm("mambaout_femto")
timm("hrnet_w18_small")
timm("twins_svt_small", img_size=64)
timm("botnet26t_256", img_size=64)
timm("efficientformerv2_s0", img_size=64)
timm("mobilenetv4_conv_small")
timm("inception_next_atto")
timm("gcvit_xxtiny", img_size=64)
timm("pvt_v2_b0")
timm("swiftformer_xs")
