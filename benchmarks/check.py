"""What `accelify check` costs, beside ruff and TorchFix, all in one run.

    python benchmarks/check.py [--torchfix PATH] [--ruff PATH] [--repeats 3] [--cpu] [--fail]

Prints the best of several turns, in wall time, with limits; with --cpu in CPU time of all processes, for a machine that
does other work, too:
- the installed torch package: cold at most 3 times ruff's time without cache, and warm at most once;
- the same on one core, at least 15 times as quick as TorchFix is on those files alone that check parses there (needs
  --torchfix, the command of an installation of its own);
- one file with start-up: at most 300 ms where the engine runs, 150 ms where it need not;
- peak memory of all its processes on the torch package: at most 200 MB;
- growth: time for each of 8 and of 64 scripts, at most 1.5 times; on one core and on all, at most 1.4 times the ideal.
With --fail it exits 1 where a limit does not hold.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

SCRIPT = """\
import torch
from accelerate import Accelerator

accelerator = Accelerator()
model = torch.nn.Linear({n} + 1, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = torch.utils.data.DataLoader(torch.zeros(64, {n} + 1), batch_size=8)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
for epoch in range(3):
    total = 0.0
    for x in loader:
        loss = model(x).pow(2).mean()
        optimizer.zero_grad()
        accelerator.backward(loss)
        optimizer.step()
        total += loss.item()
    print(epoch, total / len(loader))
"""
PLAIN = "import os\n\nprint(os.getcwd())\n"


def seconds(command: Sequence[str | Path], folder: Path, cores: int | None = None) -> float:
    """The time of a command, whatever it finds: on the wall, or with --cpu that of all its processes on their cores."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}

    def pinned() -> None:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])

    started, used = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, preexec_fn=pinned if cores else None
    )
    if done.returncode not in (0, 1):
        raise SystemExit(f"{command}: {done.stderr.decode()[-500:]}")
    if "--cpu" in sys.argv:
        now = resource.getrusage(resource.RUSAGE_CHILDREN)
        return now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime
    return time.perf_counter() - started


def peak_memory(command: Sequence[str | Path], folder: Path) -> float:
    """Megabytes that a command and the processes that it starts take at most together; shared pages count once."""
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    most = [0.0]

    def look() -> None:
        while process.poll() is None:
            most[0] = max(most[0], sum(map(_share, _family(process.pid))))
            time.sleep(0.02)

    watcher = threading.Thread(target=look)
    watcher.start()
    process.wait()
    watcher.join()
    return most[0]


def _family(pid: int) -> list[int]:
    found = [pid]
    for one in found:
        try:
            found += map(int, Path(f"/proc/{one}/task/{one}/children").read_text().split())
        except OSError:
            continue
    return found


def _share(pid: int) -> float:
    try:
        rows = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0.0
    return next((int(row.split()[1]) / 1024 for row in rows if row.startswith("Pss:")), 0.0)


def parsed_files(tree: Path) -> list[Path]:
    """The files of a tree that check parses: those with the words of training."""
    from accelify.source import find_scripts

    return find_scripts(tree).scripts


class Table:
    """Rows of what was measured, and whether each is within its limit."""

    def __init__(self) -> None:
        self.failed = 0

    def row(self, what: str, value: float, limit: float, unit: str = "", *, least: bool = False) -> None:
        holds = value >= limit if least else value <= limit
        self.failed += not holds
        sign = ">=" if least else "<="
        print(
            f"{what:<58} {value:>9.2f}{unit}  {sign} {limit:g}{unit}  {'ok' if holds else 'FALLS SHORT'}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ruff", default=shutil.which("ruff") or str(Path(sys.executable).with_name("ruff")))
    parser.add_argument("--torchfix", help="the command of TorchFix")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--fail", action="store_true")
    parser.add_argument("--cpu", action="store_true", help="for a machine that does other work, too")
    options = parser.parse_args()
    found = importlib.util.find_spec("torch")
    if found is None or found.origin is None:
        raise SystemExit("torch is not installed")
    torch = Path(found.origin).parent
    check = [sys.executable, "-m", "accelify", "check"]
    table = Table()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)

        def best(command: Sequence[str | Path], cores: int | None = None) -> float:
            return min(seconds(command, folder, cores) for _ in range(options.repeats))

        lines = sum(path.read_bytes().count(b"\n") for path in torch.rglob("*.py"))
        ruff = best([options.ruff, "check", "--isolated", "--no-cache", "--quiet", "--exit-zero", torch])
        cold = best([*check, "--no-cache", torch])
        seconds([*check, torch], folder)
        warm = best([*check, torch])
        print(f"torch: {lines:,} lines; ruff {ruff:.2f} s, check cold {cold:.2f} s, warm {warm:.2f} s")
        table.row("torch package, cold, times ruff", cold / ruff, 3)
        table.row("torch package, warm, times ruff", warm / ruff, 1)
        table.row(
            "torch package, peak memory", peak_memory([*check, "--no-cache", torch], folder), 200, " MB"
        )
        if options.torchfix:
            files = parsed_files(torch)
            own = best([*check, "--no-cache", torch], 1)
            theirs = best([options.torchfix, "--select", "ALL", *files], 1)
            print(
                f"{len(files)} files that are parsed, on one core: check {own:.2f} s, TorchFix {theirs:.2f} s"
            )
            table.row("lines a second that are parsed, times TorchFix", theirs / own, 15, least=True)
        (folder / "plain.py").write_text(PLAIN)
        (folder / "train.py").write_text(SCRIPT.replace("{n}", "3"))
        table.row(
            "one file where the engine need not run",
            1000 * best([*check, "--no-cache", "plain.py"]),
            150,
            " ms",
        )
        table.row(
            "one file where the engine runs", 1000 * best([*check, "--no-cache", "train.py"]), 300, " ms"
        )
        times = {}
        for number in (8, 64):
            for n in range(number):
                place = folder / f"many{number}" / f"script{n}.py"
                place.parent.mkdir(exist_ok=True)
                place.write_text(SCRIPT.replace("{n}", str(n)))
            times[number] = best([*check, "--no-cache", f"many{number}"])
        table.row("64 scripts, times 8 scripts, for each script", times[64] / 64 / (times[8] / 8), 1.5)
        cores = len(os.sched_getaffinity(0))
        alone = best([*check, "--no-cache", "many64"], 1)
        ideal = alone if options.cpu else alone / cores
        table.row(f"64 scripts on {cores} cores, times the ideal", times[64] / ideal, 1.4)
    raise SystemExit(1 if options.fail and table.failed else 0)


if __name__ == "__main__":
    main()
