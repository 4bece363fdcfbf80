"""Unmodified Inductor and a coordinator: graphs that one process compiled and another one loads."""

from __future__ import annotations

import pickle
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from fleet import Coordinator, end, install, start


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install(tmp_path_factory.mktemp("installed") / "site")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("coordinator") / "data"


@pytest.fixture
def coordinator(data: Path) -> Iterator[Coordinator]:
    serving = Coordinator(data)
    yield serving
    serving.stop()


@pytest.mark.parametrize("what", ["infer", "train"])
def test_the_second_process_compiles_nothing(what: str, coordinator: Coordinator, installed: Path,
                                             tmp_path: Path) -> None:
    first, _ = end(start(what, coordinator.endpoint, tmp_path / "first", installed))
    assert first["compiles"] == (2 if what == "train" else 1) and first["aot_hits"] == 0
    second, _ = end(start(what, coordinator.endpoint, tmp_path / "second", installed))
    assert second["compiles"] == 0 and second["aot_hits"] == 1
    kinds = {entry["kind"] for entry in coordinator.artifacts()}
    assert kinds == {"inductor.fx_graph", "inductor.aot_autograd"}


class Bomb:
    """Writes a file when it is unpickled."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> tuple[object, ...]:
        return (Path.touch, (self.file,))


def test_what_was_changed_on_the_coordinators_disk_is_refused(data: Path, installed: Path, tmp_path: Path) -> None:
    assert (data / "artifacts.sqlite").exists(), "the test before compiled"
    exploded = tmp_path / "exploded"
    database = sqlite3.connect(data / "artifacts.sqlite")
    changed = database.execute("UPDATE contents SET value = ?", (pickle.dumps(Bomb(exploded)),)).rowcount
    database.commit()
    database.close()
    assert changed >= 2
    serving = Coordinator(data)
    try:
        told, _ = end(start("infer", serving.endpoint, tmp_path / "disk", installed))
        assert told["compiles"] == 1 and not exploded.exists()
        assert serving.stats("inductor.aot_autograd")["damaged"] >= 1
    finally:
        serving.stop()


def test_a_killed_process_leaves_its_lease_to_the_next(installed: Path, tmp_path: Path) -> None:
    serving = Coordinator(tmp_path / "data")
    try:
        holder = start("infer", serving.endpoint, tmp_path / "first", installed, CHILD_DIES="1")
        assert holder.stdout is not None and "compiling" in holder.stdout.readline()
        waiting = start("infer", serving.endpoint, tmp_path / "second", installed, KILN_INDUCTOR_WAIT_S="3600")
        while serving.stats("inductor.fx_graph")["joined"] == 0 and waiting.poll() is None:
            pass
        holder.kill()
        holder.wait()
        told, _ = end(waiting)
        assert told["compiles"] == 1
        assert serving.stats("inductor.fx_graph")["stored"] == 1
    finally:
        holder.kill()
        serving.stop()
