"""ONNX's own node tests, which its package on PyPI carries, run by tests/onnx/onnx_cases. None may be wrong; as many
as were right when this was written must stay right; what is refused is counted by its reason.

Where a case gives as an input what Kiln must know while it reads the model (a shape, axes), it is run again with that
input as an initializer, which is how models have it."""

from __future__ import annotations

import collections
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "ops"))
from environment import environment  # noqa: E402

PACKAGES = ["onnx==1.17.0", "numpy==1.26.4"]
RIGHT = 822  # of 1288 in that version
NEEDED_EARLY = re.compile(r"computed from data|values that are computed|dynamic size")
PROGRAM = Path(os.environ["KILN_BUILD_DIR"]) / "tests" / "onnx_cases"

# Run by the environment's own Python: writes the cases of argv[2:] into argv[1] with inputs as initializers.
AS_INITIALIZERS = """
import sys, pathlib, onnx
for name in sys.argv[2:]:
    source, target = pathlib.Path(name), pathlib.Path(sys.argv[1]) / pathlib.Path(name).name
    data = target / "test_data_set_0"
    data.mkdir(parents=True)
    model = onnx.load(source / "model.onnx")
    inputs = list(model.graph.input)
    del model.graph.input[:]
    keeps = 0 if model.graph.node[0].op_type in ("Range", "ConstantOfShape") else 1
    for i, value in enumerate(inputs):
        bytes = (source / "test_data_set_0" / f"input_{i}.pb").read_bytes()
        if i < keeps:
            (data / f"input_{i}.pb").write_bytes(bytes)
            model.graph.input.append(value)
        else:
            tensor = onnx.TensorProto.FromString(bytes)
            tensor.name = value.name
            model.graph.initializer.append(tensor)
    for output in (source / "test_data_set_0").glob("output_*.pb"):
        (data / output.name).write_bytes(output.read_bytes())
    onnx.save(model, target / "model.onnx")
"""


def run(cases: list[Path]) -> dict[str, tuple[str, str]]:
    """Verdict and reason of each; a crash is a verdict of its own."""
    verdicts: dict[str, tuple[str, str]] = {}
    while len(verdicts) < len(cases):
        rest = [str(case) for case in cases if case.name not in verdicts]
        done = subprocess.run([PROGRAM, *rest], capture_output=True, text=True, check=False)
        for line in done.stdout.splitlines():
            name, verdict, why = line.split("\t")
            verdicts[name] = (verdict, why)
        if done.returncode not in (0, 1):
            broken = next(Path(case).name for case in rest if Path(case).name not in verdicts)
            verdicts[broken] = ("crashed", done.stderr[-300:])
    return verdicts


def main() -> int:
    folder = environment(PACKAGES)
    if folder is None:
        print("skipped: PyPI does not give", *PACKAGES)
        return 77
    nodes = next((folder / "lib").glob("python*/site-packages/onnx/backend/test/data/node"))
    cases = sorted(nodes.iterdir())
    verdicts = run(cases)
    again = [case for case in cases if NEEDED_EARLY.search(verdicts[case.name][1])]
    with tempfile.TemporaryDirectory() as scratch:
        subprocess.run([folder / "bin" / "python", "-c", AS_INITIALIZERS, scratch, *map(str, again)], check=True)
        verdicts |= run(sorted(Path(scratch).iterdir()))
    counts = collections.Counter(verdict for verdict, _ in verdicts.values())
    reasons = collections.Counter(
        re.sub(r"'[^']*'|\d+", "_", why.split("model.onnx: ")[-1])[:150]
        for verdict, why in verdicts.values() if verdict == "refused")
    for reason, count in reasons.most_common():
        print(f"{count:4} refused: {reason}")
    print(dict(counts), "of", len(cases))
    bad = {name: why for name, (verdict, why) in verdicts.items() if verdict not in ("right", "refused")}
    for name, why in bad.items():
        print(f"{name}: {why}")
    if counts["right"] < RIGHT:
        print(f"fewer than {RIGHT} are right")
    return 1 if bad or counts["right"] < RIGHT else 0


if __name__ == "__main__":
    sys.exit(main())
