"""Alerts before the real thing (alert_case.py): a coordinator short of disk, of CPU time, of room and of readers."""

from __future__ import annotations

import os
import subprocess
import time
import unittest

from alert_case import AlertCase, Scrape
from processes import BIN, GRAPHS, Fleet, environment, wait_for


class BrokenCoordinators(AlertCase):
    def check_only(self, fleet: Fleet, graph: str) -> None:
        subprocess.run([BIN / "kiln", "compile", GRAPHS / graph, "--mode", "max-autotune", "--check", "--coordinator",
                        fleet.endpoint], capture_output=True, check=False, env=environment(), timeout=180)

    def test_a_disk_that_is_slow_and_one_that_does_not_read(self) -> None:
        variables = self.arm()
        fleet = self.fleet(**variables)
        well = Scrape(fleet)
        self.arm("delay:before:coordinator.log.sync:0:0:1000000:1500")
        fleet.compile("where_on_sum.pt2", "--mode", "max-autotune")  # few candidates: each costs a write
        wait_for(lambda: Scrape(fleet).value("kiln_flight_stage_duration_seconds_count", 'stage="storing"') > 0,
                 "the program is stored")
        self.assert_fire(["KilnStoringSlow"], [well, Scrape(fleet)], goes_on=True)

        self.arm()
        fleet.restart_coordinator()
        well = Scrape(fleet)
        self.arm("delay:before:coordinator.index.read:0:0:1000000:150")
        self.check_only(fleet, "softmax.pt2")
        wait_for(lambda: Scrape(fleet).value("kiln_lookup_duration_seconds_count", 'source="index"') > 0,
                 "the index is read")
        self.assert_fire(["KilnIndexSlow"], [well, Scrape(fleet)], goes_on=True)

        self.arm()
        fleet.restart_coordinator()
        well = Scrape(fleet)
        self.arm("fail:before:coordinator.index.read:5:0:1000000:0")
        self.check_only(fleet, "softmax.pt2")
        wait_for(lambda: Scrape(fleet).value("kiln_store_read_failures_total") > 0, "the failure is counted")
        self.assert_fire(["KilnStoreDoesNotRead"], [well, Scrape(fleet)])
        self.arm()

    def test_a_coordinator_that_is_asked_a_lot_and_one_that_hardly_runs(self) -> None:
        fleet = self.fleet(**self.set_clock())
        peer = self.peer(fleet)
        peer.do("ask 1")
        wait_for(lambda: Scrape(fleet).value("kiln_lookup_hits_total") > 0, "a look-up is counted")
        well = Scrape(fleet)
        self.set_clock(reading_ms=60)
        peer.do("ask 10")
        wait_for(lambda: Scrape(fleet).value("kiln_lookup_hits_total") >= well.value("kiln_lookup_hits_total") + 10,
                 "look-ups are counted")
        slow = Scrape(fleet)
        self.assert_fire(["KilnLookupsSlow", "KilnLoopSlow"], [well, slow], goes_on=True)

        self.set_clock(reading_ms=5)
        peer.begin("ask 100000000")  # until the test ends it
        time.sleep(5)
        before = Scrape(fleet)
        time.sleep(30)
        self.assert_fire(["KilnLoopBusy"], [well, before, Scrape(fleet)], goes_on=True, as_fast=True)
        self.set_clock()

    def test_graphs_that_take_long_to_plan(self) -> None:
        """One planner has two graphs of many operations, and what is no graph waits behind them."""
        fleet = self.fleet()
        well = Scrape(fleet)
        peer = self.peer(fleet)
        peer.do("plan 2 60000")
        peer.begin("texts 10 30")
        wait_for(lambda: Scrape(fleet).value("kiln_graph_waiting_bytes") > 256 << 20, "graphs wait")
        self.assert_fire(["KilnGraphsWait"], [well, Scrape(fleet)])
        fleet.coordinator.kill()

    def test_a_cache_that_is_too_small(self) -> None:
        """What was used in the last ten minutes is never evicted: here an hour goes by after each program."""
        fleet = self.fleet(coordinator=("--cache-size", "40KiB"), **self.set_clock())
        peer = self.peer(fleet)

        def evicted() -> float:
            return Scrape(fleet).value("kiln_cache_evictions_total")

        programs = 0
        while evicted() < 1:
            self.set_clock(hours_ahead=programs)
            peer.do(f"tune {programs}")
            programs += 1
        # The store evicts before the coordinator counts the program as tuned: a scrape may fall in between.
        wait_for(lambda: Scrape(fleet).value("kiln_flights_total", 'outcome="tuned"') == programs, "all are counted")
        well = Scrape(fleet)
        for more in range(1, 12):
            self.set_clock(hours_ahead=programs)
            peer.do(f"tune {programs}")
            programs += 1
            wait_for(lambda more=more: evicted() >= well.value("kiln_cache_evictions_total") + more, "it makes room")
        self.assert_fire(["KilnCacheTooSmall"], [well, Scrape(fleet)], goes_on=True, broken=150)

    def test_a_log_that_nobody_reads(self) -> None:
        reading, writing = os.pipe()
        self.addCleanup(os.close, reading)
        self.addCleanup(os.close, writing)
        fleet = self.fleet(stderr=writing)
        well = Scrape(fleet)
        os.set_blocking(writing, False)
        try:
            while True:
                os.write(writing, b"\n")
        except BlockingIOError:
            pass
        fleet.compile("softmax.pt2")
        wait_for(lambda: Scrape(fleet).value("kiln_log_lines_dropped_total") > 0, "lines are lost")
        self.assert_fire(["KilnLogLinesDropped"], [well, Scrape(fleet)])


if __name__ == "__main__":
    unittest.main(verbosity=1)
