#!/usr/bin/env python3
"""`coppice serve` under load against `coppice generate --batch` with the same texts.

    python3 bench/serving.py --target DIR --draft DIR [--device cuda] [--clients 64] [--each 20]

Both are processes of their own, in turn, with the same prompts, number of tokens and texts at a time. The server's time
runs from the first request to the last answer, the command's is what it prints, without the models' load. Meanwhile one
more client asks for a stream now and then: the time until its first token, beside that of the idle server. Prompts are
those of bench/command_line.py. Needs nothing beside Python.
"""
import argparse
import http.client
import json
import os
import re
import statistics
import subprocess
import tempfile
import threading
import time

from command_line import ROOT, printed_speed, write_prompts


def batch_speed(options, prompts):
    command = [options.coppice, "generate", "--batch", prompts, "--stats", "--target", options.target, "--draft",
               options.draft, "--device", options.device, "--temperature", str(options.temperature), "--ignore-eos",
               "--parallel", str(options.clients), "--max-new-tokens", str(options.new_tokens)]
    return printed_speed(command)


class Server:
    def __init__(self, options):
        self.options = options
        self.process = subprocess.Popen(
            [options.coppice, "serve", "--port", "0", "--log", "none", "--target", options.target, "--draft",
             options.draft, "--device", options.device, "--parallel", str(options.clients + 1)],
            stdout=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        found = re.search(r"http://[^ ]*:(\d+)", line)
        if found is None:
            raise SystemExit(f"the server did not start: {line!r}")
        self.port = int(found.group(1))

    def connect(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=300)

    def ask(self, connection, prompt, **more):
        body = {"prompt": prompt, "max_tokens": self.options.new_tokens, "temperature": self.options.temperature,
                "ignore_eos": True, "stop": [], "top_k": 0, "top_p": 1.0, **more}
        connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        if answer.status != 200:
            raise SystemExit(f"{answer.status}: {answer.read()[:300]}")
        return answer

    def first_token(self, prompt):
        """Milliseconds until a stream's first text."""
        connection = self.connect()
        begin = time.monotonic()
        answer = self.ask(connection, prompt, stream=True, max_tokens=16)
        for line in answer:
            if line.startswith(b"data: {"):
                break
        taken = 1e3 * (time.monotonic() - begin)
        answer.read()
        connection.close()
        return taken

    def end(self):
        self.process.terminate()
        if self.process.wait(timeout=120) != 0:
            raise SystemExit("the server did not end well")


def serve_speed(options, prompts):
    server = Server(options)
    tokens, lock = [0], threading.Lock()
    failures = []

    def client(own):
        try:
            connection = server.connect()
            for prompt in own:
                used = json.loads(server.ask(connection, prompt).read())["usage"]["completion_tokens"]
                if used != options.new_tokens:
                    raise SystemExit(f"{used} tokens, not {options.new_tokens}")
                with lock:
                    tokens[0] += used
        except (Exception, SystemExit) as failure:  # pylint: disable=broad-exception-caught
            failures.append(failure)

    idle = [server.first_token(prompts[i]) for i in range(10)]
    threads = [threading.Thread(target=client, args=(prompts[i::options.clients],)) for i in range(options.clients)]
    begin = time.monotonic()
    for thread in threads:
        thread.start()
    busy = []
    while sum(thread.is_alive() for thread in threads) >= 0.9 * options.clients:
        time.sleep(0.25)
        busy.append(server.first_token(prompts[len(busy) % len(prompts)]))
    for thread in threads:
        thread.join()
    taken = time.monotonic() - begin
    server.end()
    if failures:
        raise SystemExit(failures[0])
    return tokens[0] / taken, idle, busy


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    stories = os.path.join(ROOT, "models", "stories")
    parser.add_argument("--coppice", default=os.path.join(ROOT, "build", "coppice"))
    parser.add_argument("--target", default=os.path.join(stories, "target"))
    parser.add_argument("--draft", default=os.path.join(stories, "draft"))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--each", type=int, default=20, help="texts of a client")
    parser.add_argument("--temperature", type=float, default=0.6)
    parser.add_argument("--new-tokens", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=2)
    options = parser.parse_args()
    print("| generate --batch, tokens/s | serve | ratio | first token, ms: idle | median, 90th percentile under load |")
    print("| ---: | ---: | ---: | ---: | ---: |")
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "prompts.jsonl")
        write_prompts(path, options.clients * options.each)
        with open(path, encoding="utf-8") as lines:
            prompts = [json.loads(line)["prompt"] for line in lines]
        for _ in range(options.rounds):
            batch = batch_speed(options, path)
            serve, idle, busy = serve_speed(options, prompts)
            last = sorted(busy)[int(0.9 * (len(busy) - 1))] if busy else float("nan")
            print(f"| {batch:.0f} | {serve:.0f} | {serve / batch:.3f} | {statistics.median(idle):.1f} | "
                  f"{statistics.median(busy or [float('nan')]):.1f}, {last:.1f} ({len(busy)}) |", flush=True)


if __name__ == "__main__":
    main()
