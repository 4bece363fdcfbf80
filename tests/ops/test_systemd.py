"""The units of ops/systemd: systemd finds no fault in them, they give away little, their flags exist, and the programs
speak the protocol of Type=notify. (package_in_a_clean_debian has a systemd run them.)"""

import os
import queue
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(os.environ["KILN_BUILD_DIR"]).resolve() / "bin"
UNITS = ["kiln-coordinator.service", "kiln-worker@.service"]
# As systemd-analyze rates them: 0 gives away nothing, 10 everything. A worker makes namespaces, unless a drop-in
# forbids it.
MOST_EXPOSURE = {"kiln-coordinator.service": 1.4, "kiln-worker@.service": 1.9}
MOST_CONFINED = 1.1


def unit_text(name: str) -> str:
    return (ROOT / "ops" / "systemd" / name).read_text()


class Units(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        for name in UNITS:  # of this build, where they are not installed
            (self.folder / name).write_text(unit_text(name).replace("/usr/bin/", f"{BIN}/"))

    def analyze(self, *arguments: object) -> str:
        if not shutil.which("systemd-analyze"):
            self.skipTest("systemd-analyze is not installed")
        found = subprocess.run(["systemd-analyze", *map(str, arguments)], capture_output=True, text=True, check=False)
        self.assertEqual(found.returncode, 0, found.stdout + found.stderr)
        return found.stdout + found.stderr

    def test_are_valid(self) -> None:
        for name in UNITS:
            said = self.analyze("verify", self.folder / name)
            self.assertNotIn(name, said)

    def test_give_away_little(self) -> None:
        for name in UNITS:
            self.assertLessEqual(self.exposure(name), MOST_EXPOSURE[name], name)

    def test_a_drop_in_forbids_a_worker_namespaces(self) -> None:
        dropped = self.folder / "kiln-worker@.service.d"
        dropped.mkdir()
        shutil.copy(ROOT / "ops" / "systemd" / "confined.conf", dropped)
        self.assertLessEqual(self.exposure("kiln-worker@.service"), MOST_CONFINED)

    def exposure(self, name: str) -> float:
        said = self.analyze("security", "--offline=true", "--no-pager", self.folder / name)
        exposure = re.search(r"Overall exposure level for \S+: ([\d.]+)", said)
        assert exposure, said
        return float(exposure[1])

    def test_flags_exist(self) -> None:
        for name in UNITS:
            command = re.search(r"ExecStart=/usr/bin/(\S+) (.*)", unit_text(name))
            assert command
            manual = subprocess.run([BIN / command[1], "--help"], capture_output=True, text=True, check=False).stdout
            for flag in re.findall(r"--[\w-]+", command[2]):
                self.assertRegex(manual, rf"\n  {flag}\b")


class Notify(unittest.TestCase):
    def listen(self, address: str) -> "queue.Queue[str]":
        """What is said there. It is read all the time: a full socket loses what a program does not wait to say."""
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        listener.bind(address)
        said: queue.Queue[str] = queue.Queue()

        def read() -> None:
            while datagram := listener.recv(4096):
                said.put(datagram.decode())
            listener.close()

        threading.Thread(target=read, daemon=True).start()
        self.addCleanup(listener.shutdown, socket.SHUT_RD)
        return said

    def start(self, program: str, *arguments: object, notify: str) -> "subprocess.Popen[bytes]":
        environment = dict(os.environ, NOTIFY_SOCKET=notify, WATCHDOG_USEC="200000")
        process = subprocess.Popen([BIN / program, *map(str, arguments)], env=environment, stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def expect(self, listener: "queue.Queue[str]", want: str) -> None:
        """The next datagram but watchdogs is `want`; or the next at all, when that is a watchdog."""
        while True:
            said = listener.get(timeout=120)
            if said == want:
                return
            self.assertEqual(said, "WATCHDOG=1")

    def test_coordinator_and_worker_say_that_they_are_ready_alive_and_stopping(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = f"{folder}/notify"
            listener = self.listen(path)
            ready = Path(folder) / "ready.json"
            coordinator = self.start("kiln-coordinator", "--data-dir", f"{folder}/data", "--http", "none",
                                     "--listen", "tcp://127.0.0.1:0", "--ready-file", ready, notify=path)
            self.expect(listener, "READY=1")
            self.expect(listener, "WATCHDOG=1")
            self.expect(listener, "WATCHDOG=1")
            endpoint = re.search(r"tcp://[\d.:]+", ready.read_text())
            assert endpoint
            abstract = f"\0kiln-test-{os.getpid()}"
            worker_says = self.listen(abstract)
            worker = self.start("kiln-worker", "--coordinator", endpoint[0], notify="@" + abstract[1:])
            self.expect(worker_says, "READY=1")
            self.expect(worker_says, "WATCHDOG=1")
            worker.send_signal(signal.SIGTERM)
            self.expect(worker_says, "STOPPING=1")
            self.assertEqual(worker.wait(60), 0)
            coordinator.send_signal(signal.SIGTERM)
            self.expect(listener, "STOPPING=1")
            self.assertEqual(coordinator.wait(60), 0)


if __name__ == "__main__":
    unittest.main(verbosity=1)
