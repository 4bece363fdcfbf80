"""``kiln.candidate``: kernels of a user's own, tried beside Kiln's."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kiln
import pytest
import torch
from conftest import BUILD
from fleet import Coordinator
from fleet import kiln as command
from kiln.artifacts import Artifacts

X = torch.rand(64, 256) - 0.5
# Right within a rounding of what far_magnitude computes, and some thirty times less work.
MAGNITUDE = """
static void magnitude(const float* x, float* out, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) out[i] = __builtin_fabsf(x[i]);
}"""
DOUBLED = MAGNITUDE.replace("magnitude", "doubled").replace("__builtin_fabsf(x[i])", "2 * __builtin_fabsf(x[i])")


def far_magnitude(x: torch.Tensor) -> torch.Tensor:
    for _ in range(30):
        x = torch.sqrt(x * x)
    return x


def near_difference(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    for _ in range(30):
        x = torch.sqrt(x * x)
    return x - y


def tuned(endpoint: str, function: Any, *args: torch.Tensor, key_file: Path | None = None) -> kiln.Program:
    """The tuned program of a client that knows nothing yet."""

    class Module(torch.nn.Module):
        def forward(self, *given: torch.Tensor) -> torch.Tensor:
            result: torch.Tensor = function(*given)
            return result

    fast = kiln.compile(torch.export.export(Module(), args), mode="max-autotune",
                        client=kiln.Client(endpoint, key_file=key_file), strict=True)
    torch.testing.assert_close(fast(*args), function(*args))
    return fast.program


def kernels(program: kiln.Program) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(program.manifest)["kernels"]
    return found


def offer(endpoint: str, kernel: Any, name: str | None, function: Any = far_magnitude, **options: Any) -> str:
    return kiln.candidate(function, options.pop("args", (X,)), kernel, name=name,
                          arguments=options.pop("arguments", ("x", "out")), coordinator=endpoint, **options)


def test_a_kernel_that_is_right_and_faster_takes_the_place_of_what_was_tuned(service: str, tmp_path: Path) -> None:
    before = kernels(tuned(service, far_magnitude, X))
    assert [each["schedule"].split()[0] for each in before] == ["cpu.pointwise"]
    named = offer(service, MAGNITUDE, "magnitude")
    assert named.startswith("offered.magnitude.")
    program = tuned(service, far_magnitude, X)
    assert program.outcome in ("tuned", "joined")
    assert [each["schedule"] for each in kernels(program)] == [named]
    assert kernels(program)[0]["report"]["measured"] > 1
    assert tuned(service, far_magnitude, X).outcome == "hit"
    assert offer(service, MAGNITUDE, "magnitude") == named  # the same again changes nothing
    assert tuned(service, far_magnitude, X).outcome == "hit"

    class Module(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return far_magnitude(x)

    torch.export.save(torch.export.export(Module(), (X,)), tmp_path / "model.pt2")
    assert named in command("explain", tmp_path / "model.pt2", "--mode", "max-autotune", "--coordinator", service)


def test_arguments_come_in_the_order_of_the_kernel(service: str) -> None:
    source = """static void difference(float* out, const float* y, const float* x, int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) out[i] = __builtin_fabsf(x[i]) - y[i];
    }"""
    args = (X, torch.rand(64, 256))
    named = offer(service, source, "difference", near_difference, args=args, arguments=("out", "y", "x"), block=4096)
    assert [each["schedule"] for each in kernels(tuned(service, near_difference, *args))] == [named]


class Service:
    """A service with a worker, whose data directory is known."""

    def __init__(self, data: Path) -> None:
        self.data, ready = data, data.parent / "ready"
        with open(ready, "w") as out, open(data.parent / "log", "w") as log:
            self.process = subprocess.Popen([BUILD / "bin" / "kiln", "up", "--data-dir", data, "--listen",
                                             "tcp://127.0.0.1:0"], stdout=out, stderr=log)
        until = time.monotonic() + 60
        while "ready " not in ready.read_text() and self.process.poll() is None and time.monotonic() < until:
            time.sleep(0.1)
        assert "ready " in ready.read_text(), (data.parent / "log").read_text()
        self.endpoint = ready.read_text().split("ready ")[1].split()[0]

    def __enter__(self) -> Service:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait(60)


def test_a_wrong_kernel_loses_with_its_reason(tmp_path: Path) -> None:
    with Service(tmp_path / "data") as serving:
        named = offer(serving.endpoint, DOUBLED, "doubled")
        program = tuned(serving.endpoint, far_magnitude, X)
        assert kernels(program)[0]["schedule"].startswith("cpu.pointwise")
        assert kernels(program)[0]["report"]["rejected"] >= 1
        told = [json.loads(line) for line in
                command("tune-log", "--data-dir", serving.data, "--template", named).splitlines()]
        assert [each["verdict"] for each in told] == ["wrong_result"]
        assert tuned(serving.endpoint, far_magnitude, X).outcome == "hit"  # it was tried, once


def test_a_service_that_starts_again_knows_its_offers(tmp_path: Path) -> None:
    with Service(tmp_path / "data") as serving:
        named = offer(serving.endpoint, MAGNITUDE, "magnitude")
    with Service(tmp_path / "data") as serving:
        program = tuned(serving.endpoint, far_magnitude, X)
        assert [each["schedule"] for each in kernels(program)] == [named]


@pytest.mark.parametrize(("function", "kernel", "arguments", "error", "words"), [
    (lambda x: torch.softmax(x @ x.T, -1).sort().values, MAGNITUDE, ("x", "out"), kiln.InvalidArgument, "kernels"),
    (far_magnitude, MAGNITUDE, ("x",), kiln.InvalidArgument, "not given output 0"),
    (far_magnitude, MAGNITUDE, ("x", "out", "x"), kiln.InvalidArgument, "twice"),
    (far_magnitude, MAGNITUDE, ("y", "out"), kiln.InvalidArgument, "no 'y'"),
    (far_magnitude, MAGNITUDE + "\nint", ("x", "out"), kiln.InvalidArgument, "error"),
    (far_magnitude, '#include "/etc/passwd"', ("x", "out"), kiln.InvalidArgument, "include"),
])
def test_what_cannot_be_offered_is_refused_with_the_reason(service: str, function: Any, kernel: str,
                                                           arguments: tuple[str, ...], error: type[Exception],
                                                           words: str) -> None:
    with pytest.raises(error, match=words):
        offer(service, kernel, "magnitude", function, arguments=arguments)


def test_only_the_role_publish_offers(tmp_path: Path) -> None:
    data = tmp_path / "data"
    for role in ("submit", "publish"):
        command("keys", "new", role, "--role", role, "--data-dir", data, cwd=tmp_path)
    serving = Coordinator(data, "--keys", str(data / "keys"))
    try:
        with pytest.raises(kiln.NotPermitted):
            offer(serving.endpoint, MAGNITUDE, "magnitude", key_file=tmp_path / "submit.key")
        offer(serving.endpoint, MAGNITUDE, "magnitude", key_file=tmp_path / "publish.key")
        with pytest.raises(kiln.InvalidArgument, match="offered kernel"):
            Artifacts(serving.endpoint, key_file=tmp_path / "publish.key").put("kiln.candidate", "k", b"no kernel")
        assert len(serving.artifacts("kiln.candidate")) == 1
    finally:
        serving.stop()


def test_what_a_revoked_key_offered_is_taken_back(tmp_path: Path) -> None:
    data = tmp_path / "data"
    for role in ("publish", "submit", "worker"):
        command("keys", "new", role, "--role", role, "--data-dir", data, cwd=tmp_path)
    serving = Coordinator(data, "--keys", str(data / "keys"))
    worker = subprocess.Popen([BUILD / "bin" / "kiln-worker", "--coordinator", serving.endpoint, "--key",
                               tmp_path / "worker.key"], stderr=subprocess.DEVNULL)
    try:
        named = offer(serving.endpoint, MAGNITUDE, "magnitude", key_file=tmp_path / "publish.key")
        program = tuned(serving.endpoint, far_magnitude, X, key_file=tmp_path / "submit.key")
        assert [each["schedule"] for each in kernels(program)] == [named]
        command("keys", "revoke", "publish", "--data-dir", data)
        until = time.monotonic() + 60
        while kernels(program)[0]["schedule"] == named and time.monotonic() < until:
            time.sleep(0.2)
            program = tuned(serving.endpoint, far_magnitude, X, key_file=tmp_path / "submit.key")
        assert kernels(program)[0]["schedule"].startswith("cpu.pointwise")
    finally:
        worker.terminate()
        worker.wait(60)
        serving.stop()


@pytest.fixture(scope="module")
def coordinator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Coordinator]:
    serving = Coordinator(tmp_path_factory.mktemp("coordinator") / "data")
    yield serving
    serving.stop()


def test_a_triton_kernel_is_offered_as_its_binary(coordinator: Coordinator, tmp_path: Path,
                                                  monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton", reason="PyTorch of this environment brings no Triton")
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    from triton_child import scaled_sum

    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x * 3 + y

    def of(**other: Any) -> str:
        given = {"arguments": ("x", "y", "out"), "grid": lambda meta: (meta["size"] // meta["BLOCK"],),
                 "constants": {"size": 4096, "BLOCK": 128}, "target": "cuda:sm_90a", "num_warps": 4, **other}
        return offer(coordinator.endpoint, scaled_sum, None, function, args=(torch.rand(4096), torch.rand(4096)),
                     **given)

    named = of()
    assert named.startswith("offered.scaled_sum.")
    kept = [each for each in coordinator.artifacts("kiln.candidate") if each["key"].endswith(named)]
    value = Artifacts(coordinator.endpoint).get("kiln.candidate", kept[0]["key"]).value
    assert value is not None
    header, _, cubin = value.partition(b"\n")
    told = json.loads(header)
    assert told["target"] == "cuda:sm_90a" and cubin.startswith(b"\x7fELF")
    phase = told["recipe"]["phases"][0]
    assert (phase["entry"], phase["threads"]) == ("scaled_sum", 128)
    with pytest.raises(kiln.Unsupported, match="several axes"):
        of(grid=(32, 2))
    with pytest.raises(kiln.InvalidArgument, match="size"):
        of(constants={"BLOCK": 128})
    with pytest.raises(kiln.Unsupported, match="GPUs"):
        of(target="cpu")
