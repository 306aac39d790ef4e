#!/usr/bin/env python3
"""Makes the golden data of folder_golden_test: what transformers makes of a model folder's settings.

    make_folders.py OUT

OUT/NAME is a folder that transformers saved: a tiny random Llama, a tokenizer, their settings.
  bytes   tokenizer.json of bytes
  pieces  tokenizer.model by sentencepiece, without a tokenizer.json
  marks   tokenizer.json of those pieces, with word marks; no weights
OUT/variants.json lists, for each folder, changes of its files: settings moved to every place where
transformers finds them, left out, or set to something else. With each change stands what
transformers reads from it: token ids of texts, ids of a conversation in the chat template, ids of
end tokens, greedy tokens. A file is a text, or null where it is removed.

Needs torch, transformers 5, tokenizers, sentencepiece, protobuf. Runs on the CPU.
"""

import io
import json
import os
import shutil
import sys
import tempfile

os.environ["TRANSFORMERS_VERBOSITY"] = "error"

import sentencepiece
import tokenizers
import torch
import transformers
from tokenizers import AddedToken, decoders, models, pre_tokenizers, processors
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

TEXTS = [
    "the sea",
    " the sea",
    "  the  sea ",
    "<s>the sea</s>the sea",
    "</s> the sea",
    "a <|user|> b",
    "the<|user|>sea <|end|>",
    "<|user|><|end|> the",
    "the <|userland",
    "<unk>the",
]
TEMPLATE = (
    "{% for m in messages %}{{ '<|user|>' + m.content + '<|end|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|end|>' + bos_token }}{% endif %}"
)
OTHER = "{% for m in messages %}{{ m.role + eos_token + m.content }}{% endfor %}"
MESSAGES = [{"role": "user", "content": "the sea"}, {"role": "assistant", "content": "a sea"}]


def token(content, **flags):
    plain = {"lstrip": False, "rstrip": False, "normalized": False, "single_word": False, "special": True}
    return {"content": content, **plain, **flags}


def save_model(folder, vocab, seed):
    config = LlamaConfig(
        vocab_size=vocab, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, head_dim=8, max_position_embeddings=256, bos_token_id=1, eos_token_id=2,
        initializer_range=0.6)  # so that greedy tokens change from step to step
    torch.manual_seed(seed)
    model = LlamaForCausalLM(config)
    model.save_pretrained(folder)
    os.remove(os.path.join(folder, "generation_config.json"))


def byte_tokenizer():
    vocab = {c: i for i, c in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    made = tokenizers.Tokenizer(models.BPE(vocab=vocab, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens([AddedToken("<s>", special=True), AddedToken("</s>", special=True)])
    made.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 256)])
    return made


def train_pieces():
    words = "the sea a was and see user over land then there eat at he she is in on to of"
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([words] * 50), model_writer=out, model_type="bpe", vocab_size=300, byte_fallback=True,
        hard_vocab_limit=False, normalization_rule_name="identity", add_dummy_prefix=True,
        remove_extra_whitespaces=False, minloglevel=2)
    return out.getvalue()


def save_folders(out):
    folder = os.path.join(out, "bytes")
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=byte_tokenizer(), bos_token="<s>", eos_token="</s>")
    fast.save_pretrained(folder)
    save_model(folder, 262, 1)

    folder = os.path.join(out, "pieces")
    os.makedirs(folder)
    with open(os.path.join(folder, "tokenizer.model"), "wb") as file:
        file.write(train_pieces())
    config = {"tokenizer_class": "LlamaTokenizer", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>",
              "add_bos_token": True}
    write(folder, "tokenizer_config.json", config)
    pieces = sentencepiece.SentencePieceProcessor(model_file=os.path.join(folder, "tokenizer.model"))
    save_model(folder, pieces.get_piece_size() + 4, 2)

    marks = os.path.join(out, "marks")
    AutoTokenizer.from_pretrained(folder, legacy=True).save_pretrained(marks)
    shutil.copy(os.path.join(folder, "config.json"), marks)
    return pieces.get_piece_size()


def write(folder, name, value):
    path = os.path.join(folder, name)
    if value is None:
        os.path.exists(path) and os.remove(path)
        return
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(value if isinstance(value, str) else json.dumps(value))


def measure(base, files, runs):
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(base, folder, dirs_exist_ok=True)
        for name, value in files.items():
            write(folder, name, value)
        reads = AutoTokenizer.from_pretrained(folder)
        result = {"texts": [[t, reads(t, add_special_tokens=False).input_ids] for t in TEXTS],
                  "framed": reads("the sea").input_ids, "pieces": len(reads)}
        if reads.chat_template:
            names = ["", "other"] if isinstance(reads.chat_template, dict) else [""]
            result["chats"] = {}
            for name in names:
                text = reads.apply_chat_template(
                    MESSAGES, add_generation_prompt=True, tokenize=False, chat_template=name or None)
                result["chats"][name] = reads(text, add_special_tokens=False).input_ids
        if not runs:
            return result
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        if not os.path.exists(os.path.join(folder, "generation_config.json")):
            # What config.json leaves out is what its class has.
            model.generation_config.eos_token_id = model.config.eos_token_id
        ends = model.generation_config.eos_token_id
        result["ends"] = [] if ends is None else ends if isinstance(ends, list) else [ends]
        prompt = result["framed"]
        written = model.generate(
            torch.tensor([prompt]), attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
            max_new_tokens=12, do_sample=False, pad_token_id=0)[0].tolist()[len(prompt):]
        result["greedy"] = written
        return result


def variants(out, pieces):
    """Yields folder, name, files, and whether the model is run."""

    def config(folder, **more):
        with open(os.path.join(out, folder, "tokenizer_config.json"), encoding="utf-8") as file:
            kept = json.load(file)
        return {key: value for key, value in {**kept, **more}.items() if value != "LEFT OUT"}

    def model_config(folder, **more):
        with open(os.path.join(out, folder, "config.json"), encoding="utf-8") as file:
            kept = json.load(file)
        return {key: value for key, value in {**kept, **more}.items() if value != "LEFT OUT"}

    t, s, a = "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"
    for folder, first in (("bytes", 258), ("pieces", pieces)):
        two = {"<|user|>": first, "<|end|>": first + 1}
        decoder = {str(i): token(c) for c, i in two.items()}
        places = {
            "plain": {},
            "added_tokens_decoder": {t: config(folder, added_tokens_decoder=decoder)},
            "flags": {t: config(folder, added_tokens_decoder={
                str(first): token("<|user|>", lstrip=True, rstrip=True, single_word=True),
                str(first + 1): token("<|end|>", special=False, normalized=True)})},
            "flags of known tokens": {t: config(folder, added_tokens_decoder={
                str(256 if folder == "bytes" else 1): token("<s>", rstrip=True),
                str(257 if folder == "bytes" else 2): token("</s>", rstrip=True)})},
            "added_tokens.json": {a: two},
            "added_tokens.json behind a decoder": {t: config(folder, added_tokens_decoder={}), a: two},
            "extra_special_tokens": {t: config(folder, extra_special_tokens=list(two))},
            "extra_special_tokens by name": {
                t: config(folder, extra_special_tokens={"user_token": "<|user|>", "end_token": "<|end|>"})},
            "additional_special_tokens": {t: config(folder, additional_special_tokens=list(two))},
            "special_tokens_map: extra": {s: {"extra_special_tokens": list(two)}},
            "special_tokens_map: additional": {s: {"additional_special_tokens": list(two)}},
            "special_tokens_map: named": {s: {"pad_token": token("<|user|>"), "eos_token": "<|end|>"}},
            "named": {t: config(folder, pad_token="<|user|>", eos_token="<|end|>")},
            "own names": {t: config(folder, user_token="<|user|>", end_token="<|end|>")},
            "without names": {t: config(folder, bos_token=None, eos_token=None)},
        }
        for name, files in places.items():
            yield folder, name, files, False
        both = config(folder, added_tokens_decoder=decoder)
        listed = [{"name": "default", "template": TEMPLATE}, {"name": "other", "template": OTHER}]
        for name, files in {
            "template: text": {t: {**both, "chat_template": TEMPLATE}},
            "template: list": {t: {**both, "chat_template": listed}},
            "template: file": {t: both, "chat_template.jinja": TEMPLATE},
            "template: file over text": {t: {**both, "chat_template": OTHER}, "chat_template.jinja": TEMPLATE},
            "template: folder": {t: both, "chat_template.jinja": TEMPLATE,
                                 "additional_chat_templates/other.jinja": OTHER},
            "template: folder over list": {t: {**both, "chat_template": listed[::-1]}, "chat_template.jinja": OTHER,
                                           "additional_chat_templates/other.jinja": TEMPLATE},
        }.items():
            yield folder, name, files, False
        c, g = "config.json", "generation_config.json"
        base = measure(os.path.join(out, folder), {}, True)["greedy"]
        end, later = base[4], base[7]
        for name, files in {
            "ids: both": {},
            "ids left out": {c: model_config(folder, bos_token_id="LEFT OUT", eos_token_id="LEFT OUT")},
            "ids null": {c: model_config(folder, bos_token_id=None, eos_token_id=None)},
            "ids -1": {c: model_config(folder, bos_token_id=-1, pad_token_id=-1, eos_token_id=-1)},
            "a list of ids": {c: model_config(folder, eos_token_id=[later, end])},
            "ids of generation_config": {g: {"eos_token_id": later}},
            "ids of generation_config over others": {c: model_config(folder, eos_token_id=end),
                                                     g: {"eos_token_id": [later]}},
            "no architectures": {c: model_config(folder, architectures=[])},
            "tied": {c: model_config(folder, tie_word_embeddings=True)},
        }.items():
            yield folder, name, files, True
    for folder in ("pieces", "marks"):
        for kind in ("LlamaTokenizer", "LlamaTokenizerFast", "PreTrainedTokenizerFast"):
            for legacy in ("LEFT OUT", True, False, None):
                for prefix in ("LEFT OUT", True, False):
                    keys = dict(tokenizer_class=kind, legacy=legacy, add_prefix_space=prefix)
                    if folder == "marks" and kind == "LlamaTokenizerFast":
                        continue
                    yield folder, f"marks: {keys}", {t: config(folder, **keys)}, False
        for family in ("mistral", "gemma2", "smollm3"):
            for kind in ("LlamaTokenizer", "GemmaTokenizer"):
                if folder == "marks" and kind == "GemmaTokenizer":
                    continue
                yield folder, f"{family}: {kind}", {
                    t: config(folder, tokenizer_class=kind, legacy=False),
                    "config.json": model_config(folder, model_type=family)}, False
    for adds in ({"add_bos_token": False}, {"add_eos_token": True}, {"add_bos_token": None, "add_eos_token": True}):
        yield "pieces", f"frame: {adds}", {t: config("pieces", **adds)}, False


def main():
    out = sys.argv[1]
    for name in ("bytes", "pieces", "marks"):
        shutil.rmtree(os.path.join(out, name), ignore_errors=True)
    os.makedirs(out, exist_ok=True)
    pieces = save_folders(out)
    lines = []
    for folder, name, files, runs in variants(out, pieces):
        # As texts: the order of keys counts.
        files = {n: v if v is None or isinstance(v, str) else json.dumps(v) for n, v in files.items()}
        result = measure(os.path.join(out, folder), files, runs)
        lines.append(json.dumps({"folder": folder, "name": name, "files": files, **result}, separators=(",", ":")))
    versions = {"transformers": transformers.__version__, "tokenizers": tokenizers.__version__,
                "torch": torch.__version__, "sentencepiece": sentencepiece.__version__}
    with open(os.path.join(out, "variants.json"), "w", encoding="utf-8") as file:
        file.write('{"versions":%s,"variants":[\n%s\n]}\n' % (json.dumps(versions), ",\n".join(lines)))


if __name__ == "__main__":
    main()
