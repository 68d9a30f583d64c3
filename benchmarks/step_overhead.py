"""What a training step costs over torch's own: plain PyTorch (DDP on several processes), accelify, Hugging Face
Accelerate and Lightning Fabric, alternating in one run.

    python benchmarks/step_overhead.py [--processes 1 2] [--models small real] [--starts 3] [--rounds 40] [--json FILE]

Every subject runs in processes of its own, all alive at once, of which one subject's work at a time. A round is a few
steps of each subject in an order drawn anew, short enough that what else the machine does meets all of them alike;
what is compared is a subject's time with plain torch's in the same round. Plain torch takes part twice: the ratio of
the two, which should be 1, is what the machine's noise makes of no difference. All processes are started anew
several times, because where a process's memory lies moves its times.

Printed are the ratios of time and of processor time (of all ranks; other work on the machine moves it less): the
median over all rounds, and the interval in which it lies with 95% probability as far as rounds are independent; and
that of the fastest rounds. Then what importing adds to `import torch`, and peak memory. Peers that are not installed
are left out.
"""

import argparse
import json
import os
import random
import resource
import statistics
import subprocess
import sys
import time
import warnings
from pathlib import Path

# Steps of an epoch, and of a round.
SMALL_STEPS, REAL_STEPS = 400, 16
SMALL_ROUND, REAL_ROUND = 100, 4
MARK = "RESULT "


def small():
    import torch
    from torch import nn

    layers = [layer for _ in range(5) for layer in (nn.Linear(128, 128), nn.ReLU())]
    return nn.Sequential(*layers), torch.randn(SMALL_STEPS * 32, 128), 32


def real():
    """A transformer of 6 layers and 5 million weights."""
    import torch
    from torch import nn

    layer = nn.TransformerEncoderLayer(256, 4, 1024, batch_first=True, dropout=0.0)
    return (
        nn.TransformerEncoder(layer, 6, enable_nested_tensor=False),
        torch.randn(REAL_STEPS * 4, 64, 256),
        4,
    )


MODELS = {"small": (small, SMALL_ROUND), "real": (real, REAL_ROUND)}


def ranks_here():
    return int(os.environ.get("WORLD_SIZE", "1"))


def make(factory):
    """Model, optimizer and loader of a plain script: its batch is what every rank takes, as all subjects have it."""
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    torch.manual_seed(0)
    model, data, batch = factory()
    data = data.repeat(ranks_here(), *[1] * (data.ndim - 1))
    loader = DataLoader(TensorDataset(data), batch_size=batch, shuffle=True, drop_last=True)
    return model, torch.optim.SGD(model.parameters(), lr=1e-3), loader


def torch_setup():
    import torch
    from torch.nn.parallel import DistributedDataParallel
    from torch.utils.data import DataLoader, DistributedSampler

    if ranks_here() > 1:
        torch.distributed.init_process_group("gloo")

    def prepare(factory):
        model, optimizer, loader = make(factory)
        if ranks_here() > 1:
            model = DistributedDataParallel(model)
            sampler = DistributedSampler(loader.dataset)
            loader = DataLoader(loader.dataset, loader.batch_size, sampler=sampler, drop_last=True)
        return model, optimizer, loader, lambda loss: loss.backward()

    return prepare


def accelify_setup():
    from accelify.runtime import Accelerator

    accelerator = Accelerator(cpu=True)
    return lambda factory: (*accelerator.prepare(*make(factory)), accelerator.backward)


def accelerate_setup():
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    if accelerator.num_processes != ranks_here():
        raise ImportError("accelerate did not form the group")
    return lambda factory: (*accelerator.prepare(*make(factory)), accelerator.backward)


def fabric_setup():
    from lightning_fabric import Fabric

    ranks = ranks_here()
    fabric = Fabric(accelerator="cpu", devices=ranks, strategy="ddp" if ranks > 1 else "auto")
    if ranks > 1:
        fabric.launch()
    assert fabric.world_size == ranks

    def prepare(factory):
        model, optimizer, loader = make(factory)
        return *fabric.setup(model, optimizer), fabric.setup_dataloaders(loader), fabric.backward

    return prepare


SETUPS = {
    "torch": torch_setup,
    "torch again": torch_setup,
    "accelify": accelify_setup,
    "accelerate": accelerate_setup,
    "fabric": fabric_setup,
}


def train(model, optimizer, loader, backward):
    """Epoch after epoch, a step for every `next`."""
    while True:
        for (x,) in loader:
            optimizer.zero_grad()
            loss = (model(x) - x).square().mean()
            backward(loss)
            optimizer.step()
            yield


def worker(name):
    """One rank of one subject: runs some steps of the model that a line on standard input names, and tells seconds
    and processor seconds a step and peak memory in MB so far."""
    import torch

    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    try:
        prepare = SETUPS[name]()
    except ImportError as error:
        print(f"{name} is left out: {error}", file=sys.stderr)
        return
    ready = {}
    for line in sys.stdin:
        key = line.strip()
        factory, steps = MODELS[key]
        if key not in ready:
            ready[key] = train(*prepare(factory))
        if ranks_here() > 1:
            torch.distributed.barrier()
        begun, busy = time.perf_counter(), time.process_time()
        for _ in range(steps):
            next(ready[key])
        spent = (time.perf_counter() - begun) / steps, (time.process_time() - busy) / steps
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(MARK + json.dumps([*spent, peak]), flush=True)


class Group:
    """A subject's processes, and the store at which they meet."""

    def __init__(self, name, ranks):
        from torch.distributed import TCPStore

        self.name = name
        self.store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        command = [sys.executable, str(Path(__file__).resolve()), "--worker", name]
        self.ranks = []
        for rank in range(ranks):
            env = {"OMP_NUM_THREADS": "1", "ACCELERATE_USE_CPU": "true"}
            if ranks > 1:
                env |= {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": ranks, "LOCAL_WORLD_SIZE": ranks}
                env |= {"GROUP_RANK": 0, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": self.store.port}
                env |= {"TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RUN_ID": "none"}
                env |= {"TORCHELASTIC_RESTART_COUNT": "0"}
            env = os.environ | {key: str(value) for key, value in env.items()}
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
            self.ranks.append(subprocess.Popen(command, env=env, **pipes))

    def run(self, model):
        """Seconds and processor seconds of all ranks a step, and the largest peak memory; None where the library is
        not here."""
        try:
            for process in self.ranks:
                process.stdin.write(model + "\n")
                process.stdin.flush()
            answers = [self._answer(process) for process in self.ranks]
        except (BrokenPipeError, EOFError):
            codes = [process.wait() for process in self.ranks]
            if any(codes):
                raise SystemExit(f"{self.name} failed") from None
            return None
        seconds, busy, peaks = zip(*answers, strict=True)
        return max(seconds), sum(busy), max(peaks)

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


def measure(ranks, models, starts, rounds):
    """By model and subject, for every start and round the seconds and processor seconds a step."""
    found = {model: {} for model in models}
    draw = random.Random(0)
    for _ in range(starts):
        groups = {name: Group(name, ranks) for name in SETUPS}
        for model, times in found.items():
            for name, group in list(groups.items()):
                if any(group.run(model) is None for _ in range(8)):
                    del groups[name]
            for _ in range(rounds):
                for name in draw.sample(list(groups), len(groups)):
                    times.setdefault(name, []).append(groups[name].run(model)[:2])
        for group in groups.values():
            group.end()
    return found


def peak_memory(ranks, tries=5):
    """Medians over fresh processes of the peak memory in MB of training the real model, of the rank that needs most:
    with accelify, and with plain torch."""
    peaks = {"accelify": [], "torch": []}
    for _ in range(tries):
        for name, found in peaks.items():
            group = Group(name, ranks)
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


def interval(own, plain):
    """Median of the ratios, and its 95% interval by order statistics."""
    ratios = sorted(a / b for a, b in zip(own, plain, strict=True))
    middle, away = (len(ratios) - 1) / 2, 0.98 * len(ratios) ** 0.5
    low, high = max(0, round(middle - away)), min(len(ratios) - 1, round(middle + away))
    return statistics.median(ratios), ratios[low], ratios[high]


def report(model, ranks, times):
    """Print and return the ratios of every subject to plain torch: to the mean of its two times in a round."""
    first, second = times.pop("torch"), times["torch again"]
    means = [[(a + b) / 2 for a, b in zip(x, y, strict=True)] for x, y in zip(first, second, strict=True)]
    milliseconds = 1e3 * statistics.median(wall for wall, _ in means)
    print(f"\n{model} model, {ranks} process(es); plain torch: {milliseconds:.3f} ms a step")
    found = {}
    for name, own in times.items():
        plain = first if name == "torch again" else means
        told = []
        for i, kind in enumerate(("time", "processor")):
            ratio, low, high = interval([x[i] for x in own], [x[i] for x in plain])
            found[f"{model} {ranks} {name} {kind}"] = {"ratio": ratio, "low": low, "high": high}
            told.append(f"{kind} {ratio:6.3f} [{low:.3f}, {high:.3f}]")
        # Other work only ever adds time: on a busy machine the fastest rounds tell most.
        fastest = min(x[0] for x in own) / min(x[0] for x in (first if plain is first else first + second))
        found[f"{model} {ranks} {name} fastest"] = fastest
        told.append(f"fastest {fastest:6.3f}")
        print(f"  {name:12} {'   '.join(told)}", flush=True)
    return found


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=list(MODELS))
    parser.add_argument("--starts", type=int, default=3, help="how often all processes are started anew")
    parser.add_argument("--rounds", type=int, default=40, help="rounds in every start")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--worker", choices=list(SETUPS), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        return worker(options.worker)
    results = {}
    for ranks in options.processes:
        for model, times in measure(ranks, options.models, options.starts, options.rounds).items():
            results |= report(model, ranks, times)
    print("\nimport, by import torch")
    for module in ("accelify.runtime", "accelerate", "lightning_fabric"):
        results[f"import {module}"] = ratio = import_ratio(module)
        print(f"  {module:16} {'is not installed' if ratio is None else f'{ratio:6.3f}'}")
    print("\npeak memory, by plain torch")
    for ranks in options.processes:
        own, base = peak_memory(ranks)
        results[f"memory {ranks} accelify"] = own / base
        print(f"  accelify, {ranks} process(es) {own / base:6.3f}   ({own:.1f} MB and {base:.1f} MB)")
    if options.json is not None:
        options.json.write_text(json.dumps(results, indent=1))
    return None


if __name__ == "__main__":
    main()
