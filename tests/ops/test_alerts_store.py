"""Alerts before the real thing (alert_case.py): a store of several machines, a part of which is away."""

from __future__ import annotations

import unittest

from alert_case import AlertCase, Scrape
from processes import Postgres, wait_for


@unittest.skipUnless(Postgres.available(), "no PostgreSQL here: ./ops/setup installs it")
class BrokenStores(AlertCase):
    def test_the_place_of_the_binaries_is_away_and_what_is_tuned_waits_on_one_disk(self) -> None:
        database = Postgres(self.folder / "postgres")
        self.addCleanup(database.stop)
        place, elsewhere = self.folder / "blobs", self.folder / "blobs.away"
        fleet = self.fleet(coordinator=("--store", database.url, "--blobs", str(place)))
        fleet.compile("softmax.pt2", "--mode", "max-autotune")
        well = Scrape(fleet)

        place.rename(elsewhere)
        fleet.compile("layernorm.pt2", "--mode", "max-autotune")
        wait_for(lambda: Scrape(fleet).value("kiln_spooled") > 0, "what was tuned waits")
        self.assert_fire(["KilnSpoolWaits"], [well, Scrape(fleet)])
        self.assertGreater(Scrape(fleet).value("kiln_spooled_bytes"), 0)

        elsewhere.rename(place)
        wait_for(lambda: Scrape(fleet).value("kiln_spooled") == 0, "it is stored")
        well = Scrape(fleet)
        database.stop()
        wait_for(lambda: Scrape(fleet).value("kiln_store_away") > 0, "nobody answers")
        self.assert_fire(["KilnStoreAway"], [well, Scrape(fleet)])
        database.start()


if __name__ == "__main__":
    unittest.main(verbosity=1)
