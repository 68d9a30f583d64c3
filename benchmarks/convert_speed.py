"""How fast the command line starts and converts. How it grows is measured by convert_growth.py.

    python benchmarks/convert_speed.py [--repeats 15] [--fail]

Prints two things, each from whole processes run in turns, in CPU time (what else the machine does is left out):
- `accelify --help` against a bare typer application (at most 1.5 times),
- `accelify convert` of a script of 150 lines against a Python that imports libcst and parses the same file (at most
  2.6 times: it does that itself where something is edited).
All of them run from bytecode, as what pip installs does: a first round writes it into a folder of the benchmark's own,
whatever PYTHONDONTWRITEBYTECODE says and whether or not the checkout may be written to.
With --fail it exits 1 where one of the limits does not hold.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

HELP_LIMIT, CONVERT_LIMIT = 1.5, 2.6

BARE_TYPER = """
import typer
app = typer.Typer()

@app.command()
def convert(path: str) -> None:
    "Rewrite training scripts."

@app.command()
def check(path: str) -> None:
    "Lint training scripts."

app()
"""

HEAD = '''"""A training script of a chosen length."""
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset


'''

BLOCK = '''class Block{n}(nn.Module):
    """One of the layers of the network."""

    def __init__(self, width, dropout=0.1):
        super().__init__()
        self.first = nn.Linear(width, width)
        self.second = nn.Linear(width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        hidden = F.relu(self.first(x))
        hidden = self.dropout(hidden)
        return x + self.second(hidden)


def evaluate_{n}(model, device, loader):
    model.eval()
    total, correct = 0.0, 0
    with torch.no_grad():
        for data, target in loader:
            data, target = data.to(device), target.to(device)
            output = model(data)
            total += F.cross_entropy(output, target, reduction="sum").item()
            correct += (output.argmax(dim=1) == target).sum().item()
    print("set {n}: loss", total / len(loader.dataset), "accuracy", correct / len(loader.dataset))
    return total


'''

TAIL = """def train(args, model, device, loader, optimizer, epoch):
    model.train()
    for step, (data, target) in enumerate(loader):
        data, target = data.to(device), target.to(device)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(data), target)
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            print("epoch", epoch, "step", step, "loss", loss.item())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--no-cuda", action="store_true")
    args = parser.parse_args()
    use_cuda = not args.no_cuda and torch.cuda.is_available()
    device = torch.device("cuda" if use_cuda else "cpu")
    data = TensorDataset(torch.randn(256, 16), torch.randint(0, 4, (256,)))
    loader = DataLoader(data, batch_size=16, shuffle=True)
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), Block0(32), nn.Linear(32, 4)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1)
    for epoch in range(args.epochs):
        train(args, model, device, loader, optimizer, epoch)
        evaluate_0(model, device, loader)
        scheduler.step()
    torch.save(model.state_dict(), "model.pt")


if __name__ == "__main__":
    main()
"""


def script(lines: int) -> str:
    """A training script of about `lines` lines: one loop, and as many layers and evaluations as it takes."""
    fixed = HEAD.count("\n") + TAIL.count("\n")
    blocks = max(1, round((lines - fixed) / BLOCK.count("\n")))
    return HEAD + "".join(BLOCK.replace("{n}", str(number)) for number in range(blocks)) + TAIL


def with_bytecode(folder: Path) -> dict[str, str]:
    """The environment in which Python keeps the bytecode of all that it imports below `folder`."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PYTHONPYCACHEPREFIX": str(folder / "bytecode")}


def alternate(commands: dict[str, list[str]], repeats: int, folder: Path) -> dict[str, float]:
    """Seconds of CPU of each command, median over `repeats`, run in turns so that a busy machine is busy for all.

    Args:
        commands: the command lines by name.
        repeats: how often each is run after a first time, which fills the caches of bytecode and files.
        folder: where the bytecode goes.
    """
    environment = with_bytecode(folder)
    times: dict[str, list[float]] = {name: [] for name in commands}
    for number in range(repeats + 1):
        for name, command in commands.items():
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            done = subprocess.run(
                command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False, env=environment
            )
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            if done.returncode not in (0, 1):
                raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr.decode()}")
            if number:
                times[name].append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return {name: statistics.median(values) for name, values in times.items()}


def help_ratio(folder: Path, repeats: int) -> float:
    bare = folder / "bare.py"
    bare.write_text(BARE_TYPER)
    times = alternate(
        {
            "accelify": [sys.executable, "-m", "accelify", "--help"],
            "typer": [sys.executable, str(bare), "--help"],
            "python": [sys.executable, "-c", "pass"],
        },
        repeats,
        folder,
    )
    ratio = times["accelify"] / times["typer"]
    print(
        f"accelify --help     {times['accelify'] * 1000:6.0f} ms   bare typer      {times['typer'] * 1000:6.0f} ms"
        f"   ratio {ratio:.2f} (at most {HELP_LIMIT})   empty Python {times['python'] * 1000:.0f} ms"
    )
    return ratio


def convert_ratio(folder: Path, repeats: int) -> float:
    path = folder / "train.py"
    path.write_text(script(150))
    parse = "import sys, libcst; libcst.parse_module(open(sys.argv[1], 'rb').read())"
    times = alternate(
        {
            "accelify": [
                sys.executable,
                "-m",
                "accelify",
                "convert",
                str(path),
                "--output",
                str(folder / "new.py"),
            ],
            "libcst": [sys.executable, "-c", parse, str(path)],
        },
        repeats,
        folder,
    )
    ratio = times["accelify"] / times["libcst"]
    print(
        f"convert, 150 lines  {times['accelify'] * 1000:6.0f} ms   libcst parses   {times['libcst'] * 1000:6.0f} ms"
        f"   ratio {ratio:.2f} (at most {CONVERT_LIMIT})"
    )
    return ratio


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=15, help="runs of each command")
    parser.add_argument("--fail", action="store_true", help="exit 1 where a limit does not hold")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        helps = help_ratio(Path(folder), args.repeats)
        converts = convert_ratio(Path(folder), args.repeats)
    if args.fail and (helps > HELP_LIMIT or converts > CONVERT_LIMIT):
        sys.exit(1)


if __name__ == "__main__":
    main()
