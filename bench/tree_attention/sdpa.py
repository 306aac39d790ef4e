#!/usr/bin/env python3
"""Times of PyTorch's scaled_dot_product_attention in the cells of bench/tree_attention's parts
decode and prefill: the best of its backends, contiguous bf16 keys and values, recordings replayed
over input sets that exceed the cache, medians.

    python3 bench/tree_attention/sdpa.py [--csv FILE]

Needs PyTorch with CUDA. The chunk of a prefill cell sees its prefix and, causally, itself.
"""

import argparse
import statistics
import sys

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.bias import causal_lower_right

HEAD_DIM = 128
ROTATED_BYTES = 200e6
BACKENDS = {
    "flash": SDPBackend.FLASH_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
}


def cells():
    for heads, kv_heads in ((32, 8), (32, 32), (64, 8)):
        for prefix in (1024, 2048, 4096, 8192, 16384, 32768, 65536):
            yield "decode", heads, kv_heads, prefix, 1
    for heads, kv_heads in ((32, 8), (32, 32), (64, 8)):
        for prefix in (0, 4096, 16384):
            for rows in (256, 512):
                yield "prefill", heads, kv_heads, prefix, rows


def median_us(queue, sets, samples=21):
    graphs = []
    for at in range(sets):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            queue(at)
        graphs.append(graph)
    replays = max(sets, 20)
    times = []
    for sample in range(samples + 2):
        start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda._sleep(2_000_000)
        start.record()
        for i in range(replays):
            graphs[i % sets].replay()
        stop.record()
        stop.synchronize()
        if sample >= 2:
            times.append(1e3 * start.elapsed_time(stop) / replays)
    return statistics.median(times)


def best(kind, heads, kv_heads, prefix, rows):
    tokens = prefix + rows
    bytes_of_set = 2 * 2 * kv_heads * tokens * HEAD_DIM
    sets = max(2, min(200, int(ROTATED_BYTES / bytes_of_set) + 1))
    q = torch.randn(sets, 1, heads, rows, HEAD_DIM, device="cuda", dtype=torch.bfloat16)
    k = torch.randn(sets, 1, kv_heads, tokens, HEAD_DIM, device="cuda", dtype=torch.bfloat16)
    v = torch.randn_like(k)
    mask = None if kind == "decode" else causal_lower_right(rows, tokens)
    found = []
    for name, backend in BACKENDS.items():
        def queue(at):
            with sdpa_kernel(backend):
                torch.nn.functional.scaled_dot_product_attention(
                    q[at], k[at], v[at], attn_mask=mask, enable_gqa=heads != kv_heads)
        try:
            queue(0)
            torch.cuda.synchronize()
            found.append((median_us(queue, sets), name))
        except RuntimeError:
            continue  # a backend that does not take this shape
    return min(found) if found else (float("nan"), "none")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--csv")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("sdpa.py: PyTorch sees no GPU; run it where there is one")
    lines = ["cell,sdpa_us,backend"]
    for cell in cells():
        kind, heads, kv_heads, prefix, rows = cell
        us, backend = best(*cell)
        lines.append(f"{kind}/{heads}/{kv_heads}/p{prefix}/t{rows},{us:.2f},{backend}")
        print(lines[-1], flush=True)
    if arguments.csv:
        with open(arguments.csv, "w") as file:
            file.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
