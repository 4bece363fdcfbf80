"""Environments with tools from PyPI that tests of ops/ check with: made once, in the user's cache."""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path


def environment(*installs: list[str]) -> Path | None:
    """A virtual environment after these calls of `pip install`; None where PyPI does not give it."""
    key = hashlib.sha256(repr((installs, sys.version)).encode()).hexdigest()[:12]
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    folder = cache / "kiln" / "ops" / key
    if (folder / "complete").exists():
        return folder
    try:
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", folder], check=True, capture_output=True)
        for install in installs:
            subprocess.run([folder / "bin" / "python", "-m", "pip", "install", "--quiet", *install], check=True,
                           capture_output=True, timeout=300)
    except (subprocess.SubprocessError, OSError):
        return None
    (folder / "complete").touch()
    return folder
