"""A program that Kiln compiled, launched from Python on torch's own memory and stream: just enough of
Kiln's runtime to time its kernels beside PyTorch's in one process. `kiln compile --out DIR` writes what
it reads; program/artifact.h and program/program.h say what the fields mean."""

import ctypes
import json
import os
import re

import torch

_TORCH_TYPES = {"f64": torch.float64, "f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16,
                "i64": torch.int64, "i32": torch.int32, "i16": torch.int16, "i8": torch.int8, "u8": torch.uint8,
                "bool": torch.bool}

_cuda = ctypes.CDLL("libcuda.so.1")


def _check(code):
    if code != 0:
        name = ctypes.c_char_p()
        _cuda.cuGetErrorName(code, ctypes.byref(name))
        raise RuntimeError(f"CUDA driver: {name.value.decode() if name.value else code}")


class _Attribute(ctypes.Structure):  # CUlaunchAttribute: id, padding, 64 bytes of value
    _fields_ = [("id", ctypes.c_int), ("pad", ctypes.c_char * 4), ("value", ctypes.c_uint * 16)]


class _Config(ctypes.Structure):  # CUlaunchConfig
    _fields_ = [("grid", ctypes.c_uint * 3), ("block", ctypes.c_uint * 3), ("shared", ctypes.c_uint),
                ("stream", ctypes.c_void_p), ("attributes", ctypes.c_void_p), ("count", ctypes.c_uint)]


class _Phase:
    def __init__(self, library, phase):
        kernel, self.function = ctypes.c_void_p(), ctypes.c_void_p()
        _check(_cuda.cuLibraryGetKernel(ctypes.byref(kernel), library, phase["entry"].encode()))
        _check(_cuda.cuKernelGetFunction(ctypes.byref(self.function), kernel))
        shared, cluster = phase["shared_bytes"], phase["cluster"]
        if shared > 48 << 10:
            _check(_cuda.cuFuncSetAttribute(self.function, 8, shared))  # MAX_DYNAMIC_SHARED_SIZE_BYTES
        self.config = _Config()
        self.config.grid[:] = (phase["grid"], 1, 1)
        self.config.block[:] = (phase["threads"], 1, 1)
        self.config.shared = shared
        if cluster > 1:
            self.attribute = _Attribute(id=4)  # CLUSTER_DIMENSION
            self.attribute.value[0:3] = (cluster, 1, 1)
            self.config.attributes = ctypes.addressof(self.attribute)
            self.config.count = 1


class KilnProgram:
    def __init__(self, directory):
        with open(os.path.join(directory, "manifest.json")) as file:
            self.manifest = json.load(file)
        with open(os.path.join(directory, "binding.json")) as file:
            self.input_order = json.load(file)["input_order"]
        self.kernels = []
        for kernel in self.manifest["kernels"]:
            with open(os.path.join(directory, kernel["blob"] + ".cubin"), "rb") as file:
                binary = file.read()
            library = ctypes.c_void_p()
            _check(_cuda.cuLibraryLoadData(ctypes.byref(library), binary, None, None, 0, None, None, 0))
            recipe = kernel["recipe"]
            workspace = torch.empty(max(1, recipe["workspace_bytes"]), dtype=torch.uint8, device="cuda")
            self.kernels.append(([_Phase(library, p) for p in recipe["phases"]], workspace))
        self.arena = torch.empty(max(1, self.manifest["arena_bytes"]), dtype=torch.uint8, device="cuda")
        self.outputs = [self._allocate(self.manifest["buffers"][b]) for b in self.manifest["output_buffers"]]

    @staticmethod
    def _allocate(buffer):
        return torch.empty(buffer["shape"], dtype=_TORCH_TYPES[buffer["dtype"]], device="cuda")

    def bind(self, inputs):
        """The launches on these inputs, ready to be put on a stream by launch()."""
        canonical = [inputs[caller] for caller in self.input_order]
        for tensor in canonical:
            assert tensor.is_contiguous() and tensor.data_ptr() % 16 == 0
        pointers = []
        for buffer in self.manifest["buffers"]:
            if buffer["kind"] == "input":
                pointers.append(canonical[buffer["index"]].data_ptr())
            elif buffer["kind"] == "output":
                pointers.append(self.outputs[buffer["index"]].data_ptr())
            else:
                pointers.append(self.arena.data_ptr() + buffer["arena_offset"])
        self.inputs, self.launches = inputs, []
        for launch in self.manifest["launches"]:
            phases, workspace = self.kernels[launch["kernel"]]
            values = [ctypes.c_uint64(pointers[a]) for a in launch["args"]] + [ctypes.c_uint64(workspace.data_ptr())]
            parameters = (ctypes.c_void_p * len(values))(*[ctypes.addressof(v) for v in values])
            self.launches += [(phase, parameters, values) for phase in phases]
        return self

    def launch(self):
        stream = torch.cuda.current_stream().cuda_stream
        for phase, parameters, _ in self.launches:
            phase.config.stream = stream
            _check(_cuda.cuLaunchKernelEx(ctypes.byref(phase.config), phase.function, parameters, None))
        return self.outputs


def schedule_text(manifest):
    return "; ".join(k["schedule"] for k in manifest["kernels"])


def natural(text):
    return [int(t) if t.isdigit() else t for t in re.split(r"(\d+)", text)]
