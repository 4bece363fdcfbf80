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
                "bool": torch.bool, "f8e4m3": torch.float8_e4m3fn, "f8e5m2": torch.float8_e5m2}

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


_MAP_TYPES = {"u8": 0, "f8e4m3": 0, "f8e5m2": 0, "i8": 0, "bool": 0, "i16": 1, "i32": 3, "i64": 5, "f16": 6, "f32": 7, "f64": 8, "bf16": 9}


def _array(kind, values):
    return (kind * max(1, len(values)))(*values)


def _encode(spec, pointer):
    """The 128 bytes of a tensor map, 64-byte aligned, and what keeps them alive."""
    memory = ctypes.create_string_buffer(128 + 64)
    address = (ctypes.addressof(memory) + 63) // 64 * 64
    common = [ctypes.c_void_p(address), _MAP_TYPES[spec["dtype"]], len(spec["sizes"]),
              ctypes.c_void_p(pointer + spec["offset"]), _array(ctypes.c_uint64, spec["sizes"]),
              _array(ctypes.c_uint64, spec["strides"])]
    modes = [_array(ctypes.c_uint32, spec["element_strides"]), (0, 16, 32).index(spec["interleave"]),
             (0, 32, 64, 128).index(spec["swizzle"]), (0, 64, 128, 256).index(spec["l2_promotion"]),
             int(spec["fill"] == "nan")]
    if "im2col" in spec:
        windows = spec["im2col"]
        corners = [_array(ctypes.c_int, windows["lower"]), _array(ctypes.c_int, windows["upper"])]
        _check(_cuda.cuTensorMapEncodeIm2col(*common, *corners, windows["channels"], windows["pixels"], *modes))
    else:
        _check(_cuda.cuTensorMapEncodeTiled(*common, _array(ctypes.c_uint32, spec["box"]), *modes))
    return address, memory


class _Phase:
    def __init__(self, library, phase):
        kernel, self.function = ctypes.c_void_p(), ctypes.c_void_p()
        _check(_cuda.cuLibraryGetKernel(ctypes.byref(kernel), library, phase["entry"].encode()))
        _check(_cuda.cuKernelGetFunction(ctypes.byref(self.function), kernel))
        shared, cluster = phase["shared_bytes"], phase["cluster"]
        if shared > 48 << 10:
            _check(_cuda.cuFuncSetAttribute(self.function, 8, shared))  # MAX_DYNAMIC_SHARED_SIZE_BYTES
        self.listed = phase.get("arguments")
        self.config = _Config()
        self.config.grid[:] = (phase["grid"], 1, 1)
        self.config.block[:] = (phase["threads"], 1, 1)
        self.config.shared = shared
        self.attributes = (_Attribute * 2)()
        self.config.attributes = ctypes.addressof(self.attributes)
        if cluster > 1:
            self._attribute(4).value[0:3] = (cluster, 1, 1)  # CLUSTER_DIMENSION
        if phase.get("dependent_launch"):
            self._attribute(6).value[0] = 1  # PROGRAMMATIC_STREAM_SERIALIZATION

    def _attribute(self, number):
        attribute = self.attributes[self.config.count]
        attribute.id = number
        self.config.count += 1
        return attribute

    def bind(self, pointers, workspace):
        """What puts this phase on a stream, on these buffers."""
        values = [ctypes.c_uint64(p) for p in pointers] + [ctypes.c_uint64(workspace)]
        addresses, kept = [ctypes.addressof(v) for v in values], [values]
        if self.listed:
            every, addresses = addresses, []
            for argument in self.listed:
                if "tensor_map" in argument:
                    spec = argument["tensor_map"]
                    address, memory = _encode(spec, pointers[spec["buffer"]])
                    addresses.append(address)
                    kept.append(memory)
                else:
                    addresses.append(every[argument.get("buffer", len(pointers))])
        parameters = _array(ctypes.c_void_p, addresses)

        def launch(stream, _kept=kept):
            self.config.stream = stream
            _check(_cuda.cuLaunchKernelEx(ctypes.byref(self.config), self.function, parameters, None))
        return launch


class _Heuristic(ctypes.Structure):  # cublasLtMatmulHeuristicResult_t
    _fields_ = [("algorithm", ctypes.c_uint64 * 8), ("workspace", ctypes.c_size_t), ("state", ctypes.c_int),
                ("waves", ctypes.c_float), ("reserved", ctypes.c_int * 4)]


class _LibraryCall:
    """A product by cuBLASLt, in columns what the manifest says in rows: d^T = b^T a^T."""
    _TYPES = {"f32": 0, "f64": 1, "f16": 2, "bf16": 14}
    _EPILOGUES = {"none": 1, "relu": 2, "bias": 4, "relu_bias": 6, "gelu_tanh": 32, "gelu_tanh_bias": 36}
    _lt = _handle = None

    def __init__(self, call):
        cls = type(self)
        if cls._lt is None:
            cls._lt = ctypes.CDLL(f"libcublasLt.so.{torch.version.cuda.split('.')[0]}")
            cls._lt.cublasLtGetVersion.restype = ctypes.c_size_t
            cls._handle = ctypes.c_void_p()
            self._ok(cls._lt.cublasLtCreate(ctypes.byref(cls._handle)))
        found = str(cls._lt.cublasLtGetVersion())
        if call["version"] not in ("", found):
            raise RuntimeError(f"the program calls cublaslt {call['version']}; the one here is {found}")
        self.call = call
        self.is_f64 = call["compute"] == "f64"
        compute = {"f32": 68, "f64": 70, "tf32": 77}[call["compute"]]
        self.desc = ctypes.c_void_p()
        self._ok(self._lt.cublasLtMatmulDescCreate(ctypes.byref(self.desc), compute, int(self.is_f64)))
        self._set("MatmulDesc", self.desc, 3, ctypes.c_int32(call["b"]["transposed"]))
        self._set("MatmulDesc", self.desc, 4, ctypes.c_int32(call["a"]["transposed"]))
        self._set("MatmulDesc", self.desc, 7, ctypes.c_uint32(self._EPILOGUES[call["epilogue"]]))
        m, n, k = call["m"], call["n"], call["k"]
        self.layouts = [self._layout(call["b"], k, n), self._layout(call["a"], m, k), self._layout(call["d"], m, n)]

    @staticmethod
    def _ok(status):
        if status != 0:
            raise RuntimeError(f"cuBLASLt: status {status}")

    def _set(self, kind, target, attribute, value):
        function = getattr(self._lt, f"cublasLt{kind}SetAttribute")
        self._ok(function(target, attribute, ctypes.byref(value), ctypes.c_size_t(ctypes.sizeof(value))))

    def _layout(self, matrix, rows, columns):
        if matrix["transposed"]:
            rows, columns = columns, rows
        layout = ctypes.c_void_p()
        self._ok(self._lt.cublasLtMatrixLayoutCreate(
            ctypes.byref(layout), self._TYPES[matrix["dtype"]], ctypes.c_uint64(columns), ctypes.c_uint64(rows),
            ctypes.c_int64(matrix["ld"])))
        self._set("MatrixLayout", layout, 5, ctypes.c_int32(self.call["batch"]))
        self._set("MatrixLayout", layout, 6, ctypes.c_int64(matrix["batch_stride"]))
        return layout

    def _choose(self, first_pointer, second_pointer, addend, d):
        """The algorithm for operands at these addresses, as far as they are aligned, up to 256 bytes."""
        first, second, result = self.layouts
        operands = (self._handle, self.desc, first, second, result, result)
        if "algorithm" in self.call:
            self.heuristic = _Heuristic()
            ctypes.memmove(self.heuristic.algorithm, bytes.fromhex(self.call["algorithm"]), 64)
            self._ok(self._lt.cublasLtMatmulAlgoCheck(*operands, ctypes.byref(self.heuristic.algorithm),
                                                      ctypes.byref(self.heuristic)))
            return
        preference, results, count = ctypes.c_void_p(), (_Heuristic * 8)(), ctypes.c_int()
        self._ok(self._lt.cublasLtMatmulPreferenceCreate(ctypes.byref(preference)))
        self._set("MatmulPreference", preference, 1, ctypes.c_uint64(32 << 20))
        for attribute, pointer in zip((5, 6, 7, 8), (first_pointer, second_pointer, addend, d)):
            self._set("MatmulPreference", preference, attribute, ctypes.c_uint32(min(pointer & -pointer, 256)))
        self._ok(self._lt.cublasLtMatmulAlgoGetHeuristic(*operands, preference, 8, results, ctypes.byref(count)))
        assert count.value > 0, "cuBLASLt names no algorithm for this product"
        self.heuristic = results[min(self.call["rank"], count.value - 1)]

    def bind(self, pointers, workspace):
        call, (first, second, result) = self.call, self.layouts
        at = lambda matrix, buffer=None: ctypes.c_void_p(
            pointers[matrix["buffer"] if buffer is None else buffer]
            + matrix.get("offset", 0) * (8 if self.is_f64 else 4 if matrix["dtype"] == "f32" else 2))
        kind = ctypes.c_double if self.is_f64 else ctypes.c_float
        alpha, beta = kind(1), kind(1 if "c" in call else 0)
        a, b, d = at(call["a"]), at(call["b"]), at(call["d"])
        c = at(call["d"], call["c"]) if "c" in call else d
        if "bias" in call:  # the heuristics look at it too
            self._set("MatmulDesc", self.desc, 8, ctypes.c_void_p(pointers[call["bias"]]))
        self._choose(b.value, a.value, c.value, d.value)

        def launch(stream):
            if "bias" in call:
                self._set("MatmulDesc", self.desc, 8, ctypes.c_void_p(pointers[call["bias"]]))
            self._ok(self._lt.cublasLtMatmul(
                self._handle, self.desc, ctypes.byref(alpha), b, first, a, second, ctypes.byref(beta), c, result, d, result,
                ctypes.byref(self.heuristic.algorithm), ctypes.c_void_p(workspace),
                ctypes.c_size_t(self.heuristic.workspace), ctypes.c_void_p(stream)))
        return launch


class KilnProgram:
    def __init__(self, directory, libraries=True):
        """`libraries`: false takes Kiln's own kernel where the winner is a library's."""
        with open(os.path.join(directory, "manifest.json")) as file:
            self.manifest = json.load(file)
        with open(os.path.join(directory, "binding.json")) as file:
            self.input_order = json.load(file)["input_order"]
        self.kernels = []
        for kernel in self.manifest["kernels"]:
            with open(os.path.join(directory, kernel["blob"] + ".cubin"), "rb") as file:
                binary = file.read()
            try:
                if not libraries and "fallback" in kernel:
                    raise OSError
                self.kernels.append(self._load(kernel["recipe"], binary))
            except (RuntimeError, OSError):  # no such library, or of another version; or none is wanted
                if "fallback" not in kernel:
                    raise
                self.kernels.append(self._load(kernel["fallback"]["recipe"], binary))
        self.arena = torch.empty(max(1, self.manifest["arena_bytes"]), dtype=torch.uint8, device="cuda")
        self.outputs = [self._allocate(self.manifest["buffers"][b]) for b in self.manifest["output_buffers"]]

    @staticmethod
    def _load(recipe, binary):
        library = ctypes.c_void_p()
        if any("call" not in phase for phase in recipe["phases"]):
            _check(_cuda.cuLibraryLoadData(ctypes.byref(library), binary, None, None, 0, None, None, 0))
        phases = [_LibraryCall(p["call"]) if "call" in p else _Phase(library, p) for p in recipe["phases"]]
        workspace = torch.empty(max(1, recipe["workspace_bytes"]), dtype=torch.uint8, device="cuda")
        return phases, workspace

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
            args = [pointers[a] for a in launch["args"]]
            self.launches += [phase.bind(args, workspace.data_ptr()) for phase in phases]
        return self

    def launch(self):
        stream = torch.cuda.current_stream().cuda_stream
        for launch in self.launches:
            launch(stream)
        return self.outputs


def schedule_text(manifest):
    return "; ".join(k["schedule"] for k in manifest["kernels"])


def natural(text):
    return [int(t) if t.isdigit() else t for t in re.split(r"(\d+)", text)]
