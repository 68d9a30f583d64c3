"""What calls and statements did that were gone through: done again without them where they read the same."""

from __future__ import annotations

import ast
import operator
from collections.abc import Hashable, Mapping, Sequence

from accelify.domains.replacing import replace
from accelify.heap.identities import Identities
from accelify.heap.pieces import Piece
from accelify.heap.run import Run
from accelify.heap.values import Function, Ref, Value

Call = tuple[Hashable, ...]
Known = dict[Call, list[Piece]]
_MOST_OF_ONE = 8


class Memory:
    """Remembers pieces of the script by what they depend on besides what they read."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.identities = Identities()
        self._calls: Known = {}

    def begin(self, around: Hashable = None) -> None:
        """A piece begins; `around` are the guards and loops around it where they were looked at."""
        run = self.run
        piece = Piece(len(run.guards), len(run.loops), len(run.calls), len(run.events))
        piece.before = around or self._around()
        piece.within = run.shared_loops()
        run.store.start(piece)

    # Calls

    def of_call(self, key: Call, node: ast.AST) -> Piece | None:
        """A call that was gone through and reads what it read, done again; None where there is none."""
        found = self._calls.get(key)
        if found is None:
            return None
        around = self._around()
        for piece in reversed(found):
            if piece.around and piece.before != around:
                continue
            if piece.sites == self._sites(len(piece.sites), node) and self.run.store.is_as_read(piece):
                self._repeat(piece)
                return piece
        return None

    def end_call(self, key: Call, node: ast.AST, result: Value | None) -> None:
        """A call was gone through."""
        piece = self._end()
        piece.result = result
        if piece.alone:
            piece.sites = self._sites(max(0, piece.depth + 1 - piece.first_call), node)
            self._keep(self._calls, key, piece)

    def passed_on(self, model: Ref, value: Value) -> Call:
        """What the call of a sequence of models depends on besides what it reads."""
        return ("passed on", model, self.identities.content_of(value), *self._always())

    def _sites(self, number: int, node: ast.AST) -> tuple[object, ...]:
        """The last calls, with the one that is made now."""
        if not number:
            return ()
        return (*[call for _, call in self.run.calls[len(self.run.calls) - number + 1 :]], node)

    def call(self, function: Function, args: Sequence[Value], keywords: Mapping[str, Value]) -> Call:
        """What a call depends on besides what it reads."""
        content_of = self.identities.content_of
        return (
            "call",
            function.node,
            function.outer,
            tuple(map(content_of, function.defaults.values())) if function.defaults else (),
            tuple(map(content_of, args)),
            tuple((name, content_of(value)) for name, value in keywords.items()) if keywords else (),
            *self._always(),
        )

    # Statements

    def statement(self, stmt: ast.stmt, scope: Ref) -> Call:
        """What a statement depends on besides what it reads: the guards and loops around last."""
        return stmt, scope, self._always(), self._around()

    def of_statement(self, known: Known, key: Call) -> Piece | None:
        """A statement that was gone through in the same call and reads what it read, done again."""
        for piece in reversed(known.get(key, ())):
            if self.run.store.is_as_read(piece):
                self._repeat(piece)
                return piece
        return None

    def end_statement(self, known: Known, key: Call, result: object) -> None:
        """A statement was gone through."""
        piece = self._end()
        piece.result = result
        if piece.alone:
            self._keep(known, key, piece)

    # Both

    def _around(self) -> tuple[Hashable, ...]:
        """The guards and loops around."""
        run = self.run
        return (
            tuple([(guard.kind, guard.place) for guard in run.guards]),
            tuple(
                [
                    (
                        loop.number,
                        loop.shared,
                        loop.parted,
                        loop.whole is None,
                        loop.uneven is None,
                        loop.fewer is None,
                        loop.apart,
                        loop.even,
                        loop.samples,
                        loop.conditions == run.conditions,
                    )
                    for loop in run.loops
                ]
            ),
        )

    def _always(self) -> Call:
        """What is so from some place of the script on, and decides what something gives."""
        run = self.run
        return (
            run.store.redefined,
            run.recording,
            tuple(run.parted_streams),
            run.seeded_apart,
            run.begun_alike,
            run.alike_streams,
            run.logs_once,
            run.split,
            run.on_cpu,
            run.at_model,
            run.accelerated,
            run.grouped,
            run.in_place,
            run.accumulated,
        )

    def _end(self) -> Piece:
        piece = self.run.store.finish()
        piece.events = self.run.events[piece.first_event :]
        piece.born = [(ref, dict(ref.fields)) for ref, _ in piece.born]
        return piece

    def _keep(self, known: Known, key: Call, piece: Piece) -> None:
        pieces = known.setdefault(key, [])
        if len(pieces) == _MOST_OF_ONE:
            del pieces[0]
        pieces.append(piece)

    def _repeat(self, piece: Piece) -> None:
        run = self.run
        run.store.repeat(piece, len(run.calls), run.shared_loops())
        if piece.meets:
            run.ranks_meet()
        if piece.trains:
            run.trains(*piece.trains)
        if piece.parts:
            run.part_loop()
        guards, loops, via = tuple(run.guards), tuple(run.loops), tuple(run.via())
        for event in piece.events:
            inside = len(event.via) - len(via)
            if not (
                _are_identical(event.guards[: piece.guards], guards)
                and _are_identical(event.loops[: piece.loops], loops)
                and event.via[inside:] == via
            ):
                inside = len(event.via) - piece.depth
                event = replace(
                    event,
                    guards=(*guards, *event.guards[piece.guards :]),
                    loops=(*loops, *event.loops[piece.loops :]),
                    via=(*event.via[: max(inside, 0)], *via),
                )
            run.events.append(event)


def _are_identical(one: Sequence[object], other: Sequence[object]) -> bool:
    return len(one) == len(other) and all(map(operator.is_, one, other))
