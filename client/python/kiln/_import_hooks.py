"""Functions that are run on a module of somebody else's when it loads."""

from __future__ import annotations

import contextlib
import importlib.abc
import importlib.machinery
import sys
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

from kiln._settings import Settings

Hook = Callable[[ModuleType], None]


def when_loaded(hooks: Mapping[str, Hook]) -> None:
    """Runs each hook on the module of its name: now, or right after it loads. Imports nothing."""
    later = dict(hooks)
    for name in [name for name in later if name in sys.modules]:
        run(later.pop(name), sys.modules[name])
    if later:
        sys.meta_path.insert(0, _Finder(later))


def run(hook: Hook, module: ModuleType) -> None:
    """Runs a hook, whose exceptions are said once and go no further."""
    try:
        hook(module)
    except Exception as error:
        Settings.say_once(f"{module.__name__} is not as Kiln knows it ({error!r}): Kiln changes nothing there", "")


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, hooks: dict[str, Hook]) -> None:
        self._hooks = hooks

    def find_spec(self, fullname: str, path: Sequence[str] | None,
                  target: ModuleType | None = None) -> importlib.machinery.ModuleSpec | None:
        hook = self._hooks.pop(fullname, None)
        if hook is None:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            loader: Any = spec.loader
            execute = loader.exec_module

            def execute_and_hook(module: ModuleType) -> None:
                execute(module)
                run(hook, module)

            with contextlib.suppress(AttributeError):  # a loader that takes no attributes loads without us
                loader.exec_module = execute_and_hook
        return spec
