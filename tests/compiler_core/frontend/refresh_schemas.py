#!/usr/bin/env python3
"""Writes torch_schemas.txt, the argument names of every op of torch that Kiln lowers, and of its in-place
and out twins, as the installed torch declares them, and torch_types.txt, their types. argument_names_test.cc checks the lowerings
against it. Run it with a Python that has torch and torchao, after adding a lowering:

  python3 tests/compiler_core/frontend/refresh_schemas.py
"""
import pathlib
import re

import torch
import torch.ao.quantization.fx._decomposed  # noqa: F401  (quantized_decomposed)
import torchao  # noqa: F401  (torchao)

here = pathlib.Path(__file__).resolve().parent
root = here.parents[2]
covered = set()
for source in (root / "compiler_core/frontend").glob("*.cc"):
    covered |= set(re.findall(r'\{"((?:aten|quantized_decomposed|torchao)\.[A-Za-z0-9_]+\.[A-Za-z0-9_]+)"',
                              source.read_text()))
bases = {op.split(".")[1] for op in covered}

lines, types = [], []
for schema in torch._C._jit_get_all_schemas():
    library, name = schema.name.split("::", 1)
    if library not in ("aten", "quantized_decomposed", "torchao"):
        continue
    functional = name[:-1] if name.endswith("_") and not name.endswith("__") else name
    if name.startswith("__i") and name.endswith("__"):
        functional = "__" + name.removeprefix("__i")
    if name not in bases and functional not in bases:
        continue
    overload = schema.overload_name or "default"
    lines.append(" ".join([f"{library}.{name}.{overload}"] + [a.name for a in schema.arguments]))
    types.append(" ".join([f"{library}.{name}.{overload}"] + [str(a.type).replace(" ", "") for a in schema.arguments]))
for file, what, rows in (("torch_schemas", "arguments", lines), ("torch_types", "arguments' types", types)):
    head = f"# torch {torch.__version__.split('+')[0]}: op, then its {what} in order (refresh_schemas.py)\n"
    (here / f"{file}.txt").write_text(head + "\n".join(sorted(set(rows))) + "\n")
