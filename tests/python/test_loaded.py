"""kiln.load of what a fleet has compiled before: by the digest of a graph, and by a lock file."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import kiln
import numpy
import pytest
import torch
from bound import Bound, schedule_text
from fleet import Coordinator
from fleet import kiln as command


class Model(torch.nn.Module):
    """Weights, one of them not dense; a constant; a buffer that changes; inputs in another order than they are read,
    and one that is not read."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(4, 8, 3).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.register_buffer("calls", torch.zeros(()))
        self.offset = torch.arange(8.0)  # no buffer: a constant of the exported program

    def forward(self, scale: torch.Tensor, unread: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        self.calls.add_(1)
        y = self.conv(x).relu().sum((2, 3)) + self.offset
        return y * scale, y.mean()


def example(rows: int = 2) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return torch.rand(8), torch.ones(3, dtype=torch.int32), torch.randn(rows, 4, 6, 6)


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> tuple[Model, Path]:
    torch.manual_seed(7)
    model, folder = Model().eval(), tmp_path_factory.mktemp("models")
    rows = torch.export.Dim("rows", min=1, max=64)
    program = torch.export.export(model, example(), dynamic_shapes=(None, None, {0: rows}))
    torch.export.save(program, folder / "conv.pt2")
    torch.export.save(torch.export.export(torch.nn.Dropout(0.5).train(), (torch.ones(64, 64),)), folder / "dropout.pt2")
    return model, folder


@pytest.fixture(scope="module")
def lock(service: str, exported: tuple[Model, Path]) -> Path:
    folder = exported[1]
    (folder / "kiln.lock").write_text(command("lock", "conv.pt2", "dropout.pt2", "--coordinator", service, cwd=folder))
    return folder / "kiln.lock"


def weights_of(model: Model) -> dict[str, torch.Tensor]:
    return {**model.state_dict(), "offset": model.offset, "lifted_tensor_0": model.offset}


def test_a_locked_program_is_called_as_the_model_is(service: str, exported: tuple[Model, Path], lock: Path) -> None:
    model = exported[0]
    fast = kiln.load(lock, "conv.pt2", weights=weights_of(model), client=kiln.Client(service, fallback=False))
    assert isinstance(fast, kiln.LoadedModule) and fast.program.outcome == "hit"
    for rows in (2, 5):
        scale, unread, x = example(rows)
        calls = float(model.calls)
        got = fast(scale, unread, x)
        assert model.calls == calls + 1  # bound by pointer
        with torch.no_grad():
            torch.testing.assert_close(got, model(scale, unread, x), rtol=1e-4, atol=1e-4)
    with pytest.raises(kiln.InvalidArgument, match=r"takes 3 tensors \(scale, unread, x\); 1 were given"):
        fast(torch.rand(8))
    with pytest.raises(kiln.InvalidArgument, match=r"input 'x' is f32\[s0,4,6,6\]"):
        fast(scale, unread, torch.randn(2, 4, 6, 7))


def test_weights_are_arguments_where_none_are_given(service: str, exported: tuple[Model, Path], lock: Path) -> None:
    model = exported[0]
    fast = kiln.load(lock, "conv", client=kiln.Client(service, fallback=False))
    weights, given = weights_of(model), dict(zip(("scale", "unread", "x"), example(), strict=True))
    calls = torch.tensor(3.0)
    got = fast(*[calls if info.name == "calls" else given.get(info.name, weights.get(info.name))
                 for info in fast.program.inputs])
    assert calls == 4.0
    with torch.no_grad():
        torch.testing.assert_close(got, model(*given.values()), rtol=1e-4, atol=1e-4)


def test_a_random_program_follows_the_seed(service: str, lock: Path) -> None:
    fast = kiln.load(lock, "dropout", client=kiln.Client(service, fallback=False))
    torch.manual_seed(3)
    first, second = fast(torch.ones(64, 64))[0], fast(torch.ones(64, 64))[0]
    torch.manual_seed(3)
    assert torch.equal(fast(torch.ones(64, 64))[0], first) and not torch.equal(first, second)


def test_what_does_not_fit_is_said(service: str, exported: tuple[Model, Path], lock: Path, tmp_path: Path) -> None:
    client = kiln.Client(service, fallback=False)
    with pytest.raises(kiln.InvalidArgument, match=r"which program of .* is meant: 'conv.pt2' for cpu:.*'dropout.pt2'"):
        kiln.load(lock, client=client)
    with pytest.raises(kiln.InvalidArgument, match=r"has no program 'other'; it has 'conv.pt2' for cpu:"):
        kiln.load(lock, "other", client=client)
    with pytest.raises(kiln.InvalidArgument, match=r"no program 'conv' for cuda"):
        kiln.load(lock, "conv", target="cuda", client=client)
    with pytest.raises(kiln.InvalidArgument, match=r"takes the parameter 'conv\.bias', and weights has none"):
        kiln.load(lock, "conv", weights={"conv.weight": exported[0].conv.weight}, client=client)
    with pytest.raises(kiln.InvalidArgument, match="a lock file takes no mode"):
        kiln.load(lock, "conv", mode="default", client=client)
    with pytest.raises(kiln.InvalidArgument, match=r"torch\.export takes no weights"):
        kiln.load(exported[1] / "conv.pt2", weights={}, client=client)
    other = tmp_path / "other.lock"
    text = lock.read_text()
    digest = next(line for line in text.splitlines() if line.startswith("  digest"))
    other.write_text(text.replace(digest, "  digest " + "ab" * 32))
    with pytest.raises(kiln.NotFound, match=r"conv\.pt2 is not as .*other\.lock has it: .*kiln lock"):
        kiln.load(other, "conv", client=client)


def test_a_digest_is_enough_where_somebody_compiled_it(service: str, exported: tuple[Model, Path], lock: Path,
                                                       tmp_path: Path) -> None:
    archive = tmp_path / "tanh.pt2"
    torch.export.save(torch.export.export(torch.nn.Tanh(), (torch.ones(5, 7),)), archive)
    digest = command("digest", archive).split()[0]
    client = kiln.Client(service, fallback=False, cache_dir=tmp_path / "tier")
    with pytest.raises(kiln.NotFound, match=r"alone makes no program \(cpu, mode default\): send the graph once, .*kiln warm"):
        kiln.load(digest, client=client)
    client.compile(archive, verify=True)  # what is stored
    x = torch.randn(5, 7)
    fast = kiln.load(digest, client=kiln.Client(service, fallback=False, cache_dir=tmp_path / "another"))
    torch.testing.assert_close(fast(x)[0], x.tanh())
    # The copy on the disk is enough where the service is away.
    alone = kiln.Client("tcp://127.0.0.1:1", cache_dir=tmp_path / "another", fallback=False, connect_timeout_s=0.2)
    program = alone.load(digest)
    numpy.testing.assert_allclose(program(x.numpy())[0], x.tanh().numpy(), rtol=1e-5, atol=1e-6)
    with pytest.raises(kiln.Unavailable):
        alone.load("ab" * 32)
    with pytest.raises(kiln.InvalidArgument, match="a digest takes no name, now"):
        kiln.load(digest, "tanh", now=True, client=client)


def test_a_replica_needs_the_lock_file_alone(service: str, lock: Path, tmp_path: Path) -> None:
    """It has neither the model nor a compiler."""
    alone = tmp_path / "kiln.lock"
    alone.write_text(lock.read_text())
    code = ("import sys, kiln, torch\n"
            "fast = kiln.load('kiln.lock', 'dropout', coordinator=sys.argv[1])\n"
            "print(fast.program.outcome, *fast(torch.ones(64, 64))[0].shape)\n")
    done = subprocess.run([sys.executable, "-c", code, service], capture_output=True, text=True, cwd=tmp_path,
                          env={**os.environ, "PATH": "", "KILN_CXX": "/bin/false"})
    assert (done.returncode, done.stdout) == (0, "hit 64 64\n"), done.stderr


def test_a_miss_waits_for_no_worker(tmp_path: Path) -> None:
    """A coordinator without any answers at once: nothing is started."""
    coordinator = Coordinator(tmp_path / "data")
    try:
        with pytest.raises(kiln.NotFound, match="send the graph once"):
            kiln.Client(coordinator.endpoint, fallback=False).load("cd" * 32, mode="max-autotune", deadline_s=20)
    finally:
        coordinator.stop()


@pytest.fixture(scope="module")
def directory(service: str, exported: tuple[Model, Path]) -> Path:
    command("compile", "conv.pt2", "--coordinator", service, "--out", "out", cwd=exported[1])
    return exported[1] / "out"


def arguments_of(model: Model) -> tuple[list[torch.Tensor], tuple[torch.Tensor, ...]]:
    """All inputs as the exported program orders them, and those of a call."""
    given = example()
    return [model.conv.weight.detach().permute(0, 2, 3, 1).flatten(), model.conv.bias.detach(), torch.tensor(1.0),
            model.offset, *given], given


def test_a_directory_is_loaded_by_its_signer(service: str, exported: tuple[Model, Path], directory: Path,
                                             tmp_path: Path) -> None:
    signer = (directory / "manifest.sig").read_text().split()[1]
    client = kiln.Client(fallback=False)
    fast = kiln.load(directory, signer=signer, client=client)
    inputs, given = arguments_of(exported[0])
    got = fast(*inputs)
    with torch.no_grad():
        for one, other in zip(exported[0](*given), got, strict=False):  # behind them, the new value of the buffer
            torch.testing.assert_close(other, one, rtol=1e-4, atol=1e-4)
    with pytest.raises(kiln.InvalidArgument, match="whose signature is good"):
        kiln.load(directory, client=client)
    with pytest.raises(kiln.NotPermitted, match="is signed by"):
        kiln.load(directory, signer="ab" * 32, client=client)
    copy = tmp_path / "out"
    shutil.copytree(directory, copy)
    (copy / "binding.sig").unlink()
    with pytest.raises(kiln.NotPermitted, match=r"binding\.json, which says what input is which, is unsigned"):
        kiln.load(copy, signer=signer, client=client)
    (copy / "manifest.sig").unlink()
    with pytest.raises(kiln.NotPermitted, match="unsigned"):
        kiln.load(copy, signer=signer, client=client)
    assert kiln.load(copy, signer="unsigned", client=client).program.signature == ""
    for binding in ("{}", "", '{"input_order":[0]}', '{"input_order":[0,1,2,3,4,4]}', '{"input_order":[0,1,2,3,4,-5]}',
                    '{"input_order":[0,1,2,3,4,1e300]}', '{"input_order":[0,1,2,3,4,99999999]}'):
        (copy / "binding.json").write_text(binding)
        with pytest.raises(kiln.Corruption, match="does not say which input"):
            kiln.load(copy, signer="unsigned", client=client)
    binary = next(copy.glob("*.so"))
    binary.write_bytes(binary.read_bytes()[:-1])
    with pytest.raises(kiln.Corruption, match="altered"):
        kiln.load(copy, signer="unsigned", client=client)


def test_the_benchmarks_bind_a_directory(exported: tuple[Model, Path], directory: Path) -> None:
    """tests/gpu/bound.py, on a CPU."""
    inputs, given = arguments_of(exported[0])
    program = Bound(directory, inputs)
    program.poison()
    with torch.no_grad():
        torch.testing.assert_close(program.launch()[0], exported[0](*given)[0], rtol=1e-4, atol=1e-4)
        outputs = program.outputs[0]
        inputs[-1].zero_()  # bound by pointer, and so are its outputs
        program.launch()
        torch.testing.assert_close(outputs, exported[0](given[0], given[1], inputs[-1])[0], rtol=1e-4, atol=1e-4)
    assert program.launches >= 1 and "cpu." in schedule_text(program.manifest)
    with pytest.raises(ValueError, match=r"input 6 is f32\[s0,4,6,6\]; it was given torch.float32 \[2, 2, 6, 6\]"):
        Bound(directory, [*inputs[:-1], inputs[-1][:, :2].contiguous()])
