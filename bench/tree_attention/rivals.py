#!/usr/bin/env python3
"""Times of other kernels over texts that share levels: the cells of bench/tree_attention's part
forest that have one row a text. us in a pass: recordings of one layer after another over input sets
that exceed the cache, medians; planning is not counted.

    build/bench/tree_attention --parts forest --cells /s --quick --csv ours.csv
    python3 bench/tree_attention/rivals.py --ours ours.csv [--fasttree FOLDER]
                                           [--cells 32/8/s1x4000/] [--csv FILE]

Runs FlashInfer's MultiLevelCascadeAttentionWrapper where the package is installed (it compiles its
kernels at the first call), and FastTree where --fasttree names its kernel_bench folder
(github.com/PanZaifeng/FastTree-Artifact). Each output is compared with a computation in f64.
"""

import argparse
import contextlib
import csv
import importlib.util
import io
import math
import re
import statistics
import sys
import traceback
import types

import torch

HEAD_DIM = 128
PAGE = 16
ROTATED_BYTES = 200e6
WARM_UP_MS = 25.0  # as coppice's own benchmark
ERROR_LIMIT = 1e-2
# Texts behind levels, a row each, as bench/tree_attention names them.
CELL_NAME = re.compile(r"forest/(\d+)/(\d+)/s([\dx-]+)/p(\d+x\d+)/t\d+x1")


class Cell:
    """Levels of `counts` nodes of `lengths` tokens, the first one node, the last the texts."""

    def __init__(self, name, heads, kv_heads, above, texts):
        self.name, self.heads, self.kv_heads = name, int(heads), int(kv_heads)
        levels = [level.split("x") for level in [*above.split("-"), texts]]
        self.counts, self.lengths = ([int(number) for number in part] for part in zip(*levels))
        self.texts = self.counts[-1]
        self.tokens = sum(count * length for count, length in zip(self.counts, self.lengths))

    def nodes(self):
        """(level, index, first token, parent), depth-first; tokens lie in that order."""
        listed, at = [], 0

        def visit(level, index, parent):
            nonlocal at
            number = len(listed)
            listed.append((level, index, at, parent))
            at += self.lengths[level]
            if level + 1 < len(self.counts):
                below = self.counts[level + 1] // self.counts[level]
                for child in range(below):
                    visit(level + 1, index * below + child, number)

        visit(0, 0, -1)
        return listed

    def path(self, text):
        """The tokens that a text sees."""
        seen = []
        for level, index, first, _ in self.nodes():
            if text * self.counts[level] // self.texts == index:
                seen.extend(range(first, first + self.lengths[level]))
        return seen


def cells(names):
    for name in names:
        found = CELL_NAME.fullmatch(name)
        if found:
            yield Cell(name, *found.groups())


def set_count(cell):
    return max(2, min(64, math.ceil(ROTATED_BYTES / (4 * cell.tokens * cell.kv_heads * HEAD_DIM))))


def in_pass_us(queue, sets, samples=9):
    for at in range(sets):
        queue(at)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for at in range(sets):
            queue(at)
    repeats = max(1, 40 // sets)
    times, warm_ms = [], 0.0
    while len(times) < samples:
        start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda._sleep(2_000_000)
        start.record()
        for _ in range(repeats):
            graph.replay()
        stop.record()
        stop.synchronize()
        ms = start.elapsed_time(stop)
        if warm_ms >= WARM_UP_MS:
            times.append(1e3 * ms / (repeats * sets))
        warm_ms += ms
    return statistics.median(times)


def worst_error(cell, q, k, v, out):
    """k, v [tokens, kv_heads, dim] in the nodes' order; of the first and the last text."""
    worst = 0.0
    for text in (0, cell.texts - 1):
        seen = torch.tensor(cell.path(text), device="cuda")
        for head in (0, cell.heads - 1):
            kv_head = head * cell.kv_heads // cell.heads
            keys, values = k[seen, kv_head].double(), v[seen, kv_head].double()
            weights = torch.softmax(keys @ q[text, head].double() / math.sqrt(HEAD_DIM), 0)
            exact = weights @ values
            got = out[text, head].double()
            if not torch.isfinite(got).all():
                return math.inf
            worst = max(worst, ((got - exact).norm() / exact.norm()).item())
    return worst


def random_bf16(*shape):
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16)


def flashinfer_cascade():
    """The wrapper's class. The package's own __init__ asks for more than its attention needs."""
    found = importlib.util.find_spec("flashinfer")
    if found is None:
        return None
    package = types.ModuleType("flashinfer")
    package.__path__ = list(found.submodule_search_locations)
    package.__spec__ = found
    sys.modules["flashinfer"] = package
    from flashinfer.cascade import MultiLevelCascadeAttentionWrapper
    return MultiLevelCascadeAttentionWrapper


def run_flashinfer(wrapper_of, cell):
    """The least time of the kernels that its wrapper may choose."""
    levels, sets = len(cell.counts), set_count(cell)
    page = math.gcd(PAGE, *cell.lengths)  # each node begins a page
    pages = cell.tokens // page
    order = torch.randperm(pages, device="cuda").int()
    by_level = [[] for _ in range(levels)]
    for level, _, first, _ in cell.nodes():
        by_level[level].append(order[first // page:(first + cell.lengths[level]) // page])

    def ints(values):
        return torch.tensor(values, device="cuda", dtype=torch.int32)

    kv = [random_bf16(pages, 2, page, cell.kv_heads, HEAD_DIM) for _ in range(sets)]
    q = [random_bf16(cell.texts, cell.heads, HEAD_DIM) for _ in range(sets)]
    in_order = kv[0][order.long()].transpose(0, 1).reshape(2, cell.tokens, cell.kv_heads, HEAD_DIM)
    found = []
    for backend in ("fa2", "fa3"):
        wrapper = wrapper_of(levels, torch.empty(1 << 30, dtype=torch.uint8, device="cuda"), "NHD")
        for of_level in wrapper._batch_prefill_wrappers:
            of_level._backend = backend
        try:
            wrapper.plan(
                [ints(range(0, cell.texts + 1, cell.texts // count)) for count in cell.counts],
                [ints([i * length // page for i in range(count + 1)])
                 for count, length in zip(cell.counts, cell.lengths)],
                [torch.cat(level) for level in by_level],
                [ints([page] * count) for count in cell.counts],
                cell.heads, cell.kv_heads, HEAD_DIM, page, q_data_type=torch.bfloat16)
            out = wrapper.run(q[0], kv[0])
        except RuntimeError as problem:  # one that the card or the installation lacks
            print(f"{cell.name}: FlashInfer's {backend}: {str(problem)[-2000:]}", file=sys.stderr)
            continue
        error = worst_error(cell, q[0], in_order[0], in_order[1], out)
        found.append((in_pass_us(lambda at: wrapper.run(q[at], kv[at]), sets), error))
    if not found:
        raise RuntimeError("no kernel of FlashInfer's ran")
    return min(found)


def run_fasttree(fasttree, cell):
    """As its run_benchmark.sh asks for it; the least time of its three ways of dividing."""
    sets, group = set_count(cell), cell.heads // cell.kv_heads
    nodes = cell.nodes()

    class Node:
        pass

    def tree():
        listed = []
        for number, (level, index, _, parent) in enumerate(nodes):
            node = Node()
            node.id, node.parent, node.seqlen = number, parent, cell.lengths[level]
            node.num_children = sum(1 for other in nodes if other[3] == number)
            share = cell.texts // cell.counts[level]
            node.requests = list(range(index * share, (index + 1) * share))
            listed.append(node)
        return listed

    starts = [first for _, _, first, _ in nodes] + [cell.tokens]
    k = [random_bf16(cell.tokens, cell.kv_heads, HEAD_DIM) for _ in range(sets)]
    v = [random_bf16(cell.tokens, cell.kv_heads, HEAD_DIM) for _ in range(sets)]
    q = [random_bf16(cell.texts, cell.heads, HEAD_DIM) for _ in range(sets)]
    out = [torch.empty_like(q[0]) for _ in range(sets)]
    q_tiles = {1: [64, 16], 4: [16, 4], 16: [4, 1]}[group]
    best = math.inf, 0.0
    for weights, splits in (((0.66, 0.33, 0.1), [1024, 128]), ((0, 0, 10), [81920, 81920]),
                            ((0, 0, -10), [1024, 128])):
        params = fasttree.FastTreeParams()
        params.set_values(*weights)
        params.set_q_tile_sizes(list(q_tiles))
        params.set_kv_tile_sizes([32, 32])
        params.set_kv_group_num(group)
        with contextlib.redirect_stdout(io.StringIO()):
            aux, _ = fasttree.fasttree_preparation(
                tree(), starts, cell.texts, cell.heads, cell.kv_heads, HEAD_DIM, splits,
                [132, 528], [132, 132], params)

        def queue(at):
            fasttree.fasttree_decode(q[at], k[at], v[at], out[at], *aux, q_tiles, [32, 32],
                                     1.0 / math.sqrt(HEAD_DIM))

        queue(0)
        error = worst_error(cell, q[0], k[0], v[0], out[0])
        best = min(best, (in_pass_us(queue, sets), error))
    return best


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--fasttree", help="FastTree-Artifact's kernel_bench folder")
    parser.add_argument("--ours", required=True,
                        help="what bench/tree_attention --parts forest --csv wrote: its cells")
    parser.add_argument("--cells", default="", help="part of a cell's name")
    parser.add_argument("--csv")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("rivals.py: PyTorch sees no GPU; run it where there is one")
    rivals = {}
    try:
        wrapper_of = flashinfer_cascade()
    except Exception:
        traceback.print_exc()
        wrapper_of = None
    if wrapper_of is not None:
        rivals["FlashInfer"] = lambda cell: run_flashinfer(wrapper_of, cell)
    if arguments.fasttree:
        sys.path.insert(0, arguments.fasttree)
        import fasttree
        rivals["FastTree"] = lambda cell: run_fasttree(fasttree, cell)
    if not rivals:
        sys.exit("rivals.py: neither FlashInfer is installed nor --fasttree given")
    with open(arguments.ours) as file:
        ours = {row["cell"]: float(row["in_pass_us"]) for row in csv.DictReader(file)
                if row["method"] == "coppice" and row["in_pass_us"]}

    lines, failed = ["cell,rival,in_pass_us,error,coppice_us,ratio"], False
    print(lines[0], flush=True)
    for cell in cells(ours):
        if arguments.cells not in cell.name:
            continue
        for name, run in rivals.items():
            try:
                us, error = run(cell)
            except Exception:
                traceback.print_exc()
                print(f"{cell.name},{name},failed", flush=True)
                failed = True
                continue
            failed = failed or error > ERROR_LIMIT
            mine = ours[cell.name]
            lines.append(f"{cell.name},{name},{us:.1f},{error:.1e},{mine:.1f},{us / mine:.2f}")
            print(lines[-1] + (" FAILED" if error > ERROR_LIMIT else ""), flush=True)
        torch.cuda.empty_cache()
    if arguments.csv:
        with open(arguments.csv, "w") as file:
            file.write("\n".join(lines) + "\n")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
