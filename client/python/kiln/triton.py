"""Triton's kernels through the coordinator: ``TRITON_CACHE_MANAGER=kiln.triton:Manager``.

Triton compiles a kernel into a group of files (its IR, the binary, their metadata). The manager keeps groups where
Triton's own does, on this machine, and shares whole ones through the coordinator at ``$KILN_COORDINATOR``: of several
processes that miss the same kernel one compiles it and the others wait for it. A coordinator that is away costs one
deadline in a process and no compile. Single files, such as the launchers that Triton builds for the host, stay here.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import json
import os
import re
from typing import Any

from triton.runtime.cache import FileCacheManager

from kiln._fleet import fleet_of

_KIND = "triton.group"
_FORMAT = 1
_MOST_BYTES = 11 << 20  # as base64 they are an artifact's 16 MiB
_NAME = re.compile(r"[A-Za-z0-9_+-][A-Za-z0-9_.+-]{0,199}")


def packed(group: dict[str, str]) -> bytes | None:
    """The files of a group as one artifact; None where it cannot be shared."""
    files, size = {}, 0
    for name, path in group.items():
        with open(path, "rb") as file:
            content = file.read()
        size += len(content)
        if size > _MOST_BYTES or not _is_name(name):
            return None
        files[name] = base64.b64encode(content).decode()
    return json.dumps({"format": _FORMAT, "files": files}).encode()


def unpacked(value: bytes, filename: str) -> dict[str, bytes] | None:
    """The files of an artifact; None unless it is a whole group, with the file that names it."""
    try:
        told = json.loads(value)
        if told["format"] != _FORMAT:
            return None
        files = {name: base64.b64decode(content, validate=True) for name, content in told["files"].items()}
    except (ValueError, TypeError, LookupError, AttributeError, binascii.Error):
        return None
    return files if filename in files and all(map(_is_name, files)) else None


def _is_name(name: str) -> bool:
    # Of a file in the group's own folder, which is no other group's list.
    return _NAME.fullmatch(name) is not None and not name.startswith("__grp__")


class Manager(FileCacheManager):  # type: ignore[misc]
    """Triton makes one for each kernel that it looks up or compiles."""

    def __init__(self, key: str, override: bool = False, dump: bool = False) -> None:
        super().__init__(key, override=override, dump=dump)
        coordinator = os.environ.get("KILN_COORDINATOR")
        self._fleet = fleet_of(coordinator) if coordinator and not override and not dump else None
        self._missed: str | None = None  # a group that this process is to compile

    def get_group(self, filename: str) -> dict[str, str] | None:
        """The paths of a kernel's files, all of them or None."""
        kept: dict[str, str] | None = super().get_group(filename)
        if kept and filename in kept and len(kept) == self._listed(filename):
            return kept
        if self._fleet is None:
            return None
        name = f"{self.key}/{filename}"
        value = self._fleet.get(_KIND, name, lease=True)
        files = unpacked(value, filename) if value is not None else None
        if files is None:
            self._missed = name
            return None
        paths = {each: self.put(content, each) for each, content in files.items()}
        super().put_group(filename, paths)
        return paths

    def put_group(self, filename: str, group: dict[str, str]) -> Any:
        """Keeps the group, here and on the coordinator."""
        kept = super().put_group(filename, group)
        if self._fleet is not None:
            value = None
            with contextlib.suppress(OSError):
                value = packed(group)
            if value is not None:
                self._fleet.put(_KIND, f"{self.key}/{filename}", value)
                self._missed = None
        return kept

    def _listed(self, filename: str) -> int:
        """How many files the group here is said to have."""
        try:
            with open(self._make_path(f"__grp__{filename}")) as file:
                return len(json.load(file)["child_paths"])
        except (OSError, ValueError, LookupError, TypeError):
            return -1

    def __del__(self) -> None:
        # A kernel that did not compile is never put: its lease ends here, and not with its time.
        if getattr(self, "_missed", None) is not None and self._fleet is not None:
            with contextlib.suppress(Exception):
                self._fleet.release(_KIND, self._missed)
