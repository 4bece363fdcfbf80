"""The wheel: built, installed into a clean environment, used there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from conftest import BUILD, ROOT

SCRIPT = """
import kiln, sys
program = kiln.Client().compile(sys.argv[1])
assert program.outputs[0].sizes == program.inputs[0].sizes, program
print(kiln.__version__, kiln.__file__)
"""

WITH_TORCH = """
import torch
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU())
x = torch.randn(4, 8)
torch.testing.assert_close(torch.compile(model, backend="kiln")(x), model(x))
assert "kiln" in torch._dynamo.list_backends()
"""


def run(*command: object) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("KILN_", "PYTHON"))}
    done = subprocess.run([str(each) for each in command], capture_output=True, text=True, env=environment,
                          cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_wheel_works_in_a_clean_environment(tmp_path: Path, graphs: Path) -> None:
    wheel = ROOT / run("ops/wheel", "--build-dir", BUILD).strip()
    assert wheel.name.startswith("kiln-0.1.0-py3-none-manylinux_2_")
    run(sys.executable, "-m", "venv", tmp_path / "venv")
    python = tmp_path / "venv" / "bin" / "python"
    run(python, "-m", "pip", "install", "--quiet", "--no-index", wheel)
    version, file = run(python, "-c", SCRIPT, graphs / "small" / "softmax.pt2").split()
    assert version == "0.1.0" and file.startswith(str(tmp_path))
    assert run(tmp_path / "venv" / "bin" / "kiln", "--version").startswith("kiln 0.1.0 (commit ")
    # torch finds the backend by its name.
    run(python, "-m", "pip", "install", "--quiet", "--no-index", "--target", tmp_path / "beside", wheel)
    run("env", f"PYTHONPATH={tmp_path / 'beside'}", "KILN_CACHE_DIR=", sys.executable, "-c", WITH_TORCH)
    # The wheel leaves out only libraries that every manylinux system has.
    needed = run("ldd", next((tmp_path / "venv").glob("lib/python*/site-packages/kiln/_lib/libkiln.so")))
    outside = {line.split()[0].split(".so")[0] for line in needed.splitlines() if str(tmp_path) not in line}
    assert {name.rpartition("/")[2] for name in outside} <= {
        "linux-vdso", "libc", "libm", "libstdc++", "libgcc_s", "ld-linux-x86-64", "libpthread", "libdl", "librt",
        "libresolv", "libz"}
