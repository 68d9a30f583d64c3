"""What a training step costs over torch's own: plain PyTorch (DDP on several processes), accelify, Hugging Face
Accelerate and Lightning Fabric, alternating in one run.

    python benchmarks/step_overhead.py [--processes 1 2] [--rounds 15] [--json FILE]

Prints for each library its fastest round by plain torch's fastest round (other work on the machine only ever adds
time), and the median over rounds of its processor time by plain torch's in the same round; then what importing adds
to `import torch`, and peak memory. Peers that are not installed are left out.
"""

import argparse
import gc
import json
import os
import resource
import statistics
import subprocess
import sys
import time
import warnings
from pathlib import Path

# The samples of an epoch in batches of one process: epochs long enough that starting one does not count.
SMALL_STEPS, REAL_STEPS = 400, 16


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


def make(factory):
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    torch.manual_seed(0)
    model, data, batch = factory()
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    loader = DataLoader(TensorDataset(data), batch_size=batch * ranks, shuffle=True, drop_last=True)
    return model, torch.optim.SGD(model.parameters(), lr=1e-3), loader


def torch_setup(factory):
    import torch
    from torch.nn.parallel import DistributedDataParallel
    from torch.utils.data import DataLoader, DistributedSampler

    model, optimizer, loader = make(factory)
    if torch.distributed.is_initialized():
        model = DistributedDataParallel(model)
        ranks = torch.distributed.get_world_size()
        sampler = DistributedSampler(loader.dataset)
        loader = DataLoader(loader.dataset, loader.batch_size // ranks, sampler=sampler, drop_last=True)
    return model, optimizer, loader, lambda loss: loss.backward()


def accelify_setup(factory):
    from accelify.runtime import Accelerator

    accelerator = Accelerator(cpu=True, split_batches=True)
    return *accelerator.prepare(*make(factory)), accelerator.backward


def accelerate_setup(factory):
    from accelerate import Accelerator, DataLoaderConfiguration

    accelerator = Accelerator(cpu=True, dataloader_config=DataLoaderConfiguration(split_batches=True))
    if accelerator.num_processes != int(os.environ.get("WORLD_SIZE", "1")):
        raise ImportError("accelerate did not form the group")
    return *accelerator.prepare(*make(factory)), accelerator.backward


def fabric_setup(factory):
    import torch
    from lightning_fabric import Fabric
    from torch.utils.data import DataLoader

    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    fabric = Fabric(accelerator="cpu", devices=ranks, strategy="ddp" if ranks > 1 else "auto")
    if ranks > 1:
        fabric.launch()
    model, optimizer, loader = make(factory)
    loader = DataLoader(loader.dataset, loader.batch_size // ranks, shuffle=True, drop_last=True)
    model, optimizer = fabric.setup(model, optimizer)
    loader = fabric.setup_dataloaders(loader)
    assert not ranks > 1 or torch.distributed.get_world_size() == ranks
    return model, optimizer, loader, fabric.backward


SETUPS = {
    "torch": torch_setup,
    "accelify": accelify_setup,
    "accelerate": accelerate_setup,
    "fabric": fabric_setup,
}


def epoch(model, optimizer, loader, backward):
    """Seconds and processor seconds for one pass of the loader."""
    begun, busy = time.perf_counter(), time.process_time()
    for (x,) in loader:
        optimizer.zero_grad()
        loss = (model(x) - x).square().mean()
        backward(loss)
        optimizer.step()
    return time.perf_counter() - begun, time.process_time() - busy


def worker(rounds):
    """Times of every library for both models; on the main process they are printed as JSON."""
    import torch

    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        torch.distributed.init_process_group("gloo")
    found = {}
    for factory, steps in ((small, SMALL_STEPS), (real, REAL_STEPS)):
        ready = {}
        for name, setup in SETUPS.items():
            try:
                ready[name] = setup(factory)
            except ImportError as error:
                print(f"{name} is left out: {error}", file=sys.stderr)
        times = {name: [] for name in ready}
        names = list(ready)
        for number in range(-2, rounds):
            gc.collect()
            for name in names[number % len(names) :] + names[: number % len(names)]:
                spent = epoch(*ready[name])
                if number >= 0:
                    times[name].append([seconds / steps for seconds in spent])
        found[factory.__name__] = times
    if int(os.environ.get("RANK", "0")) == 0:
        print("RESULT" + json.dumps(found))


def peak_memory(name):
    """Peak memory in MB of a process that trains the real model with one library."""
    import torch

    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    model, optimizer, loader, backward = SETUPS[name](real)
    epoch(model, optimizer, loader, backward)
    epoch(model, optimizer, loader, backward)
    print(f"RESULT{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}")


def run(command, env=None):
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **(env or {})})
    for line in done.stdout.splitlines():
        if "RESULT" in line:
            return json.loads(line.split("RESULT", 1)[1])
    raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr[-3000:]}")


def measure(ranks, rounds):
    here = [str(Path(__file__).resolve()), "--worker", "--rounds", str(rounds)]
    if ranks == 1:
        return run([sys.executable, *here])
    start = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    return run([*start, *here], {"ACCELERATE_USE_CPU": "true", "OMP_NUM_THREADS": "1"})


def import_ratio(module, tries=5):
    """Median of the time to import torch and then `module`, by that to import torch."""
    code = (
        "import time; a = time.perf_counter(); import torch; b = time.perf_counter()\n"
        f"from {module} import {'Fabric' if 'fabric' in module else 'Accelerator'}\n"
        "print('RESULT', (time.perf_counter() - a) / (b - a))"
    )
    return statistics.median(run([sys.executable, "-W", "ignore", "-c", code]) for _ in range(tries))


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--memory", choices=list(SETUPS), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        return worker(options.rounds)
    if options.memory:
        return peak_memory(options.memory)
    results = {}
    for ranks in options.processes:
        for model, times in measure(ranks, options.rounds).items():
            plain = times["torch"]
            fastest = min(wall for wall, _ in plain)
            print(f"\n{model} model, {ranks} process(es); plain torch: {fastest * 1e3:.3f} ms a step")
            for name, own in times.items():
                wall = min(a for a, _ in own) / fastest
                busy = statistics.median(a / b for (_, a), (_, b) in zip(own, plain, strict=True))
                print(f"  {name:12} time {wall:6.3f}   processor time {busy:6.3f}")
                results[f"{model} {ranks} {name}"] = {"time": wall, "processor": busy}
    print("\nimport, by import torch")
    for module in ("accelify.runtime", "accelerate", "lightning_fabric"):
        try:
            results[f"import {module}"] = ratio = import_ratio(module)
            print(f"  {module:16} {ratio:6.3f}")
        except SystemExit:
            print(f"  {module:16} is not installed")
    print("\npeak memory, by plain torch")
    base = run([sys.executable, __file__, "--memory", "torch"])
    own = run([sys.executable, __file__, "--memory", "accelify"])
    results["memory accelify"] = own / base
    print(f"  accelify         {own / base:6.3f}")
    if options.json is not None:
        options.json.write_text(json.dumps(results, indent=1))
    return None


if __name__ == "__main__":
    main()
