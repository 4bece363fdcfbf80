"""Unmodified Inductor and a coordinator: graphs that one process compiled and another one loads."""

from __future__ import annotations

import pickle
import sqlite3
import time
import time
from pathlib import Path

import pytest
from fleet import Coordinator, end, install, start


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install(tmp_path_factory.mktemp("installed") / "site")


def share(what: str, coordinator: Coordinator, installed: Path, disks: Path) -> None:
    first, _ = end(start(what, coordinator.endpoint, disks / "first", installed))
    assert first["compiles"] == (2 if what == "train" else 1) and first["aot_hits"] == 0
    second, _ = end(start(what, coordinator.endpoint, disks / "second", installed))
    assert second["compiles"] == 0 and second["aot_hits"] == 1
    kinds = {entry["kind"] for entry in coordinator.artifacts()}
    assert kinds == {"inductor.fx_graph", "inductor.aot_autograd"}


def test_a_training_step_is_compiled_once(installed: Path, tmp_path: Path) -> None:
    serving = Coordinator(tmp_path / "data")
    try:
        share("train", serving, installed, tmp_path)
    finally:
        serving.stop()


class Bomb:
    """Writes a file when it is unpickled."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> tuple[object, ...]:
        return (Path.touch, (self.file,))


def test_inference_is_compiled_once_and_what_was_changed_on_disk_is_refused(installed: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    serving = Coordinator(data)
    try:
        share("infer", serving, installed, tmp_path)
    finally:
        serving.stop()
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
            time.sleep(0.2)
        holder.kill()
        holder.wait()
        told, _ = end(waiting)
        assert told["compiles"] == 1
        assert serving.stats("inductor.fx_graph")["stored"] == 1
    finally:
        holder.kill()
        serving.stop()
