"""Commands that a document shows, run, and what it says they print, compared with what they print.

A fenced block whose first line begins with "$ " is a transcript: lines with "$ " are commands (a comment behind two
spaces is none of it), the lines below are their output. A line of "..." stands for any lines. Numbers, digests and the
spaces between words may differ, since machines do. Programs that serve (`kiln up`, `kiln-coordinator`, `kiln-worker`)
run beside the commands below them until the page ends; HOST is this machine. A comment "<!-- not run: WHY -->" before a
block leaves it out. A block of Python that begins with "# NAME.py" is a file of that name.
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
        for part in ("lib", "cache", "backups"):  # of /var
            (self.folder / part).mkdir()
        # Both are held until both are known, so that they differ.
        with socket.socket() as listening, socket.socket() as page:
            for one in (listening, page):
                one.bind(("127.0.0.1", 0))
            self._ports = {"7557": listening.getsockname()[1], "9557": page.getsockname()[1]}
        self._environment = {**os.environ, "PATH": ":".join([*map(str, path), os.environ["PATH"]])}
        for name in ("KILN_COORDINATOR", "KILN_KEY", "KILN_CACHE_DIR"):
            self._environment.pop(name, None)
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

    def _here(self, line: str) -> str:
        """A command with this document's ports and folders."""
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
