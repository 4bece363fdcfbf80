"""Triton's cache manager: groups of a kernel's files that a fleet shares."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fleet import CHILD_S, Coordinator
from kiln.artifacts import Artifacts

pytest.importorskip("triton", reason="PyTorch of this environment brings no Triton")

from kiln.triton import Manager, packed, unpacked

KEY = "ABCDEFGH"


@pytest.fixture(scope="module")
def coordinator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Coordinator]:
    serving = Coordinator(tmp_path_factory.mktemp("coordinator") / "data")
    yield serving
    serving.stop()


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "triton"))
    monkeypatch.setenv("KILN_INDUCTOR_TIMEOUT_MS", "60000")
    return tmp_path


def start(endpoint: str, disk: Path) -> subprocess.Popen[str]:
    given = {**os.environ, "KILN_COORDINATOR": endpoint, "TRITON_CACHE_DIR": str(disk),
             "TRITON_CACHE_MANAGER": "kiln.triton:Manager", "KILN_INDUCTOR_TIMEOUT_MS": "60000"}
    return subprocess.Popen([sys.executable, Path(__file__).parent / "triton_child.py"], env=given,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def end(process: subprocess.Popen[str]) -> dict[str, Any]:
    try:
        out, err = process.communicate(timeout=CHILD_S)
    finally:
        process.kill()
    assert process.returncode == 0, out + err
    told: dict[str, Any] = json.loads(out.splitlines()[-1])
    return told


def test_three_processes_on_empty_disks_compile_a_kernel_once(coordinator: Coordinator, tmp_path: Path) -> None:
    told = [end(each) for each in [start(coordinator.endpoint, tmp_path / str(i)) for i in range(3)]]
    assert sorted(each["compiled"] for each in told) == [0, 0, 1]
    assert len({each["binary"] for each in told}) == 1
    # From the disk alone, what came from the coordinator is whole.
    again = end(start("tcp://127.0.0.1:1", tmp_path / str([each["compiled"] for each in told].index(0))))
    assert again == {"compiled": 0, "binary": told[0]["binary"]}
    assert [entry["kind"] for entry in coordinator.artifacts("triton")] == ["triton.group"]


def test_a_coordinator_that_is_away_costs_no_kernel(tmp_path: Path) -> None:
    assert end(start("tcp://127.0.0.1:1", tmp_path))["compiled"] == 1


def test_a_group_that_is_not_whole_is_none(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KILN_COORDINATOR", raising=False)
    manager = Manager(KEY)
    assert manager.get_group("f.json") is None
    group = {name: manager.put(content, name) for name, content in (("f.json", "{}"), ("f.cubin", b"\x7fELF"))}
    manager.put_group("f.json", group)
    assert manager.get_group("f.json") == group
    Path(group["f.cubin"]).unlink()
    assert Manager(KEY).get_group("f.json") is None


def test_a_kernel_that_did_not_compile_gives_its_lease_up(coordinator: Coordinator, disk: Path,
                                                          monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KILN_COORDINATOR", coordinator.endpoint)
    manager: Manager | None = Manager(KEY)
    assert manager is not None and manager.get_group("broken.json") is None
    other, name = Artifacts(coordinator.endpoint), f"{KEY}/broken.json"
    assert other.get("triton.group", name, timeout_s=60, lease_s=60).leased
    manager = None
    until = time.monotonic() + 60
    while not other.get("triton.group", name, timeout_s=60, lease_s=60).lease:
        assert time.monotonic() < until


def test_what_is_no_group_is_a_miss(disk: Path, tmp_path: Path) -> None:
    binary = tmp_path / "f.cubin"
    binary.write_bytes(b"\x00\x01")
    value = packed({"f.json": str(binary), "f.cubin": str(binary)})
    assert value is not None and unpacked(value, "f.json") == {"f.json": b"\x00\x01", "f.cubin": b"\x00\x01"}
    assert unpacked(value, "g.json") is None
    assert packed({"../f.json": str(binary)}) is None
    content = base64.b64encode(b"x").decode()
    for name in ("../../etc/x", "/etc/x", "a/b", "__grp__f.json", "", ".", "..", "x" * 300, "a\nb"):
        bad = json.dumps({"format": 1, "files": {"f.json": content, name: content}}).encode()
        assert unpacked(bad, "f.json") is None, name
    for bad in (b"", b"[]", b"{}", b'{"format": 2, "files": {"f.json": ""}}', b'{"format": 1, "files": ["f.json"]}',
                b'{"format": 1, "files": {"f.json": 7}}', b'{"format": 1, "files": {"f.json": "%%%"}}',
                b"\x80\x04K\x01."):
        assert unpacked(bad, "f.json") is None, bad
