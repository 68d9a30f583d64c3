"""The store: all writes of the abstract run, in a journal that can be undone and put together at a join."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from accelify.domains.placement import (
    Kind,
)
from accelify.domains.replacing import replace
from accelify.heap.joining import added_by_round, is_by_round, is_prepared_of, join
from accelify.heap.pieces import MADE, Piece, Slots, Summary, Written, is_alike
from accelify.heap.values import (
    OF_SOME,
    ONLY,
    Class,
    Container,
    Guard,
    Instance,
    Key,
    ModuleRef,
    Ref,
    Scope,
    Value,
    newest_scope,
)

OF_DEFINITIONS = (ModuleRef, Class)
# How deep in containers what is shown is looked at.
_DEEPEST = 4
# Who has what the main process alone has not, and the other way round.
_OTHERS = {"main": "others", "others": "main"}


class Store:
    """Reads and writes of variables, fields and elements, all as (owner, name)."""

    def __init__(self) -> None:
        # Each level has what stood in a slot before the first write to it on that level.
        self._journals: list[Written] = []
        # The levels on which each slot was written, outer ones first.
        self._levels: dict[Key, list[int]] = {}
        # The newest scope when each level began.
        self._made: list[int] = []
        # The levels at which the rounds of loops began.
        self._rounds: list[int] = []
        self._shared: list[int] = []
        # The pieces of the script that are being gone through and take down what they read, outer ones first.
        self.pieces: list[Piece] = []
        # All slots that were written, in order, also those of writes that were undone.
        self._log: list[Key] = []
        # How many containers were looked into since the budget was last asked.
        self.looks = 0
        # How often a function, a class or an import was replaced.
        self.redefined = 0

    def set(self, owner: Ref, name: str, value: Value | None) -> None:
        """Write, or with None take away."""
        fields = owner.fields
        key = (owner, name)
        self._log.append(key)
        if self._journals and owner.serial <= self._made[-1]:
            journal = self._journals[-1]
            if key not in journal:
                journal[key] = fields.get(name)
                self._levels.setdefault(key, []).append(len(self._journals) - 1)
        if isinstance(owner, OF_DEFINITIONS):
            before = fields.get(name)
            if (
                before is not None
                and is_fixed(before)
                and not (value is not None and is_alike(before, value))
            ):
                self.redefined += 1
        if value is None:
            fields.pop(name, None)
        else:
            fields[name] = value

    # What pieces read

    def note(self, owner: Ref, name: str, *, softly: bool = False, pieces: Sequence[Piece] = ()) -> None:
        """A read by the pieces that did not write there themselves before, all or the first ones; `softly` where what
        is read is only joined with what is then written."""
        pieces = pieces or self.pieces
        newest = pieces[-1]
        serial = owner.serial
        if serial > newest.made:
            return
        key = (owner, name)
        if key in newest.reads:
            return
        value = owner.fields.get(name)
        if isinstance(owner, OF_DEFINITIONS) and value is not None and is_fixed(value):
            # Should it be written after all, that counts.
            return
        levels = self._levels.get(key)
        last = levels[-1] if levels else -1
        # Of an object that was made anew nothing is left.
        new = self._levels.get((owner, MADE)) if not serial else None
        newly = max(last, new[-1]) if new else last
        if newly >= newest.level:
            return
        round_, shared, read = newest.round, newest.shared, None
        for piece in reversed(pieces):
            reads = piece.reads
            if serial > piece.made or newly >= piece.level or key in reads:
                break
            if read is None or round_ != piece.round or shared != piece.shared:
                round_, shared = piece.round, piece.shared
                read = value, self._since(value, serial, last, round_, shared)
            if softly:
                reads = piece.joins
                if key in reads:
                    break
            reads[key] = read

    def look(self, owner: Ref) -> None:
        """A read of all elements, or all fields, of an object."""
        if not self.pieces:
            return
        new = self._levels.get((owner, MADE))
        made = new[-1] if new else -1
        for number, piece in enumerate(reversed(self.pieces)):
            if owner.serial > piece.made or made >= piece.level or owner in piece.seen:
                if not number:
                    return
                break
            piece.seen[owner] = _parts(owner)
        for name in owner.fields:
            if name[0] != "#":
                self.note(owner, name)

    def _since(self, value: Value | None, serial: int, last: int, round_: int, shared: int) -> int:
        """Whether a value was written since a round and a shared round began, as a number; -1 where it adds nothing
        up, so that this does not matter."""
        if value is None or (value.refs and not value.token and _is_whole(value.refs[0])):
            return -1
        found = int(round_ < 0 or last >= round_ or serial > self._made[round_])
        if shared >= 0 and (last >= shared or serial > self._made[shared]):
            found += 2
        return found

    def start(self, piece: Piece, *, own_level: bool = True) -> None:
        """Begin to take down what a piece reads, with `own_level` also what it writes."""
        piece.round = self._rounds[-1] if self._rounds else -1
        piece.shared = self._shared[-1] if self._shared else -1
        if own_level:
            self.begin()
        piece.level = len(self._journals) - 1
        piece.made = self._made[-1]
        piece.start = piece.valid = len(self._log)
        self.pieces.append(piece)

    def finish(self, *, own_level: bool = True) -> Piece:
        """The end of the newest piece."""
        piece = self.pieces.pop()
        if own_level:
            piece.writes = self._commit()
        if self.pieces:
            self.pieces[-1].take(piece, piece.depth)
        return piece

    def is_as_read(self, piece: Piece) -> bool:
        """Whether all that a piece read is as it was."""
        if not all(map(self._is_steady, piece.inner())):
            return False
        steady, others = piece.by_rounds()
        if not self._is_untouched(piece):
            if not _are_there(steady) or not all(_parts(ref) == names for ref, names in piece.seen.items()):
                return False
        round_ = self._rounds[-1] if self._rounds else -1
        shared = self._shared[-1] if self._shared else -1
        for key, value, since in others:
            owner, name = key
            now = owner.fields.get(name)
            if now is not value and not is_alike(now, value):
                return False
            if since >= 0:
                levels = self._levels.get(key)
                if since != self._since(now, owner.serial, levels[-1] if levels else -1, round_, shared):
                    return False
        piece.valid = len(self._log)
        return True

    def _is_untouched(self, piece: Piece) -> bool:
        """Whether nothing was written to what a piece reads itself since that was known to be as it read it; False
        where it costs less to look at what stands there."""
        reads, joins, seen = piece.reads, piece.joins, piece.seen
        if len(self._log) - piece.valid > len(reads) + len(joins) + len(seen):
            return False
        return not any(key in reads or key in joins or key[0] in seen for key in self._log[piece.valid :])

    def _is_steady(self, piece: Piece) -> bool:
        """Whether what does not add up is as a piece read it that was done again in another, and those in it."""
        summary = piece.all_reads()
        if summary.valid >= max(map(self._untouched_from, summary.parts)):
            return True
        if not _are_there(piece.by_rounds()[0]) or not all(map(self._is_steady, piece.inner())):
            return False
        summary.valid = len(self._log)
        return True

    def _untouched_from(self, part: Slots) -> int:
        """From which write on none was to one of some slots; the newest one where it costs less to look at them."""
        log, upto = self._log, part.upto
        part.upto = len(log)
        if len(log) - upto > len(part.slots):
            part.untouched = len(log)
            return part.untouched
        for number in range(upto, len(log)):
            if log[number] in part.written:
                part.untouched = number + 1
        return part.untouched

    def repeat(self, piece: Piece, depth: int, within: tuple[int, ...]) -> None:
        """Write what a piece wrote, which reads what it read, now within `depth` calls and these shared loops."""
        if self.pieces:
            self._take_reads(piece)
            for owner, names in piece.seen.items():
                for outer in reversed(self.pieces):
                    if owner.serial > outer.made or owner in outer.seen:
                        break
                    outer.seen[owner] = names
            self.pieces[-1].take(piece, depth)
            if within != piece.within:
                self.pieces[-1].placed.update(
                    {ref: within + loops[len(piece.within) :] for ref, loops in piece.placed.items()}
                )
        for ref, fields in piece.born:
            self._log += [(ref, name) for name in ref.fields.keys() | fields.keys()]
            ref.fields = dict(fields)
        for made, loops in piece.placed.items():
            made.loops = loops if within == piece.within else within + loops[len(piece.within) :]
        for owner in [owner for owner, name in piece.writes if name == MADE]:
            # What was written to the one before is no part of the one that is made now.
            for name in [name for name in owner.fields if (owner, name) not in piece.writes]:
                self.set(owner, name, None)
        for (owner, name), value in piece.writes.items():
            self.set(owner, name, value)

    def _take_reads(self, piece: Piece) -> None:
        """Note that a piece is done again by the ones that are being gone through."""
        reads, last, unwritten = piece.all_reads(), len(self._journals), True
        for outer in reversed(self.pieces):
            if piece in outer.taken:
                break
            unwritten = unwritten and self._is_unwritten(reads, outer, last)
            last = outer.level
            self._take(piece, outer, unwritten and reads.newest <= outer.made)

    def _take(self, piece: Piece, outer: Piece, apart: bool) -> None:
        """Note what a piece reads in one around it; `apart` where nothing of that was written since that one began."""
        outer.taken[piece] = apart
        reads = piece.all_reads()
        known, made, pieces = outer.reads, outer.made, [outer]
        for key in reads.adding if apart else piece.reads:
            if key not in known and key[0].serial <= made:
                self.note(*key, pieces=pieces)
        for key in reads.joins if apart else piece.joins:
            self.note(*key, softly=True, pieces=pieces)
        for inner in () if apart else piece.inner():
            if inner not in outer.taken:
                read, last = inner.all_reads(), len(self._journals)
                self._take(inner, outer, read.newest <= outer.made and self._is_unwritten(read, outer, last))

    def _is_unwritten(self, reads: Summary, outer: Piece, last: int) -> bool:
        """Whether nothing has been written to what is read since a piece began, on the levels below the last."""
        for part in reads.parts:
            if part.is_large and self._untouched_from(part) <= outer.start:
                continue
            for journal in self._journals[outer.level : last]:
                if journal and not journal.keys().isdisjoint(part.written):
                    return False
        return True

    # Ways

    def begin(self, of_round: bool = False, shared: bool = False) -> None:
        """From here on writes can be undone; `of_round` says that a round of a loop begins, `shared` that the loop's
        rounds are shared out."""
        if of_round:
            self._rounds.append(len(self._journals))
            if shared:
                self._shared.append(len(self._journals))
        self._journals.append({})
        self._made.append(newest_scope())

    def touched_in_round(self, owner: Ref, name: str) -> bool:
        """Whether something was written there since the round of the innermost loop began."""
        return not self._rounds or self._touched_since(self._rounds[-1], owner, name)

    def is_of_shared_round(self, owner: Ref, name: str) -> bool:
        """Whether what stands there was written in this round of the innermost loop whose rounds are shared out."""
        return bool(self._shared) and self._touched_since(self._shared[-1], owner, name)

    def _touched_since(self, first: int, owner: Ref, name: str) -> bool:
        if owner.serial > self._made[first]:
            return True
        levels = self._levels.get((owner, name))
        return levels is not None and bool(levels) and levels[-1] >= first

    def undo(self) -> Written:
        """Take back all writes since the last `begin`, and give what they had left."""
        journal = self._journals.pop()
        self._made.pop()
        if self._rounds and self._rounds[-1] == len(self._journals):
            self._rounds.pop()
            if self._shared and self._shared[-1] == len(self._journals):
                self._shared.pop()
        left: Written = {}
        self._log += journal
        for key, value in journal.items():
            owner, name = key
            self._levels[key].pop()
            after = left[key] = owner.fields.get(name)
            if (
                value is not after
                and isinstance(owner, OF_DEFINITIONS)
                and value is not None
                and is_fixed(value)
            ):
                self.redefined += 1
            if value is None:
                owner.fields.pop(name, None)
            else:
                owner.fields[name] = value
        return left

    def _commit(self) -> Written:
        """Make the writes since the last `begin` those of the level around, and give what they left."""
        journal = self._journals.pop()
        self._made.pop()
        left: Written = {}
        outer = self._journals[-1] if self._journals else None
        made = self._made[-1] if self._made else 0
        level = len(self._journals) - 1
        for key, before in journal.items():
            owner, name = key
            left[key] = owner.fields.get(name)
            levels = self._levels[key]
            if outer is not None and owner.serial <= made and key not in outer:
                outer[key] = before
                levels[-1] = level
            else:
                levels.pop()
        return left

    def write_all(self, written: Written) -> None:
        """Write what another way through the script had left."""
        for (owner, name), value in written.items():
            self.set(owner, name, value)

    @contextmanager
    def outside(self) -> Iterator[None]:
        """Write for good, whatever way through the script is gone now: what a module does when it is imported."""
        outer = self._journals, self._rounds, self._shared, self._made, self._levels, self.pieces
        self._journals, self._rounds, self._shared, self._made, self._levels, self.pieces = (
            [],
            [],
            [],
            [],
            {},
            [],
        )
        try:
            yield
        finally:
            self._journals, self._rounds, self._shared, self._made, self._levels, self.pieces = outer

    def merged(self, one: Written, other: Written, guard: Guard | None, *, in_order: bool = False) -> Written:
        """What two ways from here leave together; `guard` is what ranks that may go different ones stand under, with
        `in_order` those that go the first."""
        together: Written = {}
        lasting = (
            self._lasting(one, other) if guard is not None and guard.place.kind is Kind.ROUND else frozenset()
        )
        for key in dict.fromkeys([*one, *other]):
            now = key[0].fields.get(key[1])
            if self.pieces and (key not in one or key not in other):
                self.note(*key)
            if now is None and isinstance(key[0], Instance) and key[0].cls is not None:
                now = _of_class(key[0].cls, key[1])
            under = guard
            if guard is not None and guard.place.kind is Kind.ROUND and (key not in one or key not in other):
                alone = (key[0], MADE) in (one if key in one else other) and key[0] not in lasting
                if not alone and not self.is_of_shared_round(*key):
                    # On the one way it has the value of the round before.
                    under = Guard(guard.kind, guard.why)
            written = one.get(key) or other.get(key)
            if key[1] == "#fill":
                under = None  # what filled a list is no value that ranks have
            by_round = guard is not None and is_by_round(guard)
            alike = under is None or not under.parts_ranks or by_round
            if now is not None and written is not None and written.token == key and alike:
                now = replace(now, token=key, delta=None)  # on the one way it stays what it was
            if guard is None and (key in one) != (key in other) and is_prepared_of(written, now):
                together[key] = written
                continue
            left, right = one.get(key, now), other.get(key, now)
            if key[1].startswith(ONLY) and now is not None and guard is not None:
                # Bound on some ranks before, and now on those that had it not: on all.
                bound = guard.kind if key in one else _OTHERS.get(guard.kind, "")
                together[key] = now if _OTHERS.get(bound) != now.type else None
                continue
            # A length that is known on the one way alone is not known, but for who has another one.
            unknown = key[1] == "#known" and left != right
            of_some = under is not None and under.kind in _OTHERS
            parted = Value(under.place, under.why) if under is not None and of_some else None
            found = parted if unknown else join(left, right, under, in_order=in_order)
            if by_round and found is not None and left is not None and right is not None:
                found = added_by_round(found, left, right)
            together[key] = found
            if guard is not None and (left is None) != (right is None) and found is not None:
                if guard.kind in OF_SOME and _may_be_unbound(key):
                    bound = guard.kind if left is not None else _OTHERS.get(guard.kind, "")
                    together[(key[0], f"{ONLY}{key[1]}")] = Value(why=guard.why, type=bound)
        return together

    def _lasting(self, one: Written, other: Written) -> frozenset[Ref]:
        """The containers that one of two ways alone has put to where a round before this one finds something."""
        written = [(key, (one.get(key) or other.get(key))) for key in one.keys() ^ other.keys()]
        return frozenset(
            ref
            for key, value in written
            if value is not None and value.refs and not self.is_of_shared_round(*key)
            for ref in value.of(Container)
        )


def _of_class(cls: Class, name: str) -> Value | None:
    """What an object has from its class under a name, where that is no method."""
    found = (ref.fields[name] for ref in cls.line_up() if name in ref.fields)
    value = next(found, None)
    return None if value is None or is_fixed(value) else value


def _may_be_unbound(key: Key) -> bool:
    """Whether it is a name, or an attribute of an object of the script's class that the script sets."""
    if isinstance(key[0], Instance):
        return key[0].cls is not None and key[1][0] not in "#["
    return isinstance(key[0], Scope | ModuleRef)


def is_fixed(value: Value) -> bool:
    """Whether it is a function, a class or an import."""
    return bool(value.refs) and value.refs[0].fixed


def _is_whole(ref: Ref) -> bool:
    """Whether nothing is added up in it: a model is called, and not added to another one."""
    return ref.fixed or isinstance(ref, Instance)


def _are_there(values: Iterable[tuple[Key, Value | None]]) -> bool:
    """Whether the slots still have these values, or ones like them."""
    for (owner, name), value in values:
        now = owner.fields.get(name)
        if now is not value and not is_alike(now, value):
            return False
    return True


def _parts(owner: Ref) -> frozenset[str]:
    """The names of the elements or fields of an object."""
    return frozenset([name for name in owner.fields if name[0] != "#"])


def as_it_is(value: Value, depth: int = 0) -> Value:
    """A value with containers of its own: what the script does to them later changes nothing of what it is now."""
    if depth == _DEEPEST or not any(isinstance(ref, Container) for ref in value.refs):
        return value
    found: list[Ref] = []
    for ref in value.refs:
        made = ref
        if isinstance(ref, Container):
            made = Container(ref.type, ref.store, ref.loops, passing=False)
            made.passing, made.serial = ref.passing, ref.serial
            fields = ref.looked_into(wholly=True)
            made.fields = {name: as_it_is(inner, depth + 1) for name, inner in fields.items()}
        found.append(made)
    return Value(
        value.place,
        value.why,
        tuple(found),
        value.type,
        value.const,
        value.token,
        value.delta,
        value.optional,
        value.text,
        value.where,
    )
