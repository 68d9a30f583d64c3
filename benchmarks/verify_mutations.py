"""Which faults does `verify` find, and does it point to the right line? The faults are those of `mutations.py`.

    python benchmarks/verify_mutations.py [--only TEXT] [--goldens] [--verbose] [--fail]

Each fault takes the place of its fixture's golden `after.py` in one verification of a whole run on 1 and 2 processes.
It is found where a run is different or failed, and in the right line where a check that is different or failed names a
line that the table allows: the mutated one, or one that shows what it feeds. --only leaves out rows whose kind and
fixture do not hold TEXT, --verbose prints every check that is different or failed, and --goldens verifies the
unchanged fixtures too (all without --only), which have to pass. With --fail it exits 1 where fewer than 38 of the 40
are found, or a golden does not pass.
"""

from __future__ import annotations

import argparse
import ast
import sys
from dataclasses import dataclass, field
from pathlib import Path
from unittest import mock

from mutations import MUTATIONS, Mutation

from accelify.source import SourceError
from accelify.verify import session
from accelify.verify.compare.verdict import WRONG, Check, Site
from accelify.verify.converted import Converted
from accelify.verify.lines import LineMap
from accelify.verify.nursery import Nursery
from accelify.verify.session import Report, VerifyError

FIXTURES = Path(__file__).resolve().parent.parent / "fixtures"
LIMIT = 38


class SharedNursery(Nursery):
    """A nursery that outlives a verification: each import of torch takes seconds."""

    _is_ready = False

    def ready(self) -> None:
        if not self._is_ready:
            super().ready()
            self._is_ready = True

    def __exit__(self, *_: object) -> None:
        pass


@dataclass(frozen=True)
class Pair:
    """A fixture: its script, and the converted text of each file."""

    script: Path
    files: dict[Path, str]


@dataclass
class Outcome:
    """What a verification came to: whether anything is wrong, and where."""

    found: bool = False
    in_line: bool = False
    sentence: str = ""
    checks: list[str] = field(default_factory=list)


def golden(fixture: str) -> Pair:
    """The fixture as it is."""
    folder = FIXTURES / fixture
    if fixture == "project":
        before, after = folder / "before", folder / "after"
        return Pair(before / "train.py", {before / p.name: p.read_text() for p in sorted(after.glob("*.py"))})
    return Pair(folder / "before.py", {folder / "before.py": (folder / "after.py").read_text()})


def mutated(mutation: Mutation) -> Pair:
    """The fixture with the fault in it.

    Raises:
        ValueError: the text does not occur exactly once, or the fault is not Python.
    """
    pair = golden(mutation.fixture)
    path = pair.script.with_name(mutation.file) if mutation.file else pair.script
    text = pair.files[path]
    if text.count(mutation.old) != 1:
        raise ValueError(f"{mutation.kind}: occurs {text.count(mutation.old)} times in {mutation.fixture}")
    changed = text.replace(mutation.old, mutation.new)
    compile(changed, str(path), "exec", dont_inherit=True)
    return Pair(pair.script, pair.files | {path: changed})


def allowed(mutation: Mutation, pair: Pair) -> set[Site]:
    """The lines that may be pointed to, all those of a statement; of one that holds others, its first.

    Raises:
        ValueError: a piece of text does not occur exactly once.
    """
    found: set[Site] = set()
    for piece in mutation.at:
        places = [
            (path, text.count("\n", 0, text.index(piece)) + 1, text)
            for path, text in pair.files.items()
            if piece in text
        ]
        if len(places) != 1 or places[0][2].count(piece) != 1:
            raise ValueError(f"{mutation.kind}: {piece!r} does not occur once in {mutation.fixture}")
        path, line, text = places[0]
        simple = [
            node
            for node in ast.walk(ast.parse(text))
            if isinstance(node, ast.stmt) and not hasattr(node, "body") and node.lineno <= line
            and line <= (node.end_lineno or node.lineno)
        ]  # fmt: skip
        lines = range(simple[0].lineno, (simple[0].end_lineno or 0) + 1) if simple else [line]
        found |= {(str(path), number) for number in lines}
    return found


def verify(pair: Pair, nursery: Nursery) -> Report:
    """Hold the converted text of a fixture against its original, for a whole run on 1 and on 2 processes."""
    converted = Converted(files={path: text.encode() for path, text in pair.files.items()})
    with (
        mock.patch.object(session, "Nursery", return_value=nursery),
        mock.patch.object(session, "_threads", return_value=1),
    ):
        return session.verify(pair.script, converted=converted, steps=100_000, processes=(2,), limit=300)


def outcome(pair: Pair, lines: set[Site], nursery: Nursery) -> Outcome:
    """Verify a fixture and look for a complaint that names one of the lines."""
    try:
        report = verify(pair, nursery)
    except (VerifyError, SourceError) as error:
        return Outcome(sentence=f"not verified: {error}")
    mapped = LineMap(report.converted.texts())
    originals = {site for line in lines if (site := mapped.original(line)) is not None}
    answer = Outcome()
    for comparison in report.comparisons:
        answer.found |= comparison.overall in WRONG
        if comparison.overall in WRONG and not any(c.verdict in WRONG for c in comparison.checks):
            answer.checks.append(f"[{comparison.run.processes}] {comparison.overall}: {comparison.reason}")
        for check in (check for check in comparison.checks if check.verdict in WRONG):
            text = f"[{comparison.run.processes}] {_place(check)} {check.aspect}: {check.sentence}"
            answer.checks.append(text)
            if not answer.in_line and (check.line in lines or check.original in originals):
                answer.in_line, answer.sentence = True, text
    if not answer.sentence:
        answer.sentence = answer.checks[0] if answer.checks else _overall(report)
    return answer


def try_mutation(mutation: Mutation, nursery: Nursery) -> Outcome:
    """Verify a fixture with its fault."""
    pair = mutated(mutation)
    return outcome(pair, allowed(mutation, pair), nursery)


def plain(text: str, rows: list[Mutation]) -> list[str]:
    """The fixtures of these rows, and with no TEXT all those that have a plain original."""
    folders = [path.name for path in FIXTURES.iterdir() if not text and not path.name.startswith("ddp_")]
    return sorted({*folders, *(mutation.fixture for mutation in rows)})


def _place(check: Check) -> str:
    if check.line is not None:
        return f"line {check.line[1]}"
    return f"original's line {check.original[1]}" if check.original is not None else "no line"


def _overall(report: Report) -> str:
    return ", ".join(f"{c.run.processes} process(es): {c.overall}" for c in report.comparisons)


def _row(kind: str, fixture: str, found: str, line: str, sentence: str) -> None:
    print(f"{kind:53} {fixture:24} {found:7} {line:10} {' '.join(sentence.split())[:240]}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", metavar="TEXT", help="rows whose kind or fixture holds TEXT")
    parser.add_argument("--goldens", action="store_true", help="verify the unchanged fixtures too")
    parser.add_argument(
        "--verbose", action="store_true", help="print every check that is different or failed"
    )
    parser.add_argument("--fail", action="store_true", help=f"exit 1 where fewer than {LIMIT} are found")
    args = parser.parse_args()
    rows = [m for m in MUTATIONS if args.only in m.kind or args.only in m.fixture]
    nursery = SharedNursery(threads=1)
    found = in_line = failing = 0
    try:
        for mutation in rows:
            answer = try_mutation(mutation, nursery)
            found += answer.found
            in_line += answer.in_line
            _row(
                mutation.kind,
                mutation.fixture,
                "found" if answer.found else "missed",
                "right line" if answer.in_line else "-",
                answer.sentence,
            )
            for check in answer.checks if args.verbose else ():
                print(f"    {' '.join(check.split())[:400]}", flush=True)
        print(f"{found} of {len(rows)} found, {in_line} in the right line", flush=True)
        for fixture in plain(args.only, rows) if args.goldens else ():
            answer = outcome(golden(fixture), set(), nursery)
            passes = not answer.found and not answer.sentence.startswith("not verified")
            failing += not passes
            _row("unchanged", fixture, "passes" if passes else "fails", "-", answer.sentence)
    finally:
        nursery.close()
    missed = len(rows) - found
    return int(args.fail and (missed > len(MUTATIONS) - LIMIT or failing > 0))


if __name__ == "__main__":
    sys.exit(main())
