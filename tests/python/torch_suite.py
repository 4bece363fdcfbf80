"""torch's own tests of its compiler, test/inductor/test_torchinductor.py, with another backend in Inductor's place.

    KILN_LIBRARY=build/release/client/libkiln.so PYTHONPATH=client/python build/python/bin/python \
        tests/python/torch_suite.py test_torchinductor.py [--tests REGEX] [--every N] [--class CpuTests] [--out FILE]

The file is torch's, of a version near the installed one, and is not in this repository. A test counts where it passes
with aot_eager, which compiles nothing: what looks into Inductor's code or counters does not. Kiln must pass it too.
Prints each test that it does not, with the last line of its error, and the pass rate; exits with 1 under 97 %. Tests run
in a process of their own that is started again when one kills it or takes longer than --seconds. Half an hour for all
of CpuTests: not part of ctest."""

from __future__ import annotations

import argparse
import functools
import importlib.util
import json
import os
import re
import selectors
import subprocess
import sys
import time
import unittest
from collections.abc import Callable, Iterator
from typing import Any


def put_in_place_of_inductor(backend: Any) -> None:
    """Whatever asks for Inductor gets `backend`; what only Inductor understands is dropped."""
    import torch
    from torch._dynamo.backends import registry

    registry.lookup_backend("inductor")  # registers torch's own first
    registry._COMPILER_FNS["inductor"] = backend
    compile = torch.compile

    @functools.wraps(compile)
    def compile_with(*args: Any, **kwargs: Any) -> Any:
        if kwargs.get("backend", "inductor") == "inductor":
            kwargs = {key: value for key, value in kwargs.items() if key not in ("mode", "options")}
            kwargs["backend"] = backend
        return compile(*args, **kwargs)

    torch.compile = compile_with


def load(path: str, backend: Any) -> Any:
    """The module of torch's tests, with `backend` for compile_fx."""
    put_in_place_of_inductor(backend)
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
    spec = importlib.util.spec_from_file_location("test_torchinductor", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["test_torchinductor"] = module
    spec.loader.exec_module(module)
    module.compile_fx = backend  # type: ignore[attr-defined]
    return module


def backend_named(name: str) -> Callable[..., Any]:
    import torch

    if name == "kiln":
        import kiln.dynamo
        return kiln.dynamo.backend
    found: Callable[..., Any] = torch._dynamo.lookup_backend(name)
    return found


def serve(path: str, of_class: str, backend: str) -> None:
    """Runs the tests named on standard input, a line each; a line of JSON for each verdict."""
    verdicts = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what tests print is not a verdict
    module = load(path, backend_named(backend))
    cases = getattr(module, of_class)
    names = unittest.TestLoader().getTestCaseNames(cases)
    print(json.dumps(list(names)), file=verdicts, flush=True)
    for line in sys.stdin:
        result = unittest.TestResult()
        reports = watched(backend)
        unittest.TestSuite([cases(line.strip())]).run(result)
        problems = [text for _, text in result.errors + result.failures]
        verdict = "failed" if problems else "skipped" if result.skipped else "passed"
        why = [each for each in "\n".join(problems).splitlines() if each.strip()]
        in_kiln = any(program is not None for report in reports for _, program in report.partitions)
        print(json.dumps([verdict, problem_of(why), in_kiln]), file=verdicts, flush=True)


def watched(backend: str) -> list[Any]:
    """Reports of the graphs that are compiled from here on."""
    reports: list[Any] = []
    if backend == "kiln":
        import kiln.dynamo
        kiln.dynamo.watch(reports)
    return reports


def problem_of(lines: list[str]) -> str:
    """The line of a traceback that says what went wrong."""
    said = [line for line in lines if re.match(r"[\w.]*(Error|Exception|Unsupported|Failed)\b", line)]
    return (said or lines or [""])[-1][:300]


class Server:
    """A process that runs tests with one backend, started anew after one that does not answer."""

    def __init__(self, path: str, of_class: str, backend: str, seconds: float) -> None:
        self.command = [sys.executable, __file__, path, "--class", of_class, "--serve", backend]
        self.seconds = seconds
        self.process: subprocess.Popen[str] | None = None
        self.names: list[str] = []

    def start(self) -> subprocess.Popen[str]:
        if self.process is None:
            self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                            stderr=subprocess.DEVNULL, text=True)
            self.names = json.loads(self.answer(self.process, 300))
        return self.process

    def answer(self, process: subprocess.Popen[str], seconds: float) -> str:
        assert process.stdout
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            return process.stdout.readline() if selector.select(seconds) else ""

    def run(self, name: str) -> tuple[str, str, bool]:
        """The verdict, why, and whether a part ran in Kiln."""
        process = self.start()
        assert process.stdin
        process.stdin.write(name + "\n")
        process.stdin.flush()
        line = self.answer(process, self.seconds)
        if line:
            verdict, why, in_kiln = json.loads(line)
            return verdict, why, in_kiln
        died = process.poll()
        self.stop()
        why = f"no answer in {self.seconds:g} s" if died is None else f"the process ended with {died}"
        return "crashed", why, False

    def stop(self) -> None:
        if self.process:
            self.process.kill()
            self.process.wait()
        self.process = None


def verdicts(arguments: argparse.Namespace) -> Iterator[tuple[str, str, str, bool]]:
    """Name, verdict, reason of each test that aot_eager passes, and whether a part of it ran in Kiln."""
    reference = Server(arguments.file, arguments.of_class, "aot_eager", arguments.seconds)
    subject = Server(arguments.file, arguments.of_class, "kiln", arguments.seconds)
    try:
        reference.start()
        names = [name for name in reference.names if re.search(arguments.tests, name)][:: arguments.every]
        for name in names:
            if reference.run(name)[0] == "passed":
                yield name, *subject.run(name)
    finally:
        reference.stop()
        subject.stop()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", help="torch's test_torchinductor.py")
    parser.add_argument("--tests", default="", help="names that this finds; all by default")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="each N-th test only")
    parser.add_argument("--class", dest="of_class", default="CpuTests")
    parser.add_argument("--seconds", type=float, default=120, help="for one test")
    parser.add_argument("--out", help="a file for all verdicts, a line of JSON each")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        serve(arguments.file, arguments.of_class, arguments.serve)
        return 0
    counts = {"passed": 0, "failed": 0, "crashed": 0, "skipped": 0, "in kiln": 0}
    with open(arguments.out or os.devnull, "w") as out:
        for name, verdict, why, in_kiln in verdicts(arguments):
            counts[verdict] += 1
            counts["in kiln"] += in_kiln
            print(json.dumps({"test": name, "verdict": verdict, "why": why, "in_kiln": in_kiln}), file=out, flush=True)
            if verdict in ("failed", "crashed"):
                print(f"{verdict}: {name}: {why}", flush=True)
    judged = counts["passed"] + counts["failed"] + counts["crashed"]
    rate = 100 * counts["passed"] / max(judged, 1)
    print(f"{counts['passed']} of {judged} that pass with aot_eager passed ({rate:.1f} %), {counts['in kiln']} "
          f"ran at least in part in Kiln; {counts['failed']} failed, {counts['crashed']} crashed")
    return 0 if rate >= 97 else 1


if __name__ == "__main__":
    os.environ.setdefault("KILN_LOGS", "off")
    started = time.monotonic()
    status = main()
    if "--serve" not in sys.argv:
        print(f"{time.monotonic() - started:.0f} s")
    sys.exit(status)
