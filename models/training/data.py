"""Texts: reading, cleaning, tokenizer training, and batches of token windows.

This module stays free of torch so that its worker processes start fast; the
sampler imports it lazily.
"""

import io
import json
import lzma
import os
import re
from multiprocessing import get_context

import numpy as np

DOC_END = "<|endoftext|>"
UNK, BOS, EOS = 0, 1, 2
WINDOW = 512  # tokens of text per training sequence; BOS comes on top

# name, file stem, whether windows start at a document (short texts) or at a
# line (books: any paragraph is a fair start)
KINDS = {
    "books": {"train": ["juvenile_adventure_train.txt",
                        "fiction_general_half_train.txt",
                        "fiction_general_train.txt"],
              "valid": ["juvenile_adventure_valid.txt"], "start": "line"},
    "tales": {"train": ["children_tales_train.txt"],
              "valid": ["children_tales_valid.txt"], "start": "line"},
    "dialogue": {"train": ["taskmaster4_dialogues_train.txt"],
                 "valid": ["taskmaster4_dialogues_valid.txt"], "start": "doc"},
    "maths": {"train": ["gsm8k_train.jsonl"], "valid": [], "start": "doc"},
}
MATHS_HELD_OUT = 300


def read_text(folder, name):
    """The file's text, plain or xz-compressed; None where it is absent."""
    plain = os.path.join(folder, name)
    if os.path.exists(plain):
        with open(plain, encoding="utf-8") as f:
            return f.read()
    if os.path.exists(plain + ".xz"):
        with lzma.open(plain + ".xz", "rt", encoding="utf-8") as f:
            return f.read()
    return None


def split_documents(text):
    docs, lines = [], []
    for line in text.split("\n"):
        if line.strip() == DOC_END:
            if lines:
                docs.append(lines)
            lines = []
        else:
            lines.append(line.rstrip())
    if any(lines):
        docs.append(lines)
    return docs


JUNK = re.compile(
    r"project gutenberg|gutenberg-tm|\.{5}|\|--|#####"
    r"|^(table of )?contents\b.{0,3}$|^(list of )?illustrations\b.{0,3}$"
    r"|^\[illustration", re.I)


def clean_book(lines):
    return [s for s in (line.strip() for line in lines)
            if s and not JUNK.search(s)]


def unwrap(lines):
    """Undo hard line wrapping. The tales come wrapped at about 72 columns,
    and a model trained on that would break lines in mid-sentence."""
    out, joinable = [], False
    for raw in lines:
        line = raw.strip()
        if not line:
            joinable = False
            continue
        if joinable and not (line[0] in "\"'" and out[-1][-1] in ".!?'\""):
            out[-1] += " " + line
        else:
            out.append(line)
        ended = line[-1] in ".!?:'\""
        joinable = len(raw) <= 90 and len(raw) >= (64 if ended else 45)
    return out


def maths_documents(text):
    docs = []
    for row in text.splitlines():
        if not row.strip():
            continue
        item = json.loads(row)
        answer = re.sub(r"<<[^>]*>>", "", item["answer"])
        body = "Question: " + item["question"].strip() + "\nAnswer: " + answer.strip()
        docs.append([s.strip() for s in body.split("\n") if s.strip()])
    return docs


def load_kinds(folder):
    """{kind: {"train": documents, "valid": documents}}; a document is a list
    of lines."""
    loaded = {}
    for kind, spec in KINDS.items():
        parts = {}
        for part in ("train", "valid"):
            docs = []
            for name in spec[part]:
                text = read_text(folder, name)
                if text is None:
                    continue
                if kind == "maths":
                    docs += maths_documents(text)
                else:
                    tidy = unwrap if kind == "tales" else clean_book
                    docs += [d for d in map(tidy, split_documents(text)) if d]
            parts[part] = docs
        if kind == "maths":
            parts["valid"] = parts["train"][-MATHS_HELD_OUT:]
            parts["train"] = parts["train"][:-MATHS_HELD_OUT]
        if not parts["train"] or not parts["valid"]:
            raise SystemExit(f"no {kind} texts under {folder}")
        loaded[kind] = parts
    return loaded


def train_tokenizer(loaded, model_file, vocab, sample_bytes, rng):
    """Byte-pair pieces learned from a sample in which the small kinds take
    part in full, so that their words get pieces as well."""
    import sentencepiece as spm

    rows = []
    for kind, parts in loaded.items():
        lines = [line for doc in parts["train"] for line in doc]
        total = sum(map(len, lines))
        keep = min(1.0, sample_bytes / total)
        if keep < 1.0:
            chosen = rng.random(len(lines)) < keep
            lines = [line for line, take in zip(lines, chosen) if take]
        rows += [line for line in lines if len(line) < 4000]
    written = io.BytesIO()
    spm.SentencePieceTrainer.train(
        sentence_iterator=iter(rows), model_writer=written, model_type="bpe",
        vocab_size=vocab, byte_fallback=True, split_digits=True,
        character_coverage=1.0, unk_id=UNK, bos_id=BOS, eos_id=EOS,
        pad_id=-1, normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        # A line after "\n" and the first line of a prompt are then spelled
        # with the same pieces.
        add_dummy_prefix=False,
        user_defined_symbols=["\n"],
        num_threads=os.cpu_count() or 1,
        minloglevel=2)
    with open(model_file, "wb") as f:
        f.write(written.getvalue())


_processor = None


def _worker_start(model_file):
    global _processor
    import sentencepiece as spm
    _processor = spm.SentencePieceProcessor(model_file=model_file)


def _encode(lines):
    newline = _processor.piece_to_id("\n")
    ids, anchors = [BOS], []
    for n, row in enumerate(_processor.encode(lines, num_threads=1)):
        if n:
            ids.append(newline)
        anchors.append(len(ids))
        ids += row
    ids.append(EOS)
    return np.array(ids, np.int16), np.array(anchors, np.int64)


class Stream:
    """One kind's tokens end to end, with the places where a window may
    start."""

    def __init__(self, pieces, start):
        self.tokens = np.concatenate([ids for ids, _ in pieces])
        anchors, at = [], 0
        for ids, places in pieces:
            anchors.append(at + (places if start == "line" else places[:1]))
            at += len(ids)
        self.anchors = np.concatenate(anchors)
        self.reach = 256 if start == "line" else 400

    def starts(self, rng=None):
        """Starts of windows that cover the stream once: evenly spaced, then
        moved back to the nearest allowed place, since prompts begin there
        too. The phase is random where a generator is given."""
        phase = int(rng.integers(WINDOW)) if rng is not None else 1
        last = len(self.tokens) - WINDOW
        at = np.arange(phase, last, WINDOW)
        if not len(at):
            raise SystemExit("a kind of text is shorter than one window")
        before = self.anchors[
            np.maximum(np.searchsorted(self.anchors, at, side="right") - 1, 0)]
        at = np.where((at >= before) & (at - before <= self.reach), before, at)
        if rng is not None:
            rng.shuffle(at)
        return at


def tokenise(loaded, model_file):
    streams = {}
    workers = max(1, os.cpu_count() or 1)
    with get_context("fork").Pool(workers, _worker_start, (model_file,)) as pool:
        for kind, parts in loaded.items():
            streams[kind] = {}
            for part, docs in parts.items():
                step = 1 if kind == "books" else 64
                pieces = pool.map(_encode, docs, chunksize=step)
                streams[kind][part] = Stream(pieces, KINDS[kind]["start"])
    return streams


class Sampler:
    """Batches of windows, `BOS + WINDOW tokens`, mixed from the kinds by
    share. Every kind is gone through without repetition before it starts
    over."""

    def __init__(self, streams, shares, device, seed):
        import torch
        self.torch = torch
        self.rng = np.random.default_rng(seed)
        self.streams = streams
        self.kinds = list(shares)
        self.shares = np.array([shares[k] for k in self.kinds])
        self.shares = self.shares / self.shares.sum()
        self.base, at, parts = {}, 0, []
        for kind in self.kinds:
            self.base[kind] = at
            parts.append(streams[kind].tokens)
            at += len(parts[-1])
        self.tokens = torch.from_numpy(np.concatenate(parts)).to(device)
        self.offsets = torch.arange(WINDOW, device=device)
        self.queue = {k: np.empty(0, np.int64) for k in self.kinds}
        self.passes = {k: 0.0 for k in self.kinds}
        self.carry = np.zeros(len(self.kinds))

    def _take(self, kind, count):
        while len(self.queue[kind]) < count:
            fresh = self.streams[kind].starts(self.rng) + self.base[kind]
            self.queue[kind] = np.concatenate([self.queue[kind], fresh])
        out, self.queue[kind] = np.split(self.queue[kind], [count])
        self.passes[kind] += count * WINDOW / len(self.streams[kind].tokens)
        return out

    def batch(self, size):
        torch = self.torch
        # Shares that give a fraction of a sequence accumulate over batches.
        want = self.shares * size + self.carry
        counts = np.floor(want).astype(int)
        while counts.sum() < size:
            counts[np.argmax(want - counts)] += 1
        while counts.sum() > size:
            counts[np.argmax(counts)] -= 1
        self.carry = want - counts
        starts = np.concatenate([self._take(k, c) for k, c in zip(self.kinds, counts)])
        at = torch.from_numpy(starts).to(self.tokens.device, non_blocking=True)
        rows = self.tokens[at[:, None] + self.offsets].long()
        return torch.nn.functional.pad(rows, (1, 0), value=BOS)


def windows(stream, device, limit, seed=0):
    """A fixed set of windows of a stream, for evaluation."""
    import torch
    at = stream.starts()
    if len(at) > limit:
        at = np.sort(np.random.default_rng(seed).choice(at, limit, replace=False))
    rows = stream.tokens[at[:, None] + np.arange(WINDOW)].astype(np.int64)
    rows = np.concatenate([np.full((len(rows), 1), BOS), rows], axis=1)
    return torch.from_numpy(rows).to(device)
