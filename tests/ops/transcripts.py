"""Commands that a document shows, run, and what it says they print, compared with what they print.

A fenced block whose first line begins with "$ " is a transcript: lines with "$ " are commands (a comment behind two
spaces is none of it), the lines below are their output. A line of "..." stands for any lines. Numbers, digests and the
spaces between words may differ, since machines do. Programs that serve (`kiln up`, `kiln-coordinator`, `kiln-worker`)
run beside the commands below them until the page ends; HOST is this machine. A comment "<!-- not run: WHY -->" before a
block leaves it out (not_run() says what WHY may be). A block of Python that begins with "# NAME.py" is a file of that
name. Other blocks of Python run after the commands, one after the other in one process; what a block prints is compared
with the block without a language that follows it at once. Lines with ">>> " are Python too, above what they print.
"""

import dataclasses
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from ports import free_port

FENCE = re.compile(r"(?:<!-- not run: ([^>]*?) -->\n)?^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PYTHON_WITH_OUTPUT = re.compile(r"^```python\n(.*?)^```$(?:\n+^```\n((?!\$ |>>> ).*?)^```$)?", re.MULTILINE | re.DOTALL)
VARIES = re.compile(r"\b[0-9a-f]{12,}\b|\d+(?:\.\d+)?(?:e[-+]?\d+)?")


@dataclasses.dataclass
class Command:
    line: str
    output: list[str]  # as the document has it


def commands_of(block: str) -> list[Command]:
    commands: list[Command] = []
    for line in block.splitlines():
        if line.startswith("$ "):
            commands.append(Command(re.split(r"\s{2,}#", line[2:])[0], []))
        elif commands and commands[-1].line.endswith("\\") and not commands[-1].output:
            commands[-1].line = commands[-1].line[:-1] + line.strip()
        elif commands:
            commands[-1].output.append(line)
    return commands


@dataclasses.dataclass
class Code:
    text: str
    output: list[str] | None  # as the document has it; None: it does not say


def python_of(document: str) -> list[Code]:
    """The Python of a document but its files, in order."""
    found = [(block.start(), Code(block[1], block[2].splitlines() if block[2] else None))
             for block in PYTHON_WITH_OUTPUT.finditer(document) if not re.match(r"# \w+\.py\n", block[1])]
    for block in FENCE.finditer(document):
        if block[3].startswith(">>> "):
            lines = block[3].splitlines()
            found.append((block.start(), Code("\n".join(line[4:] for line in lines if line.startswith(">>> ")),
                                              [line for line in lines if not line.startswith(">>> ")])))
    return [code for _, code in sorted(found, key=lambda each: each[0])]


# What no machine of the tests has, or no test should take.
NOT_HERE = ("it needs several machines", "it needs a GPU", "it needs a cluster", "it takes minutes")


def not_run(why: str, root: Path) -> bool:
    """Whether a block may be left out for this reason: one of NOT_HERE, or the path of a test that does the same."""
    named = re.findall(r"\b(?:tests|ops)/[\w/.]+", why)
    return why.startswith(NOT_HERE) or (bool(named) and all(
        (root / name).exists() or list((root / name).parent.glob(Path(name).name + ".*")) for name in named))


def plain(line: str) -> str:
    """The line without what differs from machine to machine."""
    return " ".join(VARIES.sub("N", line).split())


def agree(shown: list[str], printed: list[str]) -> bool:
    """Whether the output that a document shows is the printed one, up to what varies."""
    if not shown:
        return not printed
    if shown[0].strip() == "...":
        return any(agree(shown[1:], printed[skipped:]) for skipped in range(len(printed) + 1))
    return bool(printed) and plain(shown[0]) == plain(printed[0]) and agree(shown[1:], printed[1:])


class Session:
    """A folder in which the blocks of one document run, one after the other, with a service once it starts one."""

    def __init__(self, path: list[Path], **variables: str) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self.folder = Path(self._folder.name)
        for part in ("lib", "cache", "backups"):  # of /var
            (self.folder / part).mkdir()
        self._ports = {"7557": free_port(), "9557": free_port()}
        self._environment = {**os.environ, "PATH": ":".join([*map(str, path), os.environ["PATH"]])}
        for name in ("KILN_COORDINATOR", "KILN_KEY", "KILN_CACHE_DIR"):
            self._environment.pop(name, None)
        self._environment |= variables
        self.elsewhere: dict[str, str] = {}  # what stands for addresses of the document
        self._serving: list[subprocess.Popen[str]] = []

    def close(self) -> None:
        for program in reversed(self._serving):  # workers before their coordinator
            program.send_signal(signal.SIGTERM)
            program.communicate(timeout=60)
        self._folder.cleanup()

    def run(self, line: str) -> list[str]:
        """What the command prints on stdout. AssertionError with stderr unless it exits with 0."""
        line = self._here(line)
        if re.match(r"kiln up |kiln-coordinator |kiln-worker ", line):
            return self._start(line)
        if re.fullmatch(r"export( \w+=[^\s$]+)+", line):
            self._environment |= dict(each.split("=", 1) for each in line.split()[1:])
            return []
        done = subprocess.run(["bash", "-c", line], cwd=self.folder, env=self._environment, capture_output=True,
                              text=True, check=False, timeout=300)
        assert done.returncode == 0, f"$ {line}\nexit {done.returncode}\n{done.stdout}{done.stderr}"
        return self._there(done.stdout).splitlines()

    def python(self, before: str, blocks: list[Code]) -> list[list[str]]:
        """What each block prints, run in one process after `before`. AssertionError where one raises."""
        runs = [self._here(text) for text in (before, *(block.text for block in blocks))]
        done = subprocess.run(["python3", Path(__file__), json.dumps(runs)], cwd=self.folder, env=self._environment,
                              capture_output=True, text=True, check=False, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr
        return [str(text).splitlines() for text in json.loads(done.stdout.splitlines()[-1])[1:]]

    def _here(self, line: str) -> str:
        """A command with this document's ports and folders."""
        for name, here in self.elsewhere.items():
            line = line.replace(name, here)
        for port, free in self._ports.items():
            line = re.sub(rf"\b(HOST|127\.0\.0\.1|0\.0\.0\.0):{port}\b",
                          lambda found, free=free: f"{found[1].replace('HOST', '127.0.0.1')}:{free}", line)
        return re.sub(r"/var/(lib|cache|backups)/", rf"{self.folder}/\1/", line)

    def _there(self, text: str) -> str:
        """What was printed, with the document's folders."""
        return text.replace(f"{self.folder}/", "/var/")

    def _start(self, line: str) -> list[str]:
        """Starts a program that serves. `kiln up` has a port of its own, for this document alone, and no page."""
        log = self.folder / f"serving{len(self._serving)}.log"
        if line.startswith("kiln up "):
            line += f" --listen tcp://127.0.0.1:{self._ports['7557']} --http none --device cpu"
        elif line.startswith("kiln-coordinator ") and "--http" not in line:
            line += f" --http 127.0.0.1:{self._ports['9557']}"
        elif line.startswith("kiln-worker "):
            line += " --http none"
        with log.open("w") as stderr:
            program = subprocess.Popen(["bash", "-c", f"exec {line}"], cwd=self.folder, env=self._environment,
                                       stdout=subprocess.PIPE, stderr=stderr, text=True)
        self._serving.append(program)
        if line.startswith("kiln-worker "):  # it comes when it comes: a command that needs one waits
            return []
        assert program.stdout is not None
        printed = program.stdout.readline()
        assert printed.startswith("ready "), log.read_text()
        return [printed.rstrip()]


def run_all(blocks: list[str]) -> None:
    """Prints what each prints, as JSON."""
    import contextlib
    import io
    import linecache

    names: dict[str, object] = {"__name__": "__main__"}
    printed = []
    for number, block in enumerate(blocks):
        name = f"<block {number}>"
        linecache.cache[name] = (len(block), None, block.splitlines(keepends=True), name)  # Triton reads its source
        with contextlib.redirect_stdout(io.StringIO()) as out:
            exec(compile(block, name, "exec"), names)
        printed.append(out.getvalue())
    print(json.dumps(printed))


def differences(document: Path, session: Session, skip: frozenset[str], before_python: str = "") -> list[str]:
    """Runs the document's files, transcripts and Python; a text for each command that printed something else.

    `skip`: commands that are tested elsewhere. `before_python`: what its Python takes for granted.
    """
    found = []
    for not_run, language, block in FENCE.findall(document.read_text()):
        if not_run:
            continue
        if language == "python" and (named := re.match(r"# (\w+\.py)\n", block)):
            (session.folder / named[1]).write_text(block)
        elif block.startswith("$ "):
            for command in commands_of(block):
                if command.line in skip:
                    continue
                printed = session.run(command.line)
                if not agree(command.output, printed):
                    found.append("\n".join([f"$ {command.line}", "shown:", *command.output, "printed:", *printed]))
    if blocks := python_of(document.read_text()):
        for block, printed in zip(blocks, session.python(before_python, blocks), strict=True):
            if block.output is not None and not agree(block.output, printed):
                found.append("\n".join([block.text, "shown:", *block.output, "printed:", *printed]))
    return found


if __name__ == "__main__":
    run_all(json.loads(sys.argv[1]))
