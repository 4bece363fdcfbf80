"""ops/slurm/kiln-workers.sbatch on a Slurm of one node.

An array of two workers tunes a program, drains on the signal that comes before the time limit, and queues itself again.
Needs root, slurmctld, slurmd and munge (ops/setup --slurm)."""

import json
import os
import shutil
import socket
import subprocess
import tempfile
import time
import unittest
from collections.abc import Callable
from pathlib import Path

from ports import free_port

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(os.environ["KILN_BUILD_DIR"]).resolve() / "bin"
NEEDED = ["slurmctld", "slurmd", "sbatch", "scontrol", "munged"]

CONFIGURATION = """
ClusterName=kiln
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CryptoType=crypto/munge
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
MpiDefault=none
ReturnToService=2
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} RealMemory=1000 State=UNKNOWN
PartitionName=all Nodes={host} Default=YES MaxTime=INFINITE State=UP
"""


@unittest.skipUnless(all(map(shutil.which, NEEDED)) and os.geteuid() == 0, "no Slurm here: ops/setup --slurm, as root")
class Slurm(unittest.TestCase):
    def setUp(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="kiln-slurm-", dir="/tmp"))
        self.folder.chmod(0o755)  # munge refuses folders that others cannot look into
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.environment = dict(os.environ, SLURM_CONF=str(self.folder / "slurm.conf"))

    def start(self, *command: object) -> None:
        log = (self.folder / "daemons.log").open("a")
        self.addCleanup(log.close)
        process = subprocess.Popen([str(each) for each in command], env=self.environment, stdout=log, stderr=log)

        def stop() -> None:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

        self.addCleanup(stop)

    def run_command(self, *command: object) -> str:
        found = subprocess.run([str(each) for each in command], env=self.environment, capture_output=True, text=True,
                               check=False, timeout=180)
        self.assertEqual(found.returncode, 0, found.stdout + found.stderr)
        return found.stdout

    def wait_for(self, what: str, condition: Callable[[], bool]) -> None:
        for _ in range(600):
            if condition():
                return
            time.sleep(0.2)
        logs = "".join(f"\n== {each.name}\n{each.read_text()[-2000:]}" for each in self.folder.glob("*.log"))
        self.fail(f"{what}: not within two minutes{logs}")

    def start_slurm(self) -> None:
        for name in ("state", "spool"):
            (self.folder / name).mkdir()
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o600)
        (self.folder / "slurm.conf").write_text(CONFIGURATION.format(
            host=socket.gethostname(), folder=self.folder, cpus=os.cpu_count(), ports=[free_port(), free_port()]))
        self.start("munged", "--foreground", "--force", "--key-file", key, "--socket", self.folder / "munge.socket",
                   "--pid-file", self.folder / "munge.pid", "--seed-file", self.folder / "munge.seed")
        self.wait_for("munged", (self.folder / "munge.socket").exists)
        self.start("slurmctld", "-D", "-c")
        self.start("slurmd", "-D")
        self.wait_for("the node", lambda: "idle" in subprocess.run(
            ["sinfo", "-h", "-o", "%t"], env=self.environment, capture_output=True, text=True, check=False).stdout)

    def start_coordinator(self) -> str:
        ready = self.folder / "ready.json"
        self.start(BIN / "kiln-coordinator", "--data-dir", self.folder / "data", "--listen", "tcp://127.0.0.1:0",
                   "--http", "none", "--ready-file", ready)
        self.wait_for("the coordinator", ready.exists)
        return str(json.loads(ready.read_text())["endpoint"])

    def workers(self, coordinator: str) -> list[str]:
        stats = json.loads(self.run_command(BIN / "kiln", "stats", "--json", "--coordinator", coordinator))
        return sorted(each["name"] for each in stats["workers"])

    def states(self, job: str) -> list[str]:
        return self.run_command("squeue", "-h", "-j", job, "-o", "%T").split()

    def test_an_array_of_workers_tunes_drains_and_queues_itself_again(self) -> None:
        self.start_slurm()
        coordinator = self.start_coordinator()
        self.environment.update(KILN_COORDINATOR=coordinator, KILN_DEVICE="cpu", KILN_WORKER=str(BIN / "kiln-worker"),
                                HOME=str(self.folder))
        script = ROOT / "ops" / "slurm" / "kiln-workers.sbatch"
        job = self.run_command("sbatch", "--parsable", "--array=0-1", "--gres=none", "--cpus-per-task=1",
                               f"--output={self.folder}/worker-%a.log", script).strip()
        names = [f"kiln-worker:{job}:{task}" for task in (0, 1)]
        self.wait_for("two workers", lambda: self.workers(coordinator) == names)
        program = ROOT / "tests" / "graphs" / "small" / "argmax.pt2"
        compiled = self.run_command(BIN / "kiln", "compile", program, "--coordinator", coordinator, "--json")
        self.assertEqual(json.loads(compiled)["cache"], "tuned")

        self.run_command("scancel", "--signal=USR1", "--batch", f"{job}_0")
        log = self.folder / "worker-0.log"
        self.wait_for("the first to stop", lambda: f"worker {names[0]} stopped" in log.read_text())
        self.wait_for("the first to be queued again", lambda: "PENDING" in self.states(f"{job}_0"))
        self.assertEqual(self.states(f"{job}_1"), ["RUNNING"])
        self.assertEqual(self.workers(coordinator), names[1:])
        self.run_command("scancel", job)
        self.wait_for("the second to stop", lambda: self.workers(coordinator) == [])


if __name__ == "__main__":
    unittest.main(verbosity=1)
