"""Unmodified Inductor and a coordinator: timings, switches, roles, and a coordinator that is away."""

from __future__ import annotations

import json
import math
import pickle
import types
from collections.abc import Iterator
from pathlib import Path

import pytest
from fleet import Coordinator, end, install, kiln, start

from kiln import _import_hooks, _inductor
from kiln._fleet import Fleet
from kiln.artifacts import Artifacts
from kiln.errors import InvalidArgument, NotPermitted


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install(tmp_path_factory.mktemp("installed") / "site")


@pytest.fixture(scope="module")
def coordinator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Coordinator]:
    serving = Coordinator(tmp_path_factory.mktemp("coordinator") / "data")
    yield serving
    serving.stop()


def test_three_processes_time_products_once(coordinator: Coordinator, installed: Path, tmp_path: Path) -> None:
    children = [start("gemm", coordinator.endpoint, tmp_path / str(i), installed, CHILD_COMPILE_S="1")
                for i in range(3)]
    assert sorted(end(child)[0]["timed"] for child in children) == [0, 0, 1]
    counted = coordinator.stats("inductor.gemm")
    assert counted["stored"] == 1 and counted["hits"] >= 2
    assert [entry["kind"] for entry in coordinator.artifacts("inductor.gemm")] == ["inductor.gemm"]


def test_a_coordinator_that_is_away_costs_no_compile(installed: Path, tmp_path: Path) -> None:
    told, err = end(start("infer", "tcp://127.0.0.1:1", tmp_path / "disk", installed, KILN_INDUCTOR_TIMEOUT_MS="200"))
    assert told["compiles"] == 1
    assert err.count("does not answer in time") == 1


def test_away_is_asked_once() -> None:
    fleet = Fleet("tcp://127.0.0.1:1")
    asked: list[str] = []

    class Nobody:
        def get(self, kind: str, key: str, **_: object) -> None:
            asked.append(key)
            from kiln.errors import Unavailable

            raise Unavailable("nobody")

    fleet._artifacts = Nobody()  # type: ignore[assignment]
    assert [fleet.get("inductor.gemm", key) for key in "abc"] == [None] * 3
    fleet.put("inductor.gemm", "a", b"{}")
    assert asked == ["a"]


def test_off_is_off(installed: Path, tmp_path: Path) -> None:
    told, _ = end(start("gemm", "tcp://127.0.0.1:1", tmp_path / "disk", installed, KILN_INDUCTOR="off"))
    assert told["switch"] is None and told["timed"] == 1


def test_only_publish_puts_what_is_unpickled(tmp_path: Path) -> None:
    data = tmp_path / "data"
    keys = {role: tmp_path / f"{role}.key" for role in ("submit", "publish", "read")}
    for role in keys:
        kiln("keys", "new", role, "--role", role, "--data-dir", data, cwd=tmp_path)
    serving = Coordinator(data, "--keys", str(data / "keys"))
    try:
        bomb = pickle.dumps(print)
        held = {role: Artifacts(serving.endpoint, key_file=key) for role, key in keys.items()}
        for kind in ("inductor.fx_graph", "inductor.aot_autograd", "triton.group", "vllm.aot"):
            for role in ("submit", "read"):
                with pytest.raises(NotPermitted, match="--role publish"):
                    held[role].put(kind, "k", bomb, timeout_s=20)
            assert held["read"].get(kind, "k", timeout_s=20).value is None
            held["publish"].put(kind, "k", bomb, timeout_s=20)
            assert held["read"].get(kind, "k", timeout_s=20).value == bomb
        with pytest.raises(InvalidArgument):
            held["submit"].put("inductor.gemm", "k", bomb, timeout_s=20)
        held["submit"].put("inductor.gemm", "k", b'{"a": 1.5}', timeout_s=20)
        # A refused role is told once, and the compiler never.
        fleet = Fleet(serving.endpoint)
        fleet._artifacts = held["submit"]
        fleet.put("inductor.fx_graph", "other", bomb)
        fleet.flush(30)
        assert held["read"].get("inductor.fx_graph", "other", timeout_s=20).value is None
        assert "inductor.fx_graph" in fleet._refused
        # What a revoked key put is taken back.
        kiln("keys", "revoke", "publish", "--data-dir", data)
        while held["read"].get("inductor.fx_graph", "k", timeout_s=20).value is not None:
            pass
    finally:
        serving.stop()


def test_timings_are_read_strictly() -> None:
    names = ["a", "b"]
    sound = _inductor.timings_text({"a": 1.5, "b": math.inf})
    assert _inductor.timings_of(sound, names) == [1.5, math.inf]
    assert _inductor.timings_text({"a": math.nan}) is None
    for bad in (None, b"", b"[]", b'{"a": 1}', b'{"a": 1, "b": "2"}', b'{"a": 1, "b": true}', b'{"a": -1, "b": 1}',
                b'{"a": null, "b": null}', b'{"a": 1, "b": NaN}', b'{"a": 1, "b": 1e400}', pickle.dumps({"a": 1})):
        assert _inductor.timings_of(bad, names) is None, bad


def test_configurations_are_read_strictly() -> None:
    sound = {"XBLOCK": 128, "num_warps": 4, "found_by_coordesc": False, "configs_hash": "ab+/=", "x": 1.5}
    assert _inductor.is_autotune_config(json.dumps(sound).encode())
    for name, value in (("XBLOCK", "os.system('x')"), ("__import__('os')", 1), ("configs_hash", "../../x y"),
                        ("XBLOCK", [1]), ("XBLOCK", {"a": 1})):
        assert not _inductor.is_autotune_config(json.dumps({**sound, name: value}).encode()), name
    assert not _inductor.is_autotune_config(b"[]") and not _inductor.is_autotune_config(b"\x80\x04")


def test_where_a_private_name_is_missing_nothing_is_hooked(caplog: pytest.LogCaptureFixture) -> None:
    module = types.ModuleType("torch._inductor.remote_cache")
    module.RemoteCacheBackend = object  # type: ignore[attr-defined]
    module.RemoteFxGraphCache = type("RemoteFxGraphCache", (), {})  # type: ignore[attr-defined]
    _import_hooks.run(lambda m: _inductor._override_backends(m, "tcp://127.0.0.1:1", ["fx"]), module)
    assert not hasattr(module.RemoteFxGraphCache, "backend_override_cls")  # type: ignore[attr-defined]
    assert "is not as Kiln knows it" in caplog.text


def test_parts() -> None:
    assert _inductor.parts_of("") == _inductor.PARTS
    assert _inductor.parts_of("gemm, autotune") == ("gemm", "autotune")
