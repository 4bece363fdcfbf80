"""A program that `kiln compile --out` or `candidates` (tests/bench/candidates.cc) wrote, bound to torch's tensors, to time
its kernels beside PyTorch's in one process. It runs as the Python package runs all programs: this needs the wheel
(ops/wheel), or KILN_LIBRARY and PYTHONPATH=client/python; ops/gpu-check sets them."""

import functools
import json
import re

import kiln
import torch
from kiln._torch import DTYPES

ARENA_ALIGNMENT = 256


@functools.cache
def client(libraries=True):
    """Nobody's: it asks no service. `libraries`: false takes Kiln's own kernel where the winner is a library's."""
    return kiln.Client("", cache_dir="", fallback=False, libcublaslt=None if libraries else "none")


class Bound:
    """launch() puts the program on torch's current stream, on the tensors that it was bound to: from `inputs` to `outputs`,
    which each launch writes anew. They lie dense, aligned, where the program runs. `in_place`: outputs that update an
    input lie in it."""

    def __init__(self, directory, inputs, libraries=True, in_place=False):
        # The benchmark has just had it written, and vouches for it: candidates are signed by nobody.
        self.program = client(libraries).open_exported(directory, signer="unsigned")
        self.manifest = json.loads(self.program.manifest)
        device = torch.device("cuda" if self.program.target.startswith("cuda") else "cpu")
        self.inputs = inputs[:len(self.program.inputs)]  # behind them are those that it does not read
        for number, (tensor, info) in enumerate(zip(self.inputs, self.program.inputs, strict=True)):
            fits = tensor.element_size() * 8 == info.type_code[1] and len(tensor.shape) == len(info.sizes) and all(
                want in (-1, have) for want, have in zip(info.sizes, tensor.shape, strict=True))
            if info.dtype != "none" and not (fits and tensor.device.type == device.type):
                raise ValueError(f"input {number} is {info.dtype}{info.shape}; it was given {tensor.dtype} "
                                 f"{list(tensor.shape)} on {tensor.device.type}")
            assert tensor.is_contiguous() and tensor.data_ptr() % self.program.alignment == 0
        self.symbols = self.program.bind([tuple(tensor.shape) for tensor in self.inputs])
        self.outputs = [torch.empty(sizes, dtype=DTYPES[info.type_code], device=device) for info, sizes in
                        zip(self.program.outputs, self.program.output_sizes(self.symbols), strict=True)]
        for number, info in enumerate(self.program.outputs):
            if in_place and info.updates is not None:
                self.outputs[number] = self.inputs[info.updates]
        # With the workspaces of its kernels.
        self.arena = torch.empty(self.program.arena_bytes(self.symbols) + ARENA_ALIGNMENT, dtype=torch.uint8, device=device)
        self._addresses = ([tensor.data_ptr() for tensor in self.inputs], [tensor.data_ptr() for tensor in self.outputs],
                           -(-self.arena.data_ptr() // ARENA_ALIGNMENT) * ARENA_ALIGNMENT)
        self._on_gpu = device.type == "cuda"

    @property
    def launches(self):
        """Kernels and library calls of one call."""
        kernels = self.manifest["kernels"]
        return sum(len(kernels[launch["kernel"]]["recipe"]["phases"]) for launch in self.manifest["launches"])

    def poison(self):
        """Overwrites what the next launch has to write, or may not rely on."""
        for tensor in self.outputs:
            of_integers = not (tensor.is_floating_point() or tensor.dtype == torch.bool)
            tensor.fill_(torch.iinfo(tensor.dtype).min // 2 if of_integers else float("nan"))
        self.arena.fill_(255)

    def launch(self):
        stream = torch.cuda.current_stream().cuda_stream if self._on_gpu else 0
        self.program.launch(*self._addresses, stream, self.symbols)
        return self.outputs


def schedule_text(manifest):
    return "; ".join(k["schedule"] for k in manifest["kernels"])


def natural(text):
    return [int(t) if t.isdigit() else t for t in re.split(r"(\d+)", text)]
