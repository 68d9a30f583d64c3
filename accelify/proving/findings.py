"""The obligations of one script as findings: grouped, and without what is named already; old ones that they refute."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path

from accelify.conversion import Conversion
from accelify.domains.reasons import Reason
from accelify.findings import Finding, Severity
from accelify.heap.modules import text_of
from accelify.heap.transfers import TIME
from accelify.obligations import Obligation, Status, Validation
from accelify.obligations.causes import by_cause, called, cause_of
from accelify.obligations.obligation import BY_HAND
from accelify.obligations.sinks import MISSED, SHARES, TIMES, WARNS
from accelify.proving.origins import Places
from accelify.proving.rules import SPOKEN_OF, SPOKEN_OF_EVERYWHERE, effects_of, rule_of, settled_by
from accelify.proving.wording import because, deciding, distinct, link, of_share, unmixed, what_of
from accelify.source import SourceError, parse, split_lines

_MOST_LINES = 12
_LINES = frozenset({"terminal.write", "log.write"})
# Blank lines and comments between statements that are listed together.
_NEAR = 4
# Where a figure is shown that a finding stands at.
_SHOWN = re.compile(r"is shown in lines? (\d+(?:, \d+)*)")
# Lines of other modules that findings at a call name: "(data.py, lines 3, 5)".
_MENTIONED = re.compile(r"([\w-]+\.py), lines? (\d+(?:, \d+)*)(?: and (others))?")
# What a finding is about: "`a`, `b` hold ...".
_SUBJECT = re.compile(r"(?:(?:, )?`[^`]+`)+")
_WORD = re.compile(r"[^\W\d]\w*")
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_PLAIN = (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Expr, ast.Return)


class Named:
    """What the engine found in one script, beside the findings that there are.

    Args:
        found: what the engine found.
        places: where it found it, in the files as the user knows them.
        conversions: those whose findings count.
        checks: the script was written for several processes.
    """

    def __init__(
        self, found: Validation, places: Places, conversions: Iterable[Conversion], checks: bool = False
    ) -> None:
        self.checks = checks
        self.found = found
        self.places = places
        self._conversions = list(conversions)
        self._modules: dict[str, ast.Module] = {}
        self._old: dict[tuple[Path, int], list[Finding]] = {}
        self._mentioned: dict[tuple[str, int], list[Finding]] = {}
        for conversion in self._conversions:
            for finding in conversion.remaining:
                if finding.code in SPOKEN_OF:
                    place = Path(finding.path).resolve()
                    for line in range(finding.line, max(finding.end_line, finding.line) + 1):
                        self._old.setdefault((place, line), []).append(finding)
                    for file, lines, others in _MENTIONED.findall(finding.message):
                        for number in [*lines.split(", "), *(["0"] if others else [])]:
                            self._mentioned.setdefault((file, int(number)), []).append(finding)

    def findings(self) -> Iterator[tuple[Conversion, Finding]]:
        """A finding for each cause, with the conversion that it goes to."""
        named = [
            one
            for one in self.found.of(Status.NAMED)
            # A warning that stands there several times is no harm.
            if not one.found.endswith(WARNS) and not self._is_spoken_of(one)
        ]
        # Where each process has a name of its own by the clock, what it finds there follows from that.
        names = {_origin(one) for one in named if one.demand == "path" and one.sink != "misuse"} - {None}
        named = [
            one
            for one in named
            if _origin(one) not in names
            or one.demand == "once"
            or (one.demand, one.sink != "misuse") == ("path", True)
        ]
        # What goes past the wrapper is to be called through it, and not to be asked of the model in it.
        past = {(one.path, one.line) for one in named if one.demand == "prepared"}
        named = [one for one in named if one.demand != "wrapper" or (one.path, one.line) not in past]
        # Of data that are others on each process, what is done with them goes without saying.
        apart = {cause_of(one) for one in named if one.demand == "loss" and self.checks} - {()}
        named = [one for one in named if one.sink != "state.write" or cause_of(one) not in apart]
        # A loss that is another one on each process is so too where it is shown, put together as it has to be.
        losses = {
            _step(one.reason.steps()[0])
            for one in named
            if one.sink == "backward" and one.demand in ("loss", "rounds") and one.reason
        }
        named = [one for one in named if one.demand != "content" or losses.isdisjoint(_put_together(one))]
        # What a wrapper does not have is not written either.
        raised = {(one.path, one.line) for one in named if one.demand == "wrapper"}
        named = [one for one in named if one.demand != "unwrapped" or (one.path, one.line) not in raised]
        # Once all ranks come to where they meet, they come to what is shown, too.
        parted = {cause_of(one) for one in named if one.demand == "all ranks"} - {()}
        missed = [one for one in named if one.found.endswith(MISSED) and cause_of(one) in parted]
        for group in by_cause(self._own_first(one for one in named if one not in missed), apart=self.checks):
            if group[0].demand == "all ranks":
                group += [one for one in missed if cause_of(one) == cause_of(group[0])]
            first = group[0]
            rule = rule_of(first.demand)
            path, conversion, origins = self.places.file(first.path)
            if conversion is None or not conversion.changed:
                conversion = self.places.entry
            line, column = origins.of(first.line, first.column)
            end = self._end(first.path, line, column)
            # What is only shown several times by a helper harms nothing.
            harmless = (
                first.sink in _LINES and first.demand == "once" and self._call(first) and not self.checks
            )
            yield conversion, Finding(
                path, line, column, rule.code, rule.name, self._message(group), end and line, end,
                severity=Severity.INFO if harmless else rule.severity, safety=rule.safety, effort=rule.effort,
                evidence=self._evidence(group), fixable=False,
            )  # fmt: skip

    def _own_first(self, named: Iterable[Obligation]) -> list[Obligation]:
        """Those of the script before those of modules that it imports."""
        return sorted(named, key=lambda one: one.path not in ("", self.entry_name))

    @cached_property
    def refuted(self) -> set[Finding]:
        """Old findings at whose places the engine proves the contrary, or to whose places nothing comes."""
        if self.found.stopped or not self._old:
            return set()
        stands: dict[tuple[str, int, str], set[Status]] = {}
        for one in self.found.obligations:
            place, line = self._place(one.path, one.line)
            for name in (str(place), place.name):
                stands.setdefault((name, line, one.demand), set()).add(one.status)
        left_out = {
            (name, line)
            # What was not read may come to them.
            for path, first, last in ([] if self.found.unread else self.found.left_out)
            for place, line in (self._place(path, number) for number in range(first, last + 1))
            for name in (str(place), place.name)
        }
        untrue = set()
        for finding in {one for group in self._old.values() for one in group if settled_by(one)}:
            spots = list(self._spots(finding))
            known = [stands.get((*spot, demand), set()) for spot in spots for demand in settled_by(finding)]
            if set().union(*known) == {Status.PROVED} or (spots and left_out.issuperset(spots)):
                untrue.add(finding)
        asked = {one for group in self._old.values() for one in group if one.code == "ACC405"}
        agreed = {self._place(*test) for test in self.found.agreed} if asked else set()
        return untrue | {one for one in asked if (Path(one.path).resolve(), one.line) in agreed}

    def _spots(self, finding: Finding) -> Iterator[tuple[str, int]]:
        """The files and lines that a finding speaks of; none where it does not say all."""
        place = Path(finding.path).resolve()
        mentioned = _MENTIONED.findall(finding.message)
        if finding.code == "ACC304":
            lines = self._shown_in(finding, place)
        elif shown := _SHOWN.search(finding.message):
            lines = list(map(int, shown[1].split(", ")))
        elif mentioned:
            if not any(others for _, _, others in mentioned):
                yield from ((file, int(n)) for file, numbers, _ in mentioned for n in numbers.split(", "))
            return
        else:
            lines = list(range(finding.line, max(finding.end_line, finding.line) + 1))
        yield from ((str(place), line) for line in lines)

    def _shown_in(self, finding: Finding, place: Path) -> list[int]:
        """The lines of the function around a finding that read what it is about, or what is made of it there."""
        text = next((one.source.text for one in self._conversions if one.place == place), "")
        module = parse(text, place)
        around = [
            node
            for node in ast.walk(module)
            if isinstance(node, _FUNCTIONS) and node.lineno <= finding.line <= (node.end_lineno or 0)
        ]
        scope: ast.AST = max(around, key=lambda node: node.lineno, default=module)
        plain = [one for one in ast.walk(scope) if isinstance(one, _PLAIN)]
        read = {one: _names(one, ast.Load) for one in plain}
        names: set[str] = set()
        more = _named(finding)
        while more - names:
            names |= more
            more = {made for one, those in read.items() if those & names for made in _names(one, ast.Store)}
        return [
            line
            for one, those in read.items()
            if those & names
            for line in range(one.lineno, (one.end_lineno or one.lineno) + 1)
        ]

    def notes(self, said: set[tuple[str, Path, int]] | None = None) -> Iterator[str]:
        """Sentences about the whole script: what its training loop shows, and where the engine stopped.

        Args:
            said: what was noted of which lines already, of other scripts that reach them; it is added to.
        """
        known = set() if said is None else said

        def new(what: str, found: Sequence[Obligation | Reason]) -> list[Obligation | Reason]:
            left = [one for one in found if (what, *self._place(one.path, one.line)) not in known]
            known.update((what, *self._place(one.path, one.line)) for one in left)
            return left

        for share in SHARES:
            if shown := new(share, [one for one in self.found.of(Status.LOOP) if one.found.endswith(share)]):
                yield f"some figures are shown {share} ({self._lines(shown)}); no change is needed"
        if warned := new(WARNS, [one for one in self.found.of(Status.NAMED) if one.found.endswith(WARNS)]):
            yield f"warnings that every process gives: {self._lines(warned)}"
        if means := new("means", self.found.means):
            yield (
                f"averages over batches ({self._lines(means)}): a short last batch counts as much as a full one, so "
                "that these averages can differ a little from those of one process where the last batch is short"
            )
        if sums := new("sums", self.found.sums):
            yield (
                f"sums over samples ({self._lines(sums)}) count the last sample up to N-1 times too often where "
                "the last batch has fewer samples than there are processes; `accelerator.gather_for_metrics` counts it "
                "once"
            )
        if by_hand := new(BY_HAND, [one for one in self.found.obligations if one.found == BY_HAND]):
            yield (
                f"weights that each step changes beside the optimizer ({self._lines(by_hand)}): on N processes 1/N as "
                "often; a moving average of decay d then reaches back N times as many samples, with d ** N as many as "
                "before"
            )
        if self.found.unknown_modules:
            modules = ", ".join(self.found.unknown_modules)
            yield f"not read, as they are neither in the project nor known: {modules} (see docs/models.md)"
        unread: dict[str, list[Reason]] = {}
        for reason in self.found.unread:
            unread.setdefault(reason.text, []).append(reason)
        for text, reasons in unread.items():
            yield f"not read further: {text} ({self._lines(reasons)})"
        if self.not_reached:
            yield f"what these lines show or do is not proved, nor what they call: {self.not_reached}"

    @property
    def not_reached(self) -> str:
        """Where the statements are that the budget did not reach; empty where it reached all."""
        return self._spans(self.found.not_reached)

    def _spans(self, spans: Iterable[tuple[str, int, int]]) -> str:
        """Statements by their first and last lines, those one after the other together."""
        found: list[tuple[str, int, int]] = []
        for path, first, last in sorted(spans):
            if found and found[-1][0] == path and first <= found[-1][2] + _NEAR:
                path, first, before = found.pop()
                last = max(last, before)
            found.append((path, first, last))
        words = []
        for path, first, last in found:
            begin, end = (self.places.at(path, line, self.entry_name) for line in (first, last))
            words.append(begin if begin == end else f"{begin}-{end.rpartition(':')[2]}")
        return _listed(words) if words else ""

    @property
    def entry_name(self) -> str:
        """The script, as the engine names it."""
        path = self.places.entry.source.path
        return path.name if path is not None else ""

    def _place(self, path: str, line: int) -> tuple[Path, int]:
        shown, _, origins = self.places.file(path)
        return Path(shown).resolve(), origins.of(line)[0]

    def _is_spoken_of(self, one: Obligation) -> bool:
        """Whether an old finding says the same: of its place, at a call that leads there, or of its cause."""
        everywhere = {SPOKEN_OF_EVERYWHERE.get(old.code) for group in self._old.values() for old in group}
        if one.demand == "once" and any(begin and one.sink.startswith(begin) for begin in everywhere):
            return True
        place, line = self._place(one.path, one.line)
        of_place = [
            *self._old.get((place, line), []),
            *self._mentioned.get((place.name, line), []),
            *self._mentioned.get((place.name, 0), []),
        ]
        at_calls = [old for call in one.via for old in self._old.get(self._place(*call), [])]
        if one.demand == "once":
            at_calls = [old for old in at_calls if one.sink.startswith(effects_of(old))]
        chain = one.reason.nearest() if one.reason is not None else []
        shown = [*split_lines(text_of(place) or ""), ""][line - 1 : line]  # what the place itself is about
        words = {word for text in [*shown, *(step.text for step in chain)] for word in _WORD.findall(text)}
        of_cause = [
            old
            for step in chain
            for old in self._old.get(self._place(step.path, step.line), [])
            if not (named := _named(old)) or named & words
        ]
        # Of a function that is called where the finding stands.
        inside = {
            name for step in chain if step.path != one.path for name in self._functions(step.path, step.line)
        }
        of_function = [
            old
            for group in self._old.values()
            for old in group
            if old.code == "ACC301" and _named(old) & inside
        ]
        saying = {*of_place, *at_calls, *of_cause, *of_function} - self.refuted
        return any(one.demand in SPOKEN_OF[old.code] for old in saying)

    def _functions(self, path: str, line: int) -> set[str]:
        """The names of the functions that a line stands in."""
        return {
            node.name
            for node in ast.walk(self._module(path))
            if isinstance(node, _FUNCTIONS) and node.lineno <= line <= (node.end_lineno or 0)
        }

    def _module(self, path: str) -> ast.Module:
        if path not in self._modules:
            text = text_of(Path(self.places.file(path)[0])) or ""
            try:
                self._modules[path] = parse(text)
            except SourceError:
                self._modules[path] = parse("")
        return self._modules[path]

    def _end(self, path: str, line: int, column: int) -> int:
        """Where what begins at a place of a file ends in its line, 0 where that is not known."""
        ends = (
            node.end_col_offset
            for node in ast.walk(self._module(path))
            if isinstance(node, (ast.expr, ast.stmt))
            and (node.lineno, node.col_offset, node.end_lineno) == (line, column - 1, line)
        )
        return max((end or 0 for end in ends), default=-1) + 1

    def _message(self, group: Sequence[Obligation]) -> str:
        first = group[0]
        what, way_out = what_of(first)
        call = self._call(first)
        steps = distinct(first.reason.steps()) if first.reason is not None else []
        if first.demand == "content" and (self.checks or TIMES in first.found):
            # That it is of a share is wrong already, whatever is done to it.
            steps = of_share([step for step in steps if not step.cause] or steps)
        elif self.checks:
            steps = unmixed(steps)
        why = because(self._links(first, deciding(steps))) if steps else ""
        text = ": ".join(part for part in (f"{what}{call}", why) if part)
        text = f"{text}; {way_out}" if way_out else text
        others = self._others(group)
        return f"{text}; the same at {_listed(others)}" if others else text

    def _evidence(self, group: Sequence[Obligation]) -> tuple[str, ...]:
        """The steps of the chain and the places that the message leaves out."""
        first, others = group[0], self._others(group)
        steps = distinct(first.reason.steps()) if first.reason is not None else []
        links = self._links(first, [*steps[: _MOST_LINES - 1], *steps[_MOST_LINES - 1 :][-1:]])
        places = [f"the same at {_listed(others, len(others))}"] if len(others) > _MOST_LINES else []
        return (*(links if len(links) > 1 else ()), *places)

    def _links(self, one: Obligation, steps: Iterable[Reason]) -> list[str]:
        return [
            link(step, _noun(self.places.at(step.path, step.line, one.path)) if step.line else "")
            for step in steps
        ]

    def _call(self, one: Obligation) -> str:
        """Where the script calls what leads to a place in another module."""
        calls = [call for call in one.via if call[0] in ("", self.entry_name)]
        if not calls or one.path in ("", self.entry_name):
            return ""
        return f" (called at {self.entry_name}:{self.places.at(*calls[0], calls[0][0])})"

    def _others(self, group: Sequence[Obligation]) -> list[str]:
        """The places of all but the first of a group, with what is called there where that is something else."""
        first = group[0]
        found: dict[str, str] = {}
        here = self.places.at(first.path, first.line, first.path)
        for one in group:
            place = self.places.at(one.path, one.line, first.path)
            name = called(one)
            found.setdefault(place, f"{place} (`{name}`)" if name and name != called(first) else place)
        found.pop(here, None)
        return list(found.values())

    def _lines(self, found: Sequence[Obligation | Reason]) -> str:
        return _listed(self._distinct(found, self.entry_name))

    def _distinct(self, found: Sequence[Obligation | Reason], beside: str) -> list[str]:
        return list(dict.fromkeys(self.places.at(one.path, one.line, beside) for one in found))


def _origin(one: Obligation) -> tuple[str, int, str] | None:
    """The place where a process reads the clock, where that is why something differs."""
    last = one.reason.steps()[-1] if one.reason is not None else None
    return (last.path, last.line, last.text) if last is not None and last.text == TIME else None


def _step(reason: Reason) -> tuple[str, int, str]:
    return reason.path, reason.line, reason.text


def _put_together(one: Obligation) -> Iterator[tuple[str, int, str]]:
    """The operations that gave what an obligation's value is put together of over the ranks; none where it is not."""
    together = False
    for reason in one.reason.steps() if one.reason is not None else ():
        if together:
            yield _step(reason)
        together = together or reason.text.startswith(("gathered", "reduced by"))


def _named(finding: Finding) -> set[str]:
    """The words of the code that a finding is about, none where it is about its place."""
    subject = _SUBJECT.match(finding.message)
    return set(_WORD.findall(subject[0])) if subject else set()


def _names(node: ast.AST, context: type[ast.expr_context]) -> set[str]:
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name) and isinstance(one.ctx, context)}


def _listed(lines: Sequence[str], most: int = _MOST_LINES) -> str:
    shown = ", ".join(lines[:most])
    more = f" and {len(lines) - most} more" if len(lines) > most else ""
    noun = "line " if len(lines) == 1 else "lines "
    return f"{noun if lines[0][0].isdigit() else ''}{shown}{more}"


def _noun(place: str) -> str:
    return f"line {place}" if place.isdigit() else place
