"""vLLM's compiled models through the coordinator.

vLLM keeps what it compiled of a model in a file, under a digest of its configuration, for each rank. A process that
has no such file asks the coordinator for it; one that wrote it puts it there. A file is a pickle: only a key of the
role publish may put it, and only what the coordinator signed is read. vLLM then compares the model's sources with
those that were compiled. ``_try_load_aot_compiled_fn`` and ``save_aot_compiled_function`` are private to vLLM.
"""

from __future__ import annotations

import functools
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from kiln import __version__
from kiln._fleet import fleet_of
from kiln._inductor import processor_features
from kiln._settings import Settings

KIND = "vllm.aot"
_MOST_BYTES = 16 << 20


def share(module: ModuleType, coordinator: str) -> None:
    """Hooks ``vllm.compilation.decorators``. Raises AttributeError where it is not as Kiln knows it."""
    load, decorate = module._try_load_aot_compiled_fn, module._support_torch_compile

    @functools.wraps(load)
    def fetch_and_load(model: Any, aot_compilation_path: str, *args: Any, **named: Any) -> Any:
        _fetch(Path(aot_compilation_path), coordinator)
        loaded = load(model, aot_compilation_path, *args, **named)
        if loaded is not None:
            fleet_of(coordinator).release(KIND)
        return loaded

    @functools.wraps(decorate)
    def decorate_and_publish(cls: Any, *args: Any, **named: Any) -> Any:
        decorated = decorate(cls, *args, **named)
        save = getattr(decorated, "save_aot_compiled_function", None)
        if save is None:
            return decorated

        @functools.wraps(save)
        def save_and_publish(self: Any) -> None:
            path = Path(getattr(self, "_aot_compilation_path", None) or "none")
            before = _file_of(path)
            try:
                save(self)
                if _file_of(path) not in (None, before):  # else nothing was written, and vLLM has said why
                    _publish(path, coordinator)
            finally:
                fleet_of(coordinator).release(KIND)

        decorated.save_aot_compiled_function = save_and_publish
        return decorated

    module._try_load_aot_compiled_fn = fetch_and_load  # type: ignore[attr-defined]
    module._support_torch_compile = decorate_and_publish  # type: ignore[attr-defined]


def key_of(path: Path) -> str:
    """The key of ``.../<digest>/rank_<rank>_<dp rank>/model``: vLLM's digest, and what it leaves out."""
    import torch
    import vllm

    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    runs_on = (f"vllm-{vllm.__version__}", f"torch-{torch.__version__}", f"kiln-{__version__}",
               f"python-{sys.version_info[0]}.{sys.version_info[1]}", device, processor_features())
    return "/".join((*path.parts[-3:-1], *(part.lower().replace(" ", "-") for part in runs_on)))


def _file_of(path: Path) -> tuple[int, int] | None:
    """Which file a path leads to: vLLM writes another one and renames it."""
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_ino, stat.st_mtime_ns


def _fetch(path: Path, coordinator: str) -> None:
    try:
        if path.exists():
            return
        value = fleet_of(coordinator).get(KIND, key_of(path), lease=True)
        if value is None:
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f"{path.name}.{os.getpid()}.kiln")
        temporary.write_bytes(value)
        temporary.replace(path)
    except Exception as error:
        Settings.say_once(f"a compiled model of vLLM's was not fetched: {error!r}", "")


def _publish(path: Path, coordinator: str) -> None:
    try:
        value = path.read_bytes()
        if len(value) > _MOST_BYTES:
            Settings.say_once(f"a compiled model of vLLM's is not shared: it has {len(value)} bytes, of at most "
                              f"{_MOST_BYTES}", "")
            return
        fleet_of(coordinator).put(KIND, key_of(path), value)
    except Exception as error:
        Settings.say_once(f"a compiled model of vLLM's was not shared: {error!r}", "")
