#!/usr/bin/env python3
"""The CPU's tables of bench/README.md, in one go on an idle machine of 2 to 16 cores.

    python3 bench/cpu_tables.py --minutes 7 --out FOLDER

Runs side by side, each on cores of its own (taskset), so that only memory and the last cache are
shared: the pairs and temperatures of bench/sizes.py with 1, 2, 4, 8 and all threads, two threads
once more while another program takes one of their cores, a useless draft, and the products of
bench/kernels. Prints Markdown; FOLDER gets every run's figures.
"""
import concurrent.futures
import contextlib
import dataclasses
import os
import re
import subprocess
import sys
import tempfile
import threading
import time

import sizes

# Seconds of a job with this many threads, before all are scaled to the time there is.
SHARES = {1: 150, 2: 90, 4: 70, 8: 50}
SHARE_OF_ALL = 25
PRODUCT_ROWS = (1, 4, 8, 16, 64, 256)


@dataclasses.dataclass(frozen=True)
class Job:
    kind: str  # quiet, busy, useless or products
    name: str
    draft: str
    temperature: str
    threads: int
    seconds: float


def cores_of_machine():
    """Cores that may be used; hardware threads of one core come one after the other."""
    def place(cpu):
        folder = f"/sys/devices/system/cpu/cpu{cpu}/topology"
        try:
            with open(f"{folder}/physical_package_id") as package, \
                    open(f"{folder}/core_id") as core:
                return int(package.read()), int(core.read()), cpu
        except OSError:
            return 0, cpu, cpu
    return sorted(os.sched_getaffinity(0), key=place)


def plan(drafts, temperatures, cores, minutes):
    """Jobs in the order in which they are begun: long ones first, those with all cores last."""
    def pairs(kind, threads, seconds):
        return [Job(kind, name, draft, temperature, threads, seconds)
                for name, draft in drafts for temperature in temperatures]
    jobs = [Job("products", "", "", "", 1, 40)]
    for threads, seconds in SHARES.items():
        if threads < cores:
            jobs += pairs("quiet", threads, seconds)
    jobs += pairs("busy", 2, 60) + [Job("useless", "random", "random", "0", 2, 40)]
    jobs.append(Job("products", "", "", "", cores, SHARE_OF_ALL))
    jobs += pairs("quiet", cores, SHARE_OF_ALL if cores > 8 else SHARES.get(cores, 60))
    # A tenth of the time is lost where jobs do not fit side by side.
    scale = 0.9 * 60 * minutes * cores / sum(job.threads * job.seconds for job in jobs)
    return [dataclasses.replace(job, seconds=scale * job.seconds) for job in jobs]


class Runner:
    """Gives cores to jobs; a job begins when as many are free as it has threads."""

    def __init__(self, arguments):
        self.arguments, self.cores = arguments, cores_of_machine()
        self.free, self.changed = set(self.cores), threading.Condition()
        self.failed = False

    def run(self, jobs):
        """Results in the order of `jobs`."""
        waiting, results = list(range(len(jobs))), {}
        with concurrent.futures.ThreadPoolExecutor(len(self.cores)) as pool, self.changed:
            while waiting:
                number = next((i for i in waiting if jobs[i].threads <= len(self.free)), None)
                if number is None:
                    self.changed.wait()
                    continue
                waiting.remove(number)
                cores = [core for core in self.cores if core in self.free][:jobs[number].threads]
                self.free.difference_update(cores)
                results[number] = pool.submit(self.run_on, jobs[number], cores)
        return [results[i].result() for i in range(len(jobs))]

    def run_on(self, job, cores):
        """What the job measured; None, and a line that says why, if it failed."""
        start, out = time.monotonic(), f"{job.kind}-{job.name}-{job.temperature}-{job.threads}.json"
        busy = sizes.busy_core(cores[:1]) if job.kind == "busy" else contextlib.nullcontext()
        how = f"planned {job.seconds:.0f}"
        try:
            if job.kind == "products":
                return self.products(job, cores)
            with busy:
                return sizes.measure(self.arguments, job.draft, job.temperature, job.threads,
                                     os.path.join(self.arguments.out, out), cores,
                                     job.seconds - 4,  # loading
                                     ["dyspec:0"] if job.kind == "useless" else None)
        except (OSError, subprocess.SubprocessError, SystemExit) as error:
            self.failed, how = True, f"failed: {error}"
            return None
        finally:
            print(f"{time.monotonic() - start:6.1f} s ({how}): {job.kind} {job.name}"
                  f" {job.temperature}, {job.threads} threads", file=sys.stderr, flush=True)
            with self.changed:
                self.free.update(cores)
                self.changed.notify()

    def products(self, job, cores):
        # 18 numbers of rows for each of two models, and half as long for packing.
        ms = 1000 * job.seconds / 18 / 2 / 1.5
        done = subprocess.run(
            sizes.pinned(cores) + [os.path.join(self.arguments.build, "bench", "kernels"),
                                   "--only", "products", "--threads", str(job.threads),
                                   "--ms", f"{ms:.0f}"],
            stdout=subprocess.PIPE, text=True, check=True)
        return done.stdout


def print_speeds(rows, threads, temperature):
    """Lines of the table of whole texts: plain, the best chain, what chooses its own size."""
    chains = [row for row in rows if row["setting"].startswith("chain ")
              and row["setting"] != "chain auto"]
    best = max(chains, key=lambda row: row["tokens_per_second"], default=None)
    for row in rows:
        name = row["setting"]
        if row is not best and name != "plain" and "auto" not in name:
            continue
        name = name.replace("auto auto", "auto, either rule")
        print(f"| {threads} | {temperature} | {name}{' (best chain)' if row is best else ''} |"
              f" {row['tokens_per_second']:.0f} |"
              f" {row['speedup']:.2f} [{row['low']:.2f}, {row['high']:.2f}] |"
              f" {row['accepted_length']:.2f} | {row['tree_size_mean']:.1f} |"
              + "".join(f" {kind['speedup']:.2f} |" for kind in row["kinds"].values()))


def print_products(text, threads):
    """Lines of the table of products: of the target, best ms by rows."""
    head, *lines = text.split("target, products")[1].split("\n\n")[0].splitlines()[1:]
    names = [head[at:at + 18].strip() for at in range(5, 5 + 5 * 18, 18)]
    best = {int(line[:5]): re.findall(r"([\d.]+) +\(", line) for line in lines}
    for column, name in enumerate(name for name in names if "GFLOP" not in name):
        print(f"| {threads} | {name} |"
              + "".join(f" {float(best[rows][column]):.2f} |" for rows in PRODUCT_ROWS))


def main():
    parser = sizes.options(__doc__.splitlines()[0])
    parser.set_defaults(rounds=9)
    parser.add_argument("--minutes", type=float, default=7)
    parser.add_argument("--out", required=True, help="folder for the figures of every run")
    arguments = parser.parse_args()
    os.makedirs(arguments.out, exist_ok=True)
    runner = Runner(arguments)
    if len(runner.cores) < 2:
        parser.error("one core is too few: two are needed to be busy on one of them")
    with tempfile.TemporaryDirectory() as folder:
        drafts = sizes.drafts(folder, arguments.noise)
        jobs = plan(drafts, arguments.temperatures.split(","), len(runner.cores), arguments.minutes)
        done = [pair for pair in zip(jobs, runner.run(jobs)) if pair[1] is not None]

    for kind, title in (("quiet", "Automatic sizes"), ("busy", "Beside a busy program")):
        print(f"\n#### {title}\n")
        sizes.print_head()
        for job, rows in sorted(((j, r) for j, r in done if j.kind == kind),
                                key=lambda pair: (pair[0].threads, pair[0].name)):
            sizes.print_rows(job.name, job.temperature, job.threads, rows)
    print("\n#### Whole texts, shipped pair\n\n| threads | temperature | setting | tokens/s |"
          " speed-up [95%] | accepted length | tree | books | tales | dialogue | maths |\n"
          "| ---: | ---: | --- | ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    shown = {2, len(runner.cores)}
    for job, rows in done:
        if job.kind == "useless":
            print_speeds(rows, f"{job.threads}, useless draft", job.temperature)
        elif job.kind == "quiet" and job.name == "shipped" and job.threads in shown:
            print_speeds(rows, job.threads, job.temperature)
    print("\n#### Products of the target's 16.6 M weights, best ms by rows\n\n"
          "| threads | weights, and activations if not f32 | "
          + " | ".join(map(str, PRODUCT_ROWS)) + " |\n"
          + "| ---: | --- |" + " ---: |" * len(PRODUCT_ROWS))
    for job, text in done:
        if job.kind == "products":
            print_products(text, job.threads)
    for job, text in done:
        if job.kind == "products":
            print("\n" + text.splitlines()[0])
    sys.exit(runner.failed)


if __name__ == "__main__":
    main()
