"""How the engine (`accelify.obligations.validate`) grows with what a script reaches, and not with what lies around it.

    python benchmarks/engine_growth.py [--repeats 3] [--longest 10000] [--modules 1000] [--fail]

Prints, in CPU time of one process (what else the machine does is left out), medians:
- a script of 150 to 10,000 lines, all of which it reaches: milliseconds of the engine a 1,000 lines (at most 200), the
  same of the fastest run, which other work on the machine slowed least, and peak memory (at most 400 MiB). Scripts that
  take less than 0.2 s are run more often;
- a script with 1 to 6 loops in each other, each with a total: the same;
- a script in the `examples` folder of a library with many modules, which it imports: the conversion there against that
  of the same script alone with the one module that it uses (at most 3 times).
Growth is linear where time per line no more than doubles from the third size to the largest. With --fail it exits 1
where a limit does not hold.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from pathlib import Path

from convert_growth import GROWTH_LIMIT, all_cpu_seconds, cpu_seconds, peak_mib
from convert_speed import BLOCK, HEAD, TAIL

LENGTHS = (150, 500, 1000, 2000, 5000, 10_000)
DEPTHS = (1, 2, 3, 4, 5, 6)
ENGINE_LIMIT, MEMORY_LIMIT, LIBRARY_LIMIT = 200.0, 400.0, 3.0


def reached(lines: int) -> str:
    """A script of about as many lines, of which it reaches every one: each block is a layer, each evaluation called."""
    loop, main = TAIL.split("\n\ndef main():", 1)
    blocks = max(1, (lines - TAIL.count("\n")) // BLOCK.count("\n"))
    layers = "".join(f"Block{n}(32), " for n in range(blocks))
    calls = "".join(f"        evaluate_{n}(model, device, loader)\n" for n in range(blocks))
    main = main.replace("Block0(32), ", layers).replace("        evaluate_0(model, device, loader)\n", calls)
    parts = "".join(BLOCK.replace("{n}", str(n)) for n in range(blocks))
    return f"{HEAD}{parts}{loop}\n\ndef main():{main}"


def nested(depth: int) -> str:
    """A script with loops in each other in a loop over batches, each with a total that all others around add up too."""
    body, indent = "", "            "
    for level in range(depth):
        body += f"{indent}total_{level} = 0.0\n{indent}for part_{level} in range(args.epochs):\n"
        indent += "    "
    for level in reversed(range(depth)):
        inner = "loss.item()" if level == depth - 1 else f"total_{level + 1}"
        body += f"{indent}total_{level} += {inner}\n"
        body += f"{indent}print('total', part_{level}, total_{level})\n"
        indent = indent[:-4]
    return (
        HEAD
        + BLOCK.replace("{n}", "0")
        + TAIL.replace("        if step % 10 == 0:\n", f"        if True:\n{body}", 1)
    )


def library(folder: Path, modules: int) -> Path:
    """A library of many modules in four packages, with an example that trains a model of one of them."""
    for package in range(4):
        inside = folder / "library" / f"package{package}"
        inside.mkdir(parents=True)
        numbers = range(package, modules, 4)
        # As libraries do, so that whoever imports one name imports all modules.
        (inside / "__init__.py").write_text(
            "".join(f"from .module{n} import Block{n}, evaluate_{n}\n" for n in numbers)
        )
        for n in numbers:
            others = f"from library.package{package} import module{n - 4}\n" if n >= 4 else ""
            (inside / f"module{n}.py").write_text(HEAD + others + "\n\n" + BLOCK.replace("{n}", str(n)))
    (folder / "library" / "__init__.py").write_text("".join(f"from .package{n} import *\n" for n in range(4)))
    (folder / "setup.py").write_text("from setuptools import setup\n\nsetup(name='library')\n")
    entry = folder / "examples" / "train.py"
    entry.parent.mkdir()
    entry.write_text(HEAD + "from library import Block0, evaluate_0\n\n\n" + TAIL)
    return entry


def converted(text: str) -> str:
    """A script as convert writes it."""
    from accelify.convert import convert_source
    from accelify.source import Source

    conversion = convert_source(Source.from_text(text, Path("train.py")))
    if conversion.status != "converted":
        raise SystemExit(f"not converted: {conversion.reason}")
    return conversion.new_text


def by_script(scripts: dict[int, str], repeats: int, title: str) -> list[tuple[int, float, float]]:
    """Lines, milliseconds of the engine a 1,000 lines, and MiB, of each script."""
    from accelify.cli.inputs import garbage_left
    from accelify.knowledge import Knowledge
    from accelify.obligations import validate

    knowledge, rows = Knowledge(), []
    print(f"{title:>7}   lines    engine s   ms/1,000 lines   fastest   steps/line   peak MiB")
    for size, text in scripts.items():
        text = converted(text)
        lines = text.count("\n")

        def run(text: str = text) -> None:
            with garbage_left():
                validate(text, None, knowledge)

        found = validate(text, None, knowledge)
        if found.unread:
            raise SystemExit(f"not read: {found.unread[0].text}")
        times = all_cpu_seconds({"engine": run}, repeats * max(1, 1000 // lines) if lines <= 2000 else 1)
        seconds, fastest = statistics.median(times["engine"]), min(times["engine"])
        memory = peak_mib(run)
        rows.append((lines, seconds / lines * 1e6, memory))
        print(
            f"{size:7}   {lines:5}   {seconds:9.3f}   {seconds / lines * 1e6:14.0f}"
            f"   {fastest / lines * 1e6:7.0f}   {found.steps / lines:10.2f}"
            f"   {memory:8.1f}"
        )
    return rows


def in_library(repeats: int, modules: int) -> tuple[float, float]:
    """Seconds of the conversion of a script alone, with the module that it uses, and within a library."""
    from accelify.cli.inputs import garbage_left
    from accelify.convert import convert_project
    from accelify.source import Source

    with tempfile.TemporaryDirectory() as alone, tempfile.TemporaryDirectory() as within:
        entries = library(Path(alone) / "few", 1), library(Path(within) / "many", modules)

        def convert(entry: Path) -> None:
            with garbage_left():
                group = convert_project(Source.read(entry))
                proved(entry, group)

        times = cpu_seconds(
            {
                name: lambda entry=entry: convert(entry)
                for name, entry in zip(("alone", "within"), entries, strict=True)
            },
            repeats,
        )
    print(f"\nalone {times['alone']:.3f} s, beside {modules} modules {times['within']:.3f} s")
    return times["alone"], times["within"]


def proved(entry: Path, group: list[object]) -> None:
    """Go through a converted project with the engine, as `convert --assumptions` does."""
    from accelify.heap.modules import text_of
    from accelify.obligations import validate

    texts = {one.place: one.new_text for one in group if one.place is not None}  # type: ignore[attr-defined]

    def read(path: Path) -> str | None:
        return texts.get(path.resolve()) or text_of(path)

    validate(texts.get(entry.resolve()) or entry.read_text(), entry, None, read)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--longest", type=int, default=LENGTHS[-1])
    parser.add_argument("--modules", type=int, default=1000)
    parser.add_argument("--fail", action="store_true")
    options = parser.parse_args()
    sys.setrecursionlimit(10_000)
    lengths = by_script(
        {length: reached(length) for length in LENGTHS if length <= options.longest},
        options.repeats,
        "length",
    )
    print()
    depths = by_script({depth: nested(depth) for depth in DEPTHS}, options.repeats, "depth")
    alone, within = in_library(options.repeats, options.modules)
    slowest = max(row[1] for row in [*lengths, *depths])
    largest = max(row[2] for row in [*lengths, *depths])
    grown = lengths[-1][1] / lengths[min(2, len(lengths) - 1)][1]
    print(f"\nengine: at most {slowest:.0f} ms a 1,000 reached lines (limit {ENGINE_LIMIT:.0f})")
    print(f"time per line, from the third size to the largest: {grown:.2f} times (limit {GROWTH_LIMIT})")
    print(f"memory: at most {largest:.0f} MiB (limit {MEMORY_LIMIT:.0f})")
    print(f"beside a library: {within / alone:.2f} times (limit {LIBRARY_LIMIT})")
    over = slowest > ENGINE_LIMIT or grown > GROWTH_LIMIT or largest > MEMORY_LIMIT
    if options.fail and (over or within > LIBRARY_LIMIT * alone):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
