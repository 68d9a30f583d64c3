"""How conversion grows with the length of a script and with the size of a project, beside libcst's parse.

    python benchmarks/convert_growth.py [--repeats 5] [--longest 20000] [--most 500] [--plot growth.png] [--fail]

Prints, in CPU time of one process (what else the machine does is left out), medians of turns taken one after the other:
- a script of 150 to 20,000 lines: conversion, libcst's parse of the same text, their ratio (at most 3), peak memory;
- a project of 1 to 500 modules of about 60 lines: conversion of its entry script with all that it imports.
Growth is linear where time per line, or per module, no more than doubles from the third size to the largest. With
--fail it exits 1 where a limit does not hold. --plot needs matplotlib.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

from convert_speed import BLOCK, HEAD, TAIL, script

LENGTHS = (150, 500, 1000, 2000, 5000, 10_000, 20_000)
MODULES = (1, 5, 20, 50, 100, 200, 500)
RATIO_LIMIT, GROWTH_LIMIT = 3.0, 2.0


def project(folder: Path, modules: int) -> Path:
    """A project whose entry script imports and uses `modules` modules, and one more with the training loop."""
    loop, main = TAIL.split("\n\ndef main():", 1)
    imports = "".join(f"from parts.part{n} import Block{n}, evaluate_{n}\n" for n in range(modules))
    # What is imported and not used is not read.
    imports += f"PARTS = [{', '.join(f'Block{n}, evaluate_{n}' for n in range(modules))}]\n"
    parts = folder / "parts"
    parts.mkdir(parents=True)
    (parts / "__init__.py").write_text("")
    for n in range(modules):
        text = HEAD + BLOCK.replace("{n}", str(n))
        (parts / f"part{n}.py").write_text(text)
    (folder / "engine.py").write_text(HEAD + loop + "\n")
    entry = folder / "train.py"
    entry.write_text(HEAD + imports + "from engine import train\n\n\ndef main():" + main)
    return entry


def cpu_seconds(work: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Median CPU seconds of each piece of work, run in turns."""
    return {name: statistics.median(values) for name, values in all_cpu_seconds(work, repeats).items()}


def all_cpu_seconds(work: dict[str, Callable[[], object]], repeats: int) -> dict[str, list[float]]:
    """The CPU seconds of each time that each piece of work is run, in turns; the first is left out."""
    times: dict[str, list[float]] = {name: [] for name in work}
    for number in range(repeats + 1):
        for name, run in work.items():
            gc.collect()
            started = time.process_time()
            run()
            if number:
                times[name].append(time.process_time() - started)
    return times


def peak_mib(run: Callable[[], object]) -> float:
    """Peak memory of a piece of work, in MiB."""
    tracemalloc.start()
    run()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak / 2**20


def by_length(repeats: int, longest: int) -> list[tuple[int, float, float, float]]:
    """Lines, seconds of a conversion, of a parse, and MiB of a conversion."""
    import libcst

    from accelify.cli.inputs import garbage_left
    from accelify.convert import convert_source
    from accelify.source import Source

    rows = []
    print("  lines   convert s   libcst s   ratio   us/line   peak MiB")
    for wanted in (length for length in LENGTHS if length <= longest):
        text = script(wanted)
        lines = text.count("\n")

        def convert(text: str = text) -> None:
            with garbage_left():
                conversion = convert_source(Source.from_text(text, Path("train.py")))
            if conversion.status != "converted":
                raise SystemExit(f"not converted: {conversion.reason}")

        rounds = repeats if wanted <= 5000 else max(1, repeats // 3)
        times = cpu_seconds(
            {"convert": convert, "libcst": lambda text=text: libcst.parse_module(text)}, rounds
        )
        memory = peak_mib(convert)
        rows.append((lines, times["convert"], times["libcst"], memory))
        print(
            f"{lines:7}   {times['convert']:9.3f}   {times['libcst']:8.3f}   {times['convert'] / times['libcst']:5.2f}"
            f"   {times['convert'] / lines * 1e6:7.0f}   {memory:8.1f}"
        )
    return rows


def by_modules(repeats: int, most: int) -> list[tuple[int, float, float]]:
    """Modules, seconds and MiB of the conversion of a project's entry script."""
    from accelify.cli.inputs import garbage_left
    from accelify.convert import convert_project
    from accelify.source import Source

    rows = []
    print("\nmodules   convert s   ms/module   peak MiB")
    for modules in (count for count in MODULES if count <= most):
        with tempfile.TemporaryDirectory() as folder:
            entry = project(Path(folder) / "project", modules)

            def convert(entry: Path = entry) -> None:
                with garbage_left():
                    group = convert_project(Source.read(entry))
                if not all(conversion.changed for conversion in group) or len(group) < 2:
                    raise SystemExit(f"not converted: {group[0].status}: {group[0].reason}")

            seconds = cpu_seconds({"convert": convert}, max(1, repeats // 2))["convert"]
            memory = peak_mib(convert)
        rows.append((modules, seconds, memory))
        print(f"{modules:7}   {seconds:9.3f}   {seconds / modules * 1e3:9.1f}   {memory:8.1f}")
    return rows


def plot(
    path: Path, lengths: list[tuple[int, float, float, float]], sizes: list[tuple[int, float, float]]
) -> None:
    """Draw both curves, time and memory, on logarithmic axes: linear growth is a straight line of slope 1."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(11, 4.5))
    for axis, rows, label in ((axes[0], lengths, "lines"), (axes[1], sizes, "modules")):
        counts = [row[0] for row in rows]
        axis.loglog(counts, [row[1] for row in rows], "o-", label="convert (CPU s)")
        if label == "lines":
            axis.loglog(counts, [row[2] for row in rows], "s--", label="libcst parse (CPU s)")
        axis.loglog(
            counts, [rows[-1][1] * count / counts[-1] for count in counts], ":", color="grey", label="linear"
        )
        axis.set_xlabel(label)
        axis.set_ylabel("seconds")
        memory = axis.twinx()
        memory.loglog(counts, [row[-1] for row in rows], "^-", color="tab:green", label="peak MiB")
        memory.set_ylabel("MiB")
        axis.legend(loc="upper left")
        memory.legend(loc="lower right")
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--longest", type=int, default=LENGTHS[-1])
    parser.add_argument("--most", type=int, default=MODULES[-1])
    parser.add_argument("--plot", type=Path)
    parser.add_argument("--fail", action="store_true")
    options = parser.parse_args()
    sys.setrecursionlimit(10_000)
    lengths = by_length(options.repeats, options.longest)
    sizes = by_modules(options.repeats, options.most)
    worst = max(row[1] / row[2] for row in lengths)
    base, last = lengths[min(2, len(lengths) - 1)], lengths[-1]
    grown = (last[1] / last[0]) / (base[1] / base[0])
    small, large = sizes[min(2, len(sizes) - 1)], sizes[-1]
    spread = (large[1] / large[0]) / (small[1] / small[0])
    print(f"\nconvert by libcst's parse: at most {worst:.2f} (limit {RATIO_LIMIT})")
    print(f"time per line, {base[0]} to {last[0]} lines: {grown:.2f} times (limit {GROWTH_LIMIT})")
    print(f"time per module, {small[0]} to {large[0]} modules: {spread:.2f} times (limit {GROWTH_LIMIT})")
    if options.plot is not None:
        plot(options.plot, lengths, sizes)
    if options.fail and (worst > RATIO_LIMIT or max(grown, spread) > GROWTH_LIMIT):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
