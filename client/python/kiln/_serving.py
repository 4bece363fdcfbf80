"""What vLLM and SGLang call in each of their processes where this package is installed.

Entry points ``vllm.general_plugins`` and ``sglang.srt.plugins``. ``KILN_VLLM`` and ``KILN_SGLANG`` say whether Kiln
compiles in Inductor's place: a mode of torch.compile, "default" or "max-autotune"; unset or "off": no. With
``KILN_COORDINATOR`` vLLM's own compiled models are shared, whoever compiled them, unless ``KILN_VLLM_AOT=off``.
"""

from __future__ import annotations

import os

from kiln._import_hooks import when_loaded
from kiln._settings import Settings

MODES = ("default", "max-autotune")


def mode_of(variable: str) -> str | None:
    """The mode that a variable names; None: Kiln does not compile. Says once what it does not know."""
    wanted = os.environ.get(variable, "").lower()
    if wanted in ("", "off", "0"):
        return None
    if wanted not in MODES:
        Settings.say_once(f"{variable} is {wanted!r}; it can be off, {', '.join(MODES)}: Kiln compiles nothing", "")
        return None
    return wanted


def vllm() -> None:
    """Hooks vLLM's modules, now or when they load. Imports nothing of it."""
    from kiln import _vllm_sharing

    mode = mode_of("KILN_VLLM")
    if mode is not None:
        when_loaded({"vllm.platforms.interface": lambda module: _choose_backend(module.Platform, mode)})
    coordinator = os.environ.get("KILN_COORDINATOR")
    if coordinator and os.environ.get("KILN_VLLM_AOT", "").lower() not in ("off", "0"):
        when_loaded({"vllm.compilation.decorators": lambda module: _vllm_sharing.share(module, coordinator)})


def _choose_backend(platform: type, mode: str) -> None:
    # A platform that has a compiler of its own overrides it, and keeps it.
    if not hasattr(platform, "get_compile_backend"):
        raise AttributeError("Platform.get_compile_backend")
    compiler = {"default": "KilnCompiler", "max-autotune": "MaxAutotuneCompiler"}[mode]
    platform.get_compile_backend = classmethod(lambda _: f"kiln.vllm.{compiler}")


def sglang() -> None:
    """Registers hooks of SGLang's registry."""
    mode = mode_of("KILN_SGLANG")
    if mode is not None:
        from kiln import sglang as hooks

        hooks.register(mode)
