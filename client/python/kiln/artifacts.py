"""Values of other compilers that a coordinator keeps for a fleet: small bytes by kind and key."""

from __future__ import annotations

import ctypes
import os
from ctypes import POINTER, byref, c_void_p
from typing import NamedTuple

from kiln import _native

#: Kinds that are one flat JSON object: any key of the role submit may put them.
DATA_KINDS = ("inductor.autotune", "inductor.gemm")
#: Kinds whose readers unpickle them, or load their binaries: they take the role publish.
CODE_KINDS = ("inductor.aot_autograd", "inductor.fx_graph", "kiln.candidate", "triton.group", "vllm.aot")


class Artifact(NamedTuple):
    """What a get found."""

    value: bytes | None  #: None: a miss
    lease: int  #: with a miss: the caller makes the value, and puts or releases it; 0: no lease
    leased: bool  #: with a miss: somebody else still makes it


class Artifacts:
    """A coordinator's artifacts. Opening it contacts nobody; threads may share it.

    >>> artifacts = Artifacts("tcp://127.0.0.1:7557")

    Args:
        coordinator: its endpoint.
        key_file: what ``kiln keys new`` wrote; default ``$KILN_KEY``, none.

    Raises:
        InvalidArgument: no such key file.
    """

    def __init__(self, coordinator: str, *, key_file: str | os.PathLike[str] | None = None) -> None:
        key = key_file if key_file is not None else os.environ.get("KILN_KEY")
        options = _native.ArtifactsOptions(size=ctypes.sizeof(_native.ArtifactsOptions),
                                           coordinator=coordinator.encode(),
                                           key_file=os.fsencode(key) if key else None)
        self._library = _native.library()
        self._handle = c_void_p()
        _native.check(self._library.kiln_artifacts_open(byref(options), byref(self._handle)))

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            self._library.kiln_artifacts_close(self._handle)
            self._handle = c_void_p()

    def get(self, kind: str, key: str, *, timeout_s: float = 2.0, wait_s: float = 0.0,
            lease_s: float = 0.0) -> Artifact:
        """The value of ``key``, which the coordinator's key signed.

        Args:
            timeout_s: of the call, but for ``wait_s``.
            wait_s: for whoever makes the value now.
            lease_s: of the lease that a miss takes, where this key's role may put such a value.

        Raises:
            Unavailable, DeadlineExceeded: no coordinator, or none in time.
            Corruption, NotPermitted: the value is not what was signed, or somebody else signed it.
            Unsupported: the coordinator knows no such kind.
        """
        options = _native.ArtifactOptions(size=ctypes.sizeof(_native.ArtifactOptions),
                                          timeout_ms=max(1, int(timeout_s * 1000)), wait_ms=int(wait_s * 1000),
                                          lease_ms=int(lease_s * 1000))
        found = POINTER(_native.ArtifactStructure)()
        _native.check(self._library.kiln_artifact_get(self._handle, kind.encode(), key.encode(), byref(options),
                                                      byref(found)))
        try:
            raw = found.contents
            value = ctypes.string_at(raw.bytes, raw.bytes_size) if raw.bytes else None
            return Artifact(value, raw.lease, bool(raw.leased))
        finally:
            self._library.kiln_artifact_free(found)

    def put(self, kind: str, key: str, value: bytes, *, timeout_s: float = 2.0) -> None:
        """Stores a value of at most 16 MiB in place of an earlier one, and ends the lease of its key.

        Raises:
            NotPermitted: this key's role may not put artifacts of this kind.
            InvalidArgument: not a value of this kind.
            Unavailable, DeadlineExceeded, Overloaded.
        """
        _native.check(self._library.kiln_artifact_put(self._handle, kind.encode(), key.encode(), value, len(value),
                                                      max(1, int(timeout_s * 1000))))

    def release(self, lease: int, *, timeout_s: float = 2.0) -> None:
        """Gives a lease up: the next one who waits makes the value."""
        _native.check(self._library.kiln_artifact_release(self._handle, lease, max(1, int(timeout_s * 1000))))
