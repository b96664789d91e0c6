#!/usr/bin/env python3
"""Trains the tiny model on the stories of corpus.py and writes model.safetensors beside config.json.

  train.py [--out DIR]          trains (about twelve minutes on one CPU core) and writes DIR/model.safetensors
  train.py --sample PROMPT      continues PROMPT greedily with the weights of DIR, in double precision
  train.py --logits PROMPT      the logits after every byte of PROMPT as JSON, in double precision
  train.py --golden             what libprofile/tests/tiny_golden.json holds: greedy texts, and logits of their first steps

Needs torch and safetensors. Tokens are bytes; the newline (10) begins and ends a story.
"""
import argparse
import json
import math
import os
import sys
import time

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file

import corpus

HERE = os.path.dirname(os.path.abspath(__file__))
SEED, STORIES = 1, 40000


def new_parameters(c):
    """Hugging Face names; matrices [out, in]."""
    d, kv, ffn = c["hidden_size"], c["num_key_value_heads"] * c["head_dim"], c["intermediate_size"]
    q = c["num_attention_heads"] * c["head_dim"]
    generator = torch.Generator().manual_seed(SEED)
    residual = 1 / math.sqrt(2 * c["num_hidden_layers"])   # keeps the stream's variance flat over depth

    def matrix(rows, columns, scale=1.0):
        return torch.randn(rows, columns, generator=generator) * (scale / math.sqrt(columns))

    p = {"model.embed_tokens.weight": torch.randn(c["vocab_size"], d, generator=generator) * 0.05}
    for i in range(c["num_hidden_layers"]):
        layer = f"model.layers.{i}."
        p[layer + "input_layernorm.weight"] = torch.ones(d)
        p[layer + "post_attention_layernorm.weight"] = torch.ones(d)
        p[layer + "self_attn.q_proj.weight"] = matrix(q, d)
        p[layer + "self_attn.k_proj.weight"] = matrix(kv, d)
        p[layer + "self_attn.v_proj.weight"] = matrix(kv, d)
        p[layer + "self_attn.o_proj.weight"] = matrix(d, q, residual)
        p[layer + "mlp.gate_proj.weight"] = matrix(ffn, d)
        p[layer + "mlp.up_proj.weight"] = matrix(ffn, d)
        p[layer + "mlp.down_proj.weight"] = matrix(d, ffn, residual)
    p["model.norm.weight"] = torch.ones(d)
    return p


def rms_norm(x, gain, eps):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * gain


def rope_tables(c, length, dtype):
    half = c["head_dim"] // 2
    frequencies = c["rope_theta"] ** (-torch.arange(half, dtype=torch.float64) / half)
    angles = torch.arange(length, dtype=torch.float64)[:, None] * frequencies
    return angles.cos().to(dtype), angles.sin().to(dtype)


def rotate(x, tables):
    """Half-split pairing: element j with j + head_dim / 2. x: [batch, heads, length, head_dim]."""
    cos, sin = tables
    a, b = x.chunk(2, dim=-1)
    return torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1)


def logits(c, p, tokens):
    """tokens [batch, length] -> [batch, length, vocab]."""
    heads, kv_heads, eps = c["num_attention_heads"], c["num_key_value_heads"], c["rms_norm_eps"]
    batch, length = tokens.shape
    x = F.embedding(tokens, p["model.embed_tokens.weight"])
    tables = rope_tables(c, length, x.dtype)
    for i in range(c["num_hidden_layers"]):
        layer = f"model.layers.{i}."
        n = rms_norm(x, p[layer + "input_layernorm.weight"], eps)

        def project(name, count):
            return F.linear(n, p[layer + f"self_attn.{name}_proj.weight"]).view(batch, length, count, -1).transpose(1, 2)

        q, k, v = rotate(project("q", heads), tables), rotate(project("k", kv_heads), tables), project("v", kv_heads)
        k, v = (t.repeat_interleave(heads // kv_heads, dim=1) for t in (k, v))
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + F.linear(a.transpose(1, 2).reshape(batch, length, -1), p[layer + "self_attn.o_proj.weight"])
        n = rms_norm(x, p[layer + "post_attention_layernorm.weight"], eps)
        a = F.silu(F.linear(n, p[layer + "mlp.gate_proj.weight"])) * F.linear(n, p[layer + "mlp.up_proj.weight"])
        x = x + F.linear(a, p[layer + "mlp.down_proj.weight"])
    return F.linear(rms_norm(x, p["model.norm.weight"], eps), p["model.embed_tokens.weight"])


def batches(length, batch, generator):
    """Endless [batch, length + 1] windows that start at a story, with or without the newline before it."""
    lines = corpus.stories(STORIES, SEED)
    text = bytearray(b"\n")
    starts = []
    for line in lines:
        starts.append(len(text))
        text += line.encode() + b"\n"
    data = torch.frombuffer(text, dtype=torch.uint8)
    starts = torch.tensor([s for s in starts if s + length + 1 < len(text)])
    while True:
        chosen = starts[torch.randint(len(starts), (batch,), generator=generator)]
        chosen = chosen - torch.randint(2, (batch,), generator=generator)
        yield torch.stack([data[s:s + length + 1] for s in chosen.tolist()]).long()


def train(c, options):
    p = {name: value.requires_grad_() for name, value in new_parameters(c).items()}
    matrices = [v for v in p.values() if v.dim() == 2]
    gains = [v for v in p.values() if v.dim() == 1]
    optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": 0.05}, {"params": gains, "weight_decay": 0.0}],
                                  lr=options.rate, betas=(0.9, 0.95))
    source = batches(options.length, options.batch, torch.Generator().manual_seed(SEED))
    began = time.time()
    for step in range(options.steps):
        warm = min(1.0, (step + 1) / 40)
        rate = options.rate * warm * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * step / options.steps)))
        for group in optimizer.param_groups:
            group["lr"] = rate
        tokens = next(source)
        loss = F.cross_entropy(logits(c, p, tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(p.values(), 1.0)
        optimizer.step()
        if step % 20 == 0 or step + 1 == options.steps:
            print(f"step {step:5d}  loss {loss.item():.4f}  {time.time() - began:6.0f} s", file=sys.stderr, flush=True)
    return {name: value.detach().to(torch.bfloat16).contiguous() for name, value in p.items()}


def sample(c, p, prompt, count):
    text = list(prompt.encode())
    with torch.no_grad():
        while len(text) < min(count, c["max_position_embeddings"]):
            text.append(int(logits(c, p, torch.tensor([text]))[0, -1].argmax()))
            if text[-1] == c["eos_token_id"]:
                break
    return bytes(text).decode(errors="replace")


GOLDEN_PROMPTS = ["Once upon a time there was a ", "\nLong ago", "There once was a shy frog named Ida.",
                  "Long ago there was a funny duck named Max. Max lived in", "Anna and Max"]


def golden(c, p):
    """Of every prompt the greedy text; of the first two also the five largest logits, their sum and their sum of squares."""
    result = []
    for number, prompt in enumerate(GOLDEN_PROMPTS):
        text = sample(c, p, prompt, c["max_position_embeddings"])
        entry = {"prompt": prompt, "text": text}
        if number < 2:
            tokens = list(text.encode())[:48]
            with torch.no_grad():
                every = logits(c, p, torch.tensor([tokens]))[0]
            entry["steps"] = [{"pos": position, "in": token, "argmax": int(step.argmax()),
                               "top5": [[int(i), step[i].item()] for i in step.topk(5).indices],
                               "sum": step.sum().item(), "sumsq": step.square().sum().item()}
                              for position, (token, step) in enumerate(zip(tokens, every))]
        result.append(entry)
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default=HERE)
    parser.add_argument("--sample", metavar="PROMPT")
    parser.add_argument("--logits", metavar="PROMPT")
    parser.add_argument("--golden", action="store_true")
    parser.add_argument("--count", type=int, default=512, help="bytes of --sample, prompt included")
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--rate", type=float, default=4e-3)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    with open(os.path.join(HERE, "config.json")) as file:
        c = json.load(file)
    path = os.path.join(options.out, "model.safetensors")
    if options.sample is None and options.logits is None and not options.golden:
        save_file(train(c, options), path, metadata={"format": "pt"})
        return
    p = {name: value.double() for name, value in load_file(path).items()}
    if options.golden:
        print(json.dumps(golden(c, p), indent=1))
    if options.sample is not None:
        print(sample(c, p, options.sample, options.count))
    if options.logits is not None:
        with torch.no_grad():
            print(json.dumps(logits(c, p, torch.tensor([list(options.logits.encode())]))[0].tolist()))


if __name__ == "__main__":
    main()
