"""How fast jobs start, and the commands around them, beside torchrun and Hugging Face Accelerate.

    python benchmarks/launch.py [--repeats 7] [--fail]

Prints, from whole processes run in turns in an order drawn anew each round:
- `accelify launch` of 2 processes that do nothing against torchrun of the same (at most 1.1 times) and against
  `accelerate launch` (ahead),
- `accelify --help` against `accelerate --help`, and `accelify config default` against `accelerate config default`
  (ahead).
Every figure is given as time on the clock and as time of CPU, of all processes together; what else the machine does
shows in the first and hardly in the second. The ratio is the median of each round's own. With --fail it exits 1 where
a limit does not hold (the ratio of CPU time decides). Without accelerate installed its columns are left out.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import random
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

START_LIMIT, AHEAD = 1.1, 1.0
ACCELIFY = [sys.executable, "-m", "accelify"]
ACCELERATE = [sys.executable, "-c", "from accelerate.commands.accelerate_cli import main; main()"]


def once(command: list[str], environment: dict[str, str]) -> tuple[float, float]:
    """Seconds on the clock and of CPU of one run."""
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False
    )
    wall, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr.decode()}")
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def rounds(commands: dict[str, list[str]], repeats: int, home: Path) -> dict[str, list[tuple[float, float]]]:
    """Times of every command, one of each in a round."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("ACCELIFY_", "ACCELERATE_"))}
    environment["HF_HOME"] = str(home)
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
    for number in range(repeats + 1):
        names = list(commands)
        random.shuffle(names)
        for name in names:
            # What one has written must not spare the next its work.
            shutil.rmtree(home, ignore_errors=True)
            took = once(commands[name], environment)
            # The first round fills the caches of bytecode and files.
            if number:
                times[name].append(took)
    return times


def compare(title: str, times: dict[str, list[tuple[float, float]]], limits: dict[str, float]) -> bool:
    """Print one line a command; whether the first is within its limits of the others."""
    print(title)
    own, *others = times
    held = True
    for name in times:
        wall, cpu = (statistics.median(t[i] for t in times[name]) for i in (0, 1))
        line = f"  {name:<28}{wall:7.2f} s{cpu:9.2f} s CPU"
        if name in others:
            pairs = zip(times[own], times[name], strict=True)
            ratios = [(a[0] / b[0], a[1] / b[1]) for a, b in pairs]
            on_clock, of_cpu = (statistics.median(r[i] for r in ratios) for i in (0, 1))
            word = f"at most {limits[name]}" if limits[name] > 1 else "ahead below 1"
            line += f"   {own} takes {on_clock:.2f} of it, {of_cpu:.2f} in CPU ({word})"
            held &= of_cpu <= limits[name]
        print(line)
    return held


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=7, help="rounds")
    parser.add_argument("--fail", action="store_true", help="exit 1 where a limit does not hold")
    args = parser.parse_args()
    accelerate = importlib.util.find_spec("accelerate") is not None
    held = True
    with tempfile.TemporaryDirectory() as folder:
        home, script = Path(folder, "home"), Path(folder, "nothing.py")
        script.write_text("")
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
        starts = {
            "accelify launch": [*ACCELIFY, "launch", "--cpu", "--num_processes", "2", str(script)],
            "torchrun": [*torchrun, str(script)],
        }
        if accelerate:
            # With --cpu alone Accelerate starts a single process.
            words = ["launch", "--multi_gpu", "--num_processes", "2", str(script)]
            starts["accelerate launch"] = [*ACCELERATE, *words]
        times = rounds(starts, args.repeats, home)
        held &= compare(
            "start of 2 processes that do nothing",
            times,
            {"torchrun": START_LIMIT, "accelerate launch": AHEAD},
        )
        for title, words in (("--help", ["--help"]), ("config default", ["config", "default"])):
            commands = {"accelify": [*ACCELIFY, *words]}
            if accelerate:
                commands["accelerate"] = [*ACCELERATE, *words]
            held &= compare(title, rounds(commands, args.repeats, home), {"accelerate": AHEAD})
    if args.fail and not held:
        sys.exit(1)


if __name__ == "__main__":
    main()
