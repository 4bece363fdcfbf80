"""libkiln.so through ctypes: its functions and structures as kiln.h declares them.

A call drops the GIL while it runs. The library is looked for in ``KILN_LIBRARY``, then beside this
file, where the wheel has it.
"""

from __future__ import annotations

import ctypes
import os
from ctypes import (
    CFUNCTYPE,
    POINTER,
    Structure,
    c_char_p,
    c_double,
    c_int16,
    c_int32,
    c_int64,
    c_size_t,
    c_uint8,
    c_uint64,
    c_void_p,
)

from kiln.errors import KilnError, error_of

ABI_VERSION = 1
ARENA_ALIGNMENT = 256


ReadLinks = CFUNCTYPE(None, c_void_p, POINTER(c_char_p), c_int32, c_int64, c_void_p)


class ClientOptions(Structure):
    _fields_ = [("size", c_size_t), ("coordinator", c_char_p), ("key_file", c_char_p), ("cache_dir", c_char_p),
                ("signing_key", c_char_p), ("compiler", c_char_p), ("libcuda", c_char_p), ("libnvrtc", c_char_p),
                ("cache_bytes", c_int64), ("connect_timeout_ms", c_int32), ("threads", c_int32),
                ("no_fallback", c_int32), ("open_gpu", c_int32), ("read_links", ReadLinks),
                ("read_links_user", c_void_p), ("libcublaslt", c_char_p), ("gpu", c_int32)]


class ProgressStructure(Structure):
    _fields_ = [("kernels", c_int32), ("kernels_done", c_int32), ("candidates", c_int32),
                ("candidates_done", c_int32), ("elapsed_s", c_double)]


OnProgress = CFUNCTYPE(c_int32, c_void_p, POINTER(ProgressStructure))
OnMessage = CFUNCTYPE(None, c_void_p, c_char_p)
OnRefused = CFUNCTYPE(None, c_void_p, c_int32, c_char_p, c_char_p)


class CompileOptions(Structure):
    _fields_ = [("size", c_size_t), ("target", c_char_p), ("mode", c_int32), ("cached_only", c_int32),
                ("reduce_overhead", c_int32), ("background", c_int32), ("deadline_ms", c_int64),
                ("on_progress", OnProgress), ("on_message", OnMessage), ("user", c_void_p), ("strict", c_int32),
                ("verify", c_int32), ("traceparent", c_char_p), ("now", c_int32), ("fetch_only", c_int32)]


class TensorStructure(Structure):
    _fields_ = [("name", c_char_p), ("kind", c_int32), ("type_code", c_uint8), ("type_bits", c_uint8),
                ("rank", c_int16), ("sizes", POINTER(c_int64)), ("shape", c_char_p), ("strides", POINTER(c_int64)),
                ("mutates", c_int32), ("updates", c_int32)]


class SymbolStructure(Structure):
    _fields_ = [("min", c_int64), ("max", c_int64), ("tuned_at", c_int64)]


class ArtifactsOptions(Structure):
    _fields_ = [("size", c_size_t), ("coordinator", c_char_p), ("key_file", c_char_p), ("signing_key", c_char_p)]


class ArtifactOptions(Structure):
    _fields_ = [("size", c_size_t), ("timeout_ms", c_int32), ("wait_ms", c_int32), ("lease_ms", c_int32)]


class ArtifactStructure(Structure):
    _fields_ = [("bytes", c_void_p), ("bytes_size", c_size_t), ("lease", c_uint64), ("leased", c_int32)]


class CandidateStructure(Structure):
    _fields_ = [("size", c_size_t), ("name", c_char_p), ("target", c_char_p), ("arguments", POINTER(c_int32)),
                ("arguments_size", c_int32), ("threads", c_int32), ("source", c_char_p), ("function", c_char_p),
                ("items", c_int64), ("block", c_int64), ("binary", c_char_p), ("binary_size", c_size_t),
                ("blocks", c_int64), ("cluster", c_int32), ("null_pointers", c_int32),
                ("dependent_launch", c_int32), ("shared_bytes", c_int64), ("compiler", c_char_p),
                ("libnvrtc", c_char_p)]


_SIGNATURES: dict[str, tuple[object, list[object]]] = {
    "kiln_abi_version": (c_int32, []),
    "kiln_version": (c_char_p, []),
    "kiln_last_error_code": (c_int32, []),
    "kiln_last_error": (c_char_p, []),
    "kiln_link_read": (None, [c_void_p, c_int32, c_char_p, c_size_t]),
    "kiln_client_open": (c_int32, [POINTER(ClientOptions), POINTER(c_void_p)]),
    "kiln_client_close": (None, [c_void_p]),
    "kiln_client_load_bundle": (c_int32, [c_void_p, c_char_p, c_char_p, POINTER(c_int32)]),
    "kiln_client_add_bundle": (c_int32, [c_void_p, c_char_p, c_size_t, c_char_p, POINTER(c_int32)]),
    "kiln_client_service": (c_int32, [c_void_p]),
    "kiln_compile": (c_int32, [c_void_p, c_char_p, c_size_t, POINTER(CompileOptions), POINTER(c_void_p)]),
    "kiln_compile_file": (c_int32, [c_void_p, c_char_p, POINTER(CompileOptions), POINTER(c_void_p)]),
    "kiln_load_digest": (c_int32, [c_void_p, c_char_p, POINTER(CompileOptions), POINTER(c_void_p)]),
    "kiln_load_locked": (c_int32, [c_void_p, c_char_p, c_char_p, POINTER(CompileOptions), POINTER(c_void_p)]),
    "kiln_open_exported": (c_int32, [c_void_p, c_char_p, c_char_p, POINTER(CompileOptions), POINTER(c_void_p)]),
    "kiln_submit": (c_int32, [c_void_p, c_char_p, c_size_t, POINTER(CompileOptions)]),
    "kiln_program_close": (None, [c_void_p]),
    "kiln_program_successor_state": (c_int32, [c_void_p]),
    "kiln_program_successor": (c_int32, [c_void_p, POINTER(c_void_p)]),
    "kiln_refused_nodes": (c_int32, [c_char_p, c_size_t, OnRefused, c_void_p]),
    "kiln_program_input_count": (c_int32, [c_void_p]),
    "kiln_program_output_count": (c_int32, [c_void_p]),
    "kiln_program_symbol_count": (c_int32, [c_void_p]),
    "kiln_program_input": (POINTER(TensorStructure), [c_void_p, c_int32]),
    "kiln_program_output": (POINTER(TensorStructure), [c_void_p, c_int32]),
    "kiln_program_symbol": (POINTER(SymbolStructure), [c_void_p, c_int32]),
    "kiln_program_outcome": (c_char_p, [c_void_p]),
    "kiln_program_verified": (c_int32, [c_void_p]),
    "kiln_program_seconds": (c_double, [c_void_p]),
    "kiln_program_target": (c_char_p, [c_void_p]),
    "kiln_program_manifest": (c_char_p, [c_void_p]),
    "kiln_program_signature": (c_char_p, [c_void_p]),
    "kiln_program_bundle": (c_int32, [c_void_p, c_void_p, POINTER(c_size_t)]),
    "kiln_program_bind": (c_int32, [c_void_p, c_void_p, c_void_p]),
    "kiln_program_output_sizes": (c_int32, [c_void_p, c_int32, c_void_p, c_void_p]),
    "kiln_program_arena_bytes": (c_int32, [c_void_p, c_void_p, POINTER(c_int64)]),
    "kiln_program_alignment": (c_int64, [c_void_p]),
    "kiln_program_launch": (c_int32, [c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p]),
    "kiln_artifacts_open": (c_int32, [POINTER(ArtifactsOptions), POINTER(c_void_p)]),
    "kiln_artifacts_close": (None, [c_void_p]),
    "kiln_artifact_get": (c_int32, [c_void_p, c_char_p, c_char_p, POINTER(ArtifactOptions),
                                    POINTER(POINTER(ArtifactStructure))]),
    "kiln_artifact_free": (None, [POINTER(ArtifactStructure)]),
    "kiln_artifact_put": (c_int32, [c_void_p, c_char_p, c_char_p, c_char_p, c_size_t, c_int32]),
    "kiln_artifact_release": (c_int32, [c_void_p, c_uint64, c_int32]),
    "kiln_candidate_put": (c_int32, [c_void_p, c_char_p, c_size_t, POINTER(CandidateStructure), c_char_p, c_size_t,
                                     c_int32]),
}

_library: ctypes.CDLL | None = None


def library_path() -> str:
    """Where libkiln.so is."""
    return os.environ.get("KILN_LIBRARY") or os.path.join(os.path.dirname(__file__), "_lib", "libkiln.so")


def library() -> ctypes.CDLL:
    """The library, opened at the first call."""
    global _library
    if _library is None:
        path = library_path()
        try:
            opened = ctypes.CDLL(path)
        except OSError as error:
            raise KilnError(f"cannot open {path}: {error}; install the wheel, or set KILN_LIBRARY") from error
        if opened.kiln_abi_version() != ABI_VERSION:
            raise KilnError(f"{path} has version {opened.kiln_abi_version()} of Kiln's C interface, and this "
                            f"package needs {ABI_VERSION}: install both from one wheel")
        for name, (result, arguments) in _SIGNATURES.items():
            function = getattr(opened, name)
            function.restype, function.argtypes = result, arguments
        _library = opened
    return _library


def check(code: int) -> None:
    """Raises what the library's last error on this thread says, unless ``code`` is 0."""
    if code:
        raise error_of(code, library().kiln_last_error().decode(errors="replace"))
