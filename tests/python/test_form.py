"""ruff and mypy --strict over the package; ruff over the tools and tests beside it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from conftest import ROOT

PACKAGE = ROOT / "client" / "python"


def test_ruff_and_mypy_are_clean() -> None:
    cache = Path(sys.prefix) / ".mypy_cache"
    for command in (["ruff", "check", "--no-cache", "."],
                    ["ruff", "check", "--no-cache", "--config", "pyproject.toml", "--ignore", "I001",
                     *(ROOT / folder for folder in ("ops/docs", "ops/older_glibc", "tests/ops", "tests/page", "tests/zoo"))],
                    ["mypy", "--config-file", "pyproject.toml", "--cache-dir", cache, "kiln"]):
        done = subprocess.run([sys.executable, "-m", *map(str, command)], capture_output=True, text=True, cwd=PACKAGE)
        assert done.returncode == 0, done.stdout + done.stderr
