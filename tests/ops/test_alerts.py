"""Alerts before the real thing: each case starts real programs, scrapes them, breaks what an alert watches, scrapes
again, and has promtool's Prometheus see the first scrape for half an hour and the second one after it. The alert must
fire then, and not before. (test_monitoring.py has a case of made-up series for every alert, also for those that take
hours.)"""

from __future__ import annotations

import json
import pathlib
import re
import shutil
import signal
import socket
import sqlite3
import subprocess
import tempfile
import time
import unittest
import urllib.error

from processes import BIN, GRAPHS, Fleet, environment, wait_for
from test_monitoring import RULES, alerts

COORDINATOR, WORKER = 'job="kiln",instance="c"', 'job="kiln-worker",instance="w"'
WELL_MINUTES, BROKEN_MINUTES = 30, 60

# A compiler that is g++, but for kernels: their text ends with what stands for %s, which may call them honest_kernel.
LIAR = """#!/bin/bash
if [ "$1" = kernel.cc ] && grep -q 'void kernel($' kernel.cc; then
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


class Scrape:
    """What Prometheus would get of a coordinator and its worker: samples, and whether each answers."""

    def __init__(self, fleet: Fleet) -> None:
        self.samples: dict[str, float] = {}
        for labels, page in ((COORDINATOR, fleet.metrics), (WORKER, fleet.worker_metrics)):
            try:
                text = page()
            except (urllib.error.URLError, OSError):
                self.samples[f"up{{{labels}}}"] = 0
                continue
            self.samples[f"up{{{labels}}}"] = 1
            for name, _, own, value in re.findall(r"^(\w+)(\{(.*)\})? (\S+)$", text, re.M):
                joined = f"{labels},{own}" if own else labels
                self.samples[f"{name}{{{joined}}}"] = float(value)

    def value(self, name: str, *labels: str) -> float:
        return sum(value for sample, value in self.samples.items()
                   if sample.startswith(name + "{") and all(label in sample for label in labels))


def promtool_says(series: dict[str, str], alert: str, fires: bool) -> str:
    """What is wrong; empty: nothing."""
    minutes = WELL_MINUTES + BROKEN_MINUTES
    firing = f'ALERTS{{alertname="{alert}",alertstate="firing"}}'
    at_last = f"count(max_over_time({firing}[{BROKEN_MINUTES}m]))"
    at_first = f"count(max_over_time({firing}[{WELL_MINUTES}m]))"
    tests = [{"expr": at_first, "eval_time": f"{WELL_MINUTES - 1}m", "exp_samples": []},
             {"expr": at_last, "eval_time": f"{minutes}m",
              "exp_samples": [{"labels": "{}", "value": 1}] if fires else []}]
    with tempfile.TemporaryDirectory() as folder:
        bare = re.sub(r"\n +annotations: .*", "", RULES.read_text())
        (pathlib.Path(folder) / "rules.yaml").write_text(bare)
        path = pathlib.Path(folder) / "tests.yaml"
        path.write_text(json.dumps({"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": [
            {"interval": "1m", "promql_expr_test": tests,
             "input_series": [{"series": name, "values": values} for name, values in series.items()]}]}))
        found = subprocess.run(["promtool", "test", "rules", str(path)], capture_output=True, text=True, check=False)
    return "" if found.returncode == 0 else (found.stdout + found.stderr)[-2000:]


@unittest.skipUnless(shutil.which("promtool"), "promtool is not installed; ops/setup --lint installs it")
class BrokenThings(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def fleet(self, *worker: str) -> Fleet:
        fleet = Fleet(self.folder, worker_arguments=worker)
        self.addCleanup(fleet.stop)
        return fleet.__enter__()

    def assert_fire(self, wanted: list[str], scrapes: list[Scrape]) -> None:
        """The first scrape is of the time when all was well; each of the others is a minute, the last stays."""
        names = sorted({name for scrape in scrapes for name in scrape.samples})
        series = {}
        for name in names:
            seen = [scrape.samples.get(name) for scrape in scrapes]
            text = ["_" if value is None else repr(value) for value in seen]
            series[name] = f"{text[0]}x{WELL_MINUTES - 1} {' '.join(text[1:])} {text[-1]}x{BROKEN_MINUTES}"
        for alert in wanted:
            self.assertIn(alert, alerts())
            with self.subTest(alert):
                used = set(re.findall(r"\w+", re.search(
                    rf"- alert: {alert}\n(.*?)labels:", RULES.read_text(), re.S)[1])) | {"up"}  # type: ignore[index]
                own = {name: values for name, values in series.items() if name.split("{")[0] in used}
                self.assertEqual(promtool_says(own, alert, True), "")

    def queue(self, fleet: Fleet, graph: str) -> None:
        """Has a program tuned that takes a while, without waiting for it."""
        subprocess.run([BIN / "kiln", "warm", GRAPHS / graph, "--mode", "max-autotune", "--detach", "--coordinator",
                        fleet.endpoint], check=True, capture_output=True, env=environment(), timeout=60)

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
        fleet = self.fleet("--drain-timeout", "600")
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
        for _ in range(6):
            fleet.restart_coordinator()
            wait_for(lambda: Scrape(fleet).value("kiln_worker_connected") == 1, "the worker is back")
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
                                    "--no-fallback", "--coordinator", fleet.endpoint, "--deadline", "30"],
                                   capture_output=True, text=True, check=False, env=environment(), timeout=60)
            self.assertNotEqual(asked.returncode, 0)
            wait_for(lambda: Scrape(fleet).value("kiln_malformed_messages_total") > 0, "the stranger is counted")
        wait_for(lambda: Scrape(fleet).value("kiln_flights_total", 'outcome="unavailable"') > 0, asked.stderr)
        self.assert_fire(["KilnMalformedMessages", "KilnTargetWithoutWorker"], [well, Scrape(fleet)])

    def test_kernels_that_crash(self) -> None:
        self.tune_in_vain("__builtin_trap();", ["KilnWorkerRunnersDie", "KilnQueuedProgramsFailed"])

    def test_kernels_that_are_wrong(self) -> None:
        self.tune_in_vain("static_cast<float*>(args[1])[0] = 42;", ["KilnWrongResults", "KilnQueuedProgramsFailed"])

    def tune_in_vain(self, lie: str, wanted: list[str]) -> None:
        liar = self.folder / "liar"
        liar.write_text(LIAR % lie)
        liar.chmod(0o755)
        fleet = self.fleet("--compiler", str(liar), "--sandbox", "off")
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
