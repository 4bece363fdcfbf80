"""The documents: links lead somewhere, quotations are in their files, and commands print what is shown."""

import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from transcripts import FENCE, Session, agree, commands_of, differences

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("KILN_BUILD_DIR", ROOT / "build" / "release"))
QUOTED = re.compile(r"<!-- from: (\S+) -->\n```\w*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
MODEL = f"cp {ROOT / 'tests' / 'graphs' / 'small' / 'softmax.pt2'} model.pt2"
SERVICE = "kiln up --data-dir data\nexport KILN_COORDINATOR=tcp://127.0.0.1:7557"
# A coordinator that takes keys, with a worker, as docs/operations.md makes them.
KEYS = """kiln keys new ci --role submit --data-dir /var/lib/kiln
kiln keys new gpu7 --role worker --data-dir /var/lib/kiln
kiln keys new ops --role admin --data-dir /var/lib/kiln
kiln-coordinator --data-dir /var/lib/kiln --listen tcp://0.0.0.0:7557
kiln-worker --coordinator tcp://HOST:7557 --key gpu7.key --name gpu7"""
COLD = "KILN_KEY=ci.key kiln compile model.pt2 --mode max-autotune --coordinator tcp://HOST:7557"
ELSEWHERE = frozenset({"./ops/quickstart"})  # CI's own first command on a new machine


class Transcripts(unittest.TestCase):
    """The comparison itself."""

    def test_numbers_digests_and_spaces_may_differ(self) -> None:
        self.assertTrue(agree(["a.pt2  613115671c23  tuned  5.912 s"], ["a.pt2 0123456789ab  tuned 25.1 s"]))
        self.assertFalse(agree(["a.pt2  613115671c23  tuned  5.912 s"], ["a.pt2 0123456789ab  hit 25.1 s"]))

    def test_dots_stand_for_any_lines(self) -> None:
        self.assertTrue(agree(["...", "end"], ["one", "two", "end"]))
        self.assertTrue(agree(["..."], []))
        self.assertFalse(agree(["one"], ["one", "two"]))
        self.assertFalse(agree(["...", "end"], ["one"]))

    def test_comments_are_no_part_of_a_command(self) -> None:
        [first, second] = commands_of("$ kiln up --data-dir d     # in a terminal\nready\n$ true\n")
        self.assertEqual((first.line, first.output, second.line), ("kiln up --data-dir d", ["ready"], "true"))


class Documents(unittest.TestCase):
    def test_links_and_anchors_lead_somewhere(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run([ROOT / "ops" / "site", folder], capture_output=True, text=True, check=False,
                                  timeout=600)
            if done.returncode == 77:
                self.skipTest(done.stderr)
            self.assertEqual(done.returncode, 0, done.stderr)
            pages = {str(page.relative_to(folder)) for page in Path(folder).rglob("*.html")}
            self.assertIn("index.html", pages)
            for document in (ROOT / "docs").glob("*.md"):
                self.assertIn(f"{document.stem}.html", pages)
            self.assertIn('href="source/client/kiln.h.txt"', (Path(folder) / "index.html").read_text())

    def test_plots_are_as_their_tables_say(self) -> None:
        done = subprocess.run([sys.executable, "-B", ROOT / "ops" / "docs" / "plots.py", "--check"],
                              capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_quotations_are_in_their_files(self) -> None:
        found = [(document.name, *quotation) for document in (ROOT / "docs").glob("*.md")
                 for quotation in QUOTED.findall(document.read_text())]
        self.assertGreaterEqual(len(found), 5)
        for document, path, quotation in found:
            self.assertIn(quotation, (ROOT / path).read_text(), f"{document} quotes {path} as it is not")

    def test_every_threat_has_its_test(self) -> None:
        """docs/security.md: `NAME` is a suite, what follows it begins the name of a test in it."""
        text = (ROOT / "docs" / "security.md").read_text()
        rows = re.findall(r"^\| (?!who )\w.*$", text.split("## Threat model")[1].split("\n## ")[0], re.MULTILINE)
        self.assertGreaterEqual(len(rows), 40)
        for row in rows:
            cells = row.strip("| ").split(" | ")
            self.assertEqual(len(cells), 4, row)
            named = re.findall(r"`((?:[a-z]+: )?[a-z_]+)`([^`]*)", cells[3])
            self.assertTrue(named, row)
            for suite, words in named:
                source = self.source_of(suite)
                for word in re.findall(r"\b(?:[A-Z][A-Za-z0-9]*[a-z][A-Z][A-Za-z0-9]*|test_\w+)", words):
                    self.assertTrue(re.search(rf"\b{word}", source), f"docs/security.md: {suite} has no test {word}")

    def source_of(self, suite: str) -> str:
        where, _, name = suite.rpartition(": ")
        pattern = {"python": f"test_{name}.py", "fuzz": f"{name}_fuzz.cc"}.get(where) or (
            f"{name}.cc" if name.endswith("_test") else f"test_{name}.py")
        found = list((ROOT / "tests").rglob(pattern))
        self.assertEqual(len(found), 1, f"docs/security.md names {suite}")
        return found[0].read_text()

    def test_every_command_is_run_or_says_why_not(self) -> None:
        run = set(re.findall(r'self\.check\("([^"]+)"', Path(__file__).read_text()))
        for document in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
            name = str(document.relative_to(ROOT))
            for not_run, _, block in FENCE.findall(document.read_text()):
                if block.startswith("$ ") and not not_run:
                    self.assertIn(name, run, f"no test runs the commands of {name}: {block}")

    def check(self, document: str, before: str = "") -> None:
        """Runs a document's commands. `before`: what an earlier page has made, as commands."""
        path = [BUILD / "bin"]
        if re.search(r"^```python\n# \w+\.py|^\$ python", (ROOT / document).read_text(), re.MULTILINE):
            asked = subprocess.run([ROOT / "ops" / "python", "--print"], capture_output=True, text=True, check=True)
            if not asked.stdout.strip():
                self.skipTest("there is no Python environment with PyTorch: ops/python makes one")
            path.append(Path(asked.stdout.strip()) / "bin")
        session = Session(path)
        self.addCleanup(session.close)
        for line in before.splitlines():
            session.run(line)
        self.assertEqual(differences(ROOT / document, session, ELSEWHERE), [])

    def test_the_first_five_minutes(self) -> None:
        self.check("docs/start.md")

    def test_ci(self) -> None:
        self.check("docs/ci.md", f"{SERVICE}\n{MODEL}")

    def test_the_command_line(self) -> None:
        self.check("docs/cli.md", f"{SERVICE}\n{MODEL}\nmkdir models; cp model.pt2 models/a.pt2\n"
                                  "cp data/signing/ed25519.pub .")

    def test_operations(self) -> None:
        self.check("docs/operations.md", MODEL)

    def test_security(self) -> None:
        self.check("docs/security.md", f"{KEYS}\n{MODEL}\n{COLD}")

    def test_the_page(self) -> None:
        self.check("docs/page.md", KEYS)

    def test_the_readme(self) -> None:
        self.check("README.md")


if __name__ == "__main__":
    unittest.main()
