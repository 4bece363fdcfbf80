"""The stacks that people train and serve with, from PyPI, through the backend: examples that docs/stacks.md shows."""

from __future__ import annotations

import copy
import enum
import os
import subprocess
import types
from pathlib import Path

import pytest
from conftest import ROOT
from fleet import CHILD_S, install
from kiln import _accelerate

EXAMPLES = Path(__file__).parent / "stacks"


@pytest.fixture(scope="module")
def python() -> Path:
    """The interpreter of an environment with the stacks."""
    found = subprocess.run([ROOT / "ops" / "python", "--print", "stacks"], check=True, capture_output=True, text=True)
    if not found.stdout.strip():
        pytest.skip("there is no environment with transformers and Lightning; `ops/python stacks` makes one")
    return Path(found.stdout.strip()) / "bin" / "python"


@pytest.mark.parametrize("example", ["generate.py", "exported_step.py", "train.py", "fit.py"])
def test_an_example_gives_what_eager_gives(example: str, python: Path, tmp_path: Path) -> None:
    given = {**os.environ, "PYTHONPATH": f"{install(tmp_path / 'site')}:{os.environ['PYTHONPATH']}",
             "HF_HUB_OFFLINE": "1", "KILN_STRICT": "1"}
    done = subprocess.run([python, EXAMPLES / example], env=given, check=False, capture_output=True, text=True,
                          timeout=3 * CHILD_S)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "generated " in done.stdout or "losses [" in done.stdout


def test_accelerates_backends_take_the_name() -> None:
    class DynamoBackend(str, enum.Enum):
        NO = "NO"
        INDUCTOR = "INDUCTOR"

    module = types.ModuleType("accelerate.utils.dataclasses")
    module.DynamoBackend = DynamoBackend  # type: ignore[attr-defined]
    for _ in range(2):
        _accelerate._add_backend(module)
        assert DynamoBackend("KILN").value == "KILN" and copy.deepcopy(DynamoBackend("KILN")) is DynamoBackend("KILN")
    assert DynamoBackend("NO") is DynamoBackend.NO
    with pytest.raises(ValueError, match="'FAST' is not a valid"):
        DynamoBackend("FAST")
