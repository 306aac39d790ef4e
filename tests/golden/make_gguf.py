#!/usr/bin/env python3
"""Makes tests/golden/gguf/*.json: the tokenizer metadata of GGUF files, and what the tokenizers do
that they were made from.

    pip install 'tokenizers==0.23.*' 'sentencepiece==0.2.*' && python3 tests/golden/make_gguf.py

bpe.json has one vocabulary, and for every name of tokenizer.ggml.pre texts with their ids by a
tokenizer.json like those of the models that have the name. sentencepiece.json has the pieces of a
tokenizer.model, with texts and ids by the sentencepiece library. Deterministic for one version of
the packages.
"""
import io
import json
import os
import re

import sentencepiece
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers
from tokenizers import pre_tokenizers, processors, trainers

from make_tokenizers import STORY, texts

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "gguf")
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
ENDS = r" ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
FIRST = r"[^\r\n\p{L}\p{N}]?"
TEKKEN = f"{FIRST}{UPPER}*{LOWER}+|{FIRST}{UPPER}+{LOWER}*|\\p{{N}}|{ENDS}"
SHORT = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
GPT4O = f"{FIRST}{UPPER}*{LOWER}+{SHORT}|{FIRST}{UPPER}+{LOWER}*{SHORT}|\\p{{N}}{{1,3}}|{ENDS}"
DEEPSEEK3 = [r"\p{N}{1,3}", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
             r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"""
             r"""| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"""]


def splits(*expressions):
    stages = [pre_tokenizers.Split(Regex(one), "isolated") for one in expressions]
    return pre_tokenizers.Sequence(
        stages + [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


GPT2 = pre_tokenizers.ByteLevel(add_prefix_space=False)
# By name: words, whether merges are ignored, NFC, whether a BOS is put if the metadata do not say.
PRE = {
    "llama-bpe": (splits(LLAMA3), True, False, True),
    "smaug-bpe": (splits(LLAMA3), True, False, False),
    "qwen2": (splits(QWEN2), False, True, False),
    "gpt-2": (GPT2, False, False, False),
    "smollm": (pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), GPT2]),
               False, False, False),
    "tekken": (splits(TEKKEN), True, False, True),
    "gpt-4o": (splits(GPT4O), False, False, False),
    "deepseek-v3": (splits(*DEEPSEEK3), False, False, False),
}

# What the rules cut differently.
MORE = """He'S HE'S IT'Ll we'RE don'T she's o'llama X'dream i'M I'VE O'LLAMA X'Dream he'Said
12 123 1234 12345 56789 a1b2 x.y .method #tag $var [ok] (no) it=2+x <b +sum |or ~and
(\u00e9tude +\u00e9t\u00e9 \u00ab\u00e0 b\u00bb \u20ac\u00e9
camelCase XMLHttp HTTPServer a'sCASE CASE'sa A'S a's
path/to//file./\n\n/usr bin !!\n\n?! //\r\n$$\n
\u4f60\u597d\u4e16\u754c\u3042\u3044\u30a2\u30a4 abc\u4f60\u597d \u30abx\u3042y\u4f60z
cafe\u0301 E\u0301tude na\u0308ive \u00e9tude \u0627\u0644 A\u0628b b\u0628A \u05d0\u05d1A\u05d2
\u01c5ungla a\u01c5 \u01c5\u01c5b A\u02b0b a\u02b0A \u02b0\u02b0 A\u0301b a\u0301B \u0301\u0301c \u2160A\u2170
    indented\n\n\n  twice \t tabs  \u0663\u0664\u0665 \u2167\u2168 \u00bd\u00be5
"""


def bpe():
    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    marks = ["<|endoftext|>", "<s>", "</s>", "<|eot_id|>", "<think>"]
    # Every ending of a word becomes one piece, across all borders: a cut more or less changes ids.
    words = re.findall(r"\s*\S+\s*", MORE) + re.findall(r"\s*\S+", MORE) + \
        re.findall(r"[^\s\w]+\s+\S+", MORE)
    endings = [word[start:] for word in words for start in range(len(word))]
    trained.train_from_iterator(endings, trainers.BpeTrainer(
        vocab_size=1300, special_tokens=marks, show_progress=False,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet())))
    model = json.loads(trained.to_str())["model"]
    vocab = model["vocab"]
    tokens = sorted(vocab, key=vocab.get)
    merges = [" ".join(pair) for pair in model["merges"]]
    # A piece that no merge leads to: only who ignores merges finds it.
    vocab["uncounted"] = len(tokens)
    tokens.append("uncounted")
    types = [NORMAL] * len(tokens)
    for mark in marks:
        types[vocab[mark]] = USER_DEFINED if mark == "<think>" else CONTROL
    tokens.append("[PAD%d]" % len(tokens))
    types.append(UNUSED)
    cases = texts() + MORE.split() + MORE.splitlines(True) + \
        [MORE, "uncounted it", "<|eot_id|>a<think> <|endoftext|>"]
    ids, frames = {}, {}
    for name, (words, ignores, nfc, adds_bos) in PRE.items():
        tokenizer = Tokenizer(models.BPE(vocab, [tuple(m.split(" ")) for m in merges],
                                         ignore_merges=ignores))
        tokenizer.pre_tokenizer = words
        if nfc:
            tokenizer.normalizer = normalizers.NFC()
        tokenizer.add_special_tokens([m for m in marks if m != "<think>"])
        tokenizer.add_tokens([AddedToken("<think>", normalized=False, special=False)])
        if adds_bos:
            tokenizer.post_processor = processors.TemplateProcessing(
                single="<s> $A", special_tokens=[("<s>", vocab["<s>"])])
        ids[name] = [tokenizer.encode(text, add_special_tokens=False).ids for text in cases]
        frames[name] = tokenizer.encode("").ids
    return {"tokens": tokens, "token_type": types, "merges": merges, "texts": cases, "ids": ids,
            "frames": frames}


def as_tokenizer_json(model, types):
    """The tokenizer.json that Llama's converter makes of a tokenizer.model."""
    vocab = {model.id_to_piece(id): id for id in range(len(model))}
    plain = [piece for piece, id in vocab.items() if types[id] == NORMAL]
    merges = sorted((vocab[piece], piece[:at], piece[at:]) for piece in plain
                    for at in range(1, len(piece)) if piece[:at] in vocab and piece[at:] in vocab)
    tokenizer = Tokenizer(models.BPE(vocab, [(left, right) for _, left, right in merges],
                                     unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>", "<ctl>"])
    tokenizer.add_tokens([AddedToken("<turn>", normalized=False, special=False)])
    return tokenizer


def sentences():
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(STORY.splitlines()), model_writer=out, model_type="bpe",
        vocab_size=420, byte_fallback=True, normalization_rule_name="identity",
        remove_extra_whitespaces=False, user_defined_symbols=["<turn>", "\u2581\u2581"],
        control_symbols=["<ctl>"], minloglevel=2)
    model = sentencepiece.SentencePieceProcessor(model_proto=out.getvalue())
    kinds = [(model.is_unknown, UNKNOWN), (model.is_control, CONTROL), (model.is_byte, BYTE),
             (lambda id: model.id_to_piece(id) in ("<turn>", "\u2581\u2581"), USER_DEFINED)]
    ids = range(len(model))
    types = [next((kind for told, kind in kinds if told(id)), NORMAL) for id in ids]
    # Converters write user-defined pieces with spaces.
    tokens = [model.id_to_piece(id).replace("\u2581", " ") if types[id] == USER_DEFINED
              else model.id_to_piece(id) for id in ids]
    scores = [model.get_score(id) for id in ids]
    package = as_tokenizer_json(model, types)
    marks = ["<s>", "</s>", "<unk>", "<ctl>", "<turn>"]
    cases = [text for text in texts() + ["   three"]
             if not any(mark in text for mark in marks + ["\x00"])]
    ids = [model.encode(text) for text in cases]
    # Where there are no runs of spaces both libraries agree; the package knows marks in a text.
    for text, own in zip(cases, ids):
        runs = "\u2581\u2581" in "\u2581" + text.replace(" ", "\u2581")
        assert runs or package.encode(text).ids == own, text
    for text in marks + ["a%sb c" % m for m in marks] + ["%sand%s\n<turn>the cat" % (m, m) for m in marks]:
        cases.append(text)
        ids.append(package.encode(text).ids)
    return {"tokens": tokens + ["[PAD%d]" % len(tokens)], "token_type": types + [UNUSED],
            "scores": scores + [-1000.0], "texts": cases, "ids": ids}


def write(name, parts):
    def lines(value):
        if isinstance(value, dict):
            return "{" + ",\n".join(json.dumps(k) + ": " + lines(v) for k, v in value.items()) + "}"
        return json.dumps(value)
    with open(os.path.join(FOLDER, name), "w", encoding="ascii") as file:
        file.write(lines(parts) + "\n")


def main():
    os.makedirs(FOLDER, exist_ok=True)
    write("bpe.json", bpe())
    write("sentencepiece.json", sentences())


main()
