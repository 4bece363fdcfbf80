"""``python -m kiln``: ``warm`` tunes a model that a Python function gives; all else is the ``kiln`` command."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
from collections.abc import Iterator
from typing import Any

from kiln import _programs
from kiln.client import Progress
from kiln.errors import (
    Corruption,
    DeadlineExceeded,
    InternalError,
    InvalidArgument,
    KilnError,
    Overloaded,
    Unavailable,
    Unsupported,
)

_HELP = """Tunes a model before it ships, so that no replica waits for it.

PKG:FN names a function without arguments of an importable module, which gives
  an ExportedProgram or the path of a .pt2 file, for replicas that use kiln.compile or kiln.load,
  (model, args) or (model, args, kwargs), for those that use torch.compile(backend="kiln"),
  or a dict of such, by name.

  python -m kiln warm serving.models:all_models --coordinator tcp://kiln:7557
  python -m kiln warm serving.models:exported --target cuda:sm_90a     without a GPU here

Exit codes: 0 the fleet has all, 1 a failure, 2 usage or an error of the function's, 3 no service, 5 too busy or too
late, 6 an op that Kiln does not cover."""


def _exit_code(error: KilnError) -> int:
    """The code with which the ``kiln`` command ends on such an error (docs/cli.md)."""
    if isinstance(error, Unsupported):
        return 6
    if isinstance(error, (Overloaded, DeadlineExceeded)):
        return 5
    if isinstance(error, Unavailable):
        return 3
    return 1 if isinstance(error, (Corruption, InternalError)) else 2


def _models(given: Any, name: str) -> Iterator[tuple[str, Any, Any, Any]]:
    """The name, model, args and kwargs of each."""
    for each, what in (given.items() if isinstance(given, dict) else [(name, given)]):
        parts = what if isinstance(what, tuple) else (what,)
        if not 1 <= len(parts) <= 3:
            raise InvalidArgument(f"{each}: a tuple of {len(parts)} is neither (model, args) nor (model, args, kwargs)")
        yield str(each), parts[0], parts[1] if len(parts) > 1 else (), parts[2] if len(parts) > 2 else {}


def _warm(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m kiln warm", description=_HELP,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("function", metavar="PKG:FN")
    parser.add_argument("--mode", default="max-autotune", help="as replicas ask: one of torch.compile's (%(default)s)")
    parser.add_argument("--target", help="of exported programs: cpu, cuda:sm_90a; default: where they were exported")
    parser.add_argument("--coordinator", help="default: $KILN_COORDINATOR")
    parser.add_argument("--deadline", type=float, default=3600, metavar="SECONDS", help="for each model (%(default)s)")
    parser.add_argument("--json", action="store_true", help="an object a model, one a line")
    options = parser.parse_args(arguments)
    module, _, function = options.function.partition(":")
    if not function:
        parser.error(f"'{options.function}' is not PKG:FN")
    if not (options.coordinator or os.environ.get("KILN_COORDINATOR")):
        print("kiln: there is no fleet to warm: give --coordinator, or set KILN_COORDINATOR", file=sys.stderr)
        return 3
    sys.path.insert(0, os.getcwd())
    try:
        models = list(_models(getattr(importlib.import_module(module), function)(), function))
    except Exception as error:  # the user's own code
        print(f"kiln: {options.function}: {type(error).__name__}: {error}", file=sys.stderr)
        return 2

    from kiln._warm import warm

    def show(progress: Progress) -> None:
        line = (f"{name}: {progress.kernels_done}/{progress.kernels} kernels, {progress.candidates_done}/"
                f"{progress.candidates} candidates, {progress.elapsed_s:.0f} s")
        print(f"\r{line} \x1b[K", end="", file=sys.stderr, flush=True)

    worst = 0
    for name, model, args, kwargs in models:
        try:
            done = warm(model, args, kwargs, mode=options.mode, target=options.target, coordinator=options.coordinator,
                        deadline_s=options.deadline, name=name, on_progress=show if sys.stderr.isatty() else None)
        except KilnError as error:
            if options.json:
                print(json.dumps({"name": name, "error": str(error)}), flush=True)
            print(f"kiln: {name}: {error}", file=sys.stderr)
            worst = max(worst, _exit_code(error))
            continue
        except Exception as error:  # of the model's
            print(f"kiln: {name}: {type(error).__name__}: {error}", file=sys.stderr)
            worst = max(worst, 2)
            continue
        finally:
            if sys.stderr.isatty():
                print("\r\x1b[K", end="", file=sys.stderr)
        if options.json:
            print(json.dumps(done._asdict()), flush=True)
        else:
            print(f"{name}  {done.target or 'nothing for Kiln'}  {done.kernels} kernels  "
                  f"{', '.join(sorted(set(done.outcomes)))}  {done.seconds:.2f} s", flush=True)
    return worst


def main() -> int:
    if sys.argv[1:2] == ["warm"]:
        return _warm(sys.argv[2:])
    _programs.kiln()


if __name__ == "__main__":
    sys.exit(main())
