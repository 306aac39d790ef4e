#!/usr/bin/env python3
"""Train the stories pair: a tokenizer, a target model, and a draft distilled
from the target; then evaluate and export both as Hugging Face folders.

    python3 train.py --corpus CORPUS --out OUT

The stages are budgeted by wall time, so that the whole fits a known limit on
whatever GPU there is. README.md beside this file has the recipe.
"""

import argparse
import json
import math
import os
import pickle
import shutil
import time

import numpy as np

import data

BEGAN = time.time()
SHARD_BYTES = 15 * 1024 * 1024


def say(*parts):
    print(f"[{time.time() - BEGAN:6.1f}s]", *parts, flush=True)


def arguments():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--corpus", required=True, help="folder with the texts")
    p.add_argument("--out", required=True, help="folder to write target/ and draft/ to")
    p.add_argument("--cache", help="file that keeps the tokenised texts between runs")
    p.add_argument("--target-seconds", type=float, default=105)
    p.add_argument("--draft-seconds", type=float, default=310,
                   help="0 ends the run after the target")
    p.add_argument("--own-seconds", type=float, default=25,
                   help="time for text that the target writes for the draft to learn on")
    p.add_argument("--target-from", help="take tokenizer and target from this "
                   "exported folder and train the draft only")
    p.add_argument("--batch", type=int, default=256, help="sequences per step")
    p.add_argument("--target-rate", type=float, default=2e-3)
    p.add_argument("--draft-rate", type=float, default=3e-3)
    p.add_argument("--target-decay", type=float, default=0.45)
    p.add_argument("--draft-decay", type=float, default=0.15)
    p.add_argument("--optimizer", choices=["muon", "adamw"], default="muon")
    p.add_argument("--own-share", type=float, default=0.3)
    p.add_argument("--overlap-from", type=float, default=0.3,
                   help="part of the draft's time after which overlap joins the loss")
    p.add_argument("--overlap", type=float, nargs=3, default=[0.3, 1.0, 0.7],
                   metavar=("KL", "TV", "COLD"),
                   help="final weights: cross-entropy, total variation at "
                        "temperature 1, and at 0.5")
    p.add_argument("--smoke", action="store_true", help="a few seconds per stage")
    p.add_argument("--seed", type=int, default=1)
    a = p.parse_args()
    if a.smoke:
        a.target_seconds = min(a.target_seconds, 20)
        a.draft_seconds = min(a.draft_seconds, 10)
        a.own_seconds = min(a.own_seconds, 4)
    return a


# For the target these make about as many passes over each small kind as over
# the books; more would have it learn them by heart. The draft learns
# distributions, not texts, and may meet the small kinds more often.
TARGET_SHARES = {"books": 0.941, "tales": 0.020, "dialogue": 0.006, "maths": 0.033}
DRAFT_SHARES = {"books": 0.84, "tales": 0.05, "dialogue": 0.03, "maths": 0.08}

PROMPTS = {
    "books": ["The old man looked at the boy for a long time before he spoke.",
              "It was a dark night, and the rain beat upon the windows of the inn."],
    "tales": ["Once upon a time there was a king who had three daughters."],
    "dialogue": ["User: I would like a large latte with oat milk, please.\nAssistant:"],
    "maths": ["Question: Tom has 5 apples. He buys 3 more apples and then gives 2 "
              "apples to his sister. How many apples does Tom have now?\nAnswer:"],
}


def prepare(args):
    """Streams of tokens by kind, and the tokenizer."""
    import sentencepiece as spm
    os.makedirs(os.path.join(args.out, "target"), exist_ok=True)
    os.makedirs(os.path.join(args.out, "draft"), exist_ok=True)
    model_file = os.path.join(args.out, "target", "tokenizer.model")
    if args.cache and os.path.exists(args.cache):
        with open(args.cache, "rb") as f:
            streams, model_bytes = pickle.load(f)
        for name in ("target", "draft"):
            with open(os.path.join(args.out, name, "tokenizer.model"), "wb") as f:
                f.write(model_bytes)
        return streams, spm.SentencePieceProcessor(model_file=model_file)
    loaded = data.load_kinds(args.corpus)
    say("read", {k: sum(sum(map(len, d)) for d in v["train"]) for k, v in loaded.items()},
        "characters")
    if args.target_from:
        source = os.path.join(args.target_from, "tokenizer.model")
        if os.path.abspath(source) != os.path.abspath(model_file):
            shutil.copy(source, model_file)
    else:
        data.train_tokenizer(loaded, model_file, 4096, 24_000_000,
                             np.random.default_rng(args.seed))
        say("trained the tokenizer")
    streams = data.tokenise(loaded, model_file)
    shutil.copy(model_file, os.path.join(args.out, "draft", "tokenizer.model"))
    sp = spm.SentencePieceProcessor(model_file=model_file)
    probe = "Tom said, \"I have 12.\"\n\n  Well\u2014so?\n"
    ids = sp.encode(probe)
    assert sp.decode(ids) == probe, (ids, sp.decode(ids))
    assert sp.piece_to_id("\n") != data.UNK
    for kind, parts in streams.items():
        say(kind, {p: len(s.tokens) for p, s in parts.items()}, "tokens")
    if args.cache:
        with open(model_file, "rb") as f:
            model_bytes = f.read()
        with open(args.cache, "wb") as f:
            pickle.dump((streams, model_bytes), f)
    return streams, sp


def fit(name, step, optimiser, rate, seconds, on_mark=None, marks=()):
    """Run `step(progress)` -> loss until the time is over. The rate warms up,
    then falls along a cosine to zero at the end of the budget."""
    import torch
    loss = step(0.0)  # compiles; its gradient is dropped
    for p in optimiser.params:
        p.grad = None
    torch.cuda.synchronize()
    say(name, "compiled")
    began = synced = time.time()
    every, done, per_step, spent_aside = 25, 0, None, 0.0
    marks = list(marks)
    while True:
        elapsed = synced - began - spent_aside
        if per_step is not None:
            elapsed += (done % every) * per_step
        progress = elapsed / seconds
        if progress >= 1.0:
            break
        warm = min(1.0, (done + 1) / 150)
        loss = step(progress)
        optimiser.step(rate * warm * 0.5 * (1 + math.cos(math.pi * progress)))
        done += 1
        if done % every == 0:
            torch.cuda.synchronize()
            before, synced = synced, time.time()
            per_step = (synced - before) / every
            if done % (every * 20) == 0:
                say(f"{name} step {done} loss {loss.item():.4f} "
                    f"{per_step * 1e3:.1f} ms/step {progress:.0%}")
            if marks and progress >= marks[0]:
                marks.pop(0)
                on_mark(progress)
                torch.cuda.synchronize()
                spent_aside += time.time() - synced
                synced = time.time()
    torch.cuda.synchronize()
    say(f"{name}: {done} steps in {time.time() - began:.0f} s, last loss {loss.item():.4f}")
    return done


def held_out_loss(model, windows_by_kind):
    import torch
    import torch.nn.functional as F
    out = {}
    with torch.no_grad(), torch.autocast("cuda", torch.bfloat16):
        for kind, rows in windows_by_kind.items():
            total = 0.0
            for part in rows.split(32):
                logits = model(part[:, :-1])
                total += F.cross_entropy(logits.float().flatten(0, 1),
                                         part[:, 1:].flatten(), reduction="sum").item()
            out[kind] = total / rows[:, 1:].numel()
    return out


def train_target(args, streams):
    import torch
    import torch.nn.functional as F
    from model import Llama, Optimiser, TARGET
    torch.manual_seed(args.seed)
    model = Llama(TARGET).cuda()
    say("target parameters:", sum(p.numel() for p in model.parameters()))
    sampler = data.Sampler({k: v["train"] for k, v in streams.items()},
                           TARGET_SHARES, "cuda", args.seed)
    held = {k: data.windows(v["valid"], "cuda", 64) for k, v in streams.items()}
    optimiser = Optimiser(model, args.optimizer, args.target_decay)

    @torch.compile(dynamic=False)
    def loss_of(rows):
        with torch.autocast("cuda", torch.bfloat16):
            logits = model(rows[:, :-1], dtype=torch.bfloat16)
        return F.cross_entropy(logits.float().flatten(0, 1), rows[:, 1:].flatten())

    def step(progress):
        loss = loss_of(sampler.batch(args.batch))
        loss.backward()
        return loss.detach()

    def mark(progress):
        losses = held_out_loss(model, held)
        say(f"held-out loss at {progress:.0%}:",
            {k: round(v, 3) for k, v in losses.items()})
        if progress > 0.5:  # something to show for a run that is cut off
            export(args, "target", model)

    steps = fit("target", step, optimiser, args.target_rate, args.target_seconds,
                mark, (0.25, 0.5, 0.75, 0.9))
    passes = {k: round(float(v), 1) for k, v in sampler.passes.items()}
    say("target passes by kind:", passes)
    export(args, "target", model)
    return model, {"steps": steps, "tokens": steps * args.batch * data.WINDOW,
                   "passes": passes}


def load_target(folder):
    import torch
    from safetensors.torch import load_file
    from model import Llama, TARGET
    with open(os.path.join(folder, "model.safetensors.index.json")) as f:
        shards = sorted(set(json.load(f)["weight_map"].values()))
    state = {}
    for shard in shards:
        state.update(load_file(os.path.join(folder, shard)))
    model = Llama(TARGET).cuda()
    model.load_state_dict({k[len("model."):]: v.float() for k, v in state.items()})
    return model


def own_text(args, target, streams, seconds):
    """Windows that the target itself writes from short prompts. Drafting
    happens on such text, so the draft should have met its habits."""
    import torch
    from model import sample
    sampler = data.Sampler({k: v["train"] for k, v in streams.items()},
                           DRAFT_SHARES, "cuda", args.seed + 7)
    began, parts, rows = time.time(), [], 4096
    while not parts or time.time() - began < seconds * (1 - 0.5 / len(parts)):
        cut = (8, 16, 32, 64)[len(parts) % 4]
        prompt = sampler.batch(rows)[:, :cut]
        heat = torch.tensor([0.0, 0.6, 0.8, 1.0]).repeat_interleave(rows // 4)
        heat = heat[torch.randperm(rows)]
        parts.append(sample(target, prompt, data.WINDOW + 1, heat).short())
        torch.cuda.synchronize()
    own = torch.cat(parts)
    say(f"the target wrote {own.numel() / 1e6:.1f} M tokens")
    return own


def train_draft(args, streams, target):
    import torch
    import torch.nn.functional as F
    from model import DRAFT, Llama, Optimiser
    teacher = Llama.rounded(target, torch.bfloat16)
    exact = Llama.rounded(target, torch.float32)
    own = own_text(args, teacher, streams, args.own_seconds)
    torch.manual_seed(args.seed + 1)
    draft = Llama(DRAFT).cuda()
    say("draft parameters:", sum(p.numel() for p in draft.parameters()))
    sampler = data.Sampler({k: v["train"] for k, v in streams.items()},
                           DRAFT_SHARES, "cuda", args.seed + 2)
    held = {k: data.windows(v["valid"], "cuda", 24) for k, v in streams.items()}
    optimiser = Optimiser(draft, args.optimizer, args.draft_decay)

    @torch.compile(dynamic=False)
    def teach(ids):
        with torch.no_grad():
            return teacher(ids)

    @torch.compile(dynamic=False)
    def loss_of(ids, wanted, weights):
        with torch.autocast("cuda", torch.bfloat16):
            logits = draft(ids, dtype=torch.bfloat16)
        d, t = logits.float(), wanted.float()
        t_soft, d_log = t.softmax(-1), d.log_softmax(-1)
        entropy = -(t_soft * d_log).sum(-1).mean()
        apart = 0.5 * (t_soft - d_log.exp()).abs().sum(-1).mean()
        cold = 0.5 * ((2 * t).softmax(-1) - (2 * d).softmax(-1)).abs().sum(-1).mean()
        return weights[0] * entropy + weights[1] * apart + weights[2] * cold

    n_own = int(args.batch * args.own_share)
    order = torch.empty(0, dtype=torch.long, device="cuda")

    def batch():
        nonlocal order
        if len(order) < n_own:
            order = torch.randperm(len(own), device="cuda")
        mine, order = order[:n_own], order[n_own:]
        return torch.cat([sampler.batch(args.batch - n_own), own[mine].long()])

    def step(progress):
        ids = batch()[:, :-1].contiguous()
        # The overlap terms ignore tokens that the draft finds improbable, so
        # they come in once the cross-entropy has brought it near the target.
        mix = min(1.0, max(0.0, (progress - args.overlap_from) / 0.15))
        last = args.overlap
        weights = torch.tensor([1 + mix * (last[0] - 1), mix * last[1], mix * last[2]],
                               ).cuda(non_blocking=True)
        loss = loss_of(ids, teach(ids), weights)
        loss.backward()
        return loss.detach()

    def mark(progress):
        for kind, rows in held.items():
            m = compare(exact, draft, rows)
            say(f"draft at {progress:.0%} {kind}:",
                {k: round(v, 4) for k, v in m.items()})

    marks = [m for m in (args.overlap_from, 0.5, 0.75, 0.9) if m < 1]
    steps = fit("draft", step, optimiser, args.draft_rate, args.draft_seconds,
                mark, sorted(set(marks)))
    passes = {k: round(float(v), 1) for k, v in sampler.passes.items()}
    say("draft passes by kind:", passes)
    export(args, "draft", draft)
    return draft, {"steps": steps, "tokens": steps * args.batch * data.WINDOW,
                   "own_tokens": own.numel(), "passes": passes}


def compare(target, draft, rows, mask=None):
    """How far a draft follows its target on windows of text: the figures that
    decide how many of its tokens a verifier accepts."""
    import torch
    names = ("top1", "top4", "overlap", "overlap_0.6")
    sums, count = dict.fromkeys(names, 0.0), 0
    with torch.no_grad():
        for n, part in enumerate(rows.split(16)):
            t, d = target(part[:, :-1]).float(), draft(part[:, :-1]).float()
            best = t.argmax(-1, keepdim=True)
            values = {
                "top1": (d.argmax(-1, keepdim=True) == best)[..., 0],
                "top4": (d.topk(4, -1).indices == best).any(-1),
                "overlap": torch.minimum(t.softmax(-1), d.softmax(-1)).sum(-1),
                "overlap_0.6": torch.minimum((t / 0.6).softmax(-1),
                                             (d / 0.6).softmax(-1)).sum(-1),
            }
            keep = (torch.ones_like(best[..., 0], dtype=torch.bool) if mask is None
                    else mask[n * 16:n * 16 + 16])
            for k in names:
                sums[k] += values[k][keep].float().sum().item()
            count += keep.sum().item()
    return {k: v / max(count, 1) for k, v in sums.items()}


def piece_bytes(sp):
    """How many bytes of text each piece stands for."""
    out = []
    for i in range(sp.get_piece_size()):
        if sp.is_control(i) or sp.is_unknown(i):
            out.append(0)
        elif sp.is_byte(i):
            out.append(1)
        else:
            out.append(len(sp.id_to_piece(i).replace("\u2581", " ").encode()))
    return out


def exact_loss(model, rows, sizes):
    import torch
    import torch.nn.functional as F
    total = 0.0
    with torch.no_grad():
        for part in rows.split(16):
            logits = model(part[:, :-1])
            total += F.cross_entropy(logits.float().flatten(0, 1),
                                     part[:, 1:].flatten(), reduction="sum").item()
    tokens = rows[:, 1:].numel()
    return total / tokens, total / sizes[rows[:, 1:]].sum().item()


def evaluate(args, streams, sp, target, draft):
    """The table, by kind of text, with the weights as exported."""
    import torch
    from model import Llama, sample
    torch.backends.cuda.matmul.allow_tf32 = False
    target = Llama.rounded(target, torch.float32)
    draft = Llama.rounded(draft, torch.float32)
    sizes = torch.tensor(piece_bytes(sp), device="cuda")
    table = {}
    for kind, parts in streams.items():
        rows = data.windows(parts["valid"], "cuda", 320)
        seen = data.windows(parts["train"], "cuda", 96)
        loss, per_byte = exact_loss(target, rows, sizes)
        entry = {"held_out_tokens": rows[:, 1:].numel(),
                 "target_loss": loss, "target_loss_per_byte": per_byte,
                 "target_train_loss": exact_loss(target, seen, sizes)[0],
                 "draft_loss": exact_loss(draft, rows, sizes)[0],
                 "held_out": compare(target, draft, rows)}
        # The same figures on what the target writes from held-out openings.
        prompt = rows[torch.arange(96, device="cuda") % len(rows), :33]
        for heat in (0.0, 0.6, 1.0):
            text = sample(target, prompt, 257, torch.full((96,), heat))
            ended = (text == data.EOS)
            ended[:, :33] = False
            done = ended.cumsum(1) - ended.long()  # 0 up to and with the EOS
            mask = (done[:, 1:] == 0)
            mask[:, :32] = False
            figures = compare(target, draft, text, mask)
            entry[f"own_text_{heat}"] = figures
            if heat == 0.0:
                fresh = [len(set(map(tuple, zip(*(r[i:] for i in range(4))))))
                         / max(1, len(r) - 3) for r in text[:, 33:].tolist()]
                entry["greedy_distinct_4grams"] = sum(fresh) / len(fresh)
        table[kind] = entry
        say("evaluated", kind)
    samples = []
    for kind, prompts in PROMPTS.items():
        for text in prompts:
            ids = torch.tensor([[data.BOS] + sp.encode(text)] * 3, device="cuda")
            heats = torch.tensor([0.0, 0.8, 0.8])
            rows = sample(target, ids, min(513, ids.shape[1] + 140), heats)
            for heat, row in zip(heats.tolist(), rows.tolist()):
                tail = row[ids.shape[1]:]
                tail = tail[:tail.index(data.EOS)] if data.EOS in tail else tail
                samples.append({"kind": kind, "temperature": round(heat, 1),
                                "prompt": text, "text": sp.decode(tail)})
    return table, samples


def write_json(path, value):
    with open(path, "w") as f:
        json.dump(value, f, indent=2)
        f.write("\n")


def export(args, name, model):
    import torch
    from safetensors.torch import save_file
    folder = os.path.join(args.out, name)
    state = model.hf_state(torch.bfloat16)
    if name == "draft":
        save_file(state, os.path.join(folder, "model.safetensors"),
                  metadata={"format": "pt"})
    else:
        shards, used = [{}], 0
        for key, tensor in state.items():
            size = tensor.numel() * 2
            if used + size > SHARD_BYTES:
                shards.append({})
                used = 0
            shards[-1][key] = tensor
            used += size
        where = {}
        for n, shard in enumerate(shards, 1):
            file = f"model-{n:05}-of-{len(shards):05}.safetensors"
            save_file(shard, os.path.join(folder, file), metadata={"format": "pt"})
            where.update(dict.fromkeys(shard, file))
        total = sum(t.numel() * 2 for t in state.values())
        write_json(os.path.join(folder, "model.safetensors.index.json"),
                   {"metadata": {"total_size": total}, "weight_map": where})
    write_json(os.path.join(folder, "config.json"), model.s.config())
    write_json(os.path.join(folder, "generation_config.json"),
               {"bos_token_id": data.BOS, "eos_token_id": data.EOS})
    write_json(os.path.join(folder, "tokenizer_config.json"),
               {"tokenizer_class": "LlamaTokenizer", "add_bos_token": True,
                "add_eos_token": False, "add_prefix_space": False,
                "legacy": False, "bos_token": "<s>", "eos_token": "</s>",
                "unk_token": "<unk>", "clean_up_tokenization_spaces": False,
                "model_max_length": model.s.positions})


def check_with_transformers(args, name, model, rows):
    """The exported folder, read by another implementation, must give the
    same numbers."""
    import torch
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging
    logging.disable_progress_bar()
    from model import Llama
    theirs = AutoModelForCausalLM.from_pretrained(
        os.path.join(args.out, name), dtype=torch.float32).cuda().eval()
    ours = Llama.rounded(model, torch.float32)
    with torch.no_grad():
        a, b = ours(rows[:, :-1]), theirs(rows[:, :-1]).logits
    off = ((a - b).norm() / b.norm()).item()
    same = (a.argmax(-1) == b.argmax(-1)).float().mean().item()
    say(f"{name} against transformers: relative difference {off:.2e}, "
        f"same top token {same:.4f}")
    assert off < 1e-3
    return off


def print_table(table):
    print("\nheld-out text         loss  /byte  train  draft |  top1  top4  "
          "min1  min.6 | own text: T0 top1 top4  T.6 min  T1 min")
    for kind, e in table.items():
        h = e["held_out"]
        print(f"{kind:9} {e['held_out_tokens']:8}  {e['target_loss']:6.3f} "
              f"{e['target_loss_per_byte']:6.3f} {e['target_train_loss']:6.3f} "
              f"{e['draft_loss']:6.3f} | {h['top1']:.3f} {h['top4']:.3f} "
              f"{h['overlap']:.3f} {h['overlap_0.6']:.3f} |        "
              f"{e['own_text_0.0']['top1']:.3f} {e['own_text_0.0']['top4']:.3f}  "
              f"{e['own_text_0.6']['overlap_0.6']:.3f}    {e['own_text_1.0']['overlap']:.3f}"
              f"   (greedy distinct 4-grams {e['greedy_distinct_4grams']:.2f})")


def main():
    args = arguments()
    streams, sp = prepare(args)
    import torch
    say("torch", torch.__version__, torch.cuda.get_device_name())
    facts = {}
    if args.target_from:
        target = load_target(args.target_from)
        export(args, "target", target)
    else:
        target, facts["target"] = train_target(args, streams)
    if args.draft_seconds <= 0:
        return
    draft, facts["draft"] = train_draft(args, streams, target)
    table, samples = evaluate(args, streams, sp, target, draft)
    rows = data.windows(streams["books"]["valid"], "cuda", 4)
    for name, model in (("target", target), ("draft", draft)):
        facts[name + "_difference_from_transformers"] = \
            check_with_transformers(args, name, model, rows)
    for s in samples:
        print(f"\n--- {s['kind']}, temperature {s['temperature']}\n"
              f"{s['prompt']}[|]{s['text']}")
    write_json(os.path.join(args.out, "evaluation.json"),
               {"training": facts, "by_kind": table, "samples": samples})
    print_table(table)
    size = sum(os.path.getsize(os.path.join(r, f))
               for r, _, fs in os.walk(args.out) for f in fs)
    say("done;", size, "bytes in", args.out)


if __name__ == "__main__":
    main()
