"""Alerts before the real thing (alert_case.py): machines that are slow, lose work or differ, and more work than they
can do."""

from __future__ import annotations

import subprocess
import time
import unittest

from alert_case import AlertCase, Scrape
from processes import BIN, BUILD, wait_for

FAKE_GPU = ("--device", "cuda:0", "--libcuda", str(BUILD / "tests" / "libfake_cuda.so"), "--libnvrtc",
            str(BUILD / "tests" / "libfake_nvrtc.so"))


class BrokenFleets(AlertCase):
    def test_more_is_asked_for_than_is_tuned(self) -> None:
        fleet = self.fleet("--compiler", self.held(), "--sandbox", "off")
        well = Scrape(fleet)
        peer = self.peer(fleet)
        growing = [well]
        for graph, more in (("gpt2.pt2", 110), ("bert.pt2", 20), ("llama.pt2", 20)):
            self.queue(fleet, graph)
            peer.do(f"open {more}")
            before = growing[-1]
            while not all(Scrape(fleet).value(name) > before.value(name)
                          for name in ("kiln_requests_open", "kiln_candidates_queued")):
                time.sleep(0.2)  # ctest ends it where nothing comes
            growing.append(Scrape(fleet))
        self.assertGreater(growing[1].value("kiln_requests_open"), 100)
        self.assert_fire(["KilnRequestsPileUp", "KilnTooFewWorkers"], growing, apart=30)

        def refused(scrape: Scrape) -> float:
            return scrape.value("kiln_requests_overloaded_total")

        peer.do("crowd 20000")
        scrapes = [Scrape(fleet)]
        for _ in range(2):
            peer.do("crowd 10")
            wait_for(lambda: refused(Scrape(fleet)) > refused(scrapes[-1]), "requests are refused")
            scrapes.append(Scrape(fleet))
        self.assert_fire(["KilnOverloaded"], scrapes, goes_on=True)
        fleet.worker.kill()

    def test_compilers_that_are_slow(self) -> None:
        slow = self.script("slow", '[ "$1" != kernel.cc ] || sleep 31\nexec g++ "$@"\n')
        # A job counts once all of its candidates are compiled: here at once.
        fleet = self.fleet("--compiler", slow, "--sandbox", "off", "--jobs", "16",
                           coordinator=("--lease-timeout-ms", "600000"))
        well = Scrape(fleet)
        self.queue(fleet, "softmax.pt2")
        time.sleep(30)
        wait_for(lambda: Scrape(fleet).value("kiln_worker_stage_duration_seconds_count", 'stage="compile"') > 0,
                 "a candidate is compiled")
        self.assert_fire(["KilnCompilersSlow"], [well, Scrape(fleet)], goes_on=True)
        fleet.worker.kill()

    def test_a_machine_that_loses_its_compilers(self) -> None:
        killed = self.script("killed", f'[ -e {self.folder}/full ] || exec g++ "$@"\n'
                                       'echo "g++: fatal error: Killed signal terminated program cc1plus" >&2\n'
                                       'exit 1\n')
        fleet = self.fleet("--compiler", killed, "--sandbox", "off")
        well = Scrape(fleet)
        (self.folder / "full").touch()
        self.queue(fleet, "softmax.pt2")
        wait_for(lambda: Scrape(fleet).value("kiln_candidates_set_aside_total") > 2, "candidates are given up")
        self.assert_fire(["KilnCandidatesRetried", "KilnCandidatesSetAside"], [well, Scrape(fleet)])

    def test_a_gpu_whose_driver_fails(self) -> None:
        runner = self.script("runner", f'[ ! -e {self.folder}/failed ] && exec {BIN}/kiln-runner "$@"\nexit 1\n')
        fleet = self.fleet(*FAKE_GPU, "--runner", runner, "--sandbox", "off")
        wait_for(lambda: Scrape(fleet).value("kiln_worker_sentinel_seconds") > 0, "the device is measured")
        well = Scrape(fleet)
        (self.folder / "failed").touch()
        children = subprocess.run(["pgrep", "-P", str(fleet.worker.pid)], capture_output=True, text=True, check=True)
        subprocess.run(["kill", "-9", *children.stdout.split()], check=True)
        wait_for(lambda: Scrape(fleet).value("kiln_workers", 'state="quarantined"') > 0, "the worker is in quarantine")
        self.assert_fire(["KilnWorkerDeviceErrors", "KilnWorkerQuarantined"], [well, Scrape(fleet)])

    def test_a_device_that_has_become_slower(self) -> None:
        clock = " ".join(f"{name}={value}" for name, value in self.set_clock(fast=True).items())
        runner = self.script("runner", f'exec env {clock} {BIN}/kiln-runner "$@"\n')
        fleet = self.fleet()
        wait_for(lambda: Scrape(fleet).value("kiln_worker_sentinel_seconds") > 0, "the device is measured")
        well = Scrape(fleet)
        fleet.worker.kill()
        fleet.worker.wait()
        fleet.start_worker("--runner", runner, "--sandbox", "off")
        wait_for(lambda: "metrics on" in fleet.log.read_text(), "the worker has its page")
        wait_for(lambda: Scrape(fleet).value("kiln_worker_sentinel_seconds") > 0, "the device is measured again")
        self.assert_fire(["KilnWorkerDrifts"], [well, Scrape(fleet)], well=26 * 60)

    def test_a_worker_of_another_version(self) -> None:
        fleet = self.fleet()
        well = Scrape(fleet)
        fleet.worker.kill()
        fleet.worker.wait()
        other = self.folder / "kiln-worker"
        other.write_bytes((BIN / "kiln-worker").read_bytes().replace(b"0.1.0\0", b"0.1.7\0"))
        other.chmod(0o755)
        fleet.start_worker("--runner", str(BIN / "kiln-runner"), program=other)
        wait_for(lambda: "metrics on" in fleet.log.read_text(), "the worker has its page")
        self.assert_fire(["KilnVersionsDiffer"], [well, Scrape(fleet)], broken=7 * 60)


if __name__ == "__main__":
    unittest.main(verbosity=1)
