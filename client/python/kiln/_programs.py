"""The ``kiln`` command: the program that came with the wheel."""

from __future__ import annotations

import os
import sys
from typing import NoReturn


def kiln() -> NoReturn:
    """Becomes the program, with this process's arguments."""
    path = os.path.join(os.path.dirname(__file__), "_bin", "kiln")
    if not os.path.exists(path):
        sys.exit(f"kiln: {path} is not there: install the wheel (ops/wheel), or run the kiln that you built")
    os.execv(path, [path, *sys.argv[1:]])
