"""Alerts before the real thing: what the suites test_alerts*.py share.

Each case starts real programs, scrapes them, breaks what an alert watches, scrapes again, and has promtool's Prometheus
see the first scrape for half an hour and the others after it. The alert, as it stands, must fire then, and not before.
What a rule watches for longer than a test lasts goes on in promtool's time as it was scraped: see assert_fire().
(test_monitoring.py has a case of made-up series for every alert.)"""

from __future__ import annotations

import json
import pathlib
import re
import shutil
import subprocess
import tempfile
import time
import unittest
import urllib.error

from processes import BIN, BUILD, GRAPHS, Fleet, environment
from test_monitoring import RULES, alerts

COORDINATOR, WORKER = 'job="kiln",instance="c"', 'job="kiln-worker",instance="w"'
WELL_MINUTES, BROKEN_MINUTES = 30, 60
COUNTERS = ("_total", "_count", "_sum", "_bucket")


class Scrape:
    """What Prometheus would get of a coordinator and its worker: samples, and whether each answers."""

    def __init__(self, fleet: Fleet) -> None:
        self.samples: dict[str, float] = {}
        self.at_s = time.monotonic()
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


class Peer:
    """A client that asks for more than people do (peer.cc)."""

    def __init__(self, fleet: Fleet) -> None:
        self._process = subprocess.Popen([BUILD / "tests" / "ops_peer", fleet.endpoint], stdin=subprocess.PIPE,
                                         stdout=subprocess.PIPE, text=True)

    def begin(self, command: str) -> None:
        assert self._process.stdin
        self._process.stdin.write(command + "\n")
        self._process.stdin.flush()

    def do(self, command: str) -> None:
        self.begin(command)
        assert self._process.stdout
        said = self._process.stdout.readline()
        assert said == command + "\n", f"{command}: {said}"

    def stop(self) -> None:
        self._process.kill()
        self._process.communicate()


def plain_rules() -> str:
    """The rules without what alerts say about their values."""
    return re.sub(r"\n +annotations: .*", "", RULES.read_text())


def metrics_of(alert: str) -> set[str]:
    """Names of the metrics that it reads, by way of recording rules too."""
    text = RULES.read_text()
    rule = re.search(rf"- alert: {alert}\n(.*?)labels:", text, re.S)
    assert rule, alert
    recorded = re.findall(r"- record: (\S+)\n +expr: (.*)", text)
    read = rule[1] + "".join(expression for name, expression in recorded if name in rule[1])
    return set(re.findall(r"\w+", read))


def promtool_says(series: dict[str, str], alert: str, well: int, broken: int) -> str:
    """What is wrong; empty: nothing. `well`, `broken`: minutes of the series."""
    firing = f'ALERTS{{alertname="{alert}",alertstate="firing"}}'
    at_last = f"count(max_over_time({firing}[{broken}m]))"
    at_first = f"count(max_over_time({firing}[{well}m]))"
    tests = [{"expr": at_first, "eval_time": f"{well - 1}m", "exp_samples": []},
             {"expr": at_last, "eval_time": f"{well + broken}m",
              "exp_samples": [{"labels": "{}", "value": 1}]}]
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "rules.yaml").write_text(plain_rules())
        path = pathlib.Path(folder) / "tests.yaml"
        path.write_text(json.dumps({"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": [
            {"interval": "1m", "promql_expr_test": tests,
             "input_series": [{"series": name, "values": values} for name, values in series.items()]}]}))
        found = subprocess.run(["promtool", "test", "rules", str(path)], capture_output=True, text=True, check=False)
    return "" if found.returncode == 0 else (found.stdout + found.stderr)[-2000:]


@unittest.skipUnless(shutil.which("promtool"), "promtool is not installed; ops/setup --lint installs it")
class AlertCase(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def fleet(self, *worker: str, coordinator: tuple[str, ...] = (), stderr: int | None = None,
              **variables: str) -> Fleet:
        fleet = Fleet(self.folder, worker_arguments=worker, coordinator_arguments=coordinator,
                      coordinator_stderr=stderr, **variables)
        self.addCleanup(fleet.stop)
        return fleet.__enter__()

    def script(self, name: str, text: str) -> str:
        """The path of a program of bash."""
        path = self.folder / name
        path.write_text("#!/bin/bash\n" + text)
        path.chmod(0o755)
        return str(path)

    def held(self) -> str:
        """A compiler whose kernels wait as long as there is a file."""
        (self.folder / "hold").touch()
        return self.script("held", f"while [ $1 = kernel.cc -a -e {self.folder}/hold ]; do sleep 0.2; done\n"
                                   "exec g++ \"$@\"\n")

    def arm(self, *faults: str) -> dict[str, str]:
        """These faults strike from now on (docs/faults.md), in programs with the environment that this gives."""
        said = subprocess.run([BUILD / "tests" / "arm_faults", self.folder / "board", *faults], check=True,
                              capture_output=True, text=True)
        return dict(line.split("=", 1) for line in said.stdout.splitlines())

    def set_clock(self, *, hours_ahead: int = 0, fast: bool = False, reading_ms: int = 0) -> dict[str, str]:
        """How the clock (clock.c) of programs is from now on that have the environment that this gives."""
        file = self.folder / "clock"
        with file.open("r+b" if file.exists() else "wb") as out:
            out.write(bytes([hours_ahead, fast, reading_ms]))
        return {"LD_PRELOAD": str(BUILD / "tests" / "libops_clock.so"), "OPS_CLOCK": str(file)}

    def peer(self, fleet: Fleet) -> Peer:
        peer = Peer(fleet)
        self.addCleanup(peer.stop)
        return peer

    def queue(self, fleet: Fleet, *graphs: str) -> None:
        """Has programs tuned that take a while, without waiting for them."""
        subprocess.run([BIN / "kiln", "warm", *(GRAPHS / graph for graph in graphs), "--mode", "max-autotune",
                        "--detach", "--coordinator", fleet.endpoint], check=True, capture_output=True,
                       env=environment(), timeout=180)

    def assert_fire(self, wanted: list[str], scrapes: list[Scrape], *, apart: int = 1, goes_on: bool = False,
                    as_fast: bool = False, well: int = WELL_MINUTES, broken: int = BROKEN_MINUTES) -> None:
        """The first scrape is of the time when all was well, `well` minutes of it; the others follow, `apart` minutes
        apart, and the last stays for `broken` minutes.

        `goes_on`: but counters do not stay: they grow each minute by what the last scrape added. `as_fast`: and as
        fast as they did, by the time between the two last scrapes.
        """
        speed = 60 / (scrapes[-1].at_s - scrapes[-2].at_s) if as_fast else 1
        names = sorted({name for scrape in scrapes for name in scrape.samples})
        series = {}
        for name in names:
            seen = [scrape.samples.get(name) for scrape in scrapes]
            text = ["_" if value is None else repr(value) for value in seen]
            held = " ".join(f"{value}x{apart - 1}" for value in text[1:])
            last, more = seen[-1], 0.0
            if goes_on and last is not None and name.split("{")[0].endswith(COUNTERS):
                more = max(0.0, last - (seen[-2] or 0.0)) * speed
            end = "_" if last is None else f"{last + more!r}+{more!r}"
            series[name] = f"{text[0]}x{well - 1} {held} {end}x{broken}"
        for alert in wanted:
            self.assertIn(alert, alerts())
            with self.subTest(alert):
                used = metrics_of(alert)
                own = {name: values for name, values in series.items() if name.split("{")[0] in used}
                self.assertEqual(promtool_says(own, alert, well, broken + (len(scrapes) - 1) * apart), "")
