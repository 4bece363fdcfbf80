"""Unmodified Inductor shares what it compiled and measured through the coordinator.

Two places of Inductor are used, when its modules load: ``backend_override_cls`` of its remote caches, and
``PersistentCache.lookup``, which has the timings of max-autotune's products. Both are private names: where
one is missing, nothing is hooked, and that is said once.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import math
import os
import platform
import re
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

from kiln._fleet import fleet_of
from kiln._import_hooks import when_loaded

PARTS = ("gemm", "autotune", "fx", "aot")
# Inductor's switch for each part that is a remote cache of its own, and the class that it makes.
_SWITCHES = {"autotune": "TORCHINDUCTOR_AUTOTUNE_REMOTE_CACHE", "fx": "TORCHINDUCTOR_FX_GRAPH_REMOTE_CACHE",
             "aot": "TORCHINDUCTOR_AUTOGRAD_REMOTE_CACHE"}
_CACHES = {"autotune": "RemoteAutotuneCache", "fx": "RemoteFxGraphCache", "aot": "RemoteAOTAutogradCache"}
_KINDS = {"autotune": "inductor.autotune", "fx": "inductor.fx_graph", "aot": "inductor.aot_autograd",
          "gemm": "inductor.gemm"}
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_HASH = re.compile(r"[A-Za-z0-9+/=_-]{0,128}")


def parts_of(wanted: str) -> tuple[str, ...]:
    """The parts that ``KILN_INDUCTOR`` names; all of them when it names none."""
    named = tuple(part for part in PARTS if part in re.split(r"[,\s]+", wanted.lower()))
    return named or PARTS


def install(coordinator: str, parts: Sequence[str]) -> None:
    """Hooks Inductor's modules, now or when they load. Imports nothing of torch."""
    if "TORCHINDUCTOR_REDIS_URL" in os.environ or "TORCHINDUCTOR_REDIS_HOST" in os.environ:
        parts = [part for part in parts if part not in _CACHES]  # somebody has caches of their own
    hooks: dict[str, Callable[[ModuleType], None]] = {}
    caches = [part for part in parts if part in _CACHES and os.environ.setdefault(_SWITCHES[part], "1") == "1"]
    if caches:
        hooks["torch._inductor.remote_cache"] = lambda module: _override_backends(module, coordinator, caches)
    if "gemm" in parts or "fx" in caches:
        hooks["torch._inductor.codecache"] = lambda module: _hook_codecache(module, coordinator, parts)
    when_loaded(hooks)


# ---- Remote caches: Triton's configurations, FX graphs, AOTAutograd entries


def _override_backends(module: ModuleType, coordinator: str, caches: Sequence[str]) -> None:
    base = module.RemoteCacheBackend
    classes = {part: getattr(module, _CACHES[part]) for part in caches}
    if not all(hasattr(cls, "backend_override_cls") for cls in classes.values()):
        raise AttributeError("backend_override_cls")
    for part, cls in classes.items():
        cls.backend_override_cls = _backend_of(base, part, coordinator)


def _backend_of(base: Any, part: str, coordinator: str) -> type:
    kind = _KINDS[part]

    class KilnBackend(base):  # type: ignore[misc]
        """Inductor makes one for each look-up."""

        def __init__(self) -> None:
            super().__init__()
            self._name = f"backend:Kiln:{part}"

        def _get(self, key: str) -> bytes | None:
            value = fleet_of(coordinator).get(kind, _key(part, key), lease=part == "fx")
            return value if part != "autotune" or value is None or is_autotune_config(value) else None

        def _put(self, key: str, data: bytes) -> None:
            fleet_of(coordinator).put(kind, _key(part, key), data)

    return KilnBackend


@functools.cache
def processor_features() -> str:
    # Inductor bakes the width of vectors into C++ that it generates, and leaves it out of its keys.
    import torch

    return f"{platform.machine()}-{torch.backends.cpu.get_cpu_capability()}".lower().replace(" ", "")


def _key(part: str, key: str) -> str:
    return key if part == "autotune" else f"{key}@{processor_features()}"


def is_autotune_config(value: bytes) -> bool:
    """Whether the value is a Triton configuration and nothing else: names, numbers, and two hashes."""
    try:
        config = json.loads(value)
    except ValueError:
        return False
    if not isinstance(config, dict) or len(config) > 64:
        return False
    for name, member in config.items():
        if not _NAME.fullmatch(name):
            return False
        if name in ("configs_hash", "triton_cache_hash"):
            if member is not None and not (isinstance(member, str) and _HASH.fullmatch(member)):
                return False
        elif not (member is None or (isinstance(member, (bool, int, float)) and math.isfinite(member))):
            return False
    return True


# ---- What codecache has: timings of products, and the end of an FX graph's compile


def _hook_codecache(module: ModuleType, coordinator: str, parts: Sequence[str]) -> None:
    if "gemm" in parts:
        _share_timings(module.PersistentCache, module.CacheBase, coordinator)
    if "fx" in parts:
        _release_after_save(module.FxGraphCache, coordinator)


def _release_after_save(cache: Any, coordinator: str) -> None:
    # A graph that cannot be written is never put: its lease ends here, and not with its time.
    save = cache._save_graph

    @functools.wraps(save)
    def save_and_release(key: str, *arguments: Any, **named: Any) -> Any:
        try:
            return save(key, *arguments, **named)
        finally:
            fleet_of(coordinator).release(_KINDS["fx"])

    cache._save_graph = staticmethod(save_and_release)


def _share_timings(cache: Any, base: Any, coordinator: str) -> None:
    lookup = cache.lookup

    @functools.wraps(lookup)
    def shared(self: Any, choices: Any, op: Any, inputs: Any, benchmark: Any, *rest: Any, **named: Any) -> Any:
        timings = lookup(self, choices, op, inputs, None, *rest, **named)
        if len(timings) == len(choices) or not choices:
            return timings
        fleet = fleet_of(coordinator)
        key = names = None
        with contextlib.suppress(Exception):
            key, names = timings_key(base.get_system()["hash"], choices, [op, inputs, *rest, *sorted(named.items())])
        if key is None or names is None:
            return lookup(self, choices, op, inputs, benchmark, *rest, **named)
        value = fleet.get(_KINDS["gemm"], key, lease=benchmark is not None)
        kept = timings_of(value, names)
        if kept is not None:
            return dict(zip(choices, kept, strict=True))
        try:
            timings = lookup(self, choices, op, inputs, benchmark, *rest, **named)
            if benchmark is not None:
                new = timings_text({name: timings[choice] for name, choice in zip(names, choices, strict=True)
                                    if choice in timings})
                if new is not None and len(timings) == len(choices):
                    fleet.put(_KINDS["gemm"], key, new)
            return timings
        finally:
            if benchmark is not None:
                fleet.release(_KINDS["gemm"], key)

    cache.lookup = shared


def timings_key(system: str, choices: Sequence[Any], problem: Sequence[object]) -> tuple[str, list[str]]:
    """The key under which these choices' timings are shared, and a name for each choice.

    It says what was timed and on what: the device (``system``), PyTorch, the precision of products, the op and its
    inputs (``problem``), and the choices. Without a GPU, the processor and the number of threads are the device.
    """
    import torch

    names = [hashlib.sha256(choice.hash_key().encode()).hexdigest()[:40] for choice in choices]
    on = [] if torch.cuda.is_available() else [processor_features(), processor_model(), torch.get_num_threads()]
    text = json.dumps(["kiln.gemm.v1", torch.__version__, system, torch.get_float32_matmul_precision(), on,
                       [str(part) for part in problem], sorted(names)])
    return hashlib.sha256(text.encode()).hexdigest(), names


@functools.cache
def processor_model() -> str:
    """The name of this machine's processor, as Linux has it."""
    with contextlib.suppress(OSError), open("/proc/cpuinfo") as lines:
        for line in lines:
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor()


def timings_text(timings: dict[str, Any]) -> bytes | None:
    """One JSON object, null for a choice that did not run; None when a timing is no number."""
    plain: dict[str, float | None] = {}
    for name, ms in timings.items():
        if not isinstance(ms, (int, float)) or math.isnan(ms) or ms < 0:
            return None
        plain[name] = None if math.isinf(ms) else float(ms)
    return json.dumps(plain, allow_nan=False).encode()


def timings_of(value: bytes | None, names: Sequence[str]) -> list[float] | None:
    """The timing of each name; None unless every one is there and a number. At least one is finite."""
    if value is None:
        return None
    try:
        kept = json.loads(value)
    except ValueError:
        return None
    if not isinstance(kept, dict):
        return None
    timings = []
    for name in names:
        ms = kept.get(name, "missing")
        if ms is not None and (isinstance(ms, bool) or not isinstance(ms, (int, float)) or not 0 <= ms < 1e9):
            return None
        timings.append(math.inf if ms is None else float(ms))
    return timings if any(map(math.isfinite, timings)) else None
