"""The wheel: built, installed into a clean environment, used there; and the older glibc that it is bound to."""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from conftest import BUILD, ROOT

SCRIPT = """
import kiln, sys
assert not {"torch", "numpy"} & set(sys.modules)
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

# Python 3.9 is too old for the package, and ctypes needs none.
ON_AN_OLDER_GLIBC = """
set -eu
mount -t proc proc "$1/proc"
mount --rbind /dev "$1/dev"
exec chroot "$1" sh -euc '
  getconf GNU_LIBC_VERSION
  cd /opt/kiln
  python3 -c "import ctypes
library = ctypes.CDLL(\\"kiln/_lib/libkiln.so\\")
library.kiln_version.restype = ctypes.c_char_p
print(library.kiln_version().decode())"
  export PATH=/opt/kiln/kiln/_bin:$PATH KILN_CACHE_DIR=
  kiln run softmax.pt2 --expect softmax.safetensors
  kiln up --http none --data-dir data --listen tcp://127.0.0.1:0 >up.log 2>up.err & up=$!
  for i in $(seq 600); do grep -q "^ready " up.log && break; sleep 0.1; done
  export KILN_COORDINATOR="$(sed -n "s/^ready //p" up.log)"
  kiln compile softmax.pt2 --mode max-autotune --no-fallback || { cat up.err; exit 1; }
  kill $up; wait $up
'
"""


def run(*command: object) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("KILN_", "PYTHON"))}
    done = subprocess.run([str(each) for each in command], capture_output=True, text=True, env=environment,
                          cwd=ROOT, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel() -> Path:
    return ROOT / run("ops/wheel", "--build-dir", BUILD).strip()


def test_the_wheel_works_in_a_clean_environment(wheel: Path, tmp_path: Path, graphs: Path) -> None:
    assert wheel.name == "kiln-0.1.0-py3-none-manylinux_2_28_x86_64.whl"
    run(sys.executable, "-m", "venv", tmp_path / "venv")
    python = tmp_path / "venv" / "bin" / "python"
    run(python, "-m", "pip", "install", "--quiet", "--no-index", wheel)
    version, file = run(python, "-c", SCRIPT, graphs / "small" / "softmax.pt2").split()
    assert version == "0.1.0" and file.startswith(str(tmp_path))
    assert run(tmp_path / "venv" / "bin" / "kiln", "--version").startswith("kiln 0.1.0 (commit ")
    # torch finds the backend by its name.
    run(python, "-m", "pip", "install", "--quiet", "--no-index", "--target", tmp_path / "beside", wheel)
    run("env", f"PYTHONPATH={tmp_path / 'beside'}", "KILN_CACHE_DIR=", sys.executable, "-c", WITH_TORCH)
    # The wheel leaves out only libraries that every manylinux system has; the C++ runtime it has itself.
    needed = run("ldd", tmp_path / "beside" / "kiln" / "_lib" / "libkiln.so")
    outside = {line.split()[0].split(".so")[0] for line in needed.splitlines() if str(tmp_path) not in line}
    assert {name.rpartition("/")[2] for name in outside} <= {
        "linux-vdso", "libc", "libm", "libgcc_s", "ld-linux-x86-64", "libpthread", "libdl", "librt", "libresolv",
        "libz"}


def test_every_python_of_this_machine_runs_it(wheel: Path, tmp_path: Path, graphs: Path) -> None:
    """Every Python from 3.10 on, without torch and NumPy."""
    run(sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--target", tmp_path, wheel)
    named = [shutil.which(f"python3.{minor}") for minor in range(10, 16)]
    kept = sorted(Path.home().glob(".pyenv/versions/3.1?.*/bin/python3"))
    pythons = [each for each in (sys.executable, *named, *kept)
               if each and subprocess.run([each, "-c", ""], capture_output=True, check=False).returncode == 0]
    for python in pythons:
        said = run("env", f"PYTHONPATH={tmp_path}", "KILN_CACHE_DIR=", python, "-c", SCRIPT,
                   graphs / "small" / "softmax.pt2")
        assert said.split()[0] == "0.1.0", python


def test_it_works_on_an_older_glibc(wheel: Path, graphs: Path) -> None:
    """Debian 11's, 2.31: no archive at hand has an older one."""
    if os.geteuid() != 0 or not shutil.which("debootstrap"):
        pytest.skip("no root, or no debootstrap (ops/setup --package)")
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        packages = ["--download-only", "--variant=minbase", "--include=g++,python3", "bullseye"]
        if subprocess.run(["debootstrap", *packages, root], capture_output=True, check=False).returncode != 0:
            pytest.skip("no archive to take Debian 11 from")
        for package in (root / "var/cache/apt/archives").glob("*.deb"):  # installing takes three times as long
            run("dpkg-deb", "-x", package, root)
        run(sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--target", root / "opt" / "kiln", wheel)
        for name in ("softmax.pt2", "softmax.safetensors"):
            shutil.copy(graphs / "small" / name, root / "opt" / "kiln")
        said = run("unshare", "--mount", "sh", "-c", ON_AN_OLDER_GLIBC, "sh", root)
    assert said.startswith("glibc 2.31\n0.1.0") and " ok, " in said and " tuned " in said, said


def test_what_glibc_2_28_lacks_is_made_of_what_it_has(tmp_path: Path, graphs: Path) -> None:
    # In front of this machine's glibc, and not looking for its better functions.
    source = (ROOT / "ops/older_glibc/stand_ins.c").read_text()
    (tmp_path / "stand_ins.c").write_text(source.replace("__attribute__((constructor))", "__attribute__((unused))"))
    run("gcc", "-O2", "-shared", "-fPIC", tmp_path / "stand_ins.c", "-o", tmp_path / "stand_ins.so", "-lresolv")
    library = ctypes.CDLL(str(tmp_path / "stand_ins.so"))

    status = ctypes.create_string_buffer(144)
    assert library.stat(str(tmp_path / "stand_ins.c").encode(), status) == 0
    assert ctypes.c_int64.from_buffer(status, 48).value == (tmp_path / "stand_ins.c").stat().st_size
    library.sigdescr_np.restype = ctypes.c_char_p
    assert [library.sigdescr_np(signal) for signal in (0, 11, 40)] == [None, b"Segmentation fault", None]
    mutex, condition = ctypes.create_string_buffer(40), ctypes.create_string_buffer(48)
    end = time.monotonic_ns() + 50_000_000
    until = (ctypes.c_int64 * 2)(*divmod(end, 1_000_000_000))
    ctypes.CDLL(None).pthread_mutex_lock(mutex)
    assert library.pthread_cond_clockwait(condition, mutex, time.CLOCK_MONOTONIC, until) == errno.ETIMEDOUT
    assert time.monotonic_ns() >= end - 1_000_000  # the clocks are read one after the other

    # A compiler works in a folder of its own: env(1) goes there.
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "env").write_text(f'#!/bin/sh\necho "$1" >>{tmp_path / "asked"}\nexec /usr/bin/env "$@"\n')
    (tmp_path / "bin" / "env").chmod(0o755)
    small = graphs / "small"
    run("env", f"LD_PRELOAD={tmp_path / 'stand_ins.so'}", "KILN_CACHE_DIR=",
        f"PATH={tmp_path / 'bin'}:{os.environ['PATH']}",
        BUILD / "bin" / "kiln", "run", small / "softmax.pt2", "--expect", small / "softmax.safetensors")
    assert "--chdir=" in (tmp_path / "asked").read_text()


def test_what_neither_glibc_2_28_nor_the_stand_ins_have_is_found(tmp_path: Path) -> None:
    older = ROOT / "ops" / "older_glibc"
    (tmp_path / "version").write_text("GLIBC_2.2.5 { *; };")
    run("gcc", "-shared", "-fPIC", older / "stand_ins.c", "-o", tmp_path / "stand_ins.so", "-lresolv",
        f"-Wl,--version-script={tmp_path / 'version'}")
    (tmp_path / "newer.c").write_text(
        "int close_range(), sigdescr_np(), dlopen();\n"
        "int newer(void) { return close_range() + sigdescr_np() + dlopen(); }\n")
    run("gcc", "-shared", "-fPIC", tmp_path / "newer.c", "-o", tmp_path / "newer.so")
    bound = subprocess.run([sys.executable, older / "bind.py", tmp_path / "stand_ins.so", tmp_path / "newer.so"],
                           capture_output=True, text=True, check=False)
    assert bound.returncode == 1 and bound.stderr.splitlines()[:-1] == ["newer.so needs close_range"], bound
