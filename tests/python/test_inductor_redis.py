"""Inductor's own Redis client, without Kiln's hooks, against the coordinator's Redis port."""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path

import pytest
from fleet import Coordinator, end, install, kiln, start

redis = pytest.importorskip("redis", reason="redis-py is not in the environment: pip install redis")

KEY = "pt2:fx-graph-v1::fabc:c1"


def port_of(serving: Coordinator) -> str:
    endpoint: str = json.loads((serving.data.parent / f"{serving.data.name}.ready").read_text())["redis"]
    return endpoint


def test_two_processes_share_through_redis(tmp_path: Path) -> None:
    serving = Coordinator(tmp_path / "data", "--redis-listen", "127.0.0.1:0")
    try:
        without = {"KILN_INDUCTOR": "off", "TORCHINDUCTOR_REDIS_URL": port_of(serving),
                   "TORCHINDUCTOR_FX_GRAPH_REMOTE_CACHE": "1", "TORCHINDUCTOR_AUTOGRAD_REMOTE_CACHE": "1"}
        site = install(tmp_path / "site")
        first, _ = end(start("infer", serving.endpoint, tmp_path / "first", site, **without))
        second, _ = end(start("infer", serving.endpoint, tmp_path / "second", site, **without))
        assert first["compiles"] == 1 and second["compiles"] == 0 and second["aot_hits"] == 1
        assert serving.stats("inductor.fx_graph")["stored"] == 1
    finally:
        serving.stop()


def test_passwords_are_tokens_and_roles_hold(tmp_path: Path) -> None:
    data = tmp_path / "data"
    tokens = {}
    for role in ("submit", "publish"):
        kiln("keys", "new", role, "--role", role, "--data-dir", data, cwd=tmp_path)
        tokens[role] = kiln("page-token", "--key", tmp_path / f"{role}.key", "--role", role).strip()
    serving = Coordinator(data, "--keys", str(data / "keys"), "--redis-listen", "127.0.0.1:0")
    try:
        host, port = port_of(serving).removeprefix("redis://").split(":")

        def client(password: str | None) -> redis.Redis:
            return redis.Redis(host=host, port=int(port), password=password)

        for wrong in (None, "kiln1.nobody"):
            with pytest.raises(redis.exceptions.AuthenticationError):
                client(wrong).get(KEY)
        bomb = pickle.dumps(os.getcwd)
        assert client(tokens["submit"]).set(KEY, bomb)  # an error would end Inductor's compile
        assert client(tokens["publish"]).get(KEY) is None
        assert client(tokens["publish"]).set(KEY, bomb)
        assert client(tokens["submit"]).get(KEY) == bomb
        assert client(tokens["publish"]).get("another key") is None
    finally:
        serving.stop()
