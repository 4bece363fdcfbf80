#!/usr/bin/env python3
"""Writes torch_schemas.txt: the argument names of every ATen op that Kiln lowers, and of its in-place
and out twins, as the installed torch declares them. argument_names_test.cc checks the lowerings
against it. Run it with a Python that has torch, after adding a lowering:

  python3 tests/compiler_core/frontend/refresh_schemas.py
"""
import pathlib
import re

import torch

here = pathlib.Path(__file__).resolve().parent
root = here.parents[2]
covered = set()
for source in (root / "compiler_core/frontend").glob("*.cc"):
    covered |= set(re.findall(r'\{"(aten\.[A-Za-z0-9_]+\.[A-Za-z0-9_]+)"', source.read_text()))
bases = {op.split(".")[1] for op in covered}

lines = []
for schema in torch._C._jit_get_all_schemas():
    if not schema.name.startswith("aten::"):
        continue
    name = schema.name.removeprefix("aten::")
    functional = name[:-1] if name.endswith("_") and not name.endswith("__") else name
    if name.startswith("__i") and name.endswith("__"):
        functional = "__" + name.removeprefix("__i")
    if name not in bases and functional not in bases:
        continue
    overload = schema.overload_name or "default"
    lines.append(" ".join([f"aten.{name}.{overload}"] + [a.name for a in schema.arguments]))
text = f"# torch {torch.__version__.split('+')[0]}: op, then its arguments in order (refresh_schemas.py)\n"
(here / "torch_schemas.txt").write_text(text + "\n".join(sorted(set(lines))) + "\n")
