"""What a training step costs over torch's own: plain PyTorch (DDP on several processes), accelify, Hugging Face
Accelerate and Lightning Fabric, alternating in one run.

    python benchmarks/step_overhead.py [--processes 1 2] [--models small real] [--starts 8] [--rounds 15] [--json FILE]
    python benchmarks/step_overhead.py --device cuda [--precision no bf16 fp16] [--compile]

Every subject runs in processes of its own, all alive at once, of which one subject's work at a time. A round is a few
steps of each subject in an order drawn anew, short enough that what else the machine does meets all of them alike;
what is compared is a subject's time with plain torch's in the same round. Plain torch takes part twice: the ratio of
the two, which should be 1, is what the machine's noise makes of no difference. All processes are started anew
several times, because where a process's memory lies moves its times.

Printed are the ratios of time and of processor time (of all ranks; other work on the machine moves it less): the
median over all rounds, and the interval in which it lies with 95% probability as far as rounds are independent; and
that of the fastest rounds. Then what importing adds to `import torch`, and peak memory. Peers that are not installed
are left out. On a GPU every round begins and ends with a device that has nothing to do, batches are pinned and copied
without waiting by all subjects, and the memory is the largest that torch had allocated there in a round; plain torch
has its mixed precision from torch.amp by hand. "converted" is accelify with the autocast regions of a converted script.
"""

import argparse
import contextlib
import json
import os
import platform
import random
import resource
import statistics
import subprocess
import sys
import time
import warnings
from pathlib import Path

import subjects

MARK = "RESULT "
# Rounds before those that count.
WARM_UP = {"cpu": 8, "cuda": 3}


def worker(name, options):
    """One rank of one subject: runs some steps of the model that a line on standard input names, and tells seconds
    and processor seconds a step, and peak memory in MB so far: of the process, and of the GPU in this model's steps."""
    import torch

    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    try:
        prepare = subjects.SUBJECTS[name](options)
    except ImportError as error:
        print(f"{name} is left out: {error}", file=sys.stderr)
        return
    on_gpu = options.device == "cuda"
    wait = torch.cuda.synchronize if on_gpu else lambda: None
    ready, held = {}, {}
    for line in sys.stdin:
        key = line.strip()
        workload = subjects.WORKLOADS[options.device][key]
        if key not in ready:
            held[key] = torch.cuda.memory_allocated() if on_gpu else 0
            ready[key] = prepare(workload)
        if on_gpu:
            torch.cuda.reset_peak_memory_stats()
        if subjects.ranks_here() > 1:
            torch.distributed.barrier()
        wait()
        begun, busy = time.perf_counter(), time.process_time()
        for _ in range(workload.round):
            next(ready[key])
        wait()
        spent = [x / workload.round for x in (time.perf_counter() - begun, time.process_time() - busy)]
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        own = (torch.cuda.max_memory_allocated() - held[key]) / 2**20 if on_gpu else 0.0
        print(MARK + json.dumps([*spent, peak, own]), flush=True)


class Group:
    """A subject's processes, and the store at which they meet."""

    def __init__(self, name, ranks, options):
        from torch.distributed import TCPStore

        self.name = name
        self.store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        command = [sys.executable, str(Path(__file__).resolve()), "--worker", name]
        command += ["--device", options.device, "--precision", options.precision]
        command += ["--compile"] if options.compile else []
        self.ranks = []
        for rank in range(ranks):
            env = {"OMP_NUM_THREADS": "1"}
            if options.device == "cpu":
                env["ACCELERATE_USE_CPU"] = "true"
            if ranks > 1:
                env |= {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": ranks, "LOCAL_WORLD_SIZE": ranks}
                env |= {"GROUP_RANK": 0, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": self.store.port}
                env |= {"TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RUN_ID": "none"}
                env |= {"TORCHELASTIC_RESTART_COUNT": "0"}
            env = os.environ | {key: str(value) for key, value in env.items()}
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
            self.ranks.append(subprocess.Popen(command, env=env, **pipes))

    def run(self, model):
        """Seconds and processor seconds of all ranks a step, and the largest peaks of memory; None where the library
        is not here."""
        self.begin(model)
        return self.end_round()

    def begin(self, model):
        """Have every rank run a round."""
        for process in self.ranks:
            with contextlib.suppress(BrokenPipeError):
                process.stdin.write(model + "\n")
                process.stdin.flush()

    def end_round(self):
        """What `run` gives, of a round that was begun."""
        try:
            answers = [self._answer(process) for process in self.ranks]
        except EOFError:
            codes = [process.wait() for process in self.ranks]
            if any(codes):
                raise SystemExit(f"{self.name} failed") from None
            return None
        seconds, busy, *peaks = zip(*answers, strict=True)
        return max(seconds), sum(busy), *map(max, peaks)

    @staticmethod
    def _answer(process):
        for line in process.stdout:
            if line.startswith(MARK):
                return json.loads(line.removeprefix(MARK))
        raise EOFError

    def end(self):
        for process in self.ranks:
            process.stdin.close()
        for process in self.ranks:
            process.stdout.close()
            process.wait()


def measure(ranks, options, models, starts, rounds):
    """By model and subject, for every start and round: seconds and processor seconds a step, memory of the process and
    of the GPU."""
    found = {model: {} for model in models}
    draw = random.Random(0)
    for _ in range(starts):
        groups = {name: Group(name, ranks, options) for name in subjects.SUBJECTS}
        for model, times in found.items():
            # Together: imports, and what is compiled, take long and are not measured.
            for group in groups.values():
                group.begin(model)
            groups = {name: group for name, group in groups.items() if group.end_round() is not None}
            for _ in range(WARM_UP[options.device] - 1):
                for group in groups.values():
                    group.run(model)
            for _ in range(rounds):
                for name in draw.sample(list(groups), len(groups)):
                    times.setdefault(name, []).append(groups[name].run(model))
        for group in groups.values():
            group.end()
    return found


def peak_memory(ranks, tries=5):
    """Medians over fresh processes of the peak memory in MB of training the real model, of the rank that needs most:
    with accelify, and with plain torch."""
    peaks = {"accelify": [], "torch": []}
    for _ in range(tries):
        for name, found in peaks.items():
            group = Group(name, ranks, subjects.Options())
            found.append([group.run("real") for _ in range(8)][-1][2])
            group.end()
    return statistics.median(peaks["accelify"]), statistics.median(peaks["torch"])


def import_ratio(module, tries=5):
    """Median of the time to import torch and then `module`, by that to import torch."""
    code = (
        "import time; a = time.perf_counter(); import torch; b = time.perf_counter()\n"
        f"from {module} import {'Fabric' if 'fabric' in module else 'Accelerator'}\n"
        "print((time.perf_counter() - a) / (b - a))"
    )
    ratios = []
    for _ in range(tries):
        done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True)
        if done.returncode:
            return None
        ratios.append(float(done.stdout.split()[-1]))
    return statistics.median(ratios)


def imports():
    """Print and return what importing takes, by `import torch`."""
    found = {}
    print("\nimport, by import torch")
    for module in ("accelify.runtime", "accelerate", "lightning_fabric"):
        found[f"import {module}"] = ratio = import_ratio(module)
        print(f"  {module:16} {'is not installed' if ratio is None else f'{ratio:6.3f}'}")
    return found


def process_memory(processes):
    """Print and return the peak memory of training, by plain torch's."""
    found = {}
    print("\npeak memory, by plain torch")
    for ranks in processes:
        own, base = peak_memory(ranks)
        found[f"memory {ranks} accelify"] = own / base
        print(f"  accelify, {ranks} process(es) {own / base:6.3f}   ({own:.1f} MB and {base:.1f} MB)")
    return found


def interval(own, plain):
    """Median of the ratios, and its 95% interval by order statistics."""
    ratios = sorted(a / b for a, b in zip(own, plain, strict=True))
    middle, away = (len(ratios) - 1) / 2, 0.98 * len(ratios) ** 0.5
    low, high = max(0, round(middle - away)), min(len(ratios) - 1, round(middle + away))
    return statistics.median(ratios), ratios[low], ratios[high]


def report(model, ranks, options, times):
    """Print and return the ratios of every subject to plain torch: to the mean of its two times in a round."""
    first, second = times.pop("torch"), times["torch again"]
    means = [[(a + b) / 2 for a, b in zip(x, y, strict=True)] for x, y in zip(first, second, strict=True)]
    milliseconds = 1e3 * statistics.median(wall for wall, *_ in means)
    how = "".join(
        f", {word}" for word in (options.precision, "compiled" * options.compile) if word not in ("", "no")
    )
    words = f"{model} model ({subjects.WORKLOADS[options.device][model].words}){how}"
    print(f"\n{words}, {ranks} process(es) on {options.device}; plain torch: {milliseconds:.3f} ms a step")
    found = {}
    key = " ".join([model, str(ranks), *how.replace(",", "").split()])
    for name in (name for name in subjects.SUBJECTS if name in times):
        own = times[name]
        plain = first if name == "torch again" else means
        words = []
        for i, kind in enumerate(("time", "processor")):
            ratio, low, high = interval([x[i] for x in own], [x[i] for x in plain])
            found[f"{key} {name} {kind}"] = {"ratio": ratio, "low": low, "high": high}
            words.append(f"{kind} {ratio:6.3f} [{low:.3f}, {high:.3f}]")
        # Other work only ever adds time: on a busy machine the fastest rounds tell most.
        fastest = min(x[0] for x in own) / min(x[0] for x in (first if plain is first else first + second))
        found[f"{key} {name} fastest"] = fastest
        words.append(f"fastest {fastest:6.3f}")
        if options.device == "cuda":
            here, there = (max(x[3] for x in of) for of in (own, first))
            found[f"{key} {name} memory"] = here / there
            words.append(f"GPU memory {here / there:6.3f} ({here:.0f} MB)")
        print(f"  {name:12} {'   '.join(words)}", flush=True)
    return found


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--processes", type=int, nargs="+", help="default: 1 and 2; 1 on a GPU")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--precision", nargs="+", choices=list(subjects.DTYPES), default=["no"])
    parser.add_argument("--compile", action="store_true", help="models by torch.compile")
    parser.add_argument("--models", nargs="+", choices=["small", "real"], default=["small", "real"])
    parser.add_argument("--starts", type=int, default=8, help="how often all processes are started anew")
    parser.add_argument("--rounds", type=int, default=15, help="rounds in every start")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--worker", choices=list(subjects.SUBJECTS), help=argparse.SUPPRESS)
    options = parser.parse_args()
    chosen = [subjects.Options(options.device, precision, options.compile) for precision in options.precision]
    if options.worker:
        return worker(options.worker, chosen[0])
    on_gpu = options.device == "cuda"
    processes = options.processes or ([1] if on_gpu else [1, 2])
    if on_gpu:
        import torch

        if processes != [1]:
            parser.error("on a GPU one process is measured")
        print(
            f"{torch.cuda.get_device_name()}, torch {torch.__version__}, Python {platform.python_version()}"
        )
    results = {}
    for ranks in processes:
        for each in chosen:
            for model, times in measure(ranks, each, options.models, options.starts, options.rounds).items():
                results |= report(model, ranks, each, times)
    if not on_gpu:
        results |= imports() | process_memory(processes)
    if options.json is not None:
        options.json.write_text(json.dumps(results, indent=1))
    return None


if __name__ == "__main__":
    main()
