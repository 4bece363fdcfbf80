"""Binaries straight from the object store: what links lead to, and a service that hands them out."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from conftest import BUILD, ROOT
from fleet import Coordinator
from ports import free_port

from kiln import Client, _links

WEED = ROOT / "build" / "servers" / "bin" / "weed"
SCALE = """kiln.graph 1
%0 = input 0 : f32[64,16]
%1 = constant 0x1.4p+1 : f32[]
%2 = view %1 strides=[0,0] offset=[0] : f32[64,16]
%3 = mul %0 %2 : f32[64,16]
return %3
"""


class Server(ThreadingHTTPServer):
    """That does not mind clients who give up."""

    def handle_error(self, *_: object) -> None:
        pass


class Objects(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path == "/slow":
            time.sleep(3)
        if self.path == "/garbage":
            self.wfile.write(b"no HTTP at all\n\n")
            return
        self.send_response({"/moved": 302, "/gone": 404}.get(self.path, 200))
        if self.path == "/moved":
            self.send_header("Location", "/one")
        body = b"x" * 200 if self.path == "/large" else b"\0one"
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.path == "/drops":
            for byte in body:
                time.sleep(0.3)
                self.wfile.write(bytes([byte]))
        else:
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def objects() -> Iterator[str]:
    server = Server(("127.0.0.1", 0), Objects)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


def test_each_link_is_read_or_none(objects: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_links, "_MOST_BYTES", 100)
    urls = [f"{objects}/{name}" for name in ("one", "moved", "gone", "large")] + ["file:///etc/passwd", "http://[bad"]
    assert _links.fetch(urls, 20) == [b"\0one", None, None, None, None, None]
    assert _links.fetch([], 20) == []
    took = []
    for _ in range(3):  # a machine that stands still makes one of them long
        start = time.monotonic()
        assert _links.fetch([f"{objects}/slow"], 0.3) == [None]
        assert _links.fetch([f"{objects}/drops"], 0.5) == [None]
        took.append(time.monotonic() - start)
    assert min(took) < 2.5
    assert _links.fetch([f"{objects}/garbage", f"{objects}/one"], 20) == [None, b"\0one"]
    monkeypatch.setenv("AWS_CA_BUNDLE", "/nowhere/ca.pem")
    assert _links.fetch([f"{objects}/one"], 20) == [None]


@pytest.fixture
def postgres() -> Iterator[str]:
    """The URL of a database of its own."""
    found = shutil.which("pg_config")
    if found is None or not WEED.exists():
        pytest.skip("no PostgreSQL, or no S3 server: `ops/setup` and `ops/python servers` install them")
    programs = Path(subprocess.run([found, "--bindir"], capture_output=True, text=True, check=True).stdout.strip())
    user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]

    def run(*command: object) -> None:
        subprocess.run([*user, *map(str, command)], check=True, stdout=subprocess.DEVNULL)

    # Not in pytest's folder, which root alone may enter.
    with tempfile.TemporaryDirectory(prefix="kiln-postgres-") as folder:
        shutil.chown(folder, "postgres", "postgres")
        port = free_port()
        run(programs / "initdb", "-D", f"{folder}/data", "-U", "kiln", "-A", "trust", "-E", "UTF8", "--no-locale", "-N")
        run(programs / "pg_ctl", "-D", f"{folder}/data", "-o", f"-p {port} -h 127.0.0.1 -k {folder}", "-l",
            f"{folder}/log", "-w", "start")
        try:
            yield f"postgresql://kiln@127.0.0.1:{port}/postgres"
        finally:
            run(programs / "pg_ctl", "-D", f"{folder}/data", "-m", "immediate", "stop")


@pytest.fixture
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A place in an S3 server of its own, which the environment names."""
    names = [f"-{each}.port{kind}" for each in ("s3", "master", "volume", "filer", "admin") for kind in ("", ".grpc")]
    names.append("-debug.port")
    ports = [free_port() for _ in names]
    for name, value in (("AWS_ACCESS_KEY_ID", "k"), ("AWS_SECRET_ACCESS_KEY", "s"),
                        ("AWS_ENDPOINT_URL_S3", f"http://127.0.0.1:{ports[0]}")):
        monkeypatch.setenv(name, value)
    (tmp_path / "weed").mkdir()
    with open(tmp_path / "weed.log", "w") as log:
        server = subprocess.Popen(
            [WEED, "mini", f"-dir={tmp_path}/weed", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-bucket=kiln",
             "-admin.ui=false", "-webdav=false", "-s3.port.iceberg=0",
             *(f"{name}={port}" for name, port in zip(names, ports, strict=True))], stdout=log, stderr=log)
    try:
        yield "s3://kiln/python"
    finally:
        server.terminate()
        server.wait(60)


def links(http: str) -> int:
    with urllib.request.urlopen(f"http://{http}/metrics") as answer:
        found = re.search(r"^kiln_blob_links_total (\d+)", answer.read().decode(), re.MULTILINE)
    assert found is not None
    return int(found.group(1))


class Proxy(BaseHTTPRequestHandler):
    """The object store as the service reaches it; of what links lead to it makes what `how` says."""

    upstream = ""
    how = ""
    answered: ClassVar[list[int]] = []  # the status of each link; 0: nothing

    def pass_on(self) -> None:
        linked = "X-Amz-Signature=" in self.path
        if linked and self.how in ("silent", "closed"):
            Proxy.answered.append(0)
            time.sleep(30 if self.how == "silent" else 0)
            return
        path = self.path.replace("X-Amz-Expires=900", "X-Amz-Expires=1") if self.how == "denied" else self.path
        size = int(self.headers.get("Content-Length", 0))
        there = HTTPConnection(self.upstream)
        there.putrequest(self.command, path, skip_host=True, skip_accept_encoding=True)
        for name, value in self.headers.items():
            there.putheader(name, value)
        there.endheaders(self.rfile.read(size) if size else None)
        answer = there.getresponse()
        body = answer.read()
        if linked:
            Proxy.answered.append(answer.status)
        if linked and self.how == "other":
            body = bytes(len(body))
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in ("content-length", "transfer-encoding", "connection", "date", "server"):
                self.send_header(name, value)
        self.send_header("Content-Length", answer.headers.get("Content-Length", str(len(body))))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = pass_on

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def proxy(bucket: str) -> Iterator[str]:
    Proxy.upstream = os.environ["AWS_ENDPOINT_URL_S3"].removeprefix("http://")
    Proxy.how, Proxy.answered = "", []
    server = Server(("127.0.0.1", 0), Proxy)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


def is_stored(endpoint: str, folder: Path) -> bool:
    graph = folder / "scale.kiln"
    graph.write_text(SCALE)
    done = subprocess.run([BUILD / "bin" / "kiln", "compile", graph, "--coordinator", endpoint, "--no-fallback", "--json"],
                          check=True, stdout=subprocess.PIPE)
    return json.loads(done.stdout)["memory_only"] is False


def tune(endpoint: str, folder: Path) -> None:
    with open(folder / "worker.log", "w") as log:
        worker = subprocess.Popen([BUILD / "bin" / "kiln-worker", "--coordinator", endpoint], stdout=log, stderr=log)
    try:
        assert Client(endpoint, fallback=False).compile(SCALE.encode(), verify=True).outcome == "tuned"
        until = time.monotonic() + 60
        while not is_stored(endpoint, folder):  # the object store may have come up after the coordinator
            assert time.monotonic() < until, "the program stays on the coordinator's disk"
            time.sleep(0.2)
    finally:
        worker.terminate()
        worker.wait(60)


def with_python(endpoint: str, asks: bool) -> None:
    program = Client(endpoint, fallback=False, blob_links=asks).compile(SCALE.encode())
    assert program.outcome == "hit"
    x = np.arange(64 * 16, dtype=np.float32).reshape(64, 16)
    np.testing.assert_array_equal(np.asarray(program(x)[0]), x * 2.5)


def with_command_line(endpoint: str, folder: Path) -> None:
    graph = folder / "scale.kiln"
    graph.write_text(SCALE)
    out = folder / "out"
    done = subprocess.run([BUILD / "bin" / "kiln", "compile", graph, "--coordinator", endpoint, "--blob-links",
                           "--no-fallback", "--json", "--out", out], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["cache"] == "hit"
    assert list(out.glob("*.so")), list(out.iterdir())


def test_a_client_that_asks_for_links_has_its_binaries_from_the_object_store(tmp_path: Path, postgres: str,
                                                                            bucket: str) -> None:
    http = f"127.0.0.1:{free_port()}"
    options = ("--store", postgres, "--blobs", bucket, "--blob-links", "--copies-size", "0")
    first = Coordinator(tmp_path / "data", *options, http=http)
    try:
        tune(first.endpoint, tmp_path)
    finally:
        first.stop()
    again = Coordinator(tmp_path / "data", *options, http=http)  # with nothing in memory
    try:
        with_python(again.endpoint, asks=True)
        until = time.monotonic() + 20
        while links(http) == 0 and time.monotonic() < until:  # published once a second
            time.sleep(0.2)
        assert links(http) == 1
        with_python(again.endpoint, asks=False)  # has the bytes from the service
        time.sleep(2)
        assert links(http) == 1
    finally:
        again.stop()


def test_whatever_a_link_leads_to_the_client_has_its_binaries(tmp_path: Path, postgres: str, bucket: str,
                                                             proxy: str) -> None:
    options = ("--store", postgres, "--blobs", bucket, "--blob-links", "--copies-size", "0", "--s3-endpoint", proxy)
    first = Coordinator(tmp_path / "data", *options)
    try:
        tune(first.endpoint, tmp_path)
    finally:
        first.stop()
    for how, status in (("", 200), ("other", 200), ("denied", 403), ("closed", 0), ("silent", 0)):
        for client in ("python", "command line"):
            Proxy.how, Proxy.answered = how, []
            coordinator = Coordinator(tmp_path / "data", *options)  # with nothing in memory
            start = time.monotonic()
            try:
                if client == "python":
                    with_python(coordinator.endpoint, asks=True)
                else:
                    with_command_line(coordinator.endpoint, tmp_path)
            finally:
                coordinator.stop()
            assert Proxy.answered == [status], (how, client)
            assert time.monotonic() - start < 60, (how, client)


def test_where_the_object_store_is_away_the_client_hears_so_and_compiles_for_itself(tmp_path: Path, postgres: str,
                                                                                   bucket: str) -> None:
    options = ("--store", postgres, "--blobs", bucket, "--copies-size", "0")
    first = Coordinator(tmp_path / "data", *options)
    try:
        tune(first.endpoint, tmp_path)
    finally:
        first.stop()
    again = Coordinator(tmp_path / "data", *options, "--s3-endpoint", f"http://127.0.0.1:{free_port()}")  # nobody's
    command = [BUILD / "bin" / "kiln", "compile", tmp_path / "scale.kiln", "--json", "--coordinator", again.endpoint]
    try:
        for more, why in ((("--deadline", "60"), f"{again.endpoint} cannot read the program's binaries: {bucket}"),
                          (("--deadline", "4"), f"{again.endpoint} did not send the program's binaries in time")):
            done = subprocess.run([*command, *more], capture_output=True, text=True)
            assert done.returncode == 0, done.stderr
            assert json.loads(done.stdout)["cache"] == "local"
            assert f"kiln: {why}" in done.stderr and "; compiled here, untuned" in done.stderr, done.stderr
        done = subprocess.run([*command, "--no-fallback"], capture_output=True, text=True)
        assert done.returncode == 3, done.stderr
        assert "cannot read the program's binaries" in done.stderr, done.stderr
    finally:
        again.stop()
