"""Every candidate of kernels of random, mostly odd shapes, compared with float64 on one GPU.

    python3 sweep.py --make DIR [--seed N] [--only narrow,experts]   here: exports programs (.pt2) and DIR/sweep.json
    candidates DIR/*.pt2 --out DIR/out          here: compiles every candidate (tests/bench/candidates.cc)
    python3 sweep.py --run DIR                  on a GPU

Depthwise convolutions, 1x1 convolutions of small images, chains of convolutions, windows of images that lie channels
last, attention, attention of few keys, of one row, in windows or on caches of 8 bits and of pages, attention on queries, keys and values of one matmul,
patches, products of 8-bit floats and integers, mixtures of experts, products of few rows, products of one first operand, of
rows that a norm scales, products of little depth, products and windows of many tiles, deep products of few. Outputs and temporaries are poisoned before each launch. Exit code 1 when a result is wrong."""

import argparse
import collections
import functools
import json
import os
import random
import sys

import torch
import torch.nn.functional as F

LIMITS = {"bfloat16": 1.2e-2, "float16": 2e-3, "float32": 2e-5, "int32": 0}  # relative, by norms
F8_LIMIT = 2e-3  # of sums that the tensor cores add in 14 bits, 128 at a time


def depthwise(x, w, b, stride, zeros, dilation, last):
    return F.relu(F.conv2d(x.permute(0, 3, 1, 2) if last else x, w, b, stride, zeros, dilation, w.shape[0]))


def pointwise(x, w, b, *residual):
    y = F.conv2d(x, w, b)
    return F.relu(y + residual[0]) if residual else y


def chain(x, w, b, w1, b1, w2, b2, stride, zeros):
    """Between its convolutions images lie channels last."""
    y = F.relu(F.conv2d(x, w, b, stride, zeros))
    y = F.relu(F.conv2d(y, w1, b1) + y)
    return F.conv2d(F.max_pool2d(y, 2, 1), w2, b2, 1, 1)


def windows(x, w, b, *residual, stride, zeros, dilation, last):
    """Images channels last, weights too or as a checkpoint has them."""
    y = F.conv2d(x.permute(0, 3, 1, 2), w.permute(0, 3, 1, 2) if last else w, b, stride, zeros, dilation)
    return F.relu(y.permute(0, 2, 3, 1) + residual[0]) if residual else y.permute(0, 2, 3, 1)


def attention(q, k, v, causal):
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal)


def masked_attention(q, k, v, *bias):
    """Keys and values may have fewer heads."""
    return F.scaled_dot_product_attention(q, k, v, bias[0] if bias else None, enable_gqa=True)


def windowed_attention(q, k, v, past, ahead):
    queries, keys = torch.arange(q.shape[2], device=q.device)[:, None], torch.arange(k.shape[2], device=q.device)
    return F.scaled_dot_product_attention(q, k, v, (keys <= queries + ahead) & (queries - keys <= past))


def cached_attention(q, k, v, *added, scaled, paged, sharing):
    """Keys and values of 8 bits and a scale of each token, or of pages that a table of batches names."""
    def values(x, scale):
        if paged:
            x = x[added[0]].flatten(1, 2).transpose(1, 2)
            scale = scale[added[0]].flatten(1, 2).transpose(1, 2) if scaled else None
        if scaled:
            x = (x.to(scale.dtype) * scale).to(q.dtype)
        batch, heads, keys, depth = x.shape
        return x[:, :, None].expand(batch, heads, sharing, keys, depth).reshape(batch, heads * sharing, keys, depth)
    scales = added[-2:] if scaled else (None, None)
    return F.scaled_dot_product_attention(q, values(k, scales[0]), values(v, scales[1]))


def projected_attention(x, w, b, heads, causal):
    batch, tokens, width = x.shape
    q, k, v = F.linear(x, w, b).reshape(batch, tokens, 3, heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
    return attention(q, k, v, causal).transpose(1, 2).reshape(batch, tokens, width)


def patches(x, w, b, size):
    return F.conv2d(x, w, b, size).flatten(2).transpose(1, 2)


def few_rows(x, w, b, *residual):
    y = F.linear(x, w, b)
    return F.silu(y) * residual[0] if residual else y


def flat(x, w, mean, spread, factor, shift, *residual):
    """Many rows of little depth behind a batch norm of parameters."""
    y = F.batch_norm(F.linear(x, w), mean, spread * spread + 0.5, factor, shift, False, 0.0, 1e-3)
    return F.silu(y) + residual[0] if residual else F.silu(y)


def products(a, b, *added, layout, then):
    """Either operand along its depth or across, and what follows in a model."""
    y = torch.matmul(a.transpose(-1, -2) if layout[0] == "t" else a, b.transpose(-1, -2) if layout[1] == "t" else b)
    if then == "gelu":
        return F.gelu(y + added[0])
    return y * added[1] + added[0] if then == "residual" else y


def joined(x, *weights, gated):
    """Products of one first operand: gates and what they scale, or weights and biases of several results."""
    if gated:
        return tuple(F.silu(F.linear(x, g)) * F.linear(x, u) for g, u in zip(weights[::2], weights[1::2]))
    return tuple(F.linear(x, w, b) for w, b in zip(weights[::2], weights[1::2]))


def normed_rows(x, *weights, norm, gated):
    """Products of rows that a norm scales: as llama has it, rounded in front of its weights, as gemma, or without weights."""
    wide = torch.float64 if x.dtype == torch.float64 else torch.float32
    y = x.to(wide)
    y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-6)
    if norm == "llama":
        y = weights[0] * y.to(x.dtype)
    elif norm == "gemma":
        y = (y * (1 + weights[0].to(wide))).to(x.dtype)
    y, weights = y.to(x.dtype), weights[norm != "none":]
    products = [F.linear(y, w) for w in weights]
    if gated:
        return F.silu(products[0]) * products[1]
    return tuple(z + x if z.shape == x.shape else z for z in products)


def narrow(a, b, *scales, out):
    """Products of 8 bits: floats as _scaled_mm has them, integers as _int_mm."""
    if not a.dtype.is_floating_point:
        return torch._int_mm(a, b.t())
    return torch._scaled_mm(a, b.t(), *scales, out_dtype=getattr(torch, out))


def narrow_in_f64(a, b, *scales, out):
    return functools.reduce(torch.mul, scales, a @ b.t())


def experts(x, w, ends, *added, transposed):
    """Groups of rows with a matrix each, and what follows them in a model."""
    y = torch._grouped_mm(x, w.transpose(1, 2) if transposed else w, ends)
    return F.silu(y + added[0]) if added else y


def experts_in_f64(x, w, ends, *added, transposed):
    w = w.transpose(1, 2) if transposed else w
    y = torch.zeros(x.shape[0], w.shape[2], device=x.device, dtype=torch.float64)
    begin = 0
    for i, end in enumerate(ends.long().tolist()):
        y[begin:end] = x[begin:end] @ w[i]
        begin = end
    return F.silu(y + added[0]) if added else y


FUNCTIONS = {f.__name__: f for f in (depthwise, pointwise, chain, windows, attention, masked_attention,
                                     windowed_attention, cached_attention, projected_attention, patches, narrow, experts, few_rows, products, joined, normed_rows, flat)}
EXACT = {"narrow": narrow_in_f64, "experts": experts_in_f64}  # where a function's own kernels know no f64


class Call(torch.nn.Module):
    def __init__(self, function, arguments, exact=False):
        super().__init__()
        self.function, self.arguments = (EXACT if exact and function in EXACT else FUNCTIONS)[function], arguments

    def forward(self, *inputs):
        return self.function(*inputs, **self.arguments)


def shapes(seed):
    """[(function, its arguments, shapes of its inputs, dtype, or one an input)]"""
    r = random.Random(seed).randint
    found = depthwise_shapes(r, 26)
    for i, size in enumerate((7, 14, 9, 5, 13, 11, 6, 10)):
        n, c, o = r(2, 6), r(8, 40) * 8, r(64, 300)
        residual = [(n, o, size, size)] if i % 2 else []
        found.append(("pointwise", {}, [(n, c, size, size), (o, c, 1, 1), (o,), *residual], "bfloat16"))
    for i, c in enumerate((3, 1, 32, 64, 40, 96, 7, 128, 16, 72)):
        o, window, size = r(4, 24) * 8, r(1, 5), [r(8, 30), r(8, 30)]
        found.append(("chain", {"stride": r(1, 3), "zeros": window // 2},
                      [(r(1, 4), c, *size), (o, c, window, window), (o,), (o, o, 1, 1), (o,), (o, o, 3, 3), (o,)],
                      ("bfloat16", "float16")[i % 2]))
    for i, depth in enumerate((64, 64, 32, 128, 64, 40, 64, 96)):
        found.append(("attention", {"causal": bool(i % 2)}, [(r(1, 3), r(1, 5), r(65, 300), depth)] * 3, "bfloat16"))
    for i, depth in enumerate((64, 128, 64, 128)):
        batch, heads, rows = r(1, 2), r(1, 3), r(400, 1300)
        keys = rows if i < 2 else r(300, 900)
        found.append(("attention", {"causal": i < 2}, [(batch, heads, rows, depth)] + [(batch, heads, keys, depth)] * 2,
                      "bfloat16"))
    for i in range(5):
        heads = r(2, 6)
        width = heads * 64
        found.append(("projected_attention", {"heads": heads, "causal": bool(i % 2)},
                      [(r(1, 3), r(66, 260), width), (3 * width, width), (3 * width,)], "bfloat16"))
    for size in (14, 16, 32):
        o = r(3, 20) * 8
        found.append(("patches", {"size": size}, [(r(1, 4), 3, size * r(2, 5), size * r(2, 5)), (o, 3, size, size), (o,)],
                      "bfloat16"))
    found += narrow_shapes(r, 40) + expert_shapes(r, 20) + window_shapes(r, 40) + few_row_shapes(r, 24)
    return found + joined_shapes(r, 30) + flat_shapes(r, 24) + masked_shapes(r, 40) + windowed_shapes(r, 16) + cached_shapes(r, 40) + normed_shapes(r, 24) + \
        product_shapes(r, 36) + window_shapes(r, 16, larger=True)


def cached_shapes(r, count):
    found = []
    for i in range(count):
        scaled, paged = i % 3 < 2, i % 2 == 1
        if not scaled and not paged:
            continue
        batch, heads, depth, page = r(1, 4), r(1, 9), r(1, 32) * 8, (4, 16, 32, 1)[r(0, 3)]
        rows, sharing = (1, (1, 4, 7, 17)[r(0, 3)]) if i % 4 < 3 else (r(8, 16), 1)
        keys = page * r(1, (5000 if rows == 1 else 600) // page)
        dtype = ("bfloat16", "float16")[i // 4 % 2]
        narrow = ("float8_e4m3fn", "int8", "float8_e5m2")[i % 5 % 3] if scaled else dtype
        cache = (r(1, 60), page, heads) if paged else (batch, heads, keys)
        sizes = [(batch, heads * sharing, rows, depth), *[(*cache, depth)] * 2]
        types = [dtype, narrow, narrow]
        if paged:
            sizes.append((batch, keys // page))
            types.append("int64")
        if scaled:
            sizes += [(*cache, 1)] * 2
            types += ["float32"] * 2
        found.append(("cached_attention", {"scaled": scaled, "paged": paged, "sharing": sharing}, sizes, types))
    return found


def windowed_shapes(r, count):
    found = []
    for i in range(count):
        sizes = (r(1, 3), r(1, 4), r(65, 900), (64, 128, 32, 80)[r(0, 3)])
        found.append(("windowed_attention", {"past": r(0, 300), "ahead": r(0, 1) * r(1, 100)}, [sizes] * 3,
                      "float16" if i % 4 > 1 else "bfloat16"))
    return found


def masked_shapes(r, count):
    """One row of many keys, or many rows of few keys."""
    found = []
    for i in range(count):
        batch, heads, sharing, depth = r(1, 4), r(1, 9), (1, 1, 4, 7)[r(0, 3)], (64, 128, 32, 80, 64, 16)[r(0, 5)]
        rows, keys = (1, r(512, 5000)) if i % 2 else (r(64, 700), r(64, 256))
        bias = [(batch, 1, rows, keys)] if i % 3 == 0 else []
        found.append(("masked_attention", {}, [(batch, heads * sharing, rows, depth)] +
                      [(batch, heads, keys, depth)] * 2 + bias, "float16" if i % 4 > 1 else "bfloat16"))
    return found


def expert_shapes(r, count):
    found = []
    for i in range(count):
        matrices, k, n = r(2, 40), r(8, 90) * 8, r(8, 90) * 8
        rows = r(1, 64) if i % 4 == 0 else r(65, 3000)
        w = (matrices, n, k) if i % 3 == 0 else (matrices, k, n)
        added = [(rows, n)] if i % 5 == 1 else []
        found.append(("experts", {"transposed": i % 3 == 0}, [(rows, k), w, (matrices,), *added],
                      ["bfloat16", "bfloat16", "int32", *["bfloat16"] * len(added)]))
    return found


def window_shapes(r, count, larger=False):
    """`larger`: tiles for every block twice and more."""
    found = []
    while len(found) < count:
        i = len(found)
        n, c, o, window, size = r(1, 5), r(1, 30) * 8, r(4, 40) * 8, [r(1, 5), r(1, 5)], [r(1, 24), r(1, 24)]
        if larger:
            n, size, window = n + 12, [x + 40 for x in size], [min(x, 3) for x in window]
        stride, dilation = [r(1, 3), r(1, 3)], [r(1, 2), r(1, 2)]
        zeros = [r(0, k * d // 2) for k, d in zip(window, dilation)]
        out = [(x + 2 * z - d * (k - 1) - 1) // s + 1 for x, z, d, k, s in zip(size, zeros, dilation, window, stride)]
        if min(out) < 1:
            continue
        last = i % 3 > 0
        sizes = [(n, *size, c), (o, *window, c) if last else (o, c, *window), (o,)]
        if i % 2:
            sizes.append((n, *out, o))
        found.append(("windows", {"stride": stride, "zeros": zeros, "dilation": dilation, "last": last}, sizes,
                      ("bfloat16", "float16")[i // 2 % 2]))
    return found


def narrow_shapes(r, count):
    found = []
    e4, e5 = "float8_e4m3fn", "float8_e5m2"
    for i in range(count):
        m, n, k = (r(1, 700), r(2, 700), r(1, 90)) if i % 4 else (r(17, 90) * 8, r(9, 90) * 8, r(60, 300))
        k *= 16
        if i % 4 == 3:
            m, n = max(m, 17), (n + 7) // 8 * 8  # what torch's own kernel asks of its operands
            found.append(("narrow", {"out": "int32"}, [(m, k), (n, k)], ["int8", "int8"]))
            continue
        m, n = m, (n + 15) // 16 * 16
        types = [(e4, e4), (e4, e5), (e5, e4)][i % 3]
        scales = [(m, 1), (1, n)] if i % 2 and types == (e4, e4) else [(), ()]
        out = "bfloat16" if scales[0] else ("bfloat16", "float32", "float16")[i % 3]
        found.append(("narrow", {"out": out}, [(m, k), (n, k), *scales], [*types, "float32", "float32"]))
    return found


def few_row_shapes(r, count):
    """Weights whose lines begin anywhere among them, of fewer columns than a tile has, and deep ones."""
    found = []
    for i in range(count):
        m, n, k = r(1, 32), r(1, 40) * r(1, 120), r(1, 60) * (1, 8, 64)[i % 3]
        residual = [(m, n)] if i % 2 else []
        found.append(("few_rows", {}, [(m, k), (n, k), (n,), *residual], ("bfloat16", "float16", "bfloat16")[i % 3]))
    return found


def product_shapes(r, count):
    """Of some operands lines begin where the copy engine cannot read them. The last third has few tiles and is deep."""
    found = []
    for i in range(count):
        batch, layout, then = (r(2, 5) if i % 5 == 4 else 0), ("nt", "nn", "tn", "tt")[i % 4], ("", "gelu", "residual")[i % 3]
        m, n, k = r(180, 420) * 8, r(220, 500) * 8, r(2, 160) * 8
        if i >= count * 2 // 3:
            m, n, k = m // 64 * 8 + r(0, 12) * 8, n // 64 * 8 + 64, r(60, 400) * 8
        if i % 6 == 5:
            m, n, k = m + r(1, 7), n + r(1, 7), k + r(1, 7)
        a, b = (k, m) if layout[0] == "t" else (m, k), (n, k) if layout[1] == "t" else (k, n)
        sizes = [(batch, *a), (batch, *b)] if batch else [a, b]
        added = {"gelu": [(n,)], "residual": [(m, n), (n,)]}.get(then, [])
        found.append(("products", {"layout": layout, "then": then}, sizes + added, ("bfloat16", "float16")[i // 4 % 2]))
    return found


def joined_shapes(r, count):
    found = []
    for i in range(count):
        m, k, gated = r(1, 16) if i % 3 == 0 else r(17, 900), r(1, 130) * 8, i % 2 == 0
        sizes = [(m, k)]
        for _ in range(r(1, 2) if gated else r(2, 5)):
            n = r(1, 130) * 8
            sizes += [(n, k), (n, k)] if gated else [(n, k), (n,)]
        found.append(("joined", {"gated": gated}, sizes, ("bfloat16", "float16")[i // 2 % 2]))
    return found


def normed_shapes(r, count):
    found = []
    for i in range(count):
        m, k, norm, gated = r(1, 16), r(1, 130) * 8, ("llama", "gemma", "none")[i % 3], i % 4 == 0
        n = r(1, 130) * 8
        columns = [n, n] if gated else [k if i % 4 == 1 else n, *[r(1, 130) * 8 for _ in range(r(0, 3))]]
        weights = [(k,)] if norm != "none" else []
        dtype = ["bfloat16"] * (1 + len(weights) + len(columns))
        if norm == "gemma" and i % 2:
            dtype[1] = "float32"
        found.append(("normed_rows", {"norm": norm, "gated": gated}, [(m, k), *weights, *[(n, k) for n in columns]], dtype))
    return found


def flat_shapes(r, count):
    """Tiles for every block twice and more, with columns of one tile, of several, and of many."""
    found = []
    for i in range(count):
        n, k = r(1, (12, 40, 150)[i % 3]) * 8, r(1, 8 if i % 2 else 40) * 8
        m = r(30000, 60000) if n < 400 else r(6000, 20000)
        residual = [(m, n)] if i % 4 == 1 else []
        found.append(("flat", {}, [(m, k), (n, k), *[(n,)] * 4, *residual], ("bfloat16", "float16")[i // 2 % 2]))
    return found


def depthwise_shapes(r, count):
    found = []
    while len(found) < count:
        i = len(found)
        n, c, h, w, kh, kw, stride, dilation = r(1, 3), r(1, 70), r(1, 40), r(1, 70), r(1, 7), r(1, 7), r(1, 3), r(1, 2)
        if i % 3 == 0:  # whole vectors
            c, w = (c + 7) // 8 * 8, (w + 7) // 8 * 8
        zeros, last = r(0, min(kh, kw) // 2), i % 4 == 3
        if h + 2 * zeros < dilation * (kh - 1) + 1 or w + 2 * zeros < dilation * (kw - 1) + 1:
            continue
        found.append(("depthwise", {"stride": stride, "zeros": zeros, "dilation": dilation, "last": last},
                      [(n, h, w, c) if last else (n, c, h, w), (c, 1, kh, kw), (c,)],
                      ("bfloat16", "float16", "float32")[i % 5 % 3]))
    return found


def dtypes(sizes, dtype):
    return dtype if isinstance(dtype, list) else [dtype] * len(sizes)


def random_input(size, dtype, scale, rows):
    if dtype == "int32":  # bounds of groups of so many rows: some are empty, one may have most
        ends = torch.sort((torch.rand(size, device="cuda") ** random.choice((0.3, 1, 3)) * (rows + 1)).int()).values
        ends[-1] = rows
        return ends
    if dtype == "int64":  # which of so many pages, from the end too
        return torch.randint(-rows, rows, size, device="cuda")
    if dtype == "int8":
        return torch.randint(-128, 128, size, device="cuda", dtype=torch.int8)
    return (torch.randn(size, device="cuda") * scale).to(getattr(torch, dtype))


def make(folder, seed, only):
    os.makedirs(folder, exist_ok=True)
    table = {}
    for i, (function, arguments, sizes, dtype) in enumerate(shapes(seed)):
        if only and function not in only.split(","):
            continue
        inputs = tuple(torch.empty(size, dtype=getattr(torch, each)) for size, each in zip(sizes, dtypes(sizes, dtype)))
        program = torch.export.export(Call(function, arguments), inputs, strict=False)
        program._example_inputs = None
        torch.export.save(program, os.path.join(folder, f"{function}{i}.pt2"))
        table[f"{function}{i}"] = [function, arguments, sizes, dtype]
    with open(os.path.join(folder, "sweep.json"), "w") as file:
        json.dump(table, file)
    print(f"{len(table)} programs in {folder}")
    return 0


def run(folder):
    from bound import Bound, natural
    torch.backends.cudnn.enabled = False  # float64
    with open(os.path.join(folder, "sweep.json")) as file:
        table = json.load(file)
    done, worst, wrong = collections.Counter(), collections.defaultdict(float), 0
    for name in sorted(table, key=natural):
        function, arguments, sizes, dtype = table[name]
        small = function not in ("attention", "masked_attention", "windowed_attention", "cached_attention", "narrow")
        scales = [0.1 if i == 1 and small else 1.0 for i in range(len(sizes))]
        if function == "joined":
            scales[1:] = [sizes[0][1] ** -0.5] * (len(sizes) - 1)
        if function == "normed_rows":
            scales = [sizes[0][1] ** -0.5 if i > 0 and len(size) == 2 else 1.0 for i, size in enumerate(sizes)]
        if function == "cached_attention" and "int8" in dtype:
            scales[-2:] = [0.02] * 2
        counted = sizes[1 if function == "cached_attention" else 0][0]
        inputs = [random_input(*each, counted) for each in zip(sizes, dtypes(sizes, dtype), scales)]
        want = Call(function, arguments, exact=True)(*[x if x.dtype == torch.int64 else x.double() for x in inputs])
        want = torch.cat([x.flatten() for x in (want if isinstance(want, tuple) else (want,))])
        limit = arguments.get("out", dtypes(sizes, dtype)[0])
        most = max(LIMITS[limit], F8_LIMIT if limit == "float32" and function == "narrow" else 0)
        for candidate in sorted(os.listdir(os.path.join(folder, "out", name)), key=natural):
            program = Bound(os.path.join(folder, "out", name, candidate), inputs)
            program.poison()
            program.launch()
            torch.cuda.synchronize()
            got = torch.cat([x.double().flatten() for x in program.outputs])
            error = ((got - want).norm() / want.norm().clamp_min(1e-9)).item()
            schedule = program.manifest["kernels"][int(candidate.split("-")[0])]["schedule"]
            done[schedule.split()[0]] += 1
            worst[limit] = max(worst[limit], error)
            if not error <= most:
                wrong += 1
                print(f"WRONG {name} {candidate} {schedule}: {error:.1e} {table[name]}")
    print(f"{sum(done.values())} candidates of {len(table)} programs, {wrong} wrong; largest error {dict(worst)}; {dict(done)}")
    return 1 if wrong else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--make", default="", help="a folder to export programs into")
    parser.add_argument("--run", default="", help="that folder, with the candidates")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--only", default="", help="programs of these functions alone")
    options = parser.parse_args()
    return make(options.make, options.seed, options.only) if options.make else run(options.run)


if __name__ == "__main__":
    sys.exit(main())
