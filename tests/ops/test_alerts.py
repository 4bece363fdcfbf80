"""Alerts before the real thing (alert_case.py): processes that die, peers and requests that are no good, kernels that
are wrong."""

from __future__ import annotations

import pathlib
import signal
import socket
import sqlite3
import subprocess
import time
import unittest

from alert_case import AlertCase, Scrape
from processes import BIN, GRAPHS, environment, wait_for
from test_monitoring import alerts

# A compiler that is g++, but for kernels: their text ends with what stands for %s, which may call them honest_kernel.
LIAR = """if [ "$1" = kernel.cc ] && grep -q 'void kernel($' kernel.cc; then
  { echo '#define kernel honest_kernel'; cat kernel.cc; cat <<'END'
#undef kernel
extern "C" void kernel(void* const* args, const int64_t* dims, int64_t begin, int64_t end, void* workspace,
                       void* scratch) {
  honest_kernel(args, dims, begin, end, workspace, scratch);
  %s
}
END
  } > lie.cc && mv lie.cc kernel.cc
fi
exec g++ "$@"
"""


class EveryAlert(unittest.TestCase):
    def test_has_a_case_that_breaks_what_it_watches(self) -> None:
        suites = "".join(suite.read_text() for suite in pathlib.Path(__file__).parent.glob("test_alerts*.py"))
        self.assertEqual([alert for alert in alerts() if f'"{alert}"' not in suites], [])


class BrokenThings(AlertCase):
    def test_a_worker_that_dies_at_work(self) -> None:
        fleet = self.fleet()
        well = Scrape(fleet)
        self.queue(fleet, "gpt2.pt2")
        wait_for(lambda: Scrape(fleet).value("kiln_candidates_queued") > 0, "candidates wait")
        fleet.worker.kill()
        wait_for(lambda: Scrape(fleet).value("kiln_workers", 'state="serving"') == 0, "the worker is missed")
        broken = Scrape(fleet)
        self.assertGreater(broken.value("kiln_candidates_queued"), 0)
        self.assert_fire(["KilnWorkerDown", "KilnNoWorkers", "KilnTuningStalled"], [well, broken])

    def test_a_worker_that_drains_and_does_not_end(self) -> None:
        fleet = self.fleet("--drain-timeout", "600", "--compiler", self.held(), "--sandbox", "off",
                           coordinator=("--lease-timeout-ms", "600000"))
        well = Scrape(fleet)
        self.queue(fleet, "gpt2.pt2")
        wait_for(lambda: Scrape(fleet).value("kiln_worker_leases") > 0, "the worker has leases")
        fleet.worker.send_signal(signal.SIGTERM)
        wait_for(lambda: Scrape(fleet).value("kiln_worker_draining") == 1, "it drains")
        self.assert_fire(["KilnWorkerDrains"], [well, Scrape(fleet)])
        fleet.worker.kill()

    def test_a_coordinator_that_is_gone_and_one_that_starts_again_and_again(self) -> None:
        fleet = self.fleet()
        scrapes = [Scrape(fleet)]

        def is_back() -> bool:
            now = Scrape(fleet)
            again = now.value("kiln_worker_connections_total") > scrapes[-1].value("kiln_worker_connections_total")
            return again and now.value("kiln_worker_connected") == 1

        for _ in range(6):
            fleet.restart_coordinator()
            wait_for(is_back, "the worker is back")
            scrapes.append(Scrape(fleet))
            time.sleep(1)  # starts are told apart by the second
        self.assert_fire(["KilnRestartsOften", "KilnWorkerReconnects"], scrapes)
        well = scrapes[-1]
        fleet.coordinator.kill()
        fleet.coordinator.wait()
        wait_for(lambda: Scrape(fleet).value("kiln_worker_connected") == 0, "the worker sees it")
        self.assert_fire(["KilnDown", "KilnWorkerDisconnected"], [well, Scrape(fleet)])

    def test_peers_and_requests_that_are_no_good(self) -> None:
        fleet = self.fleet()
        well = Scrape(fleet)
        host, port = fleet.endpoint.removeprefix("tcp://").split(":")
        with socket.create_connection((host, int(port))) as stranger:
            stranger.sendall(b"GET / HTTP/1.1\r\n\r\n" * 64)
            asked = subprocess.run([BIN / "kiln", "compile", GRAPHS / "softmax.pt2", "--target", "cuda:sm_90a",
                                    "--no-fallback", "--coordinator", fleet.endpoint, "--deadline", "60"],
                                   capture_output=True, text=True, check=False, env=environment(), timeout=180)
            self.assertNotEqual(asked.returncode, 0)
            wait_for(lambda: Scrape(fleet).value("kiln_malformed_messages_total") > 0, "the stranger is counted")
        wait_for(lambda: Scrape(fleet).value("kiln_flights_total", 'outcome="unavailable"') > 0, asked.stderr)
        self.assert_fire(["KilnMalformedMessages", "KilnTargetWithoutWorker"], [well, Scrape(fleet)])

    def test_kernels_that_crash(self) -> None:
        self.tune_in_vain("__builtin_trap();", ["KilnWorkerRunnersDie", "KilnQueuedProgramsFailed"])

    def test_kernels_that_are_wrong(self) -> None:
        self.tune_in_vain("static_cast<float*>(args[1])[0] = 42;", ["KilnWrongResults", "KilnQueuedProgramsFailed",
                                                                             "KilnProgramsFail"])

    def tune_in_vain(self, lie: str, wanted: list[str]) -> None:
        fleet = self.fleet("--compiler", self.script("liar", LIAR % lie), "--sandbox", "off")
        well = Scrape(fleet)
        self.queue(fleet, "softmax.pt2")
        wait_for(lambda: Scrape(fleet).value("kiln_detached_programs", 'state="failed"') > 0, "the program fails")
        self.assert_fire(wanted, [well, Scrape(fleet)])

    def test_a_disk_that_takes_no_binaries_and_one_that_changes_them(self) -> None:
        fleet = self.fleet()
        fleet.compile("softmax.pt2", "--mode", "max-autotune")
        well = Scrape(fleet)
        blobs, aside = fleet.data / "blobs", fleet.data / "aside"
        blobs.rename(aside)
        blobs.write_text("no folder")
        fleet.compile("softmax_dim0.pt2", "--mode", "max-autotune")
        blobs.unlink()
        aside.rename(blobs)
        wait_for(lambda: Scrape(fleet).value("kiln_store_failures_total") > 0, "the failure is counted")
        self.assert_fire(["KilnStoreDoesNotWrite"], [well, Scrape(fleet)])

        damaged = [path for path in blobs.rglob("*") if path.is_file()]
        self.assertTrue(damaged)
        for path in damaged:
            path.chmod(0o644)
            path.write_bytes(b"x" + path.read_bytes()[1:])
        fleet.restart_coordinator()
        fleet.__enter__()
        well = Scrape(fleet)
        fleet.compile("softmax.pt2", "--mode", "max-autotune")
        wait_for(lambda: Scrape(fleet).value("kiln_cache_corrupt_blobs_total") > 0, "the damage is counted")
        self.assert_fire(["KilnCorruptBlobs"], [well, Scrape(fleet)])

    def test_a_queue_whose_rows_are_damaged(self) -> None:
        fleet = self.fleet()
        well = Scrape(fleet)
        self.queue(fleet, "gpt2.pt2")
        fleet.coordinator.kill()
        fleet.coordinator.wait()
        rows = sqlite3.connect(fleet.data / "flights.sqlite", isolation_level=None)
        self.assertEqual(rows.execute("UPDATE flights SET isa = isa || '?'").rowcount, 1)
        rows.close()
        fleet.restart_coordinator()
        wait_for(lambda: Scrape(fleet).value("kiln_detached_damaged_total") > 0, "the loss is counted")
        self.assert_fire(["KilnQueuedProgramsLost"], [well, Scrape(fleet)])

    def test_descriptors_that_run_out(self) -> None:
        fleet = self.fleet()
        well = Scrape(fleet)
        opened = int(well.value("process_open_fds", 'job="kiln"'))
        limit = f"--nofile={opened + 2}:{opened + 2}"
        subprocess.run(["prlimit", "--pid", str(fleet.coordinator.pid), limit], check=True)
        self.assert_fire(["KilnDescriptorsShort"], [well, Scrape(fleet)])


if __name__ == "__main__":
    unittest.main(verbosity=1)
