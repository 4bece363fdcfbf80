"""accelerate, and with it transformers' ``TrainingArguments(torch_compile_backend="kiln")``, take Kiln as a backend of
torch.compile. They look a backend's name up in an enumeration of those they know, and refuse every other."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from kiln._import_hooks import when_loaded

_NAME = "KILN"


def install() -> None:
    """Hooks accelerate's enumeration, now or when it loads. Imports nothing of it."""
    when_loaded({"accelerate.utils.dataclasses": _add_backend})


def _add_backend(module: ModuleType) -> None:
    backends: Any = module.DynamoBackend
    if _NAME in backends.__members__:
        return
    member = str.__new__(backends, _NAME)
    member._name_ = member._value_ = _NAME
    missing = backends._missing_
    backends._missing_ = classmethod(
        lambda _, value: member if value == _NAME else missing(value))
