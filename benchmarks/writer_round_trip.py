"""Whether the writer gives back every script as it was, where nothing is edited.

    python benchmarks/writer_round_trip.py FOLDER... [--nodes] [--fail]

Reads every .py file below the folders as `convert` does (`Source`, `Tree`), has the writer copy every statement of it
as if something were edited there, and compares the bytes. Prints how many came back the same, and names:
- what differs (with --fail it exits 1 where there is one),
- what one of the two parsers does not read, with the reason.
With --nodes it also looks for every expression in libcst's tree, and counts those that the writer cannot edit alone.
"""

from __future__ import annotations

import argparse
import ast
import gc
import os
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from accelify.analysis.syntax import Tree
from accelify.source import Source, SourceError
from accelify.writer.errors import EditError
from accelify.writer.writing import Written

_IN_BLOCKS = (ast.stmt, ast.ExceptHandler, ast.match_case)
_DEEP = 10_000
_OFTEN = 500


def files_below(folders: Iterable[Path]) -> Iterator[Path]:
    """Every .py file, each once, whatever folder it is in."""
    for folder in folders:
        for place, inner, names in os.walk(folder):
            inner.sort()
            for name in sorted(names):
                path = Path(place, name)
                if name.endswith(".py") and path.is_file() and not path.is_symlink():
                    yield path


def round_trip(path: Path) -> tuple[str, Written | None]:
    """What comes of a file: `same`, `differs`, or why it is not read; and the writer's work on it."""
    try:
        source = Source.read(path)
        tree = Tree(source.text, str(path), source.tree)
    except (SourceError, RecursionError) as error:
        return f"not read by Python: {str(error).removeprefix(f'{path}')[:100]}", None
    try:
        written = Written(tree, (), copied=[n for n in ast.walk(tree.module) if isinstance(n, _IN_BLOCKS)])
    except (EditError, RecursionError) as error:
        return f"not written: {error or type(error).__name__}", None
    same = source.encode(written.data.decode("utf-8")) == path.read_bytes()
    return "same" if same else "differs", written


def found_nodes(written: Written) -> Iterator[tuple[str, bool]]:
    """The expressions of a script by their kind and that of what is around them, and whether the writer finds them."""
    tree = written.tree
    for node in ast.walk(tree.module):
        if not isinstance(node, ast.expr):
            continue
        try:
            written.work.original(node)
            found = True
        except EditError:
            found = False
        yield f"{type(node).__name__} in {type(tree.parent(node)).__name__}", found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--nodes", action="store_true", help="also look for every expression")
    parser.add_argument("--fail", action="store_true", help="exit 1 where a file differs")
    options = parser.parse_args()
    sys.setrecursionlimit(_DEEP)
    outcomes: Counter[str] = Counter()
    seen: Counter[str] = Counter()
    missed: Counter[str] = Counter()
    for number, path in enumerate(files_below(options.folders), 1):
        outcome, written = round_trip(path)
        outcomes[outcome.partition(":")[0]] += 1
        if outcome != "same":
            print(f"{path}: {outcome}", flush=True)
        for kind, found in found_nodes(written) if options.nodes and written is not None else ():
            seen[kind] += 1
            missed[kind] += not found
        if number % _OFTEN == 0:
            gc.collect()
            print(f"... {number} files: {dict(outcomes)}", file=sys.stderr, flush=True)
    print(
        f"{outcomes.total()} files: " + ", ".join(f"{count} {name}" for name, count in outcomes.most_common())
    )
    if options.nodes:
        print(f"{seen.total()} expressions, {missed.total()} cannot be edited by themselves:")
        for kind, count in missed.most_common():
            if count:
                print(f"{count:9} of {seen[kind]:9} {kind}")
    if options.fail and outcomes["differs"]:
        sys.exit(1)


if __name__ == "__main__":
    main()
