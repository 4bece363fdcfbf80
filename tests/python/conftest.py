"""Fixtures of the suites: graphs of the repository, and a service."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ["KILN_BUILD_DIR"])


@pytest.fixture(autouse=True)
def _own_caches(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test finds what another one compiled."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path_factory.mktemp("torch")))


@pytest.fixture(scope="session")
def graphs() -> Path:
    return ROOT / "tests" / "graphs"


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The endpoint of a service with one worker."""
    data = tmp_path_factory.mktemp("service")
    ready = data / "ready"
    with open(data / "log", "w") as log:
        process = subprocess.Popen(
            [BUILD / "bin" / "kiln", "up", "--data-dir", data / "data", "--listen", "tcp://127.0.0.1:0"],
            stdout=open(ready, "w"), stderr=log)
    try:
        for _ in range(300):
            lines = [line for line in ready.read_text().splitlines() if line.startswith("ready ")]
            if lines or process.poll() is not None:
                break
            time.sleep(0.1)
        assert lines, (data / "log").read_text()
        yield lines[0].split()[1]
    finally:
        process.terminate()
        process.wait(60)
