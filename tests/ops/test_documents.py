"""The documents: links lead somewhere, quotations are in their files, and commands print what is shown."""

import json
import os
import re
import subprocess
import sys
import tempfile
import tomllib
import unittest
from pathlib import Path

from store_servers import StoreServers
from transcripts import FENCE, Session, agree, commands_of, differences, not_run, python_of

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
PUBLISHER = """kiln keys new train --role publish --data-dir /var/lib/kiln
kiln-coordinator --data-dir /var/lib/kiln --listen tcp://0.0.0.0:7557"""
COLD = "KILN_KEY=ci.key kiln compile model.pt2 --mode max-autotune --coordinator tcp://HOST:7557"
ELSEWHERE = frozenset({"./ops/quickstart"})  # CI's own first command on a new machine
DOCUMENTS = [*(ROOT / f"{name}.md" for name in ("README", "ARCHITECTURE", "CONTRIBUTING")),
             *sorted((ROOT / "docs").glob("*.md"))]
# What docs/python.md has before its examples begin: a model, and a file that needs no weights.
A_MODEL = """
import kiln, torch
model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.GELU()).eval()
x = torch.randn(4, 64)
exported = torch.export.export(model, (x,))
torch.export.save(torch.export.export(torch.nn.Softmax(-1), (x,)), "model.pt2")
arrays, out, memory = [x.numpy()], torch.empty_like(x), torch.empty(1 << 20, dtype=torch.uint8)
input_addresses, output_addresses, stream, symbols = [x.data_ptr()], [out.data_ptr()], 0, ()
arena_address = memory.data_ptr() + -memory.data_ptr() % 256
"""


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


    def test_python_is_taken_with_what_it_prints(self) -> None:
        [first, second, third] = python_of("```python\na = 1\n```\n\n```python\nprint(a)\n```\n\n```\n1\n```\n"
                                           "```\n>>> a + 1\n```\n```python\n# file.py\n```\n")
        self.assertEqual((first.text, first.output), ("a = 1\n", None))
        self.assertEqual((second.text, second.output), ("print(a)\n", ["1"]))
        self.assertEqual((third.text, third.output), ("a + 1", []))

    def test_what_is_not_run_has_a_reason_that_is_known(self) -> None:
        self.assertTrue(not_run("it needs a GPU", ROOT))
        self.assertTrue(not_run("tests/system/takeover_test does it with three coordinators", ROOT))
        self.assertFalse(not_run("tests/system/no_such_test does it", ROOT))
        self.assertFalse(not_run("it fails", ROOT))


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
            self.assertRegex((Path(folder) / "start.html").read_text(), 'href="source/client/kiln.h.txt"')

    def test_plots_are_as_their_tables_say(self) -> None:
        done = subprocess.run([sys.executable, "-B", ROOT / "ops" / "docs" / "plots.py", "--check"],
                              capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_plots_of_searches_read_what_the_tuning_log_writes(self) -> None:
        said = subprocess.run([BUILD / "bin" / "kiln", "tune-log", "--columns"], capture_output=True, text=True,
                              check=True)
        columns = {line.split()[0] for line in said.stdout.splitlines()}
        records = sorted((ROOT / "docs" / "pictures").glob("*.jsonl"))
        self.assertTrue(records)
        for file in records:
            for line in file.read_text().splitlines():
                self.assertLessEqual(set(json.loads(line)), columns, file.name)

    def test_quotations_are_in_their_files(self) -> None:
        """Up to where lines end: the files are formatted for themselves."""
        found = [(document.name, *quotation) for document in DOCUMENTS
                 for quotation in QUOTED.findall(document.read_text())]
        self.assertGreaterEqual(len(found), 8)
        for document, path, quotation in found:
            self.assertIn("".join(quotation.split()), "".join((ROOT / path).read_text().split()),
                          f"{document} quotes {path} as it is not")

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
        for document in DOCUMENTS:
            name = str(document.relative_to(ROOT))
            for why, language, block in FENCE.findall(document.read_text()):
                if why:
                    self.assertTrue(not_run(why, ROOT), f"{name}: not run: {why}")
                elif block.startswith(("$ ", ">>> ")) or language == "python":
                    self.assertIn(name, run, f"no test runs the commands of {name}: {block}")
                else:
                    self.assertFalse(re.search(r"^(\./)?(ops|bin|build)/\w", block), f"{name}: no command: {block}")
            self.assertFalse(re.findall(r"^    (?:build|bin|ops|kiln)\b.*", document.read_text(), re.MULTILINE),
                             f"{name}: commands are in fences")

    def test_every_option_that_is_named_is_one(self) -> None:
        options = self.options()
        known = set().union(*options.values())
        folders = ("ops", "tests/gpu", "tests/simulation", "tests/zoo")
        scripts = "".join(path.read_text(errors="ignore") for folder in folders
                          for path in sorted((ROOT / folder).rglob("*")) if path.is_file())
        wrong = []
        for document in DOCUMENTS:
            text = document.read_text()
            for shown in re.findall(r"(?<!`)`([^`\n]+)`(?!`)", text) + re.findall(r"^\$ (.*)$", text, re.MULTILINE):
                for command in re.split(r"\||;|&&", re.split(r"\s{2,}#", shown)[0]):
                    words = [word for word in command.split() if not re.match(r"\w+=", word)] or [""]
                    program = " ".join(words[:2]) if words[0] == "kiln" else words[0]
                    named = {word.split("=")[0] for word in words if re.match(r"--[a-z]", word)}
                    if program in options:
                        wrong += [f"{document.name}: {command}: {each}" for each in named - options[program]]
                    elif re.match(r"kiln [a-z]", program):
                        wrong.append(f"{document.name}: {command}: no such command")
                    elif program.startswith("--"):
                        wrong += [f"{document.name}: {each}" for each in named - known if each not in scripts]
        self.assertEqual(wrong, [])

    def options(self) -> dict[str, set[str]]:
        """By program, and by command of `kiln`: those of the program are those of each command."""
        def said(*words: str) -> str:
            return subprocess.run([BUILD / "bin" / words[0], *words[1:]], capture_output=True, text=True,
                                  check=True).stdout

        def of(text: str) -> set[str]:
            return set(re.findall(r"(?<![\w-])--[a-z][\w-]*", text)) | {"--help", "--man", "--completion"}

        found = {program: of(said(program, "--help")) for program in ("kiln-coordinator", "kiln-worker")}
        for command in re.findall(r"^  ([a-z][\w-]*) ", said("kiln", "--help").split("Subcommands:")[1], re.MULTILINE):
            text = said("kiln", command, "--help")
            for inner in re.findall(r"^  ([a-z][\w-]*) ", "".join(text.split("Subcommands:")[1:]), re.MULTILINE):
                text += said("kiln", command, inner, "--help")
            found[f"kiln {command}"] = of(text)
        return found | {"kiln help": set()}

    def new_folder(self) -> str:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        return folder.name

    def installed(self) -> str:
        """A folder that says what an installed package would: where PyTorch finds the backend."""
        folder = self.new_folder()
        project = tomllib.loads((ROOT / "client" / "python" / "pyproject.toml").read_text())["project"]
        metadata = Path(folder) / "kiln-0.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: kiln\nVersion: 0\n")
        (metadata / "entry_points.txt").write_text("".join(
            f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in entries.items())
            for group, entries in project["entry-points"].items()))
        return folder

    def check(self, document: str, before: str = "", before_python: str = "",
              elsewhere: dict[str, str] | None = None, **variables: str) -> None:
        """Runs a document's commands. `before`: what an earlier page has made, as commands. `elsewhere`: what stands
        for addresses of the document; `variables`: of the environment."""
        path = [BUILD / "bin", BUILD / "tests"]
        text = (ROOT / document).read_text()
        if python_of(text) or re.search(r"^```python\n# \w+\.py|^\$ python", text, re.MULTILINE):
            asked = subprocess.run([ROOT / "ops" / "python", "--print"], capture_output=True, text=True, check=True)
            if not asked.stdout.strip():
                self.skipTest("there is no Python environment with PyTorch: ops/python makes one")
            path.append(Path(asked.stdout.strip()) / "bin")
        session = Session(path, KILN_LIBRARY=str(BUILD / "client" / "libkiln.so"), PYTHONDONTWRITEBYTECODE="1",
                          TORCHINDUCTOR_CACHE_DIR=self.new_folder(),
                          PYTHONPATH=f"{ROOT / 'client' / 'python'}:{self.installed()}", **variables)
        session.elsewhere = elsewhere or {}
        self.addCleanup(session.close)
        for line in before.splitlines():
            session.run(line)
        self.assertEqual(differences(ROOT / document, session, ELSEWHERE, before_python), [])

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

    def test_python(self) -> None:
        self.check("docs/python.md", SERVICE, A_MODEL)

    def test_inductor(self) -> None:
        self.check("docs/inductor.md", PUBLISHER)

    def test_several_machines(self) -> None:
        if not StoreServers.is_here():
            self.skipTest("there is no PostgreSQL, or no S3: ops/setup, ops/python servers")
        servers = StoreServers()
        self.addCleanup(servers.stop)
        self.check("docs/several_machines.md", "kiln keys new ci --role submit --data-dir /var/lib/kiln", "",
                   {"db.internal": "127.0.0.1", "https://s3.internal": f"http://127.0.0.1:{servers.s3_port}"},
                   PGPORT=str(servers.postgres_port), PGUSER="kiln")

    def test_faults(self) -> None:
        self.check("docs/faults.md")

    def test_simulation(self) -> None:
        self.check("docs/simulation.md")

    def test_fuzzing(self) -> None:
        self.check("docs/fuzzing.md")

    def test_the_page(self) -> None:
        self.check("docs/page.md", KEYS)

    def test_the_readme(self) -> None:
        self.check("README.md")


if __name__ == "__main__":
    unittest.main()
