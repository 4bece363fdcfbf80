"""Client and Program: compile a captured graph, and run it on arrays."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable, Sequence
from ctypes import byref, c_int32, c_int64, c_size_t, c_void_p
from typing import Any, Literal, NamedTuple

from kiln import _native
from kiln._arrays import Borrowed, borrow, new_arrays
from kiln._tracing import traced
from kiln.errors import InvalidArgument, KilnError, Unsupported

Mode = Literal["default", "max-autotune"]
Service = Literal["unknown", "reachable", "away"]
_MODES: dict[str, int] = {"default": 0, "max-autotune": 1}
_SERVICES: tuple[Service, ...] = ("unknown", "reachable", "away")
_AWAITED, _READY = 1, 2  # kiln_successor
_KINDS = ("user", "parameter", "buffer", "constant", "seed", "mutation")
_TYPES = {(2, 64): "f64", (2, 32): "f32", (2, 16): "f16", (4, 16): "bf16", (10, 8): "f8e4m3", (12, 8): "f8e5m2",
          (14, 8): "f8e8m0",
          (0, 0): "none",  # of an input that the program does not read
          (0, 8): "i8", (0, 16): "i16", (0, 32): "i32", (0, 64): "i64", (1, 8): "u8", (6, 8): "bool"}


class Progress(NamedTuple):
    """How far the service is with a program."""

    kernels: int
    kernels_done: int
    candidates: int
    candidates_done: int
    elapsed_s: float


class TensorInfo(NamedTuple):
    """An input or an output of a program. ``sizes`` has -1 where the size depends on the call."""

    name: str
    kind: str  #: "user", "parameter", "buffer", "constant", "seed" or "mutation"
    dtype: str  #: "f32", "bf16", "i64", "bool", ...
    sizes: tuple[int, ...]
    shape: str  #: "[s0,128]", with the symbols
    strides: tuple[int, ...] | None  #: in elements; None: dense row-major
    mutates: int | None  #: the input whose new value this output is
    type_code: tuple[int, int]  #: as DLPack has it
    updates: int | None = None  #: the input whose memory may be given for this output too, so that less is copied


class Symbol(NamedTuple):
    """A size that calls choose between ``min`` and ``max``."""

    min: int
    max: int
    tuned_at: int


def _bytes(text: str | os.PathLike[str] | None) -> bytes | None:
    return None if text is None else os.fsencode(text)


class Program:
    """A compiled program, loaded and ready to run. From :meth:`Client.compile`.

    Calls may come from any thread, several at once; it may outlive its client. One that was compiled with ``now``
    and is not tuned yet waits for its successor in the background.
    """

    def __init__(self, handle: int) -> None:
        self._library = library = _native.library()
        self._handle = handle
        self._successor: Program | None = None
        self._mu = threading.Lock()  # of _successor
        text = {name: getattr(library, f"kiln_program_{name}")(handle).decode()
                for name in ("outcome", "target", "manifest", "signature")}
        #: "tuned", "joined" (tuned for another client), "hit", "local" (compiled on this machine), "stale" (made
        #: by kernel templates of another version; the service tunes its successor) or "tier0" (the program of mode
        #: "default", until the one that was asked for with ``now`` is tuned)
        self.outcome = text["outcome"]
        #: its kernels' results were compared with a reference; False: it was compiled here, or answered as soon as it
        #: was compiled
        self.verified = bool(library.kiln_program_verified(handle))
        self.target = text["target"]  #: "cpu:x86-64-v3"
        self.manifest = text["manifest"]  #: the program as JSON
        self.signature = text["signature"]  #: the coordinator's; empty for a program compiled here
        self.seconds: float = library.kiln_program_seconds(handle)  #: the call that got it
        self.alignment: int = library.kiln_program_alignment(handle)  #: of inputs and outputs, in bytes
        self.inputs = [self._info(library.kiln_program_input, i)
                       for i in range(library.kiln_program_input_count(handle))]
        self.outputs = [self._info(library.kiln_program_output, i)
                        for i in range(library.kiln_program_output_count(handle))]
        self.symbols = [self._symbol(i) for i in range(library.kiln_program_symbol_count(handle))]

    def __del__(self) -> None:
        if handle := getattr(self, "_handle", 0):
            self._library.kiln_program_close(handle)
            self._handle = 0

    def __repr__(self) -> str:
        def listed(tensors: list[TensorInfo]) -> str:
            return ", ".join(each.dtype + each.shape for each in tensors)

        return f"<kiln.Program ({listed(self.inputs)}) -> ({listed(self.outputs)}) {self.target} {self.outcome}>"

    def _info(self, function: Callable[[int, int], Any], index: int) -> TensorInfo:
        raw = function(self._handle, index).contents
        code = (raw.type_code, raw.type_bits)
        return TensorInfo(raw.name.decode(), _KINDS[raw.kind], _TYPES[code], tuple(raw.sizes[: raw.rank]),
                          raw.shape.decode(), tuple(raw.strides[: raw.rank]) if raw.strides else None,
                          None if raw.mutates < 0 else raw.mutates, code, None if raw.updates < 0 else raw.updates)

    def _symbol(self, index: int) -> Symbol:
        raw = self._library.kiln_program_symbol(self._handle, index).contents
        return Symbol(raw.min, raw.max, raw.tuned_at)

    @property
    def awaits_successor(self) -> bool:
        """Whether the tuned program may still come."""
        state: int = self._library.kiln_program_successor_state(self._handle)
        return state == _AWAITED

    def successor(self) -> Program | None:
        """The tuned program, once it is there: the same object each time. Asks nobody and never waits.

        Calls of this program run it from then on; launch() and arena_bytes() stay this program's own, so that those
        that belong together do not mix. Keep this program until its last launch is done.
        """
        if self._successor is None and self._library.kiln_program_successor_state(self._handle) == _READY:
            with self._mu:
                if self._successor is None:
                    handle = c_void_p()
                    _native.check(self._library.kiln_program_successor(self._handle, byref(handle)))
                    self._successor = Program(handle.value or 0)
        return self._successor

    def bundle(self) -> bytes:
        """The program with its binaries, for :meth:`Client.add_bundle` of a client that has neither a service nor a
        compiler. Raises InvalidArgument: no coordinator signed it."""
        size = c_size_t()
        _native.check(self._library.kiln_program_bundle(self._handle, None, byref(size)))
        room = ctypes.create_string_buffer(size.value)
        _native.check(self._library.kiln_program_bundle(self._handle, room, byref(size)))
        return room.raw

    def bind(self, sizes: Sequence[Sequence[int]]) -> tuple[int, ...]:
        """The values of :attr:`symbols` for inputs of these sizes. Raises InvalidArgument."""
        if not self.symbols:
            return ()
        rows = [(c_int64 * max(1, len(row)))(*row) for row in sizes]
        pointers = (c_void_p * len(rows))(*(ctypes.addressof(row) for row in rows))
        symbols = (c_int64 * len(self.symbols))()
        _native.check(self._library.kiln_program_bind(self._handle, pointers, symbols))
        return tuple(symbols)

    def output_sizes(self, symbols: Sequence[int] = ()) -> list[tuple[int, ...]]:
        """The sizes of every output for these symbols."""
        values = (c_int64 * max(1, len(symbols)))(*symbols)
        sizes = []
        for index, info in enumerate(self.outputs):
            row = (c_int64 * max(1, len(info.sizes)))()
            _native.check(self._library.kiln_program_output_sizes(self._handle, index, values, row))
            sizes.append(tuple(row[: len(info.sizes)]))
        return sizes

    def arena_bytes(self, symbols: Sequence[int] = ()) -> int:
        """Memory that a launch needs for what lies between inputs and outputs."""
        values, needed = (c_int64 * max(1, len(symbols)))(*symbols), c_int64()
        _native.check(self._library.kiln_program_arena_bytes(self._handle, values, byref(needed)))
        return needed.value

    def launch(self, inputs: Sequence[int], outputs: Sequence[int], arena: int, stream: int = 0,
               symbols: Sequence[int] = ()) -> None:
        """Puts the work on ``stream`` and returns; on the CPU it is done on return.

        Addresses are of the device's memory, :attr:`alignment` aligned, with the dtypes, sizes and strides of
        :attr:`inputs` and :attr:`outputs`, which cannot be checked. The arena (:meth:`arena_bytes`, 256-byte
        aligned) is this launch's own until the stream has passed it.
        """
        if len(inputs) != len(self.inputs) or len(outputs) != len(self.outputs):
            raise InvalidArgument(f"the program has {len(self.inputs)} inputs and {len(self.outputs)} outputs; "
                                  f"{len(inputs)} and {len(outputs)} were given")
        _native.check(self._library.kiln_program_launch(
            self._handle, (c_void_p * max(1, len(inputs)))(*inputs), (c_void_p * max(1, len(outputs)))(*outputs),
            arena or None, stream or None, (c_int64 * len(symbols))(*symbols) if symbols else None))

    def __call__(self, *arrays: Any) -> list[Any]:
        """Runs on arrays of the host: NumPy's, or whatever has ``__dlpack__``. Gives NumPy arrays.

        Inputs come in the program's order. They are read where they lie, and copied only when strides or alignment
        are not those that the program reads. Raises InvalidArgument on a wrong count, dtype or size.
        """
        if (successor := self.successor()) is not None:
            return successor(*arrays)
        if self.target.startswith("cuda"):
            raise InvalidArgument("the program runs on a GPU: call it from PyTorch, or use launch()")
        if self.alignment == 0:
            raise Unsupported("the program was compiled with load=False: it does not run here")
        if len(arrays) != len(self.inputs):
            raise InvalidArgument(f"the program takes {len(self.inputs)} inputs, {len(arrays)} were given")
        held: list[Borrowed] = []
        for index, (array, info) in enumerate(zip(arrays, self.inputs, strict=True)):
            if info.dtype == "none":
                held.append(new_arrays([((1, 8), (1,))], self.alignment)[0])
                continue
            one = borrow(array)
            fits = len(one.sizes) == len(info.sizes) and all(
                want in (-1, size) for want, size in zip(info.sizes, one.sizes, strict=True))
            if one.type_code != info.type_code or not fits:
                raise InvalidArgument(f"input {index} ('{info.name}') is {info.dtype}{info.shape}; it was given "
                                      f"{_TYPES.get(one.type_code, 'another type')}{list(one.sizes)}")
            held.append(one.laid_out(info.strides, self.alignment))
        symbols = self.bind([one.sizes for one in held])
        outputs = new_arrays([(info.type_code, sizes) for info, sizes in
                              zip(self.outputs, self.output_sizes(symbols), strict=True)], self.alignment)
        arena = ctypes.create_string_buffer(self.arena_bytes(symbols) + _native.ARENA_ALIGNMENT)
        self.launch([one.address for one in held], [one.address for one in outputs],
                    -(-ctypes.addressof(arena) // _native.ARENA_ALIGNMENT) * _native.ARENA_ALIGNMENT, 0, symbols)
        return [one.owner for one in outputs]


class Client:
    """A connection to a Kiln service, or, without one, this machine's own compiler.

    >>> client = Client()                              # KILN_COORDINATOR, or local
    >>> client.service
    'unknown'

    Threads may share it. Opening it contacts nobody.

    Args:
        coordinator: ``"tcp://127.0.0.1:7557"``, or several of one store with commas between; default
            ``$KILN_COORDINATOR``. Without one, programs are compiled here with the cost model's first choice.
        key_file: what ``kiln keys new`` wrote; default ``$KILN_KEY``.
        cache_dir: keeps programs on this machine; default ``$KILN_CACHE_DIR``, none.
        fallback: compile here when the service is away.
        threads: of launches on the CPU; 0: every core this process may use.
        blob_links: fetch binaries from the service's object store where it hands out links to them (its
            ``--blob-links``), instead of through the service; default: whether ``$KILN_BLOB_LINKS`` is ``1``.
        libcublaslt: cuBLASLt, for kernels that call it: its file, or the folder of a CUDA toolkit or Python
            environment; "none": no library is called, Kiln's own kernels run instead. Default ``$KILN_LIBCUBLASLT``,
            the usual places.
        gpu: the GPU that its programs run on, as PyTorch counts them: 1 is ``cuda:1``.
    """

    def __init__(self, coordinator: str | None = None, *, key_file: str | os.PathLike[str] | None = None,
                 cache_dir: str | os.PathLike[str] | None = None, fallback: bool = True, threads: int = 0,
                 libnvrtc: str | os.PathLike[str] | None = None, connect_timeout_s: float = 2.0,
                 blob_links: bool | None = None, libcublaslt: str | os.PathLike[str] | None = None,
                 gpu: int = 0) -> None:
        def chosen(given: str | os.PathLike[str] | None, variable: str) -> bytes | None:
            return _bytes(given if given is not None else os.environ.get(variable)) or None

        options = _native.ClientOptions(
            size=ctypes.sizeof(_native.ClientOptions), coordinator=chosen(coordinator, "KILN_COORDINATOR"),
            key_file=chosen(key_file, "KILN_KEY"), cache_dir=chosen(cache_dir, "KILN_CACHE_DIR"),
            compiler=chosen(None, "KILN_CXX"), libcuda=chosen(None, "KILN_LIBCUDA"),
            libnvrtc=chosen(libnvrtc, "KILN_LIBNVRTC"), threads=threads, no_fallback=not fallback,
            libcublaslt=chosen(libcublaslt, "KILN_LIBCUBLASLT"), connect_timeout_ms=int(connect_timeout_s * 1000),
            gpu=gpu)
        if blob_links is None:
            blob_links = os.environ.get("KILN_BLOB_LINKS") == "1"
        if blob_links:
            from kiln._links import READ_LINKS  # brings what reads HTTP, which others need not wait for

            options.read_links = READ_LINKS
        self.gpu = gpu
        self._library = _native.library()
        self._handle = c_void_p()
        _native.check(self._library.kiln_client_open(byref(options), byref(self._handle)))

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            self._library.kiln_client_close(self._handle)
            self._handle = c_void_p()

    @property
    def service(self) -> Service:
        """"unknown" before the first contact, "reachable", or "away" (and not asked for a while)."""
        state: int = self._library.kiln_client_service(self._handle)
        return _SERVICES[state]

    def load_bundle(self, path: str | os.PathLike[str], *, signer: str | os.PathLike[str] | None = None) -> int:
        """Reads what ``kiln bundle`` wrote: compile() then answers with its programs before it asks anybody.

        Args:
            signer: whose signature is good: a public key in hex, or the coordinator's ``signing/ed25519.pub``; default
                the one that the key file names.

        Returns:
            How many programs it has.

        Raises:
            NotFound, InvalidArgument (no bundle, or no signer is known), Unsupported (a newer Kiln wrote it),
            NotPermitted (signed by somebody else), Corruption (cut short or altered; nothing of it is used).
        """
        programs = c_int32()
        _native.check(self._library.kiln_client_load_bundle(self._handle, _bytes(path), _bytes(signer),
                                                            byref(programs)))
        return programs.value

    def add_bundle(self, bundle: bytes, *, signer: str | os.PathLike[str] | None = None) -> int:
        """``load_bundle`` of the bytes of a bundle, as :meth:`Program.bundle` gives them."""
        programs = c_int32()
        _native.check(self._library.kiln_client_add_bundle(self._handle, bundle, len(bundle), _bytes(signer),
                                                           byref(programs)))
        return programs.value

    def compile(self, graph: bytes | str | os.PathLike[str], *, mode: Mode = "default", target: str = "cpu",
                deadline_s: float = 600.0, cached_only: bool = False, background: bool = False,
                strict: bool = False, verify: bool = False, now: bool = False, load: bool = True,
                on_progress: Callable[[Progress], object] | None = None,
                on_message: Callable[[str], object] | None = None) -> Program:
        """The program of a graph, loaded and ready to run here.

        Args:
            graph: the path of a ``.pt2`` archive, or bytes: an archive, its ``models/model.json``, or Kiln's text.
            mode: "default" takes the cost model's first choice; "max-autotune" searches and measures.
            target: "cpu", "cuda", or one in full: "cuda:sm_90a".
            cached_only: raise NotFound instead of starting anything.
            strict: take no program that kernel templates of another version made, but wait for its successor.
            verify: in mode "default", wait until the results of every kernel are compared with a reference, instead
                of taking the program as soon as it is compiled.
            now: in mode "max-autotune", take what there is at once where the program is not tuned yet: its outcome is
                "stale" or "tier0". Calls run the tuned program once that is there (:meth:`Program.successor`).
            load: False gives a program that is checked, but does not run here: for machines without its device.
            on_progress: called about ten times a second while the service works. What it raises ends the call, and
                so does Ctrl-C.

        Raises:
            Unsupported: an operation that Kiln does not cover; the message names it and its line.
            DeadlineExceeded, Overloaded, Unavailable, NotPermitted, Corruption, InvalidArgument.
        """
        if mode not in _MODES:
            raise InvalidArgument(f"mode is {mode!r}; it can be " + " or ".join(map(repr, _MODES)))
        raised: list[BaseException] = []

        def report(_: object, progress: Any) -> int:
            try:
                raw = progress.contents
                if on_progress is not None:
                    on_progress(Progress(raw.kernels, raw.kernels_done, raw.candidates, raw.candidates_done,
                                         raw.elapsed_s))
            except BaseException as error:  # KeyboardInterrupt too: it ends the call
                raised.append(error)
            return int(bool(raised))

        def say(_: object, sentence: bytes) -> None:
            if on_message is not None:
                on_message(sentence.decode(errors="replace"))

        options = _native.CompileOptions(
            size=ctypes.sizeof(_native.CompileOptions), target=target.encode(), mode=_MODES[mode],
            cached_only=cached_only, background=background, deadline_ms=max(1, int(deadline_s * 1000)),
            on_progress=_native.OnProgress(report), on_message=_native.OnMessage(say),
            strict=strict, verify=verify, now=now, fetch_only=not load)
        handle = c_void_p()
        with traced("kiln.compile") as options.traceparent:
            if isinstance(graph, bytes):
                code = self._library.kiln_compile(self._handle, graph, len(graph), byref(options), byref(handle))
            else:
                code = self._library.kiln_compile_file(self._handle, _bytes(graph), byref(options), byref(handle))
            if raised and code:
                raise raised[0]
            _native.check(code)
        if handle.value is None:
            raise KilnError("no program was given")
        return Program(handle.value)

    def load(self, digest: str, *, mode: Mode = "default", target: str = "cpu", deadline_s: float = 600.0,
             strict: bool = False) -> Program:
        """The program of a graph that somebody compiled before, without the graph: from this process, a bundle, this
        machine's cache or the service. Starts nothing, and needs no model and no compiler.

        Args:
            digest: of the graph, 64 hex digits, as ``kiln digest FILE`` prints it. The program's inputs have no names
                then, and are in its own order.

        Raises:
            NotFound: nobody has it; somebody has to send the graph once (``kiln warm FILE``).
            Unavailable: the service is away, and this machine does not have it.
            As compile().
        """
        options = self._loading(target, mode, deadline_s, strict)
        handle = c_void_p()
        with traced("kiln.load") as options.traceparent:
            _native.check(self._library.kiln_load_digest(self._handle, digest.encode(), byref(options), byref(handle)))
        return Program(handle.value or 0)

    def load_locked(self, path: str | os.PathLike[str], name: str | None = None, *, target: str | None = None,
                    deadline_s: float = 600.0, strict: bool = False) -> Program:
        """A program of the file that ``kiln lock`` wrote, as load(), with the target and mode that stand there.

        Its inputs are the model's, by name. (Files of before lack those: make the file anew.)

        Args:
            name: the model's file as it stands there, or its stem; default: the file has one program.
            target: which of those with that name.

        Raises:
            NotFound: also, what there is now is not what was locked.
            InvalidArgument: no lock file, or no such program; the message has those that it has.
        """
        options = self._loading(target, "default", deadline_s, strict)
        handle = c_void_p()
        with traced("kiln.load") as options.traceparent:
            _native.check(self._library.kiln_load_locked(self._handle, _bytes(path), _bytes(name), byref(options),
                                                         byref(handle)))
        return Program(handle.value or 0)

    def open_exported(self, directory: str | os.PathLike[str], *,
                      signer: str | os.PathLike[str] | None = None) -> Program:
        """The program that ``kiln compile --out`` wrote to a directory. Asks nobody.

        Its inputs are the model's in order, without names, up to the last that it reads.

        Args:
            signer: whose signature is good: a public key in hex, or the coordinator's ``signing/ed25519.pub``; default
                the one that the key file names. "unsigned": you vouch for the directory, which is code, and no
                signature is looked at.

        Raises:
            NotFound (no program there), InvalidArgument (no signer is known), Unsupported (for another machine),
            NotPermitted (unsigned, or signed by somebody else), Corruption (altered, or not whole).
        """
        options = self._loading(None, "default", 600, False)
        handle = c_void_p()
        _native.check(self._library.kiln_open_exported(self._handle, _bytes(directory), _bytes(signer), byref(options),
                                                       byref(handle)))
        return Program(handle.value or 0)

    @staticmethod
    def _loading(target: str | None, mode: Mode, deadline_s: float, strict: bool) -> _native.CompileOptions:
        if mode not in _MODES:
            raise InvalidArgument(f"mode is {mode!r}; it can be " + " or ".join(map(repr, _MODES)))
        return _native.CompileOptions(
            size=ctypes.sizeof(_native.CompileOptions), target=None if target is None else target.encode(),
            mode=_MODES[mode], deadline_ms=max(1, int(deadline_s * 1000)), strict=strict)

    def submit(self, graph: bytes, *, mode: Mode = "max-autotune", target: str = "cpu") -> None:
        """Has the service tune a program that nobody waits for. Returns once the request is on its disk."""
        options = _native.CompileOptions(size=ctypes.sizeof(_native.CompileOptions), target=target.encode(),
                                         mode=_MODES[mode])
        with traced("kiln.submit") as options.traceparent:
            _native.check(self._library.kiln_submit(self._handle, graph, len(graph), byref(options)))


def refused_nodes(model_json: bytes) -> list[tuple[int, str, str]]:
    """Every node of a ``models/model.json`` that Kiln does not cover: its place, its op, and why."""
    found: list[tuple[int, str, str]] = []

    def refused(_: object, node: int, op: bytes, why: bytes) -> None:
        found.append((node, op.decode(), why.decode(errors="replace")))

    _native.check(_native.library().kiln_refused_nodes(model_json, len(model_json), _native.OnRefused(refused), None))
    return found
