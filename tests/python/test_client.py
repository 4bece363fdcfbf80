"""kiln.Client and kiln.Program without PyTorch: NumPy and DLPack in, NumPy out."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from pathlib import Path

import kiln
import numpy as np
import pytest
from conftest import BUILD
from kiln.client import refused_nodes

HALF_PLUS = b"""kiln.graph 1
s0 = symbol 1..4096 hint 32
%0 = input 0 : f32[s0,16]
%1 = input 1 : f32[s0,16]
%2 = constant 0x1p-1 : f32[]
%3 = view %2 strides=[0,0] offset=[0] : f32[s0,16]
%4 = mul %0 %3 : f32[s0,16]
%5 = add %4 %1 : f32[s0,16]
return %5
"""


@pytest.fixture(scope="module")
def half_plus() -> kiln.Program:
    return kiln.Client().compile(HALF_PLUS)


class OnlyDLPack:
    """An array of a library that knows nothing of NumPy."""

    def __init__(self, array: np.ndarray) -> None:
        self._array = array

    def __dlpack__(self) -> object:
        return self._array.__dlpack__()

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._array.__dlpack_device__()


def test_the_package_brings_nothing_heavy() -> None:
    script = "import sys; before = set(sys.modules); import kiln; print(*sorted(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-S", "-c", script], capture_output=True, text=True, check=True)
    brought = set(done.stdout.split())
    assert "kiln.client" in brought
    assert not brought & {"torch", "numpy", "sympy", "inspect", "dataclasses", "importlib.metadata", "asyncio", "json",
                          "logging", "pathlib", "subprocess"}


def test_a_program_says_what_it_takes_and_gives(half_plus: kiln.Program) -> None:
    assert repr(half_plus).startswith("<kiln.Program (f32[s0,16], f32[s0,16]) -> (f32[s0,16]) cpu:")
    assert half_plus.inputs[0].sizes == (-1, 16)
    assert half_plus.symbols == [kiln.Symbol(1, 4096, 32)]
    assert (half_plus.outcome, half_plus.verified) == ("local", False)
    assert '"launches"' in half_plus.manifest


@pytest.mark.parametrize("rows", [1, 31, 4096])
def test_sizes_come_with_the_call(half_plus: kiln.Program, rows: int) -> None:
    a, b = np.random.rand(2, rows, 16).astype(np.float32)
    (out,) = half_plus(a, b)
    np.testing.assert_allclose(out, a * 0.5 + b, rtol=1e-6)


def test_arrays_of_any_layout_and_library_are_read(half_plus: kiln.Program) -> None:
    a = np.random.rand(16, 8).astype(np.float32).T  # not row-major
    b = np.random.rand(8 * 16 + 1).astype(np.float32)[1:].reshape(8, 16)  # not 64-byte aligned
    c = np.random.rand(8, 16).astype(np.float32)[::-1]  # backwards
    for x, y in ((a, b), (b, c), (OnlyDLPack(np.ascontiguousarray(a)), OnlyDLPack(b))):
        (out,) = half_plus(x, y)
        want = np.asarray(getattr(x, "_array", x)) * np.float32(0.5) + np.asarray(getattr(y, "_array", y))
        np.testing.assert_allclose(out, want, rtol=1e-6)


def test_threads_share_a_program(half_plus: kiln.Program) -> None:
    wrong: list[int] = []

    def work(rows: int) -> None:
        a = np.full((rows, 16), rows, np.float32)
        for _ in range(50):
            if not np.array_equal(half_plus(a, a)[0], a * 1.5):
                wrong.append(rows)

    threads = [threading.Thread(target=work, args=(rows,)) for rows in (3, 200, 77, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_errors_are_exceptions_that_say_what_to_do(half_plus: kiln.Program, graphs: Path) -> None:
    good = np.zeros((4, 16), np.float32)
    with pytest.raises(kiln.InvalidArgument, match=r"input 1 .* is f32\[s0,16\]; it was given f64\[4, 16\]"):
        half_plus(good, good.astype(np.float64))
    with pytest.raises(kiln.InvalidArgument, match="takes 2 inputs, 1"):
        half_plus(good)
    with pytest.raises(ValueError, match="4096"):
        half_plus(*[np.zeros((5000, 16), np.float32)] * 2)
    with pytest.raises(kiln.NotFound):
        kiln.Client().compile("/nowhere.pt2")
    with pytest.raises(kiln.InvalidArgument, match="mode is 'fast'"):
        kiln.Client().compile(HALF_PLUS, mode="fast")  # type: ignore[arg-type]
    with pytest.raises(kiln.Unavailable):
        kiln.Client("tcp://127.0.0.1:1", fallback=False, connect_timeout_s=0.2).compile(HALF_PLUS)
    with pytest.raises(kiln.KilnError):
        refused_nodes(b"{}")
    for name in ("softmax", "argmax"):
        assert kiln.Client().compile(graphs / "small" / f"{name}.pt2").outputs


def test_a_service_tunes_and_reports(service: str) -> None:
    client = kiln.Client(service, fallback=False)
    seen: list[kiln.Progress] = []
    with pytest.raises(kiln.NotFound):
        client.compile(HALF_PLUS, mode="max-autotune", cached_only=True)
    program = client.compile(HALF_PLUS, mode="max-autotune", deadline_s=120, on_progress=seen.append)
    assert (program.outcome, client.service) == ("tuned", "reachable")
    assert seen and program.verified and program.signature.startswith("ed25519 ")
    assert kiln.Client(service).compile(HALF_PLUS, mode="max-autotune", cached_only=True).outcome == "hit"
    client.submit(HALF_PLUS)


def test_a_default_program_that_is_to_be_verified_is(service: str) -> None:
    client = kiln.Client(service, fallback=False)
    assert client.compile(HALF_PLUS, verify=True).verified
    assert client.compile(HALF_PLUS, cached_only=True).outcome == "hit"


def test_a_program_that_is_there_now_becomes_the_tuned_one(service: str) -> None:
    text = HALF_PLUS.replace(b",16]", b",40]")
    program = kiln.Client(service, fallback=False).compile(text, mode="max-autotune", now=True, deadline_s=120)
    assert program.outcome == "tier0"
    first, second = np.full((8, 40), 6, np.float32), np.ones((8, 40), np.float32)
    until = time.monotonic() + 120
    while program.awaits_successor and time.monotonic() < until:
        assert (program(first, second)[0] == 4).all()
        time.sleep(0.05)
    successor = program.successor()
    assert successor is not None and successor is program.successor()
    assert (successor.outcome, successor.verified) == ("tuned", True) or successor.outcome in ("hit", "joined")
    assert json.loads(successor.manifest)["mode"] == "max-autotune" != json.loads(program.manifest)["mode"]
    for each in (program, successor):
        assert (each(first, second)[0] == 4).all()
    tuned = kiln.Client(service, fallback=False).compile(text, mode="max-autotune", now=True)
    assert tuned.outcome == "hit" and not tuned.awaits_successor and tuned.successor() is None


def test_what_the_progress_function_raises_ends_the_call(service: str) -> None:
    class Enough(Exception):
        pass

    def stop(_: kiln.Progress) -> None:
        raise Enough

    with pytest.raises(Enough):
        kiln.Client(service, fallback=False).compile(HALF_PLUS.replace(b",16]", b",48]"), mode="max-autotune",
                                                     on_progress=stop)


def test_a_bundle_answers_where_there_is_no_service(service: str, graphs: Path, tmp_path: Path) -> None:
    model, bundle = graphs / "small" / "softmax.pt2", tmp_path / "model.kiln"
    program = kiln.Client(service, fallback=False).compile(model, verify=True)
    program_line = program.signature.split()
    subprocess.run([BUILD / "bin" / "kiln", "bundle", model, "-o", bundle, "--coordinator", service], check=True)
    alone = kiln.Client("tcp://127.0.0.1:1", fallback=False, connect_timeout_s=0.2)
    with pytest.raises(kiln.InvalidArgument, match="whose signature"):
        alone.load_bundle(bundle)
    with pytest.raises(kiln.NotPermitted):
        alone.load_bundle(bundle, signer="0" * 64)
    with pytest.raises(kiln.NotFound):
        alone.load_bundle(tmp_path / "none.kiln")
    cut = tmp_path / "cut.kiln"
    cut.write_bytes(bundle.read_bytes()[:-100])
    with pytest.raises(kiln.Corruption, match="cut short"):
        alone.load_bundle(cut, signer=program_line[1])
    with pytest.raises(kiln.Unavailable):
        alone.compile(model)
    assert alone.load_bundle(bundle, signer=program_line[1]) == 1
    loaded = alone.compile(model)
    assert (loaded.outcome, loaded.manifest) == ("hit", program.manifest)
