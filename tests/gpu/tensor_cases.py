"""What tensor.py measures beside whole models: products, attention and convolutions as small modules, chains of layers.

A case is a function of its inputs alone: weights are inputs too. `peers` are other ways to compute the same in PyTorch."""

import dataclasses
import functools
import typing

import torch
import torch.nn.functional as F

BF16 = torch.bfloat16
DEVICE = "cuda"  # of the inputs that randn() makes


@dataclasses.dataclass
class Case:
    group: str
    name: str
    function: typing.Callable  # (*inputs) -> a tensor, or several
    make_inputs: typing.Callable  # () -> list of CUDA tensors
    peers: dict = dataclasses.field(default_factory=dict)  # name: (*inputs) -> a function to time, made once
    compiled: str = ""  # a mode of torch.compile to time as well
    exported: typing.Callable | None = None  # what Kiln is given instead of `function`: the same in other ops


def cases_of(group):
    function = {"fused": products, "depthwise": convolutions}.get(group) or globals()[group]
    return [case for case in function() if case.group == group]


def randn(*sizes, dtype=BF16, scale=1.0):
    return (torch.randn(sizes, device=DEVICE) * scale).to(dtype)


def matmul_case(m, k, n, *, layout="nn", dtype=BF16):
    def make():
        a = randn(k, m, dtype=dtype) if layout == "tn" else randn(m, k, dtype=dtype)
        return [a, randn(n, k, dtype=dtype) if layout == "nt" else randn(k, n, dtype=dtype)]

    def function(a, b):
        return torch.matmul(a.t() if layout == "tn" else a, b.t() if layout == "nt" else b)
    text = {torch.float16: " f16", torch.float32: " f32"}.get(dtype, "")
    return Case("products", f"{m}x{k}x{n} {layout}{text}", function, make, {"torch": None})


def products():
    yield matmul_case(8192, 8192, 8192)
    yield matmul_case(4096, 4096, 4096)
    yield matmul_case(4096, 4096, 4096, layout="nt")
    yield matmul_case(2048, 2048, 2048)
    yield matmul_case(1024, 1024, 1024)
    yield matmul_case(4096, 4096, 4096, layout="tn", dtype=torch.float16)
    yield matmul_case(1, 4096, 14336, layout="nt")
    yield matmul_case(16, 4096, 14336, layout="nt")
    yield matmul_case(64, 8192, 8192, layout="nt")
    yield matmul_case(512, 2048, 5504, layout="nt")
    yield matmul_case(512, 4096, 14336, layout="nt")
    yield matmul_case(2048, 14336, 4096, layout="nt")
    yield matmul_case(512, 2048, 128256, layout="nt")
    yield matmul_case(1000, 3001, 5003)
    yield Case("products", "batched 64x512x128x512", torch.matmul, lambda: [randn(64, 512, 128), randn(64, 128, 512)],
               {"torch": None})
    yield Case("fused", "linear+bias+gelu 4096x4096x16384", lambda x, w, b: F.gelu(F.linear(x, w, b)),
               lambda: [randn(4096, 4096), randn(16384, 4096, scale=0.02), randn(16384)], {"torch": None},
               "max-autotune-no-cudagraphs")
    yield Case("fused", "silu(xG)*xU 2048x4096x14336", lambda x, g, u: F.silu(F.linear(x, g)) * F.linear(x, u),
               lambda: [randn(2048, 4096), randn(14336, 4096, scale=0.02), randn(14336, 4096, scale=0.02)],
               {"torch": None}, "max-autotune-no-cudagraphs")
    yield Case("fused", "linear+residual 4096x4096x4096", lambda x, w, r: F.linear(x, w) + r,
               lambda: [randn(4096, 4096), randn(4096, 4096, scale=0.02), randn(4096, 4096)], {"torch": None},
               "max-autotune-no-cudagraphs")


def deep():
    """Products in front of a residual stream: waves of tiles, or the depth of few of them, decide."""
    for m, k, n in ((512, 8192, 2048), (512, 2048, 2048), (1024, 3072, 768), (1024, 768, 768), (512, 3072, 1024),
                    (512, 9216, 2304), (1568, 3072, 768), (256, 4096, 4096), (128, 11008, 4096), (6304, 3072, 768),
                    (6304, 768, 768), (4096, 3072, 768), (512, 2048, 5504)):
        yield Case("deep", f"linear+residual {m}x{k}x{n}", lambda x, w, r: F.linear(x, w) + r,
                   functools.partial(lambda m, k, n: [randn(m, k), randn(n, k, scale=0.02), randn(m, n)], m, k, n),
                   {"torch": None, "beside, without residual": lambda x, w, r: lambda: F.linear(x, w)})


E4M3 = torch.float8_e4m3fn


def f8_case(m, k, n, scales="tensor"):
    shapes = {"tensor": [(), ()], "rows": [(m, 1), (1, n)], "blocks": [(k // 128, m), (n // 128, k // 128)]}[scales]

    def make():
        return [randn(m, k, dtype=E4M3), randn(n, k, dtype=E4M3),
                *(torch.rand(shape, device=DEVICE) * 0.01 + 0.005 for shape in shapes)]

    def function(a, b, scale_a, scale_b):
        if scales == "blocks":  # as DeepSeek's: 1x128 of activations, 128x128 of weights
            scale_a, scale_b = scale_a.t(), scale_b.t()
        return torch._scaled_mm(a, b.t(), scale_a, scale_b, out_dtype=BF16)

    def halves(a, b, *_):  # what 8 bits are beside
        x, y = a.to(BF16), b.to(BF16).t()
        return lambda: torch.matmul(x, y)
    peers = {"torch": None} if scales != "tensor" else {"torch": None, "beside bf16": halves}
    return Case("low_precision", f"f8 {m}x{k}x{n}" + (f" {scales}" if scales != "tensor" else ""), function, make, peers)


def weight_only_case(rows):
    def function(x, w, scale):
        return F.linear(x, w.to(BF16)) * scale
    return Case("low_precision", f"int8 weights {rows}x4096x14336", function,
                lambda: [randn(rows, 4096), torch.randint(-128, 128, (14336, 4096), device=DEVICE, dtype=torch.int8),
                         randn(14336, scale=0.01)], {"torch": None}, "max-autotune-no-cudagraphs")


def four_bits_case(rows, k=4096, n=14336, group=128):
    """Two numbers a byte, a scale and a zero a group of 128, unpacked in front of the product as exporters write it."""
    def function(x, packed, scale, zero):
        q = torch.stack([packed & 15, packed >> 4], -1).view(n, k // group, group)
        w = (q.to(BF16) - zero[:, :, None]) * scale[:, :, None]
        return F.linear(x, w.view(n, k))

    def tinygemm(x, packed, scale, zero):  # PyTorch's own kernel for them, on the same numbers
        q = torch.stack([packed & 15, packed >> 4], -1).view(n, k).to(torch.int32)
        tiles = torch._convert_weight_to_int4pack(((q[:, ::2] << 4) | q[:, 1::2]).to(torch.uint8), 8)
        pairs = torch.stack([scale, (8 - zero) * scale], -1).transpose(0, 1).contiguous()
        return lambda: torch._weight_int4pack_mm(x, tiles, group, pairs)
    return Case("low_precision", f"int4 weights {rows}x{k}x{n}", function,
                lambda: [randn(rows, k), torch.randint(0, 256, (n, k // 2), device=DEVICE, dtype=torch.uint8),
                         randn(n, k // group, scale=0.01), torch.randint(0, 16, (n, k // group), device=DEVICE).to(BF16)],
                {"torch": None, "tinygemm": tinygemm}, "max-autotune-no-cudagraphs")


def packed_four_bits_case(rows, k=4096, n=14336, group=128):
    """As torch packs them."""
    def make():
        tiles = torch.randint(-2**31, 2**31, (n // 8, k // 128, 32, 4), device=DEVICE, dtype=torch.int32)
        return [randn(rows, k), tiles, randn(k // group, n, 2, scale=0.01)]
    return Case("low_precision", f"int4pack_mm {rows}x{k}x{n}",
                lambda x, tiles, pairs: torch._weight_int4pack_mm(x, tiles, group, pairs), make, {"torch": None})


def low_precision():
    yield f8_case(4096, 4096, 4096)
    yield f8_case(8192, 8192, 8192)
    yield f8_case(512, 4096, 14336)
    yield f8_case(4096, 4096, 4096, "rows")
    yield f8_case(4096, 4096, 4096, "blocks")
    yield Case("low_precision", "int8 4096x4096x4096", lambda a, b: torch._int_mm(a, b.t()),
               lambda: [torch.randint(-128, 128, (4096, 4096), device=DEVICE, dtype=torch.int8) for _ in range(2)],
               {"torch": None})
    for rows in (1, 16, 64):
        yield weight_only_case(rows)
        yield four_bits_case(rows)
        yield packed_four_bits_case(rows)


def grouped_case(experts, rows, k, n, working=None):
    """Rows are shared out at random, among the experts from number 1 on where so many are `working`."""
    def make():
        cuts = torch.sort(torch.randint(0, rows + 1, ((working or experts) - 1,), device=DEVICE)).values
        ends = torch.full((experts,), rows, device=DEVICE, dtype=torch.int32)
        first = 0 if working is None else 1
        ends[:first] = 0
        ends[first:first + len(cuts)] = cuts.to(torch.int32)
        return [randn(rows, k), randn(experts, k, n, scale=0.02), ends]

    def function(x, w, ends):
        return torch._grouped_mm(x, w, ends)

    def loop(x, w, ends):  # its bounds are known to the host
        bounds = [0, *ends.tolist()]
        out = torch.empty(rows, n, device=DEVICE, dtype=BF16)

        def run():
            for i, (begin, end) in enumerate(zip(bounds, bounds[1:])):
                if end > begin:
                    torch.mm(x[begin:end], w[i], out=out[begin:end])
            return out
        return run
    text = "" if working is None else f", {working} work"
    return Case("grouped", f"{experts} experts {rows}x{k}x{n}{text}", function, make, {"torch": None, "loop": loop})


def grouped():
    yield grouped_case(8, 4096, 4096, 14336)
    yield grouped_case(64, 8192, 2048, 1408)
    yield grouped_case(16, 8192, 4096, 4096)
    yield grouped_case(8, 4096, 4096, 14336, 2)
    yield grouped_case(2, 4096, 4096, 14336)
    yield grouped_case(8, 32, 4096, 14336)
    yield grouped_case(8, 2, 14336, 4096, 2)
    yield grouped_case(128, 512, 2048, 768)


def attention_case(name, batch, heads, kv, rows, keys, depth, causal=False):
    def function(q, k, v):
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=kv != heads)
    return Case("attention", name, function, lambda: [randn(batch, heads, rows, depth), randn(batch, kv, keys, depth),
                                                      randn(batch, kv, keys, depth)], {"torch": None})


def cache_case(kind, batch, heads, kv, keys, depth, page=16):
    """One query behind a cache of 8 bits with a scale, of all or of each token, of pages, or of 8 bits in pages."""
    narrow = torch.int8 if "int8" in kind else torch.float8_e4m3fn if "f8" in kind else BF16
    pages = "pages" in kind

    def values(x, scale, table):
        if pages:
            x = x[table].flatten(1, 2).transpose(1, 2)
        return x if narrow == BF16 else (x.to(scale.dtype) * scale).to(BF16)

    def function(q, k, v, *added):
        table = added[0] if pages else None
        scales = added[-2:] if narrow != BF16 else (None, None)
        return F.scaled_dot_product_attention(q, values(k, scales[0], table), values(v, scales[1], table),
                                              enable_gqa=kv != heads)

    def make():
        cache = (batch * keys // page, page, kv, depth) if pages else (batch, kv, keys, depth)
        size = 1 if narrow == BF16 else 20
        inputs = [randn(batch, heads, 1, depth), *[randn(*cache, dtype=narrow, scale=size) for _ in range(2)]]
        if pages:
            inputs.append(torch.randperm(batch * keys // page, device=DEVICE).reshape(batch, -1))
        if narrow != BF16:
            size = (batch, kv, keys, 1) if "tokens" in kind else (kv, 1, 1)
            inputs += [torch.rand(size, device=DEVICE) * 0.02 + 0.04 for _ in range(2)]
        return inputs
    return Case("caches", f"{kind} {batch}x{heads}/{kv}x1x{keys}x{depth}", function, make, {"torch": None}, "default")


def caches():
    yield cache_case("f8", 16, 32, 8, 4096, 128)
    yield cache_case("f8", 16, 32, 32, 4096, 128)
    yield cache_case("int8 tokens", 16, 32, 8, 4096, 128)
    yield cache_case("pages", 16, 32, 8, 4096, 128)
    yield cache_case("pages", 16, 32, 32, 1024, 64)
    yield cache_case("pages of f8", 16, 32, 8, 4096, 128)
    yield cache_case("pages of f8", 64, 32, 8, 1024, 64)


def window_case(name, batch, heads, rows, depth, past, ahead=0):
    """Each query sees so many keys before its own and behind."""
    def seen(query, key):
        return (key <= query + ahead) & (query - key <= past)

    def mask():
        places = torch.arange(rows, device=DEVICE)
        return seen(places[:, None], places[None, :])

    def function(q, k, v):
        return F.scaled_dot_product_attention(q, k, v, mask())

    def masked(q, k, v):
        given = mask()
        return lambda: F.scaled_dot_product_attention(q, k, v, given)

    def flex(q, k, v):
        from torch.nn.attention.flex_attention import create_block_mask, flex_attention
        blocks = create_block_mask(lambda b, h, i, j: seen(i, j), None, None, rows, rows)
        return functools.partial(torch.compile(flex_attention), q, k, v, block_mask=blocks)

    return Case("attention", name, function, lambda: [randn(batch, heads, rows, depth) for _ in range(3)],
                {"torch": masked, "flex": flex})


def attention():
    yield from dense_attention()
    yield window_case("window 1x32x4096x128, 1024 keys", 1, 32, 4096, 128, 1023)
    yield window_case("window 8x12x512x64, 64 before and behind", 8, 12, 512, 64, 64, 64)


def dense_attention():
    yield attention_case("16x8x1024x64", 16, 8, 8, 1024, 1024, 64)
    yield attention_case("2x16x4096x128", 2, 16, 16, 4096, 4096, 128)
    yield attention_case("causal 4x32x4096x128", 4, 32, 32, 4096, 4096, 128, True)
    yield attention_case("causal gqa 2x32/8x4096x128", 2, 32, 8, 4096, 4096, 128, True)
    yield attention_case("causal 1x32x512x64", 1, 32, 32, 512, 512, 64, True)
    yield attention_case("32x12x197x64", 32, 12, 12, 197, 197, 64)
    yield attention_case("16x16x577x64", 16, 16, 16, 577, 577, 64)
    yield attention_case("64x12x128x64", 64, 12, 12, 128, 128, 64)
    yield attention_case("2x10x4096/77x64", 2, 10, 10, 4096, 77, 64)
    yield attention_case("8x12x197x64", 8, 12, 12, 197, 197, 64)
    yield attention_case("16x16x256x128", 16, 16, 16, 256, 256, 128)
    yield attention_case("16x16x257x80", 16, 16, 16, 257, 257, 80)
    yield attention_case("decode 32x32x1x4096x128", 32, 32, 32, 1, 4096, 128)
    yield attention_case("decode 16x32x1x1024x64", 16, 32, 32, 1, 1024, 64)
    yield attention_case("decode gqa 16x32/8x1x1024x64", 16, 32, 8, 1, 1024, 64)
    yield attention_case("decode gqa 64x32/8x1x4096x128", 64, 32, 8, 1, 4096, 128)
    yield attention_case("decode 1x32x1x4096x64", 1, 32, 32, 1, 4096, 64)
    yield attention_case("decode gqa 1x32/8x1x8192x128", 1, 32, 8, 1, 8192, 128)
    yield attention_case("decode gqa 4x32/8x1x4096x128", 4, 32, 8, 1, 4096, 128)


def training_cases(name, batch, heads, rows, depth, causal=False):
    """The op that autograd calls in the forward pass, which also gives the logarithms of its sums, and its gradient."""
    aten = torch.ops.aten

    def forward(q, k, v):
        return aten._scaled_dot_product_flash_attention(q, k, v, 0.0, causal)[:2]

    def forward_op(q, k, v):  # torch.export cannot write the other one's generator state
        return aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, causal)

    def backward(grad, q, k, v, out, log_sums):
        state = torch.empty(2, dtype=torch.uint64, device=DEVICE)  # of the generator, which nothing is drawn from
        return aten._scaled_dot_product_flash_attention_backward(grad, q, k, v, out, log_sums, None, None, rows, rows, 0.0,
                                                                 causal, state, state)

    def backward_op(grad, q, k, v, out, log_sums):
        return aten._scaled_dot_product_flash_attention_for_cpu_backward(grad, q, k, v, out, log_sums, 0.0, causal)

    def make():
        return [randn(batch, heads, rows, depth) for _ in range(3)]

    def make_backward():
        inputs = make()
        return [randn(batch, heads, rows, depth), *inputs, *forward(*inputs)]
    yield Case("training", name + " forward", forward, make, {"torch": None}, exported=forward_op)
    yield Case("training", name + " backward", backward, make_backward, {"torch": None}, exported=backward_op)


def training():
    yield from training_cases("16x8x1024x64", 16, 8, 1024, 64)
    yield from training_cases("causal 8x16x1024x64", 8, 16, 1024, 64, True)
    yield from training_cases("causal 4x16x2048x128", 4, 16, 2048, 128, True)
    yield from training_cases("32x12x197x64", 32, 12, 197, 64)


def convolution_case(n, c, size, out, window, stride=1, groups=1):
    padding = window // 2 if stride == 1 or window % 2 else 0

    def function(x, w):
        return F.conv2d(x, w, stride=stride, padding=padding, groups=groups)

    def channels_last(x, w):
        x, w = (t.to(memory_format=torch.channels_last) for t in (x, w))
        return lambda: function(x, w)
    text = f"{window}x{window} {n}x{c}x{size}x{size}->{out}" + (f" /{stride}" if stride > 1 else "")
    return Case("depthwise" if groups > 1 else "convolutions", text, function,
                lambda: [randn(n, c, size, size), randn(out, c // groups, window, window, scale=0.05)],
                {"cudnn channels-last": channels_last})


def channels_last_case(n, c, size, out, window, stride=1, plain_weights=False, groups=1):
    """Images and weights channels last, as a model has them between its convolutions."""
    padding = window // 2 if stride == 1 or window % 2 else 0

    def function(x, w):
        x = x.permute(0, 3, 1, 2)
        w = w if plain_weights else w.permute(0, 3, 1, 2)
        return F.conv2d(x, w, stride=stride, padding=padding, groups=groups).permute(0, 2, 3, 1)

    def turned_once(x, w):
        w = w.to(memory_format=torch.channels_last)
        return lambda: function(x, w)

    if plain_weights:
        return Case("plain_weights", f"{window}x{window} {n}x{c}x{size}x{size}->{out}", function,
                    lambda: [randn(n, size, size, c), randn(out, c, window, window, scale=0.05)],
                    {"cudnn, weights turned once": turned_once})
    text = f"{window}x{window} {n}x{c}x{size}x{size}->{out}" + (f" /{stride}" if stride > 1 else "")
    return Case("channels_last", text + (" depthwise" if groups > 1 else ""), function,
                lambda: [randn(n, size, size, c), randn(out, window, window, c // groups, scale=0.05)], {"cudnn": None})


def channels_last():
    yield channels_last_case(32, 64, 56, 64, 3)
    yield channels_last_case(32, 128, 28, 128, 3)
    yield channels_last_case(32, 256, 14, 256, 3)
    yield channels_last_case(32, 512, 7, 512, 3)
    yield channels_last_case(32, 128, 56, 128, 3, 2)
    yield channels_last_case(32, 256, 56, 512, 1, 2)
    yield channels_last_case(32, 1024, 14, 256, 1)
    yield channels_last_case(32, 256, 56, 64, 1)
    yield channels_last_case(32, 96, 56, 192, 2, 2)
    yield channels_last_case(32, 256, 56, 256, 3)
    for c, size, window, stride in ((96, 56, 7, 1), (384, 14, 7, 1), (144, 56, 3, 1), (96, 112, 3, 2), (672, 14, 5, 1)):
        yield channels_last_case(32, c, size, c, window, stride, groups=c)


def plain_weights():
    """Images channels last, weights as a checkpoint has them: what a model's convolutions are."""
    for c, size in ((64, 56), (128, 28), (256, 14), (512, 7)):
        yield channels_last_case(32, c, size, c, 3, plain_weights=True)


def convolutions():
    yield convolution_case(32, 64, 56, 64, 3)
    yield convolution_case(32, 128, 28, 128, 3)
    yield convolution_case(32, 256, 14, 256, 3)
    yield convolution_case(32, 512, 7, 512, 3)
    yield convolution_case(32, 128, 56, 128, 3, 2)
    yield convolution_case(32, 1024, 14, 256, 1)
    yield convolution_case(32, 256, 56, 64, 1)
    yield convolution_case(32, 3, 224, 64, 7, 2)
    yield convolution_case(32, 96, 56, 192, 2, 2)
    yield convolution_case(32, 256, 56, 256, 3)
    yield convolution_case(32, 96, 56, 96, 7, groups=96)
    yield convolution_case(32, 384, 14, 384, 7, groups=384)
    yield convolution_case(32, 144, 56, 144, 3, groups=144)


def decode_layers(x, *weights):
    """The products of a Llama's layers for a few tokens, and what stands between them, less attention."""
    def norm(x, weight):
        wide = x.float()
        return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5)).to(x.dtype) * weight

    width = x.shape[1]
    for before, qkv, output, behind, gate, up, down in zip(*[iter(weights)] * 7, strict=True):
        y = F.linear(norm(x, before), qkv)
        x = x + F.linear(y[:, :width] * torch.sigmoid(y[:, -width:]), output)
        h = norm(x, behind)
        x = x + F.linear(F.silu(F.linear(h, gate)) * F.linear(h, up), down)
    return x


def encoder_layers(x, *weights, heads):
    """Layers of a vision transformer."""
    batch, length, width = x.shape
    for norm, norm_bias, qkv, qkv_bias, output, output_bias, behind, behind_bias, up, up_bias, down, down_bias in zip(
            *[iter(weights)] * 12, strict=True):
        y = F.linear(F.layer_norm(x, (width,), norm, norm_bias), qkv, qkv_bias)
        q, k, v = y.view(batch, length, 3, heads, -1).permute(2, 0, 3, 1, 4).unbind()
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(x.shape)
        x = x + F.linear(y, output, output_bias)
        y = F.gelu(F.linear(F.layer_norm(x, (width,), behind, behind_bias), up, up_bias))
        x = x + F.linear(y, down, down_bias)
    return x


def chains():
    """Kernels as they follow each other in a program, whose starts and ends lie beside those of their neighbours: what timing
    them alone does not see. The layers' weights are other memory each."""
    def case(rows, width, inner, layers):
        shapes = [(width,), (width * 3 // 2, width), (width, width), (width,), (inner, width), (inner, width), (width, inner)]

        def make():
            return [randn(rows, width)] + [randn(*shape, scale=0.01 if len(shape) == 2 else 1.0)
                                           for _ in range(layers) for shape in shapes]
        return Case("chains", f"{layers} layers, {rows}x{width}, {inner}", decode_layers, make, {"torch": None}, "default")
    yield case(16, 2048, 8192, 8)
    yield case(1, 2048, 8192, 8)
    yield case(16, 4096, 14336, 4)
    yield case(512, 2048, 8192, 4)

    def encoder(batch, length, heads, layers):
        width = heads * 64
        shapes = [(width,)] * 2
        for out, into in ((3 * width, width), (width, width), (4 * width, width), (width, 4 * width)):
            shapes += [(out, into), (out,)]
            shapes += [(width,)] * 2 if (out, into) == (width, width) else []

        def make():
            return [randn(batch, length, width)] + [randn(*shape, scale=0.02 if len(shape) == 2 else 1.0)
                                                    for _ in range(layers) for shape in shapes]
        return Case("chains", f"{layers} encoder layers, {batch}x{length}x{width}", functools.partial(encoder_layers, heads=heads),
                    make, {"torch": None}, "default")
    yield encoder(32, 197, 12, 4)
    yield encoder(8, 512, 12, 4)
