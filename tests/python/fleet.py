"""What the tests of Inductor's fleet cache share: coordinators, and processes that compile."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import Any

from conftest import BUILD, ROOT

CHILD_S = 400


class Coordinator:
    """A coordinator without workers, on a data directory, until ``stop``."""

    def __init__(self, data: Path, *options: str, http: str = "none") -> None:
        self.data = data
        ready = data.parent / f"{data.name}.ready"
        ready.unlink(missing_ok=True)
        with open(data.parent / f"{data.name}.log", "a") as log:
            self.process = subprocess.Popen(
                [BUILD / "bin" / "kiln-coordinator", "--data-dir", data, "--listen", "tcp://127.0.0.1:0", "--http",
                 http, "--ready-file", ready, *options], stdout=subprocess.DEVNULL, stderr=log)
        until = time.monotonic() + 60
        while not ready.exists() and self.process.poll() is None and time.monotonic() < until:
            time.sleep(0.05)
        assert ready.exists(), (data.parent / f"{data.name}.log").read_text()
        self.endpoint: str = json.loads(ready.read_text())["endpoint"]

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(60)

    def artifacts(self, kind: str = "inductor") -> list[dict[str, Any]]:
        """What ``kiln cache ls`` says of them."""
        listed: list[dict[str, Any]] = json.loads(kiln("cache", "ls", "--kind", kind, "--limit", "0", "--json",
                                                       "--data-dir", self.data))["entries"]
        return listed

    def stats(self, kind: str, key: Path | None = None) -> dict[str, int]:
        """What ``kiln stats`` counts of one kind."""
        told = json.loads(kiln("stats", "--json", "--coordinator", self.endpoint, *(["--key", key] if key else [])))
        return next((each for each in told["artifacts"] if each["kind"] == kind), {"hits": 0, "joined": 0, "stored": 0})


def kiln(*arguments: object, cwd: Path | None = None) -> str:
    done = subprocess.run([BUILD / "bin" / "kiln", *map(str, arguments)], capture_output=True, text=True, cwd=cwd)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def install(folder: Path) -> Path:
    """A folder for PYTHONPATH that has the package's entry points, as if the wheel were installed."""
    project = tomllib.loads((ROOT / "client" / "python" / "pyproject.toml").read_text())["project"]
    info = folder / "kiln-0.1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: kiln\nVersion: 0.1.0\n")
    groups = project["entry-points"]
    (info / "entry_points.txt").write_text("".join(
        f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in groups[group].items()) for group in groups))
    return folder


def start(what: str, coordinator: str, disk: Path, installed: Path, **environment: str) -> subprocess.Popen[str]:
    """A process that compiles with unmodified Inductor on a disk of its own."""
    given = {**os.environ, "KILN_COORDINATOR": coordinator, "TORCHINDUCTOR_CACHE_DIR": str(disk),
             "PYTHONPATH": f"{installed}:{os.environ['PYTHONPATH']}", "KILN_INDUCTOR_TIMEOUT_MS": "60000",
             "TORCHINDUCTOR_COMPILE_THREADS": "1", "TORCHINDUCTOR_VEC_ISA_OK": "1", **environment}
    return subprocess.Popen([sys.executable, Path(__file__).parent / "inductor_child.py", what], env=given,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def end(process: subprocess.Popen[str]) -> tuple[dict[str, Any], str]:
    """What it printed, and its stderr."""
    try:
        out, err = process.communicate(timeout=CHILD_S)
    finally:
        process.kill()
    assert process.returncode == 0, out + err
    told: dict[str, Any] = json.loads(out.splitlines()[-1])
    assert told["error"] < 1e-4
    return told, err
