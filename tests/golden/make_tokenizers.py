#!/usr/bin/env python3
"""Makes tests/golden/tokenizers/*.json: small tokenizers and what the tokenizers package does there.

    pip install 'tokenizers==0.23.*' && python3 tests/golden/make_tokenizers.py

Each file holds a tokenizer.json, trained on the text below, and vectors: a text, its ids, its ids
with what the post-processor adds, the text decoded again with special tokens, and seams: [number of
tokens, byte of the text], where the text may be cut in two and its second part encoded behind the
tokens of its first. Between them the files use every stage that coppice interprets. Deterministic
for one version of the package.
"""
import base64
import json
import os
import string
import struct
import unicodedata

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers
from tokenizers import pre_tokenizers, processors, trainers

STORY = """The lighthouse keeper counted the ships each evening. There were seven on Monday, and
twelve on Tuesday; by Friday he'd counted 2048, and didn't believe it. "They're all the same ship,"
said his daughter, who was nine. She had drawn it: three masts, a red hull, and a cat at the wheel.
He looked through the glass again. The cat looked back. Then the wind turned, the lamp went out,
and when it was lit the sea was empty - but a wet paw print lay on the sill, and another, and
another, going up the stairs where nobody had been.
"""
QWEN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
        r"|\s*[\r\n]+|\s+(?!\S)|\s+")
FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "tokenizers")


def texts():
    out = ["", " ", "  ", "\n", "\t\n ", "The cat", " The cat", "the ships  looked\n\nback ",
           "He'd COUNTED 2048, they'Re 12345 ships!", "paw-print... (sill) [up] {stairs} a_b",
           "na\u00efve caf\u00e9 cafe\u0301 \u00c5ngstr\u00f6m A\u030angstro\u0308m",
           "\u4f60\u597d\u4e16\u754c \u3053\u3093\u306b\u3061\u306f", "\U0001f600\U0001f468\u200d\U0001f469\u200d\U0001f467!",
           "\ufb01ne \u2460\u2461 \u00bd \uff21\uff22 \u1e9b\u0323 \u212b", "\u0130stanbul \u03a3\u039f\u03a3",
           "<s>The cat</s>", "x<s> y", "a <mask>  b<mask>c", "wordy word sword word.", " <end>  <end>\t",
           "<think>lamp</think>", "\u2581lit \u2581\u2581the", "a\u00a0b\u3000c\u2028d", "\x00\x01\x7f",
           "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "the the the",
           "<0x41> <0xFF>", "Monday Tuesday Friday", "1234567 890 \u0663\u0664 \u2167"]
    state = 12345
    for length in range(1, 25):
        text = ""
        for _ in range(length):
            state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
            kind, value = (state >> 60) & 7, (state >> 33) & 0xFFFF
            if kind < 4:
                text += chr(32 + value % 95)
            elif kind == 4:
                text += " \n\t'" [value % 4]
            elif kind == 5:
                text += chr(0xA1 + value % 0x500)
            else:
                text += chr([0x4E00 + value % 500, 0x300 + value % 64, 0x1F600 + value % 60][value % 3])
        out.append(text)
    return out


def character_map(pairs):
    """The darts-clone trie and strings that sentencepiece compiles: a block of 256 per node."""
    units, strings, blocks = [0] * 512, b"", {b"": 256}
    units[0] = 256 << 10
    for key, value in pairs.items():
        key, node = key.encode(), b""
        for i, byte in enumerate(key):
            here = blocks[node] ^ byte
            node = key[:i + 1]
            if node not in blocks:
                blocks[node] = len(units)
                units.extend([0] * 256)
                units[here] |= (here ^ blocks[node]) << 10 | byte
            if node == key:
                units[here] |= 1 << 8
                units[blocks[node]] = 1 << 31 | len(strings)
        strings += value.encode() + b"\0"
    # Free places must not look like entries of label 0.
    units = [unit or 0xFF | 1 << 31 for unit in units]
    trie = struct.pack("<%dI" % len(units), *units)
    return base64.b64encode(struct.pack("<I", len(trie)) + trie + strings).decode()


def bpe(size, byte_level=False, **options):
    tokenizer = Tokenizer(models.BPE(**options))
    alphabet = pre_tokenizers.ByteLevel.alphabet() if byte_level else []
    specials = ["<unk>", "<s>", "</s>"]
    if options.get("byte_fallback"):
        specials += ["<0x%02X>" % i for i in range(256)]
    return tokenizer, trainers.BpeTrainer(vocab_size=size, initial_alphabet=sorted(alphabet),
                                          special_tokens=specials, show_progress=False)


def seams(text, encoding, cut_alike):
    """Where a token ends, but within what a normalizer made of one character, at marks that join
    what stands before, and where `cut_alike` forbids it."""
    out = []
    for k, (_, end) in enumerate(encoding.offsets[:-1], 1):
        start = encoding.offsets[k][0]
        whole = all(e <= end for _, e in encoding.offsets[:k]) and \
            all(s >= end for s, _ in encoding.offsets[k:])
        if not 0 < end < len(text):
            continue
        joins = unicodedata.combining(text[end]) or text[end] in "\u200d\ufe0f"
        if whole and not joins and cut_alike(text, end, start):
            out.append([k, len(text[:end].encode())])
    return out


def anywhere(text, end, start):
    return True


def finish(name, tokenizer, edit=lambda d: None, cut_alike=anywhere):
    parsed = json.loads(tokenizer.to_str())
    specials = {"<unk>", "<s>", "</s>"}
    parsed["added_tokens"] = [t for t in parsed["added_tokens"]
                              if not t["content"].startswith("<0x") or t["content"] in specials]
    edit(parsed)
    tokenizer = Tokenizer.from_str(json.dumps(parsed))
    vectors = []
    for text in texts():
        encoding = tokenizer.encode(text, add_special_tokens=False)
        ids = encoding.ids
        vectors.append({"text": text, "ids": ids, "framed": tokenizer.encode(text).ids,
                        "decoded": tokenizer.decode(ids, skip_special_tokens=False),
                        "seams": seams(text, encoding, cut_alike)})
    with open(os.path.join(FOLDER, name + ".json"), "w", encoding="ascii") as file:
        file.write('{"tokenizer": ' + json.dumps(parsed, separators=(",", ":")) +
                   ',\n"vectors": [\n' + ",\n".join(json.dumps(v) for v in vectors) + "\n]}\n")


def template(first, last, tokenizer):
    parts = ([first] if first else []) + ["$A"] + ([last] if last else [])
    used = [t for t in (first, last) if t]
    return processors.TemplateProcessing(
        single=" ".join(parts), special_tokens=[(t, tokenizer.token_to_id(t)) for t in used])


def byte_level():
    tokenizer, trainer = bpe(340, byte_level=True, ignore_merges=True)
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(QWEN), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator([STORY], trainer)
    tokenizer.add_tokens([AddedToken("<think>", normalized=False), AddedToken("</think>"),
                          AddedToken("<mask>", lstrip=True), AddedToken("  ", normalized=False),
                          AddedToken("<end>", rstrip=True, normalized=False),
                          AddedToken("word", single_word=True)])
    tokenizer.post_processor = processors.Sequence(
        [processors.ByteLevel(trim_offsets=False), template("<s>", None, tokenizer)])

    def as_text(parsed):  # merges as older files write them
        parsed["model"]["merges"] = [" ".join(pair) for pair in parsed["model"]["merges"]]
    finish("byte_level", tokenizer, as_text)


def whole_text():
    tokenizer, trainer = bpe(400, unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    tokenizer.pre_tokenizer = pre_tokenizers.Split("\u2581", "merged_with_next")  # to train only
    tokenizer.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(),
                                           decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    tokenizer.train_from_iterator([STORY], trainer)
    tokenizer.add_tokens([AddedToken("<end>", rstrip=True, normalized=True, special=True)])
    tokenizer.post_processor = template("<s>", "</s>", tokenizer)
    finish("whole_text", tokenizer, lambda d: d.update(pre_tokenizer=None))


def first_word():
    tokenizer, trainer = bpe(160, unk_token="<unk>", fuse_unk=True)
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    tokenizer.decoder = decoders.Metaspace(prepend_scheme="first")
    tokenizer.train_from_iterator(STORY.split(), trainer)
    finish("first_word", tokenizer)


def each_start():
    tokenizer, trainer = bpe(400, unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace()])
    tokenizer.train_from_iterator([STORY], trainer)
    tokenizer.add_tokens([AddedToken("<mask>", lstrip=True, special=True),
                          AddedToken("<end>", rstrip=True, special=True),
                          AddedToken("word", single_word=True)])
    finish("each_start", tokenizer)


def after_space():
    tokenizer, trainer = bpe(150, unk_token="<unk>")
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(" ", "\u2581")])
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    tokenizer.train_from_iterator(STORY.split("\n"), trainer)
    finish("after_space", tokenizer)


def many_cuts():
    tokenizer, trainer = bpe(330, byte_level=True)
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKD(), normalizers.Lowercase()])
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Punctuation("contiguous"), pre_tokenizers.ByteLevel(add_prefix_space=True),
        pre_tokenizers.Digits(individual_digits=False),
        pre_tokenizers.Split(Regex("[0-9][0-9]"), "isolated")])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator([STORY], trainer)

    # ByteLevel puts a space before every word that Punctuation cut off, which an appended text,
    # whose first word may go on with one, does not get.
    def in_a_word(text, end, start):
        return len({unicodedata.category(c)[0] == "P" or c in string.punctuation
                    for c in (text[end - 1], text[end])}) == 1
    finish("many_cuts", tokenizer, cut_alike=in_a_word)


def unigram(name, normalizer, pre_tokenizer, byte_fallback, decoder):
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.train_from_iterator(STORY.split("\n"), trainers.UnigramTrainer(
        vocab_size=150, special_tokens=["<unk>", "<s>", "</s>"], unk_token="<unk>",
        show_progress=False))
    tokenizer.normalizer, tokenizer.pre_tokenizer, tokenizer.decoder = \
        normalizer, pre_tokenizer, decoder
    tokenizer.post_processor = template(None, "</s>", tokenizer)

    def edit(parsed):
        model = parsed["model"]
        model["vocab"] = [[piece, round(score, 4)] for piece, score in model["vocab"]]
        if byte_fallback:
            model["byte_fallback"] = True
            model["vocab"] += [["<0x%02X>" % i, -20.0] for i in range(256)]
    finish(name, tokenizer, edit)


def main():
    os.makedirs(FOLDER, exist_ok=True)
    byte_level()
    whole_text()
    first_word()
    each_start()
    after_space()
    many_cuts()
    compiled = character_map({"\ufb01": "fi", "\u00bd": "1/2", "\u00e9": "e", "\t": " ", "\n": " ",
                              "A\u030a": "\u00c5", "\u2460": "1", "\x01": ""})
    unigram("unigram", normalizers.Sequence([
        normalizers.Precompiled(base64.b64decode(compiled)), normalizers.Strip(),
        normalizers.Replace(Regex(" {2,}"), " "), normalizers.NFD()]),
        pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()]),
        False, decoders.Metaspace())
    unigram("unigram_bytes", normalizers.Strip(left=True, right=False),
            pre_tokenizers.Sequence([
                pre_tokenizers.Split(Regex("[aeiou]+"), "removed", invert=True),
                pre_tokenizers.Split("t", "removed"), pre_tokenizers.Digits(individual_digits=True)]),
            True, decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace()]))
    unigram("words", normalizers.Replace("\n", " "), pre_tokenizers.Sequence(
        [pre_tokenizers.Whitespace(), pre_tokenizers.Metaspace(prepend_scheme="never"),
         pre_tokenizers.Split(Regex("[ie]"), "merged_with_next"),
         pre_tokenizers.Split("p", "contiguous")]), True, decoders.ByteFallback())


if __name__ == "__main__":
    main()
