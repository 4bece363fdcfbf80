"""Processes of torch.distributed that compile through one coordinator do not hang, with ranks that are warm and one
that is killed. distributed.py by hand repeats it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from fleet import CHILD_S, install


def test_no_rank_hangs(service: str, tmp_path: Path) -> None:
    given = {**os.environ, "PYTHONPATH": f"{install(tmp_path / 'site')}:{os.environ['PYTHONPATH']}"}
    done = subprocess.run([sys.executable, Path(__file__).parent / "distributed.py", service, "--repetitions", "2",
                           "--processes", "4", "--folder", tmp_path], env=given, check=False, capture_output=True,
                          text=True, timeout=2 * CHILD_S)
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["repetitions"] == 2 and told["hung"] == told["failed"] == 0
