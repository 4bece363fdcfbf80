"""The CI templates: every command of Kiln's in them is one that the program takes, and it does its job at a service."""

import os
import re
import shutil
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(os.environ["KILN_BUILD_DIR"]).resolve() / "bin"
TEMPLATES = sorted((ROOT / "ops" / "ci").glob("*.yml"))


def commands(template: Path) -> list[str]:
    """Its lines that run kiln on models."""
    return re.findall(r"^\s*(?:-|run:|- run:)\s*(kiln (?:warm|compile) .*)$", template.read_text(), re.MULTILINE)


class Templates(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        (self.folder / "models").mkdir()
        shutil.copy(ROOT / "tests" / "graphs" / "small" / "softmax.pt2", self.folder / "models")
        with (self.folder / "up.log").open("w") as log:
            self.service = subprocess.Popen(
                [BIN / "kiln", "up", "--data-dir", self.folder / "data", "--http", "none", "--listen",
                 "tcp://127.0.0.1:0", "--device", "cpu"], stdout=log, stderr=log)
        self.addCleanup(self.stop)
        deadline = time.monotonic() + 60
        while not (ready := re.search(r"^ready (\S+)$", (self.folder / "up.log").read_text(), re.MULTILINE)):
            self.assertLess(time.monotonic(), deadline, (self.folder / "up.log").read_text())
            time.sleep(0.05)
        self.endpoint = ready[1]

    def stop(self) -> None:
        self.service.terminate()
        self.service.wait(30)

    def run_line(self, line: str) -> subprocess.CompletedProcess[str]:
        here = line.replace("cuda:sm_90a", "cpu")  # what a machine without a GPU has workers for
        environment = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", "KILN_COORDINATOR": self.endpoint}
        return subprocess.run(["bash", "-c", here], cwd=self.folder, env=environment, capture_output=True, text=True,
                              check=False, timeout=300)

    def test_tune_and_check(self) -> None:
        self.assertEqual([template.name for template in TEMPLATES], ["github.yml", "gitlab.yml"])
        lines = [line for template in TEMPLATES for line in commands(template)]
        self.assertEqual(len(lines), 6)
        check = next(line for line in lines if "--check" in line)
        self.assertEqual(self.run_line(check).returncode, 4, "nothing is tuned yet")
        for line in lines:
            done = self.run_line(line)
            # What was queued a moment ago may not be tuned yet; a wait for it comes before each check.
            self.assertEqual(done.returncode, 0, line + done.stdout + done.stderr)


if __name__ == "__main__":
    unittest.main()
