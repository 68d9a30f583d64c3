"""How long real scripts take to convert, beside libcst's parse of the files that are read for it.

    python benchmarks/real_scripts/parse_ratio.py CHECKOUTS SCRIPTS.tsv [--repeats 5] [--limit 3]

CHECKOUTS and SCRIPTS.tsv are those of sweep.py; notebooks and what is not converted are left out, and nothing is
written. In CPU time of one process, the least of turns taken one after the other: `convert_project` of a script, and
libcst's parse of it and of the modules of its project that the conversion reads. Prints the ratio's median, its tenth
largest of a hundred, and every script above the limit. Needs libcst (extra `test`).
"""

from __future__ import annotations

import argparse
import gc
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("checkouts", type=Path)
    parser.add_argument("scripts", type=Path)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--limit", type=float, default=3.0)
    options = parser.parse_args()
    lines = options.scripts.read_text().splitlines()
    found = []
    for repository, script in (
        line.split("\t")[:2] for line in lines if line.strip() and not line.startswith("#")
    ):
        measured = ratio(options.checkouts / repository.replace("/", "+") / script, options.repeats)
        if measured is not None:
            found.append((*measured, f"{repository}/{script}"))
    if not found:
        raise SystemExit(
            "none of these scripts is converted: are CHECKOUTS and SCRIPTS.tsv those of sweep.py?"
        )
    found.sort()
    ratios = [row[0] for row in found]
    alone = [row[0] for row in found if row[1] == 1]
    print(f"{len(found)} scripts: median {statistics.median(ratios):.2f}, of those that stand alone", end=" ")
    print(f"({len(alone)}) {statistics.median(alone):.2f}" if alone else "none", end="; ")
    print(f"nine in ten at most {ratios[int(0.9 * (len(ratios) - 1))]:.2f}, all {ratios[-1]:.2f}")
    for value, files, name in found:
        if value > options.limit:
            print(f"  {value:.2f}  {name}, {files} files")


def ratio(path: Path, repeats: int) -> tuple[float, int] | None:
    """A conversion's time by the parse's, and how many files it reads; None where the script is not converted."""
    import libcst

    from accelify.analysis.script import ScriptModel
    from accelify.cli.inputs import garbage_left
    from accelify.conversion import CONVERTED
    from accelify.convert import convert_project, convert_source
    from accelify.source import Source, SourceError

    if path.suffix != ".py":
        return None
    try:
        source, models = Source.read(path), list[ScriptModel]()
        convert_source(source, models=models)
        if not models or convert_project(Source.read(path))[0].status != CONVERTED:
            return None
    except SourceError:
        return None
    modules = dict.fromkeys(models[0].program.modules.values())
    texts = [module.tree.text for module in modules if module is not models[0].program.entry]
    try:
        trees = [libcst.parse_module(text) for text in (source.text, *texts)]
    except libcst.ParserSyntaxError:
        return None  # Python reads what libcst does not: there is nothing to compare with
    del trees

    def convert() -> None:
        with garbage_left():
            convert_project(Source.read(path))

    def parse() -> None:
        for text in (source.text, *texts):
            libcst.parse_module(text)

    times = [(cpu_seconds(convert), cpu_seconds(parse)) for _ in range(repeats)]
    return min(t[0] for t in times) / min(t[1] for t in times), len(texts) + 1


def cpu_seconds(run: Callable[[], object]) -> float:
    """CPU seconds of one turn."""
    gc.collect()
    started = time.process_time()
    run()
    return time.process_time() - started


if __name__ == "__main__":
    main()
