"""The real programs as processes: a coordinator with a worker, and what they say over HTTP."""

from __future__ import annotations

import json
import os
import pathlib
import re
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Callable

from ports import free_port

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("KILN_BUILD_DIR", ROOT / "build" / "release"))
BIN = BUILD / "bin"
GRAPHS = ROOT / "tests" / "graphs" / "small"


def wait_for(condition: Callable[[], object], what: str) -> None:
    for _ in range(1200):
        if condition():
            return
        time.sleep(0.1)
    raise AssertionError(f"{what}: not within two minutes")


def environment(**more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("OTEL_", "KILN_", "TRACEPARENT"))}
    return kept | more


class Postgres:
    """A PostgreSQL of its own in `folder`, with an empty database. `available()` says whether there can be one."""

    def __init__(self, folder: pathlib.Path, database: str = "kiln") -> None:
        folder.mkdir()
        for above in (folder, folder.parent):
            above.chmod(0o755)
        if os.geteuid() == 0:
            shutil.chown(folder, "postgres", "postgres")
        self._data = folder / "data"
        self.port = free_port()
        self._do("initdb", "-D", self._data, "-U", "kiln", "-A", "trust", "--no-locale", "-E", "UTF8", "-N")
        self.start()
        self._do("psql", "-h", "127.0.0.1", "-p", self.port, "-U", "kiln", "-c",
                 f"CREATE DATABASE {database}", "postgres")
        self.url = f"postgresql://kiln@127.0.0.1:{self.port}/{database}"

    @staticmethod
    def available() -> bool:
        return bool(Postgres._programs())

    @staticmethod
    def _programs() -> list[pathlib.Path]:
        return sorted(pathlib.Path("/usr/lib/postgresql").glob("*/bin"))

    def _do(self, program: str, *arguments: object) -> None:
        as_postgres = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"] if os.geteuid() == 0 else []
        subprocess.run([*as_postgres, self._programs()[-1] / program, *map(str, arguments)], check=True,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/")

    def start(self) -> None:
        folder = self._data.parent
        self._do("pg_ctl", "-D", self._data, "-o", f"-p {self.port} -h 127.0.0.1 -k {folder} -c fsync=off", "-l",
                 folder / "log", "-w", "start")

    def stop(self) -> None:
        self._do("pg_ctl", "-D", self._data, "-m", "immediate", "stop")


class Fleet:
    """A coordinator and a worker, each a process. `arguments` are of both. `coordinator_stderr`: instead of a file."""

    def __init__(self, folder: pathlib.Path, *arguments: str, worker_arguments: tuple[str, ...] = (),
                 coordinator_arguments: tuple[str, ...] = (), coordinator_stderr: int | None = None,
                 **variables: str) -> None:
        self.folder, self.data, self.log = folder, folder / "data", folder / "worker.log"
        self._arguments, self._environment = arguments, environment(**variables)
        self._coordinator_arguments, self._coordinator_stderr = coordinator_arguments, coordinator_stderr
        self._start_coordinator(f"tcp://127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}")  # also after a restart
        self.start_worker(*worker_arguments)

    def start_worker(self, *arguments: str, program: pathlib.Path = BIN / "kiln-worker") -> None:
        """Also in the place of one that ended."""
        with self.log.open("w") as stderr:
            self.worker = subprocess.Popen(
                [program, "--coordinator", self.endpoint, "--cache-dir", self.folder / "objects", "--http",
                 "127.0.0.1:0", "--name", "w1", "--device-lock", self.folder / "device.lock", *self._arguments,
                 *arguments],
                stdout=subprocess.DEVNULL, stderr=stderr, env=self._environment)

    def _start_coordinator(self, endpoint: str, http: str) -> None:
        ready = self.folder / "ready.json"
        ready.unlink(missing_ok=True)
        with (self.folder / "coordinator.log").open("a") as stderr:
            self.coordinator = subprocess.Popen(
                [BIN / "kiln-coordinator", "--data-dir", self.data, "--listen", endpoint, "--http", http,
                 "--ready-file", ready, *self._arguments, *self._coordinator_arguments], stdout=subprocess.DEVNULL,
                stderr=stderr if self._coordinator_stderr is None else self._coordinator_stderr, env=self._environment)
        wait_for(ready.exists, "the coordinator serves")
        service = json.loads(ready.read_text())
        self.endpoint, self.http = service["endpoint"], service["http"]

    def restart_coordinator(self) -> None:
        """Where it was."""
        self.coordinator.terminate()
        self.coordinator.wait(60)
        self._start_coordinator(self.endpoint, self.http.removeprefix("http://"))

    def __enter__(self) -> Fleet:
        wait_for(lambda: re.search(r'kiln_workers{state="serving"} 1', self.metrics()), "the worker serves")
        wait_for(lambda: "metrics on" in self.log.read_text(), "the worker has its page")
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """The worker first: one with a result waits for the coordinator that takes it, --drain-timeout long."""
        self.worker.terminate()
        try:
            self.worker.wait(5)
        except subprocess.TimeoutExpired:
            self.worker.terminate()  # it gives unfinished work back
        self.worker.wait(60)
        self.coordinator.terminate()
        self.coordinator.wait(60)

    def metrics(self) -> str:
        with urllib.request.urlopen(self.http + "/metrics", timeout=60) as answer:
            return str(answer.read().decode())

    def worker_metrics(self) -> str:
        address = re.search(r"metrics on (\S+)", self.log.read_text())
        assert address
        with urllib.request.urlopen(address[1] + "/metrics", timeout=60) as answer:
            return str(answer.read().decode())

    def compile(self, graph: str, *arguments: str, **variables: str) -> str:
        done = subprocess.run([BIN / "kiln", "compile", GRAPHS / graph, "--coordinator", self.endpoint, "--no-fallback",
                               "--json", *arguments], capture_output=True, text=True, timeout=300, check=False,
                              env=environment(**variables))
        if done.returncode != 0:
            raise AssertionError(f"kiln compile: {done.returncode}: {done.stderr}")
        return str(json.loads(done.stdout)["cache"])
