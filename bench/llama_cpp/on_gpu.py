#!/usr/bin/env python3
"""Times llama.cpp on a GPU over the prompts of bench/generate: plain decoding and drafted chains,
bf16, on the same model folders.

    build/bench/generate --device cuda ... --prompts-out prompts.jsonl
    python3 bench/llama_cpp/on_gpu.py --target DIR --draft DIR --prompts prompts.jsonl \\
        --source LLAMA_CPP --libraries LLAMA_CPP/build

LLAMA_CPP is a source tree of llama.cpp built with -DGGML_CUDA=ON -DBUILD_SHARED_LIBS=OFF. Decode
time is decode.c's; medians over prompts. Needs numpy and gguf.
"""

import argparse
import itertools
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

import to_gguf

HERE = pathlib.Path(__file__).resolve().parent


def build(source, libraries, cuda, program):
    archives = sorted(pathlib.Path(libraries).rglob("lib*.a"))
    if not archives:
        sys.exit(f"on_gpu.py: no static libraries in {libraries}; build llama.cpp with "
                 "-DBUILD_SHARED_LIBS=OFF")
    source = pathlib.Path(source)
    object_file = program.with_suffix(".o")
    subprocess.run(["cc", "-O2", "-c", HERE / "decode.c", "-o", object_file, f"-I{source}/include",
                    f"-I{source}/ggml/include"], check=True)
    subprocess.run(["c++", object_file, "-o", program, "-Wl,--start-group", *archives,
                    "-Wl,--end-group", f"-L{cuda}/lib64", f"-L{cuda}/lib64/stubs", "-lcudart",
                    "-lcublas", "-lcublasLt", "-lcuda", "-lpthread", "-ldl", "-lm"], check=True)


def decode(program, files, lines, new_tokens, flash, chain, temperature):
    command = [program, "--model", files["target"], "--new", str(new_tokens), "--flash", str(flash),
               "--gpu-layers", "999", "--context", "1024", "--temperature", str(temperature)]
    if chain:
        command += ["--draft", files["draft"], "--chain", str(chain)]
    done = subprocess.run(list(map(str, command)), input="\n".join(lines) + "\n",
                          capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stderr}")
    return [json.loads(row) for row in done.stdout.splitlines()]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--target", required=True)
    parser.add_argument("--draft", required=True)
    parser.add_argument("--prompts", required=True)
    parser.add_argument("--source", help="llama.cpp's source tree")
    parser.add_argument("--libraries", help="where its static libraries are")
    parser.add_argument("--decode", help="decode.c built; if it does not exist, it is left here")
    parser.add_argument("--gguf", help="folder for the converted models, which are used again")
    parser.add_argument("--cuda", default="/usr/local/cuda")
    parser.add_argument("--new-tokens", type=int, default=128)
    parser.add_argument("--limit", type=int, default=24, help="prompts, spread over the file")
    parser.add_argument("--chains", type=int, nargs="+", default=[4, 6, 8, 12])
    parser.add_argument("--temperatures", type=float, nargs="+", default=[0.0, 0.6])
    parser.add_argument("--flash", type=int, nargs="+", default=[0, 1], choices=[0, 1],
                        help="flash attention off and on")
    parser.add_argument("--json")
    arguments = parser.parse_args()
    built = arguments.decode and pathlib.Path(arguments.decode).exists()
    if not built and not (arguments.source and arguments.libraries):
        parser.error("name --source and --libraries, or --decode as built before")

    with open(arguments.prompts) as file:
        prompts = [json.loads(line)["tokens"] for line in file]
    prompts = prompts[::max(1, len(prompts) // arguments.limit)]
    lines = [" ".join(map(str, ids)) for ids in prompts]
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        program = pathlib.Path(arguments.decode or folder / "decode").resolve()
        if not built:
            build(arguments.source, arguments.libraries, arguments.cuda, program)
        gguf = pathlib.Path(arguments.gguf or folder)
        files = {name: to_gguf.kept(getattr(arguments, name), gguf) for name in ("target", "draft")}
        chains = [0, *arguments.chains]
        for temperature, flash, chain in itertools.product(arguments.temperatures, arguments.flash,
                                                           chains):
            runs = decode(program, files, lines, arguments.new_tokens, flash, chain, temperature)
            rates = [arguments.new_tokens / run["seconds"] for run in runs]
            row = {"method": f"chain {chain}" if chain else "plain", "flash": flash,
                   "temperature": temperature, "prompts": len(rates),
                   "tokens_per_second": statistics.median(rates), "low": min(rates),
                   "high": max(rates), "overall": statistics.harmonic_mean(rates)}
            if chain:
                row["accepted_length"] = (sum(len(run["tokens"]) for run in runs) /
                                          sum(run["target_passes"] for run in runs))
            rows.append(row)
            print("llama.cpp {method}, temperature {temperature}, flash attention {flash}: "
                  "{tokens_per_second:.1f} tok/s ({low:.1f} to {high:.1f}, {prompts} prompts)"
                  .format(**row), flush=True)
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(rows, file, indent=1)


if __name__ == "__main__":
    main()
