#!/usr/bin/env python3
"""Writes a Hugging Face Llama folder as one GGUF file with BF16, F32 or Q8_0 matrices.

    python to_gguf.py models/stories/target target.gguf --dtype bf16

Reads config.json, *.safetensors and tokenizer.model (sentencepiece BPE). Needs numpy and gguf.
"""

import argparse
import hashlib
import json
import mmap
import pathlib
import struct

import gguf
import numpy as np

NUMPY_TYPES = {"F32": np.dtype("<f4"), "F16": np.dtype("<f2"), "BF16": np.dtype("<u2")}
Q8_0_BLOCK = 32

NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def read_safetensors(folder):
    """{name: (dtype name, array)}; BF16 values come as their 16 bits in uint16."""
    tensors = {}
    for path in sorted(folder.glob("*.safetensors")):
        with open(path, "rb") as f:
            data = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ)
        (header_bytes,) = struct.unpack_from("<Q", data)
        header = json.loads(data[8:8 + header_bytes])
        header.pop("__metadata__", None)
        for name, entry in header.items():
            if entry["dtype"] not in NUMPY_TYPES:
                raise SystemExit(f"{path}: {name} is {entry['dtype']}; only {', '.join(NUMPY_TYPES)} are read")
            dtype = NUMPY_TYPES[entry["dtype"]]
            array = np.frombuffer(data, dtype, count=int(np.prod(entry["shape"])),
                                  offset=8 + header_bytes + entry["data_offsets"][0])
            tensors[name] = entry["dtype"], array.reshape(entry["shape"])
    if not tensors:
        raise SystemExit(f"{folder}: no *.safetensors")
    return tensors


def to_f32(dtype_name, array):
    if dtype_name == "BF16":
        return (array.astype(np.uint32) << 16).view(np.float32)
    return array.astype(np.float32)


def to_bf16(dtype_name, array):
    """Bits of the nearest BF16, ties to even."""
    if dtype_name == "BF16":
        return array
    bits = np.ascontiguousarray(to_f32(dtype_name, array)).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def neighbours_from_halves(array, heads):
    """Reorders rows of a query or key projection. Hugging Face rotates element i of a head with
    element i + head_dim/2, llama.cpp's `llama` graph element 2i with 2i + 1."""
    head_dim = array.shape[0] // heads
    split = array.reshape(heads, 2, head_dim // 2, *array.shape[1:])
    return np.ascontiguousarray(split.swapaxes(1, 2)).reshape(array.shape)


def gguf_name(name):
    """(GGUF name, Hugging Face module without its layer)."""
    module, _, kind = name.rpartition(".")
    prefix = ""
    if module.startswith("model.layers."):
        _, _, layer, module = module.split(".", 3)
        prefix = f"blk.{layer}."
    if module not in NAMES or kind not in ("weight", "bias"):
        raise SystemExit(f"tensor {name} has no place in llama.cpp's llama graph")
    return f"{prefix}{NAMES[module]}.{kind}", module


def protobuf_fields(data):
    """(field number, value) of one message; ints for varints, bytes for the rest."""
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(data):
        tag = varint()
        wire = tag & 7
        if wire == 0:
            yield tag >> 3, varint()
            continue
        if wire not in (1, 2, 5):
            raise SystemExit(f"tokenizer.model: wire type {wire} at byte {at}")
        size = varint() if wire == 2 else {1: 8, 5: 4}[wire]
        yield tag >> 3, data[at:at + size]
        at += size


def read_sentencepiece(path):
    """(pieces as bytes, scores, types, add_dummy_prefix). sentencepiece and GGUF number the types
    alike; a piece that states none is normal (1)."""
    pieces, scores, types = [], [], []
    add_dummy_prefix = True
    for number, value in protobuf_fields(path.read_bytes()):
        if number == 1:
            piece = dict(protobuf_fields(value))
            pieces.append(bytes(piece[1]))
            scores.append(struct.unpack("<f", piece[2])[0] if 2 in piece else 0.0)
            types.append(piece.get(3, 1))
        elif number == 2 and dict(protobuf_fields(value)).get(3, 1) != 2:
            raise SystemExit(f"{path}: not a BPE model")
        elif number == 3:
            add_dummy_prefix = bool(dict(protobuf_fields(value)).get(3, 1))
    return pieces, scores, types, add_dummy_prefix


def add_tokenizer(writer, folder, config):
    pieces, scores, types, add_dummy_prefix = read_sentencepiece(folder / "tokenizer.model")
    for i in range(len(pieces), config["vocab_size"]):
        pieces.append(f"[PAD{i}]".encode())
        scores.append(-10000.0)
        types.append(int(gguf.TokenType.UNUSED))
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(pieces)
    writer.add_token_scores(scores)
    writer.add_token_types(types)
    writer.add_unk_token_id(types.index(int(gguf.TokenType.UNKNOWN)))
    eos = config["eos_token_id"]
    writer.add_bos_token_id(config["bos_token_id"])
    writer.add_eos_token_id(eos[0] if isinstance(eos, list) else eos)
    writer.add_add_bos_token(True)
    writer.add_add_eos_token(False)
    writer.add_add_space_prefix(add_dummy_prefix)


def convert(folder, out, dtype):
    """Writes `out` from the model folder; dtype is "bf16", "f32" or "q8_0"."""
    folder = pathlib.Path(folder)
    config = json.loads((folder / "config.json").read_text())
    if config["model_type"] != "llama":
        raise SystemExit(f"{folder}: model_type {config['model_type']}; only llama is converted")
    scaling = config.get("rope_scaling") or {}
    scaling_type = scaling.get("rope_type", scaling.get("type", "default"))
    if scaling_type not in ("default", "linear"):
        raise SystemExit(f"{folder}: rope_scaling of type {scaling_type} is not converted")

    heads = config["num_attention_heads"]
    kv_heads = config.get("num_key_value_heads") or heads
    head_dim = config.get("head_dim") or config["hidden_size"] // heads
    file_type = {"bf16": gguf.LlamaFileType.MOSTLY_BF16, "q8_0": gguf.LlamaFileType.MOSTLY_Q8_0,
                 "f32": gguf.LlamaFileType.ALL_F32}[dtype]

    writer = gguf.GGUFWriter(out, "llama")
    writer.add_name(folder.name)
    writer.add_file_type(file_type)
    writer.add_vocab_size(config["vocab_size"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)
    writer.add_rope_dimension_count(head_dim)
    writer.add_rope_freq_base(config.get("rope_theta", 10000.0))
    if scaling_type == "linear":
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(scaling["factor"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    add_tokenizer(writer, folder, config)

    for name, (source_type, array) in read_safetensors(folder).items():
        if name.endswith("rotary_emb.inv_freq"):
            continue
        if name == "lm_head.weight" and config.get("tie_word_embeddings"):
            continue
        target_name, module = gguf_name(name)
        if module == "self_attn.q_proj":
            array = neighbours_from_halves(array, heads)
        elif module == "self_attn.k_proj":
            array = neighbours_from_halves(array, kv_heads)
        if array.ndim == 2 and dtype == "bf16":
            rows = np.ascontiguousarray(to_bf16(source_type, array)).view(np.uint8)
            writer.add_tensor(target_name, rows, raw_dtype=gguf.GGMLQuantizationType.BF16)
        elif array.ndim == 2 and dtype == "q8_0" and array.shape[1] % Q8_0_BLOCK == 0:
            q8_0 = gguf.GGMLQuantizationType.Q8_0
            rows = gguf.quants.quantize(np.ascontiguousarray(to_f32(source_type, array)), q8_0)
            writer.add_tensor(target_name, rows, raw_dtype=q8_0)
        elif array.ndim == 2 and dtype == "q8_0":
            # Rows that blocks do not fill stay 16 bits wide. (llama.cpp's own quantisation makes
            # them F16, which its kernels for AMX take, a path that nothing else here would use.)
            rows = np.ascontiguousarray(to_bf16(source_type, array)).view(np.uint8)
            writer.add_tensor(target_name, rows, raw_dtype=gguf.GGMLQuantizationType.BF16)
        else:
            writer.add_tensor(target_name, np.ascontiguousarray(to_f32(source_type, array)))

    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def kept(model, folder, dtype="bf16"):
    """The file of a model in `folder`, converted if it is not there yet."""
    model, folder = pathlib.Path(model).resolve(), pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    made = (model / "config.json").stat().st_mtime_ns
    key = hashlib.sha256(f"{model} {made} {dtype}".encode()).hexdigest()[:16]
    file = folder / f"{model.name}-{key}.gguf"
    if not file.exists():
        # Under another name until it is whole.
        part = file.with_suffix(".part")
        convert(model, part, dtype)
        part.rename(file)
    return file


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("out")
    parser.add_argument("--dtype", choices=["bf16", "f32", "q8_0"], default="bf16")
    args = parser.parse_args()
    convert(args.folder, args.out, args.dtype)


if __name__ == "__main__":
    main()
