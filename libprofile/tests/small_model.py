#!/usr/bin/env python3
"""Logits of two small models in plain Python double precision: the expected values of oracle_test.cpp.

Written from the published definitions (RMSNorm, half-split RoPE, llama3 frequency scaling, grouped-query attention,
SwiGLU), without a look at the C++ reference. Every weight is a small multiple of 1/32, exact in bf16 and fp16:

  value(name, i) = ((3 i^2 + 7 i + 13 t) mod 31 - 15) / 32,  t = sum of the bytes of the tensor's name;
  the gain of a norm is 1 + value / 2.

Usage: small_model.py     prints C++ initialisers, one line per step.
"""
import math

PLAIN = dict(name="plain", layers=2, hidden=12, heads=4, kv_heads=2, head_dim=4, ffn=20, vocab=11, eps=1e-5, theta=10000.0,
             llama3=None, qkv_bias=False, output_bias=False, mlp_bias=False, qk_norm=False, tied=True)
FULL = dict(name="full", layers=3, hidden=20, heads=6, kv_heads=2, head_dim=8, ffn=28, vocab=13, eps=1e-6, theta=500.0,
            llama3=dict(factor=8.0, low=1.0, high=4.0, original=64), qkv_bias=True, output_bias=True, mlp_bias=True,
            qk_norm=True, tied=False)
TOKENS = [3, 0, 7, 7, 10, 2]


def value(name, i):
    return ((3 * i * i + 7 * i + 13 * sum(name.encode())) % 31 - 15) / 32


def matrix(name, rows, columns):
    return [[value(name, r * columns + c) for c in range(columns)] for r in range(rows)]


def gain(name, n):
    return [1 + value(name, i) / 2 for i in range(n)]


def bias(name, n, present):
    return [value(name, i) for i in range(n)] if present else [0.0] * n


def affine(m, b, x):
    return [math.fsum(w * v for w, v in zip(row, x)) + c for row, c in zip(m, b)]


def rms_norm(x, g, eps):
    scale = 1 / math.sqrt(math.fsum(v * v for v in x) / len(x) + eps)
    return [v * scale * w for v, w in zip(x, g)]


def inverse_frequencies(c):
    result = []
    for j in range(c["head_dim"] // 2):
        f = c["theta"] ** (-2 * j / c["head_dim"])
        if c["llama3"]:
            l = c["llama3"]
            wavelength = 2 * math.pi / f
            if wavelength > l["original"] / l["low"]:
                f /= l["factor"]
            elif wavelength >= l["original"] / l["high"]:
                smooth = (l["original"] / wavelength - l["low"]) / (l["high"] - l["low"])
                f = (1 - smooth) * f / l["factor"] + smooth * f
        result.append(f)
    return result


def rope(head, position, frequencies):
    """As complex numbers: (x[j] + i x[j + half]) e^(i position f[j])."""
    half = len(head) // 2
    turned = [complex(head[j], head[j + half]) * complex(math.cos(position * f), math.sin(position * f))
              for j, f in enumerate(frequencies)]
    return [z.real for z in turned] + [z.imag for z in turned]


def decode(c):
    d, hd, eps = c["hidden"], c["head_dim"], c["eps"]
    q_rows, kv_rows = c["heads"] * hd, c["kv_heads"] * hd
    frequencies = inverse_frequencies(c)
    keys = [[] for _ in range(c["layers"])]
    values = [[] for _ in range(c["layers"])]
    embedding = matrix("model.embed_tokens.weight", c["vocab"], d)
    head = embedding if c["tied"] else matrix("lm_head.weight", c["vocab"], d)
    steps = []
    for position, token in enumerate(TOKENS):
        x = embedding[token]
        for i in range(c["layers"]):
            at = f"model.layers.{i}."

            def linear(name, rows, v, has_bias):
                return affine(matrix(at + name + ".weight", rows, len(v)), bias(at + name + ".bias", rows, has_bias), v)

            n = rms_norm(x, gain(at + "input_layernorm.weight", d), eps)
            q, k, v = (linear(f"self_attn.{w}_proj", rows, n, c["qkv_bias"])
                       for w, rows in (("q", q_rows), ("k", kv_rows), ("v", kv_rows)))
            q = [q[h * hd:(h + 1) * hd] for h in range(c["heads"])]
            k = [k[h * hd:(h + 1) * hd] for h in range(c["kv_heads"])]
            v = [v[h * hd:(h + 1) * hd] for h in range(c["kv_heads"])]
            if c["qk_norm"]:
                q = [rms_norm(h, gain(at + "self_attn.q_norm.weight", hd), eps) for h in q]
                k = [rms_norm(h, gain(at + "self_attn.k_norm.weight", hd), eps) for h in k]
            q = [rope(h, position, frequencies) for h in q]
            keys[i].append([rope(h, position, frequencies) for h in k])
            values[i].append(v)
            attention = []
            for h in range(c["heads"]):
                g = h // (c["heads"] // c["kv_heads"])
                scores = [math.fsum(a * b for a, b in zip(q[h], key[g])) / math.sqrt(hd) for key in keys[i]]
                weights = [math.exp(s - max(scores)) for s in scores]
                attention += [math.fsum(w * val[g][e] for w, val in zip(weights, values[i])) / math.fsum(weights)
                              for e in range(hd)]
            x = [a + b for a, b in zip(x, linear("self_attn.o_proj", d, attention, c["output_bias"]))]
            n = rms_norm(x, gain(at + "post_attention_layernorm.weight", d), eps)
            gate, up = (linear(f"mlp.{w}_proj", c["ffn"], n, c["mlp_bias"]) for w in ("gate", "up"))
            n = [g / (1 + math.exp(-g)) * u for g, u in zip(gate, up)]
            x = [a + b for a, b in zip(x, linear("mlp.down_proj", d, n, c["mlp_bias"]))]
        steps.append(affine(head, [0.0] * c["vocab"], rms_norm(x, gain("model.norm.weight", d), eps)))
    return steps


for config in (PLAIN, FULL):
    print(f"// {config['name']}")
    for logits in decode(config):
        print("{" + ", ".join(f"{v:.12g}" for v in logits) + "},")
