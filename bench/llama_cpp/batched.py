#!/usr/bin/env python3
"""Times llama.cpp with many texts side by side, on the prompts of bench/batch: llama-batched-bench
for plain decoding, and llama-server with as many slots as texts, plain and with a drafted chain.

    build/bench/batch --device cuda ... --prompts-out prompts.jsonl
    python3 bench/llama_cpp/batched.py --target DIR --draft DIR --prompts prompts.jsonl \\
        --programs LLAMA_CPP/build/bin --npl 1,8,64

Of a server, the time of new tokens is that of the prompts with TG + 1 tokens each less that of the
prompts with one, as bench/batch has it. llama-batched-bench samples nothing and takes prompts of
its own, so that its rate stands for every temperature. Needs numpy and gguf.
"""

import argparse
import concurrent.futures
import contextlib
import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

START_SECONDS = 600


class Failed(Exception):
    pass


def context_for(arguments):
    """KV slots for all texts; llama.cpp gives each the same part, of whole blocks of 256."""
    each = -(-(arguments.npp + arguments.ntg + 1 + max([0, *arguments.chains])) // 256) * 256
    return each * max(arguments.npl)


def environment():
    # An option without a value in older versions, with one in newer ones.
    return {**os.environ, "LLAMA_ARG_FLASH_ATTN": "1"}


def parse_bench(output):
    """{texts: tokens/s} of llama-batched-bench --output-format jsonl, or of its table."""
    rates = {}
    for line in output.splitlines():
        line = line.strip()
        if line.startswith("{") and '"speed_tg"' in line:
            row = json.loads(line)
            rates[row["pl"]] = row["speed_tg"]
        elif line.startswith("|"):
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            if len(cells) == 10 and cells[0].isdigit():
                rates[int(cells[2])] = float(cells[7])
    return rates


def bench(arguments, target):
    """Rows of plain decoding by llama-batched-bench."""
    command = [pathlib.Path(arguments.programs) / "llama-batched-bench", "-m", target, "-c",
               context_for(arguments), "-b", 2048, "-ub", 512, "-ngl", arguments.gpu_layers, "-npp",
               arguments.npp, "-ntg", arguments.ntg, "-npl", ",".join(map(str, arguments.npl)),
               "--output-format", "jsonl"]
    try:
        done = subprocess.run(list(map(str, command)), stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, env=environment())
    except OSError as error:
        raise Failed(f"llama-batched-bench: {error}") from None
    rates = parse_bench(done.stdout)
    if done.returncode != 0 or not rates:
        raise Failed(f"llama-batched-bench ended with {done.returncode} and {len(rates)} rows:\n"
                     + done.stderr[-2000:])
    return [{"method": "plain (llama-batched-bench)", "temperature": temperature, "texts": texts,
             "tokens_per_second": rate}
            for temperature in arguments.temperatures for texts, rate in rates.items()]


def draft_options(known, draft, chain, gpu_layers):
    """Options for chains of `chain` tokens; their names differ between versions."""
    new = "--spec-draft-n-max" in known
    options = ["-md", draft, "-ngld", gpu_layers,
               "--spec-draft-n-max" if new else "--draft-max", chain,
               "--spec-draft-n-min" if new else "--draft-min", 0]
    if "draft-simple" in known:
        options += ["--spec-type", "draft-simple"]
    return options


@contextlib.contextmanager
def server(arguments, target, draft, chain):
    """The address of a llama-server, which ends with the block."""
    program = str(pathlib.Path(arguments.programs) / "llama-server")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [program, "-m", target, "-c", context_for(arguments), "-np", max(arguments.npl),
               "-b", 2048, "-ub", 512, "-ngl", arguments.gpu_layers, "--host", "127.0.0.1",
               "--port", port]
    try:
        known = subprocess.run([program, "--help"], stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, text=True, env=environment()).stdout
        if "--cache-ram" in known:
            # Its cache of prompts copies a slot's KV to the host as the next text comes.
            command += ["--cache-ram", 0]
        if chain:
            command += draft_options(known, draft, chain, arguments.gpu_layers)
        with tempfile.TemporaryFile("w+") as log:
            process = subprocess.Popen(list(map(str, command)), stdout=log,
                                       stderr=subprocess.STDOUT, env=environment())
            try:
                wait_for(f"http://127.0.0.1:{port}", process, log)
                yield f"http://127.0.0.1:{port}"
            finally:
                process.terminate()
                process.wait()
    except OSError as error:
        raise Failed(f"llama-server: {error}") from None


def wait_for(address, process, log):
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end:
        if process.poll() is not None:
            log.seek(0)
            raise Failed(f"llama-server ended with {process.returncode}:\n{log.read()[-2000:]}")
        try:
            with urllib.request.urlopen(address + "/health", timeout=5) as answer:
                if answer.status == 200:
                    return
        except (urllib.error.URLError, OSError):
            time.sleep(0.2)
    raise Failed(f"llama-server was not ready after {START_SECONDS} s")


def complete(address, prompt, new_tokens, temperature):
    """Tokens that the server wrote."""
    request = {"prompt": prompt, "n_predict": new_tokens, "temperature": temperature,
               "samplers": ["temperature"], "ignore_eos": True, "cache_prompt": False}
    call = urllib.request.Request(address + "/completion", json.dumps(request).encode(),
                                  {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(call, timeout=START_SECONDS) as answer:
            return json.loads(answer.read())["tokens_predicted"]
    except (urllib.error.URLError, OSError, ValueError, KeyError) as error:
        raise Failed(f"llama-server did not complete: {error}") from None


def seconds_of(address, prompts, new_tokens, temperature):
    start = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(len(prompts)) as pool:
        written = list(pool.map(lambda p: complete(address, p, new_tokens, temperature), prompts))
    seconds = time.monotonic() - start
    if min(written) < new_tokens:
        raise Failed(f"llama-server wrote {min(written)} of {new_tokens} tokens")
    return seconds


def serve(arguments, prompts, target, draft, chain):
    """Rows of llama-server with chains of `chain` tokens; 0: plain."""
    rows = []
    method = f"chain {chain} (llama-server -np)" if chain else "plain (llama-server -np)"
    with server(arguments, target, draft, chain) as address:
        for temperature in arguments.temperatures:
            for texts in arguments.npl:
                # What a server has not met yet takes it seconds.
                seconds_of(address, prompts[:texts], 16, temperature)
                alone = seconds_of(address, prompts[:texts], 1, temperature)
                whole = seconds_of(address, prompts[:texts], 1 + arguments.ntg, temperature)
                if whole < 1.5 * alone:
                    print(f"left out: {method}, {texts} texts, temperature {temperature:g}: "
                          f"{whole:.2f} s with {arguments.ntg} tokens more, {alone:.2f} s without "
                          "them", file=sys.stderr, flush=True)
                    continue
                rows.append({"method": method, "temperature": temperature, "texts": texts,
                             "tokens_per_second": texts * arguments.ntg / (whole - alone)})
    return rows


def counts(text):
    return [int(word) for word in text.split(",")]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--target", required=True)
    parser.add_argument("--draft", required=True)
    parser.add_argument("--prompts", required=True)
    parser.add_argument("--programs", required=True, help="folder of llama.cpp's programs")
    parser.add_argument("--npl", type=counts, default=[1, 4, 16, 64], help="texts side by side")
    parser.add_argument("--npp", type=int, default=128, help="tokens of a prompt")
    parser.add_argument("--ntg", type=int, default=128, help="new tokens of a text")
    parser.add_argument("--chains", type=int, nargs="*", default=[3])
    parser.add_argument("--temperatures", type=float, nargs="+", default=[0.6])
    parser.add_argument("--gpu-layers", type=int, default=999)
    parser.add_argument("--gguf", help="folder for the converted models, which are used again")
    parser.add_argument("--json")
    arguments = parser.parse_args()
    with open(arguments.prompts) as file:
        prompts = [json.loads(line)["tokens"][:arguments.npp] for line in file]
    if len(prompts) < max(arguments.npl):
        parser.error(f"{len(prompts)} prompts are too few for {max(arguments.npl)} texts")

    import to_gguf  # not needed to read a table
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        files = [to_gguf.kept(getattr(arguments, name), arguments.gguf or folder)
                 for name in ("target", "draft")]
        ways = [lambda: bench(arguments, files[0])]
        ways += [lambda chain=chain: serve(arguments, prompts, *files, chain)
                 for chain in [0, *arguments.chains]]
        for way in ways:
            try:
                rows += way()
            except Failed as failure:
                print(f"left out: {failure}", file=sys.stderr, flush=True)
    for row in rows:
        print("llama.cpp {method}, {texts} texts, temperature {temperature}: "
              "{tokens_per_second:.1f} tok/s".format(**row))
    if arguments.json:
        pathlib.Path(arguments.json).write_text(json.dumps(rows, indent=1) + "\n")
    if not rows:
        sys.exit("batched.py: llama.cpp wrote nothing")


if __name__ == "__main__":
    main()
