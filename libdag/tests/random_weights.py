#!/usr/bin/env python3
"""The generator of docs/random-weights.md in plain Python integers: the expected values of weights_test.cpp."""
import math
import struct

MASK, GOLDEN = (1 << 64) - 1, 0x9E3779B97F4A7C15


def mix(z):
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB & MASK
    return z ^ (z >> 31)


def bits(seed, stream, counter):
    key = mix(mix((seed + GOLDEN) & MASK) ^ (stream * GOLDEN & MASK))
    return mix((key + (counter + 1) * GOLDEN) & MASK)


def unit(seed, stream, index):
    return ((bits(seed, stream, index) >> 40) - (1 << 23)) / (1 << 23)


def bf16(value):
    """Round to nearest even by way of the exact single: the values here are far from every limit."""
    single, = struct.unpack("<I", struct.pack("<f", value))
    return (single + 0x7FFF + ((single >> 16) & 1)) >> 16


def fp16(value):
    return struct.unpack("<H", struct.pack("<e", struct.unpack("<f", struct.pack("<f", value))[0]))[0]


def tensor(seed, layer, role, centre, amplitude, indices, rounding):
    stream = (layer + 1) * 64 + role
    draws = [bits(seed, stream, i // 4) >> (16 * (i % 4)) & 0xFFFF for i in indices]
    return [rounding(centre + amplitude * (d - 32767.5) / 32768) for d in draws]


if __name__ == "__main__":
    print("units", [unit(1, 2, i) for i in (0, 1, 1 << 40)], unit(0, 0, 0))
    hidden, layers = 12, 2                       # the small model of weights_test.cpp
    down = math.sqrt(3 / 20) / math.sqrt(2 * layers)
    for name, rounding in (("bf16", bf16), ("fp16", fp16)):
        print(name, "embedding", [hex(v) for v in tensor(7, -1, 0, 0, math.sqrt(3 / hidden), (0, 1, 2, 3, 131), rounding)])
        print(name, "layer 1 down", [hex(v) for v in tensor(7, 1, 19, 0, down, (0, 5, 239), rounding)])
        print(name, "layer 0 attention_norm", [hex(v) for v in tensor(7, 0, 3, 1, 0.1, (0, 1, 11), rounding)])
