#!/usr/bin/env python3
"""The tables of bench/cpu.md, in one go on an idle machine of 2 to 16 cores.

    python3 bench/cpu_tables.py --minutes 7 --out FOLDER     # measures, then prints
    python3 bench/cpu_tables.py --report FOLDER              # prints what is there, also of a run cut short

Runs side by side, each on cores of its own (taskset), so that only memory and the last cache are
shared: the pairs and temperatures of bench/sizes.py with 1, 2, 4, 8 and all threads, two threads
once more while another program takes one of their cores, a useless draft, and the products of
bench/kernels. A thread gets a whole core, its second hardware thread stays idle. Prints Markdown.
Every job's figures are in FOLDER as soon as it ends. No job goes on beyond the minutes: one that
is late measures fewer prompts, and one for which nothing is left is named.
"""
import concurrent.futures
import contextlib
import dataclasses
import glob
import json
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
LOADING = 4  # seconds of a job beside its rounds
LEAST = 5    # seconds of rounds without which a job is not begun


@dataclasses.dataclass(frozen=True)
class Job:
    kind: str  # quiet, busy, useless or products
    name: str
    draft: str
    temperature: str
    threads: int
    seconds: float

    def __str__(self):
        words = [self.kind, self.name, self.temperature, f"{self.threads} threads"]
        return " ".join(word for word in words if word)

    def file(self):
        return re.sub(r"[^A-Za-z0-9.]+", "-", str(self)) + ".json"


def cores_of_machine():
    """The hardware threads that may be used, a list for each core."""
    cores = {}
    for cpu in sorted(os.sched_getaffinity(0)):
        folder = f"/sys/devices/system/cpu/cpu{cpu}/topology"
        try:
            with open(f"{folder}/physical_package_id") as package, \
                    open(f"{folder}/core_id") as core:
                place = int(package.read()), int(core.read())
        except OSError:
            place = 0, cpu
        cores.setdefault(place, []).append(cpu)
    return [cores[place] for place in sorted(cores)]


def plan(drafts, arguments, cores):
    """Jobs in the order in which they are begun: long ones first, those with all cores last."""
    threads_of_all = sum(map(len, cores))
    wanted = [int(n) for n in arguments.threads.split(",")] if arguments.threads else \
        [n for n in SHARES if n < threads_of_all] + [threads_of_all]
    parts = arguments.parts.split(",")

    def pairs(kind, threads, seconds):
        return [Job(kind, name, draft, temperature, threads, seconds) for name, draft in drafts
                for temperature in arguments.temperatures.split(",")]
    jobs = [Job("products", "", "", "", 1, 40)]
    for threads in sorted(wanted):
        if threads < threads_of_all:
            jobs += pairs("quiet", threads, SHARES.get(threads, 60))
    jobs += pairs("busy", 2, 60) + [Job("useless", "random", "random", "0", 2, 40)]
    if threads_of_all in wanted:
        jobs.append(Job("products", "", "", "", threads_of_all, SHARE_OF_ALL))
        jobs += pairs("quiet", threads_of_all,
                      SHARE_OF_ALL if threads_of_all > 8 else SHARES.get(threads_of_all, 60))
    jobs = [job for job in jobs if job.kind in parts]
    # A tenth of the time is lost where jobs do not fit side by side.
    scale = 0.9 * 60 * arguments.minutes * len(cores) / \
        sum(min(job.threads, len(cores)) * job.seconds for job in jobs)
    return [dataclasses.replace(job, seconds=scale * job.seconds) for job in jobs]


class Runner:
    """Gives cores to jobs; a job begins when as many are free as it has threads."""

    def __init__(self, arguments):
        self.arguments, self.cores = arguments, cores_of_machine()
        self.free, self.changed = list(self.cores), threading.Condition()
        self.end = time.monotonic() + 60 * arguments.minutes
        self.failed = False

    def run(self, jobs):
        waiting = list(jobs)
        with concurrent.futures.ThreadPoolExecutor(len(self.cores)) as pool, self.changed:
            while waiting:
                job = next((j for j in waiting if self.cores_for(j) <= len(self.free)), None)
                if job is None:
                    self.changed.wait()
                    continue
                waiting.remove(job)
                taken = [self.free.pop(0) for _ in range(self.cores_for(job))]
                pool.submit(self.run_on, job, taken)

    def cores_for(self, job):
        return min(job.threads, len(self.cores))

    def run_on(self, job, cores):
        """Leaves what the job measured in its file, or says why there is nothing."""
        start = time.monotonic()
        cpus = [core[0] for core in cores]
        if job.threads > len(cpus):
            cpus = [cpu for core in cores for cpu in core]
        busy = sizes.busy_core(cpus[:1]) if job.kind == "busy" else contextlib.nullcontext()
        how = f"planned {job.seconds:.0f}"
        try:
            seconds = min(job.seconds, self.end - start) - LOADING
            if seconds < LEAST:
                raise TimeoutError("no time was left; raise --minutes or take fewer --threads")
            figures = {"job": dataclasses.asdict(job), "cores": len(self.cores)}
            if job.kind == "products":
                figures["text"] = self.products(job, cpus, seconds)
            else:
                with busy, tempfile.TemporaryDirectory() as folder:
                    figures["rows"] = sizes.measure(
                        self.arguments, job.draft, job.temperature, job.threads,
                        os.path.join(folder, "rows.json"), cpus, seconds,
                        ["dyspec:0"] if job.kind == "useless" else None,
                        os.path.join(folder, "costs.json"))
                    with open(os.path.join(folder, "costs.json")) as costs:
                        figures["costs"] = json.load(costs)
            self.save(job, figures)
        except (Exception, SystemExit) as error:  # the other jobs go on
            self.failed, how = True, f"failed: {error}"
        finally:
            print(f"{time.monotonic() - start:6.1f} s ({how}): {job}", file=sys.stderr, flush=True)
            with self.changed:
                self.free += cores
                self.changed.notify()

    def save(self, job, figures):
        file = os.path.join(self.arguments.out, job.file())
        with open(file + ".part", "w") as out:
            json.dump(figures, out, indent=1)
        os.replace(file + ".part", file)

    def products(self, job, cpus, seconds):
        # 18 numbers of rows for each of two models, and half as long for packing.
        ms = 1000 * seconds / 18 / 2 / 1.5
        done = subprocess.run(
            sizes.pinned(cpus) + [os.path.join(self.arguments.build, "bench", "kernels"),
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



def saved(folder):
    """[(job, rows or text, cores of the machine)] of a folder, by threads."""
    done = []
    for file in glob.glob(os.path.join(folder, "*.json")):
        with open(file) as text:
            figures = json.load(text)
        if not isinstance(figures, dict) or "job" not in figures:
            sys.exit(f"{file}: not a job's figures; older versions left no jobs to report: measure anew")
        done.append((Job(**figures["job"]), figures.get("rows", figures.get("text"))))
    if not done:
        sys.exit(f"{folder}: no job has ended there")
    return sorted(done, key=lambda pair: (pair[0].threads, pair[0].name, pair[0].temperature))


def report(folder):
    done = saved(folder)
    for kind, title in (("quiet", "Automatic sizes"), ("busy", "Beside a busy program")):
        print(f"\n#### {title}\n")
        sizes.print_head()
        for job, rows in done:
            if job.kind == kind:
                sizes.print_rows(job.name, job.temperature, job.threads, rows)
    print("\n#### Whole texts, shipped pair\n\n| threads | temperature | setting | tokens/s |"
          " speed-up [95%] | accepted length | tree | books | tales | dialogue | maths |\n"
          "| ---: | ---: | --- | ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    shown = {2, max(job.threads for job, _ in done)}
    for job, rows in done:
        if job.kind == "useless":
            print_speeds(rows, f"{job.threads}, useless draft", job.temperature)
        elif job.kind == "quiet" and job.name == "shipped" and job.threads in shown:
            print_speeds(rows, job.threads, job.temperature)
    products = [(job, text) for job, text in done if job.kind == "products"]
    if products:
        print("\n#### Products of the target's 16.6 M weights, best ms by rows\n\n"
              "| threads | weights, and activations if not f32 | "
              + " | ".join(map(str, PRODUCT_ROWS)) + " |\n"
              + "| ---: | --- |" + " ---: |" * len(PRODUCT_ROWS))
    for job, text in products:
        print_products(text, job.threads)
    for _, text in products:
        print("\n" + text.splitlines()[0])


def main():
    parser = sizes.options(__doc__.splitlines()[0])
    parser.set_defaults(rounds=9)
    parser.add_argument("--minutes", type=float, default=7)
    parser.add_argument("--threads", default="", help="counts, comma-separated; 1, 2, 4, 8 and all")
    parser.add_argument("--parts", default="quiet,busy,useless,products", help="of the tables")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--out", help="folder for every job's figures")
    what.add_argument("--report", metavar="FOLDER", help="measure nothing, print what is there")
    arguments = parser.parse_args()
    if arguments.report:
        return report(arguments.report)
    os.makedirs(arguments.out, exist_ok=True)
    if glob.glob(os.path.join(arguments.out, "*.json")):
        parser.error(f"{arguments.out} holds figures of another run; name another folder")
    runner = Runner(arguments)
    if len(runner.cores) < 2:
        parser.error("one core is too few: two are needed to be busy on one of them")
    with tempfile.TemporaryDirectory() as folder:
        runner.run(plan(sizes.drafts(folder, arguments.noise), arguments, runner.cores))
    report(arguments.out)
    return runner.failed


if __name__ == "__main__":
    sys.exit(main())
