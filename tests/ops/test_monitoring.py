"""The alert rules and the Grafana board of ops/monitoring.

Each alert fires when it should and not before, every expression parses, every metric is one that a coordinator or a
worker really exports, and docs/operations.md says what to do."""

import json
import os
import re
import shutil
import subprocess
import tempfile
import time
import unittest
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(os.environ["KILN_BUILD_DIR"]) / "bin"
RULES = ROOT / "ops" / "monitoring" / "rules.yaml"
BOARD = ROOT / "ops" / "monitoring" / "board.json"

COORDINATOR = 'instance="c",job="kiln"'
WORKER = 'instance="w",job="kiln-worker"'



def slow_after_20_minutes(histogram: str, labels: str, fast_s: float, slow_s: float) -> dict[str, str]:
    """Nine events a minute, which take less than `fast_s` for twenty minutes, and up to `slow_s` from then on."""
    def bucket(le: object) -> str:
        return f'{histogram}_bucket{{{labels},le="{le}"}}'

    return {bucket(fast_s): "0+9x20 180x80", bucket(slow_s): "0+9x100", bucket("+Inf"): "0+9x100"}


# Alert: series as promtool writes them, a sample a minute; a minute when all is well; a minute when it fires.
FIRES: dict[str, tuple[dict[str, str], int, int]] = {
    "KilnDown": ({f"up{{{COORDINATOR}}}": "1x5 0x10"}, 6, 9),
    "KilnRestartsOften": ({f"process_start_time_seconds{{{COORDINATOR}}}": "1x10 2x5 3x5 4x5 5x20"}, 15, 30),
    "KilnOverloaded": ({f"kiln_requests_overloaded_total{{{COORDINATOR}}}": "0x5 1+1x20"}, 4, 15),
    "KilnRequestsPileUp": ({f"kiln_requests_open{{{COORDINATOR}}}": "10x60 200+10x140"}, 60, 180),
    "KilnMalformedMessages": ({f"kiln_malformed_messages_total{{{COORDINATOR}}}": "0x20 1x20"}, 19, 22),
    "KilnProgramsFail": ({f'kiln_flights_total{{{COORDINATOR},outcome="internal"}}': "0x20 1x20"}, 19, 22),
    "KilnTargetWithoutWorker": ({f'kiln_flights_total{{{COORDINATOR},outcome="unavailable"}}': "0x20 1x20"}, 19, 22),
    "KilnQueuedProgramsFailed": ({f'kiln_detached_programs{{{COORDINATOR},state="failed"}}': "0x5 2x20"}, 8, 15),
    "KilnQueuedProgramsLost": ({f"kiln_detached_damaged_total{{{COORDINATOR}}}": "0x5 3x20"}, 4, 8),
    "KilnNoWorkers": ({f'kiln_workers{{{COORDINATOR},state="serving"}}': "1x5 0x20",
                       f"kiln_candidates_queued{{{COORDINATOR}}}": "9x30"}, 5, 15),
    "KilnWorkerQuarantined": ({f'kiln_workers{{{COORDINATOR},state="quarantined"}}': "0x5 1x20"}, 5, 15),
    "KilnTuningStalled": ({f"kiln_candidates_queued{{{COORDINATOR}}}": "9x60",
                           f"kiln_candidates_compiled_total{{{COORDINATOR}}}": "0+1x15 15x45",
                           f"kiln_candidates_measured_total{{{COORDINATOR}}}": "0+1x15 15x45"}, 20, 40),
    "KilnTooFewWorkers": ({f"kiln_candidates_queued{{{COORDINATOR}}}": "0x60 1+5x140"}, 60, 180),
    "KilnCandidatesRetried": ({f"kiln_candidates_retried_total{{{COORDINATOR}}}": "0x60 0+1x60",
                               f"kiln_candidates_compiled_total{{{COORDINATOR}}}": "0+10x120"}, 60, 115),
    "KilnCandidatesSetAside": ({f"kiln_candidates_set_aside_total{{{COORDINATOR}}}": "0x10 1x10"}, 9, 12),
    "KilnCorruptBlobs": ({f"kiln_cache_corrupt_blobs_total{{{COORDINATOR}}}": "0x10 1x10"}, 9, 12),
    "KilnStoreDoesNotWrite": ({f"kiln_store_failures_total{{{COORDINATOR}}}": "0x10 1x10"}, 9, 12),
    "KilnStoreDoesNotRead": ({f"kiln_store_read_failures_total{{{COORDINATOR}}}": "0x10 1x10"}, 9, 12),
    "KilnStoreAway": ({f"kiln_store_away{{{COORDINATOR}}}": "0x10 1x20"}, 12, 20),
    "KilnSpoolWaits": ({f"kiln_spooled{{{COORDINATOR}}}": "0x10 12x40"}, 15, 35),
    "KilnLookupsSlow": (slow_after_20_minutes(
        "kiln_lookup_duration_seconds", COORDINATOR + ',source="memory"', 0.0005, 0.01), 15, 50),
    "KilnIndexSlow": (slow_after_20_minutes(
        "kiln_lookup_duration_seconds", COORDINATOR + ',source="index"', 0.01, 0.5), 15, 50),
    "KilnStoringSlow": (slow_after_20_minutes(
        "kiln_flight_stage_duration_seconds", COORDINATOR + ',stage="storing"', 1, 10), 15, 70),
    "KilnLoopSlow": (slow_after_20_minutes("kiln_loop_turn_duration_seconds", COORDINATOR, 0.01, 0.5), 15, 50),
    "KilnLoopBusy": ({f"kiln_loop_turn_duration_seconds_sum{{{COORDINATOR}}}": "0+30x20 657+57x40"}, 20, 50),
    "KilnDescriptorsShort": ({f"process_open_fds{{{COORDINATOR}}}": "50x5 900x20",
                              f"process_max_fds{{{COORDINATOR}}}": "1000x30"}, 5, 15),
    "KilnGraphsWait": ({f"kiln_graph_waiting_bytes{{{COORDINATOR}}}": "0x5 300000000x20"}, 5, 15),
    "KilnCacheTooSmall": ({f"kiln_cache_evictions_total{{{COORDINATOR}}}": "0x60 0+2x140",
                           f'kiln_flights_total{{{COORDINATOR},outcome="tuned"}}': "0+1x200"}, 60, 190),
    "KilnLogLinesDropped": ({f"kiln_log_lines_dropped_total{{{COORDINATOR}}}": "0x10 7x10"}, 9, 12),
    "KilnVersionsDiffer": ({f'kiln_build_info{{{COORDINATOR},version="1"}}': "1x500",
                            f'kiln_worker_build_info{{{WORKER},version="2"}}': "_x60 1x440"}, 60, 480),
    "KilnWorkerDown": ({f"up{{{WORKER}}}": "1x5 0x20"}, 6, 15),
    "KilnWorkerDisconnected": ({f"kiln_worker_connected{{{WORKER}}}": "1x5 0x20"}, 6, 15),
    "KilnWorkerReconnects": ({f"kiln_worker_connections_total{{{WORKER}}}": "1x30 1+1x30"}, 30, 55),
    "KilnWorkerDrains": ({f"kiln_worker_draining{{{WORKER}}}": "0x5 1x40"}, 10, 30),
    "KilnWorkerDeviceErrors": ({f"kiln_worker_device_errors_total{{{WORKER}}}": "0x10 1x10"}, 9, 12),
    "KilnWorkerRunnersDie": ({f'kiln_worker_candidates_total{{{WORKER},verdict="runner_died"}}': "0x60 0+1x60",
                              f'kiln_worker_candidates_total{{{WORKER},verdict="ok"}}': "0+10x120"}, 60, 115),
    "KilnWrongResults": ({f'kiln_worker_candidates_total{{{WORKER},verdict="wrong_result"}}': "0x10 1x10"}, 9, 12),
    "KilnWorkerDrifts": ({f"kiln_worker_sentinel_seconds{{{WORKER}}}": "0.001x200 0.0012x60"}, 190, 240),
    "KilnCompilersSlow": (slow_after_20_minutes(
        "kiln_worker_stage_duration_seconds", WORKER + ',stage="compile"', 30, 120), 15, 90),
}


def promtool(*arguments: object) -> None:
    found = subprocess.run(["promtool", *map(str, arguments)], capture_output=True, text=True, check=False)
    if found.returncode != 0:
        raise AssertionError((found.stdout + found.stderr)[-4000:])


def alerts() -> dict[str, str]:
    """Severity by name of each alert of the rules."""
    return dict(re.findall(r"- alert: (\w+)\n.*?labels: \{severity: (\w+)\}", RULES.read_text(), re.S))


def board_expressions() -> list[str]:
    board = json.loads(BOARD.read_text())
    return [target["expr"] for panel in board["panels"] for target in panel.get("targets", [])]


def rule_expressions() -> list[str]:
    return re.findall(r"expr: (?:>-\n)?(.*?)(?=\n +(?:for|labels|- record|- alert)|\n\n|\Z)", RULES.read_text(), re.S)


def metric_names(expressions: list[str]) -> set[str]:
    return {name for text in expressions for name in re.findall(r"\b((?:kiln|process)_\w+)", text)}


def scrape(url: str) -> str:
    with urllib.request.urlopen(url, timeout=60) as answer:
        return str(answer.read().decode())


@unittest.skipUnless(shutil.which("promtool"), "promtool is not installed; ops/setup --lint installs it")
class Rules(unittest.TestCase):
    def test_are_valid(self) -> None:
        promtool("check", "rules", RULES)

    def test_each_alert_fires_when_it_should_and_not_before(self) -> None:
        self.assertEqual(sorted(alerts()), sorted(FIRES), "each alert has its case in this file")
        with tempfile.TemporaryDirectory() as folder:
            # What an alert says holds the values; here only whether it fires counts.
            bare = re.sub(r"\n +annotations: .*", "", RULES.read_text())
            (Path(folder) / "rules.yaml").write_text(bare)
            tests = []
            for alert, (series, well, firing) in FIRES.items():
                expected = [(well, []), (firing, [{"exp_labels": self.labels(alert)}])]
                cases = [{"eval_time": f"{minute}m", "alertname": alert, "exp_alerts": fired}
                         for minute, fired in expected]
                tests.append({"interval": "1m", "name": alert, "alert_rule_test": cases,
                              "input_series": [{"series": name, "values": values} for name, values in series.items()]})
            (Path(folder) / "tests.yaml").write_text(json.dumps(
                {"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": tests}))
            promtool("test", "rules", Path(folder) / "tests.yaml")

    def labels(self, alert: str) -> dict[str, str]:
        """Labels of the alert that fires: those of its series that the expression keeps."""
        series = next(iter(FIRES[alert][0]))
        labels = dict(re.findall(r'(\w+)="([^"]*)"', series)) | {"severity": alerts()[alert]}
        by_instance = {"severity", "instance"}
        kept = {"KilnVersionsDiffer": {"severity"}, "KilnWorkerRunnersDie": by_instance, "KilnLoopSlow": by_instance,
                "KilnCompilersSlow": by_instance, "KilnLookupsSlow": by_instance | {"source"},
                "KilnIndexSlow": by_instance | {"source"}, "KilnStoringSlow": by_instance | {"stage"}}
        return {name: value for name, value in labels.items() if name in kept.get(alert, labels)}

    def test_the_board_and_the_rules_use_metrics_that_are_exported(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            exported = self.exported(Path(folder))
        names = set(re.findall(r"^([a-z0-9_]+)", exported, re.M))
        used = metric_names(board_expressions() + rule_expressions())
        self.assertGreater(len(used), 30)
        self.assertEqual(sorted(used - names), [], "no such metric")

    def exported(self, folder: Path) -> str:
        """The metrics of a coordinator and of its worker, each a process."""
        ready = folder / "ready.json"
        processes = [subprocess.Popen(
            [BIN / "kiln-coordinator", "--data-dir", folder / "data", "--listen", "tcp://127.0.0.1:0",
             "--http", "127.0.0.1:0", "--ready-file", ready], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)]
        log = folder / "worker.log"
        try:
            self.wait_for(ready.exists)
            service = json.loads(ready.read_text())
            with log.open("w") as stderr:
                processes.append(subprocess.Popen(
                    [BIN / "kiln-worker", "--coordinator", service["endpoint"], "--http", "127.0.0.1:0"],
                    stderr=stderr))
            self.wait_for(lambda: "metrics on" in log.read_text())
            worker = re.search(r"metrics on (\S+)", log.read_text())
            assert worker
            return "".join(scrape(address + "/metrics") for address in (service["http"], worker[1]))
        finally:
            for process in processes:
                process.terminate()
            for process in processes:
                process.wait(60)

    def wait_for(self, condition: object) -> None:
        for _ in range(600):
            if condition():  # type: ignore[operator]
                return
            time.sleep(0.1)
        self.fail("a process did not come up within a minute")

    def test_each_expression_of_the_board_parses(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            plain = [each.replace("$instance", ".*").replace("$__rate_interval", "5m") for each in board_expressions()]
            rules = [{"record": f"board:panel{i}", "expr": expr} for i, expr in enumerate(plain)]
            path = Path(folder) / "board.yaml"
            path.write_text(json.dumps({"groups": [{"name": "board", "rules": rules}]}))
            promtool("check", "rules", path)


class Documents(unittest.TestCase):
    def test_the_manual_says_what_to_do_about_each_alert(self) -> None:
        manual = (ROOT / "docs" / "operations.md").read_text()
        rows = set(re.findall(r"^\| `(Kiln\w+)`", manual, re.M))
        self.assertEqual(sorted(alerts()), sorted(rows))

    def test_panels_of_the_board_do_not_overlap(self) -> None:
        board = json.loads(BOARD.read_text())
        taken: set[tuple[int, int]] = set()
        ids = [panel["id"] for panel in board["panels"]]
        self.assertEqual(len(ids), len(set(ids)))
        for panel in board["panels"]:
            at = panel["gridPos"]
            cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
            self.assertFalse(cells & taken, panel["title"])
            self.assertLessEqual(at["x"] + at["w"], 24)
            taken |= cells


if __name__ == "__main__":
    unittest.main(verbosity=1)
