"""How long a fleet takes to tune models from an empty cache, by number of GPUs and of cores.

    python3 fleet_tuning.py --kiln BUILD/bin [--fleets 1x16,1x32,2x32,1x4+12] [--models resnet50,convnext_tiny,...]
                            [--graphs FILE.pt2,...] [--rounds N] [--alone] [--json FILE] [--logs FOLDER]

A fleet GxC is a coordinator of its own in an empty folder with G workers, one a GPU, on the first C cores of this
machine (sched_setaffinity), C / G compilers each. GxC+B has a worker beside them that only builds, on the next B cores;
the coordinator and the clients then run on all of them. All models are asked for at once in max-autotune; with --alone
one after the other, each from an empty cache. Models are timm's (bf16, batch 32, random weights), exported here.
`seconds`: from asking to the last answer. `busy`: the devices' share of the time between the first and the last
measurement in which they made inputs and references, verified or timed. `before` and `after`: from asking to the first
measurement, from the last one to the last answer. The rest of the columns are sums over the devices, from the workers'
logs, in seconds."""

import argparse
import datetime
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

LEASE = re.compile(r"(\d+) candidates .*waited for compilers (\d+) ms, open (\d+), verify (\d+), time (\d+)")
LINE = re.compile(r"^(\S+) info worker lease \d+: (.*)$", re.MULTILINE)


def leases_in(text):
    """When each lease ended, in seconds since the epoch, its candidates, and its stages in seconds."""
    found = []
    for stamp, line in LINE.findall(text):
        if lease := LEASE.match(line):
            ended = datetime.datetime.fromisoformat(stamp).timestamp()
            found.append((ended, int(lease[1]), *(int(lease[i]) / 1e3 for i in range(2, 6))))
    return found


def export(name, folder):
    import timm
    import torch
    model = timm.create_model(name).eval().to(torch.bfloat16)
    size = model.default_cfg["input_size"][-1]
    program = torch.export.export(model, (torch.randn(32, 3, size, size, dtype=torch.bfloat16),))
    path = os.path.join(folder, name + ".pt2")
    torch.export.save(program, path)
    return path


def wait_for(ready, what, seconds=60):
    until = time.monotonic() + seconds
    while not ready():
        if time.monotonic() > until:
            raise RuntimeError(f"{what} is not ready after {seconds} s")
        time.sleep(0.02)


class Fleet:
    def __init__(self, options, gpus, cores, builder_cores=0):
        self.folder = tempfile.TemporaryDirectory()
        self.options = options
        machine = sorted(os.sched_getaffinity(0))
        self.cores = set(machine[:cores + builder_cores])
        self.processes, self.logs, self.answers = [], [], []
        ready = os.path.join(self.folder.name, "ready")
        self.start("kiln-coordinator", "--data-dir", self.folder.name, "--listen", "tcp://127.0.0.1:0", "--http", "none",
                   "--ready-file", ready)
        wait_for(lambda: os.path.exists(ready), "the coordinator")
        with open(ready) as file:
            self.endpoint = json.load(file)["endpoint"]
        self.workers = []
        for gpu in range(gpus):
            self.workers.append(self.start_worker(f"gpu{gpu}", set(machine[:cores]), max(1, cores // gpus), "--device",
                                                  f"cuda:{gpu}"))
        if builder_cores > 0:
            self.start_worker("builder", set(machine[cores:cores + builder_cores]), builder_cores, "--role", "build")
        wait_for(lambda: all("the device is ready" in text for text in map(self.text, self.workers)), "a worker")
        time.sleep(1)

    def start_worker(self, name, cores, jobs, *arguments):
        return self.start("kiln-worker", "--coordinator", self.endpoint, "--name", name, "--jobs", str(jobs), "--cache-dir",
                          os.path.join(self.folder.name, "objects-" + name), *arguments, *self.options.worker_options,
                          cores=cores)

    def start(self, program, *arguments, cores=None):
        log = os.path.join(self.folder.name, f"log{len(self.logs)}")
        self.logs.append(log)
        with open(log, "w") as file:
            self.processes.append(subprocess.Popen([os.path.join(self.options.kiln, program), *arguments], stdout=file,
                                                   stderr=file, start_new_session=True,
                                                   preexec_fn=lambda: os.sched_setaffinity(0, cores or self.cores)))
        return log

    def text(self, log):
        with open(log, errors="replace") as file:
            return file.read()

    def tune(self, graphs):
        began = [len(self.text(log)) for log in self.workers]
        started, asked_at = time.monotonic(), time.time()
        asked = [subprocess.Popen([os.path.join(self.options.kiln, "kiln"), "compile", graph, "--target", "cuda", "--mode",
                                   "max-autotune", "--no-fallback", "--coordinator", self.endpoint, "--json"],
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                  preexec_fn=lambda: os.sched_setaffinity(0, self.cores)) for graph in graphs]
        answers = [process.communicate() for process in asked]
        seconds = time.monotonic() - started
        for process, (answer, error) in zip(asked, answers):
            if process.returncode != 0:
                raise RuntimeError(error[-600:])
            self.answers.append(answer)
        time.sleep(0.2)  # the workers' last lines
        leases = [lease for log, start in zip(self.workers, began) for lease in leases_in(self.text(log)[start:])]
        wait, opened, verify, timed = (sum(lease[i] for lease in leases) for i in range(2, 6))
        first = min((lease[0] - sum(lease[2:]) for lease in leases), default=asked_at)
        last = max((lease[0] for lease in leases), default=asked_at)
        return {"seconds": seconds, "leases": len(leases), "candidates": sum(lease[1] for lease in leases),
                "waited_s": wait, "open_s": opened, "verify_s": verify, "time_s": timed, "before_s": first - asked_at,
                "after_s": asked_at + seconds - last,
                "busy": (opened + verify + timed) / max(last - first, 1e-3) / len(self.workers)}

    def keep(self, folder):
        """The logs of all processes, the clients' answers, the statistics and all measurements, into `folder`."""
        os.makedirs(folder, exist_ok=True)
        for log in self.logs:
            shutil.copy(log, folder)
        for number, answer in enumerate(self.answers):
            with open(os.path.join(folder, f"answer{number}.json"), "w") as file:
                file.write(answer)
        for name, command in (("stats.json", ["stats", "--json"]), ("tune-log.json", ["tune-log"])):
            with open(os.path.join(folder, name), "w") as file:
                subprocess.run([os.path.join(self.options.kiln, "kiln"), *command, "--coordinator", self.endpoint],
                               stdout=file, timeout=30)

    def end(self):
        for process in reversed(self.processes):
            process.terminate()
        for process in self.processes:
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
        self.folder.cleanup()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kiln", required=True, help="folder of Kiln's programs")
    parser.add_argument("--fleets", default="1x16", help="GPUs x cores [+ cores of a builder], by commas")
    parser.add_argument("--models", default="resnet50,convnext_tiny,efficientnet_b0", help="of timm, by commas")
    parser.add_argument("--graphs", default="", help="archives beside the models, by commas")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--alone", action="store_true", help="each by itself")
    parser.add_argument("--worker-options", default="", help="for the workers, separated by blanks")
    parser.add_argument("--logs", help="keep the logs of each fleet in this folder")
    parser.add_argument("--json", help="all rows, into this file")
    options = parser.parse_args()
    options.worker_options = options.worker_options.split()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the logs are kept, the processes ended
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        graphs = [graph for graph in options.graphs.split(",") if graph]
        graphs += [export(name, folder) for name in options.models.split(",") if name]
        tasks = [("all", graphs)]
        if options.alone or len(graphs) == 1:
            tasks = [(os.path.basename(graph)[:-4], [graph]) for graph in graphs]
        for fleet_name in [name for _ in range(options.rounds) for name in options.fleets.split(",")]:
            gpus, cores, builder_cores = map(int, re.fullmatch(r"(\d+)x(\d+)(?:\+(\d+))?", fleet_name).groups("0"))
            for task, asked in tasks:
                fleet = Fleet(options, gpus, cores, builder_cores)
                try:
                    row = {"fleet": fleet_name, "models": task, **fleet.tune(asked)}
                finally:
                    if options.logs:
                        fleet.keep(os.path.join(options.logs, f"{len(rows)}-{fleet_name}-{task}"))
                    fleet.end()
                rows.append(row)
                print(f"{fleet_name:6} {task:18} {row['seconds']:6.2f} s  {row['candidates']} candidates in {row['leases']} "
                      f"leases  busy {row['busy']:.0%}  before {row['before_s']:.1f}  after {row['after_s']:.1f}  waited {row['waited_s']:.1f}  open {row['open_s']:.1f}  "
                      f"verify {row['verify_s']:.1f}  time {row['time_s']:.1f}", flush=True)
                if options.json:
                    with open(options.json, "w") as file:
                        json.dump(rows, file, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
