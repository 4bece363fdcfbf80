"""vLLM and SGLang, from PyPI, on the CPU: Kiln compiles their pieces, and vLLM's compiled models are shared.

Each run imports one of them, which takes many seconds: ``./ops/test --python-all`` runs them, with ``KILN_SERVING=1``.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT
from fleet import CHILD_S, Coordinator, install
from kiln import _serving

EXAMPLES = Path(__file__).parent / "stacks"
PIECES = 4  # three layers, cut at their attention


@pytest.fixture(scope="module")
def python() -> Path:
    """The interpreter of an environment with both."""
    if os.environ.get("KILN_SERVING") != "1":
        pytest.skip("vLLM and SGLang are tried where KILN_SERVING is 1, as in ./ops/test --python-all")
    found = subprocess.run([ROOT / "ops" / "python", "--print", "serving"], check=True, capture_output=True, text=True)
    if not found.stdout.strip():
        pytest.skip("there is no environment with vLLM and SGLang; `ops/python serving` makes one")
    return Path(found.stdout.strip()) / "bin" / "python"


def run(python: Path, example: str, disk: Path, **environment: str) -> tuple[dict[str, Any], str]:
    """What an example printed, on a disk of its own, and its stderr."""
    installed = disk / "site"
    if not installed.exists():
        install(installed)
    given = {**os.environ, "PYTHONPATH": f"{installed}:{os.environ['PYTHONPATH']}", "HF_HUB_OFFLINE": "1",
             "KILN_STRICT": "1", "KILN_INDUCTOR_TIMEOUT_MS": "60000", "VLLM_CACHE_ROOT": str(disk / "vllm"),
             "SGLANG_CACHE_DIR": str(disk / "sglang"), "TORCHINDUCTOR_CACHE_DIR": str(disk / "torch"), **environment}
    done = subprocess.run([python, EXAMPLES / example], env=given, check=False, capture_output=True, text=True,
                          timeout=CHILD_S)
    assert done.returncode == 0, done.stdout + done.stderr
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert told["error"] < 1e-5
    return told, done.stderr


def test_vllm_has_its_pieces_compiled_and_finds_them_on_its_own_disk(python: Path, tmp_path: Path) -> None:
    told, _ = run(python, "vllm_piecewise.py", tmp_path, KILN_VLLM="default")
    assert told["backend"] == "kiln.vllm.KilnCompiler"
    # One size and the range of all sizes, each piece once.
    assert (told["pieces"], told["inductor"], told["saved"], told["loaded"]) == (2 * PIECES, 0, 1, 0)
    told, _ = run(python, "vllm_piecewise.py", tmp_path, KILN_VLLM="default")
    assert (told["pieces"], told["inductor"], told["saved"], told["loaded"]) == (0, 0, 0, 1)


def test_vllms_file_without_pieces_has_them_compiled_again(python: Path, tmp_path: Path) -> None:
    for loaded in (0, 1):  # as vLLM does with PyTorch before 2.12
        told, _ = run(python, "vllm_piecewise.py", tmp_path, KILN_VLLM="default", VLLM_USE_MEGA_AOT_ARTIFACT="0")
        assert (told["pieces"], told["inductor"], told["loaded"]) == (2 * PIECES, 0, loaded)


def test_vllms_compiled_models_are_shared(python: Path, service: str, tmp_path: Path) -> None:
    for disk, loaded in (("first", 0), ("second", 1)):
        told, said = run(python, "vllm_piecewise.py", tmp_path / disk, KILN_VLLM="max-autotune",
                         KILN_COORDINATOR=service)
        assert told["backend"] == "kiln.vllm.MaxAutotuneCompiler"
        assert (told["pieces"], told["loaded"]) == (0 if loaded else 2 * PIECES, loaded), said


def test_a_coordinator_that_is_away_costs_vllm_nothing(python: Path, tmp_path: Path) -> None:
    coordinator = Coordinator(tmp_path / "data")
    coordinator.stop()
    # Programs then come from this machine's compiler.
    told, said = run(python, "vllm_piecewise.py", tmp_path, KILN_VLLM="default", KILN_COORDINATOR=coordinator.endpoint)
    assert (told["inductor"], told["saved"]) == (0, 1)
    assert "does not answer in time" in said


def test_sglang_has_its_pieces_its_functions_and_its_model_compiled(python: Path, tmp_path: Path) -> None:
    told, _ = run(python, "sglang_piecewise.py", tmp_path, KILN_SGLANG="default")
    assert (told["compiler"], told["decorated"], told["pieces"], told["inductor"]) == ("kiln", "kiln", PIECES, 0)


def test_nothing_is_hooked_unless_it_is_asked_for(python: Path, tmp_path: Path) -> None:
    told, _ = run(python, "sglang_piecewise.py", tmp_path, KILN_SGLANG="off")
    assert (told["compiler"], told["decorated"]) == ("inductor", "inductor")


@pytest.mark.parametrize(("value", "mode"), [("", None), ("off", None), ("default", "default"), ("fast", None),
                                             ("MAX-AUTOTUNE", "max-autotune")])
def test_the_switch_names_a_mode(value: str, mode: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KILN_VLLM", value)
    assert _serving.mode_of("KILN_VLLM") == mode
