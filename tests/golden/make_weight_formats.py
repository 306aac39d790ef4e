#!/usr/bin/env python3
"""What the gguf library makes of random blocks of every quantised format:
tests/golden/weight_formats.json.

    python3 tests/golden/make_weight_formats.py        (needs gguf 0.17 and numpy)

The file has, by the format's name, {"blocks": bytes in hex, "numbers": [the bits of their values as
floats]} of 256 or 512 numbers.
"""
import json
import pathlib

import numpy
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize

FORMATS = "F16 BF16 Q8_0 Q4_0 Q4_1 Q5_0 Q5_1 Q2_K Q3_K Q4_K Q5_K Q6_K IQ4_NL IQ4_XS".split()
# Where a block's f16 scale and minimum stand.
HALVES = {"Q4_1": (0, 2), "Q5_1": (0, 2), "Q2_K": (80, 82), "Q3_K": (108,), "Q4_K": (0, 2),
          "Q5_K": (0, 2), "Q6_K": (208,)}


def blocks_of(name, random):
    numbers, size = GGML_QUANT_SIZES[GGMLQuantizationType[name]]
    count = max(2, 256 // numbers)
    blocks = random.integers(0, 256, (count, size), dtype=numpy.uint8)
    if name in ("F16", "BF16"):
        return random.normal(0, 1, count).astype(numpy.float16 if name == "F16" else numpy.float32)
    for at in HALVES.get(name, (0,)):  # finite, of both signs, one denormal
        halves = random.normal(0, 0.1, count).astype(numpy.float16)
        halves[0] = numpy.float16(3e-6)
        blocks[:, at:at + 2] = halves.view(numpy.uint8).reshape(count, 2)
    return blocks


def main():
    random = numpy.random.default_rng(47)
    golden = {}
    for name in FORMATS:
        blocks = blocks_of(name, random)
        if name == "BF16":
            bits = (blocks.view(numpy.uint32) >> 16).astype(numpy.uint16)
            blocks = bits.view(numpy.uint8)
        values = dequantize(blocks, GGMLQuantizationType[name]).astype(numpy.float32)
        golden[name] = {"blocks": blocks.tobytes().hex(),
                        "numbers": values.ravel().view(numpy.uint32).tolist()}
    path = pathlib.Path(__file__).with_name("weight_formats.json")
    path.write_text(json.dumps(golden, separators=(",", ":")).replace("},", "},\n") + "\n")


if __name__ == "__main__":
    main()
