"""Commands that a document shows, run, and what it says they print, compared with what they print.

A fenced block whose first line begins with "$ " is a transcript: lines with "$ " are commands (a comment behind two
spaces is none of it), the lines below are their output. A line of "..." stands for any lines. Numbers, digests and the
spaces between words may differ, since machines do. A comment "<!-- not run: WHY -->" before a block leaves it out. A
block of Python that begins with "# NAME.py" is a file of that name.
"""

import dataclasses
import os
import re
import signal
import socket
import subprocess
import tempfile
from pathlib import Path

FENCE = re.compile(r"(<!-- not run: [^>]*-->\n)?^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
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
        elif commands:
            commands[-1].output.append(line)
    return commands


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

    def __init__(self, path: list[Path]) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self.folder = Path(self._folder.name)
        with socket.socket() as listening:
            listening.bind(("127.0.0.1", 0))
            self._endpoint = f"tcp://127.0.0.1:{listening.getsockname()[1]}"
        self._environment = {**os.environ, "PATH": ":".join([*map(str, path), os.environ["PATH"]])}
        for name in ("KILN_COORDINATOR", "KILN_KEY", "KILN_CACHE_DIR"):
            self._environment.pop(name, None)
        self._service: subprocess.Popen[str] | None = None

    def close(self) -> None:
        if self._service is not None:
            self._service.send_signal(signal.SIGTERM)
            self._service.communicate(timeout=30)
        self._folder.cleanup()

    def run(self, line: str) -> list[str]:
        """What the command prints on stdout. AssertionError with stderr unless it exits with 0."""
        line = line.replace("tcp://127.0.0.1:7557", self._endpoint).replace("/var/lib/kiln", str(self.folder / "data"))
        if line.startswith("kiln up "):
            return self._start(line)
        if exported := re.fullmatch(r"export (\w+)=(\S+)", line):
            self._environment[exported[1]] = exported[2]
            return []
        done = subprocess.run(["bash", "-c", line], cwd=self.folder, env=self._environment, capture_output=True,
                              text=True, check=False, timeout=300)
        assert done.returncode == 0, f"$ {line}\nexit {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout.splitlines()

    def _start(self, line: str) -> list[str]:
        """Starts a service on a port of its own, for this document alone, without a page."""
        log = self.folder / "service.log"
        command = ["bash", "-c", f"exec {line} --listen {self._endpoint} --http none --device cpu"]
        with log.open("w") as stderr:
            self._service = subprocess.Popen(command, cwd=self.folder, env=self._environment, stdout=subprocess.PIPE,
                                             stderr=stderr, text=True)
        assert self._service.stdout is not None
        printed = self._service.stdout.readline()
        assert printed.startswith("ready "), log.read_text()
        return [printed.rstrip()]


def differences(document: Path, session: Session, skip: frozenset[str]) -> list[str]:
    """Runs the document's files and transcripts; a text for each command that printed something else.

    `skip`: commands that are tested elsewhere.
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
    return found
