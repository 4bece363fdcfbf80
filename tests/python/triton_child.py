"""One process of tests/python/test_triton.py: compiles a Triton kernel for a GPU that need not be there, and prints how
often Triton compiled and the digest of the binary."""

from __future__ import annotations

import hashlib
import json
import os
from typing import Any

import triton
import triton.language as tl
from kiln._fleet import fleet_of
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource


@triton.jit
def scaled_sum(x, y, out, size, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < size
    tl.store(out + at, tl.load(x + at, mask=inside) * 3 + tl.load(y + at, mask=inside), mask=inside)


def main() -> None:
    compiled = [0]
    make_ir = ASTSource.make_ir

    def count(self: ASTSource, *given: Any, **named: Any) -> Any:
        compiled[0] += 1
        return make_ir(self, *given, **named)

    ASTSource.make_ir = count
    source = ASTSource(fn=scaled_sum, constexprs={"BLOCK": 128},
                       signature={"x": "*fp32", "y": "*fp32", "out": "*fp32", "size": "i32", "BLOCK": "constexpr"})
    kernel = triton.compile(source, target=GPUTarget("cuda", 90, 32))
    fleet_of(os.environ["KILN_COORDINATOR"]).flush(60)  # the end of a process waits two seconds at most
    print(json.dumps({"compiled": compiled[0], "binary": hashlib.sha256(kernel.asm["cubin"]).hexdigest()}))


if __name__ == "__main__":
    main()
