"""The store: all writes of the abstract run, in a journal that can be undone and put together at a join."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from accelify.domains.placement import (
    AFTER,
    COUNTED,
    MAIN,
    ROUND,
    UNRELATED,
    Kind,
    Placement,
    joined,
    moved,
    own,
)
from accelify.domains.reasons import Reason
from accelify.domains.rounds import BEGUN
from accelify.heap.paths import joined_text
from accelify.heap.pieces import Piece, Written, is_alike
from accelify.heap.values import (
    MAIN_FLAG,
    RANK,
    UNSET,
    Class,
    Function,
    Guard,
    Key,
    Library,
    ModuleRef,
    Ref,
    Value,
    is_zero,
    newest_scope,
)

# The slot that is written when an object is made at its place of the script.
MADE = "#made"
_FIXED = (Function, Class, ModuleRef, Library)
_OF_DEFINITIONS = (ModuleRef, Class)


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
        # How often a function, a class or an import was replaced.
        self.redefined = 0

    def set(self, owner: Ref, name: str, value: Value | None) -> None:
        """Write, or with None take away."""
        fields = owner.fields
        if self._journals and owner.serial <= self._made[-1]:
            journal = self._journals[-1]
            key = (owner, name)
            if key not in journal:
                journal[key] = fields.get(name)
                self._levels.setdefault(key, []).append(len(self._journals) - 1)
        if isinstance(owner, _OF_DEFINITIONS):
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

    def note(self, owner: Ref, name: str, *, softly: bool = False) -> None:
        """A read by the pieces that did not write there themselves before; `softly` where what is read is only joined
        with what is then written."""
        pieces = self.pieces
        newest = pieces[-1]
        serial = owner.serial
        if serial > newest.made:
            return
        key = (owner, name)
        if key in newest.reads:
            return
        value = owner.fields.get(name)
        if isinstance(owner, _OF_DEFINITIONS) and value is not None and is_fixed(value):
            # Should it be written after all, that counts.
            return
        levels = self._levels.get(key)
        last = levels[-1] if levels else -1
        # Of an object that was made anew nothing is left.
        new = self._levels.get((owner, MADE)) if not serial else None
        newly = max(last, new[-1]) if new else last
        if newly >= newest.level:
            return
        read, of = (value, -1), None
        for piece in reversed(pieces):
            if serial > piece.made or newly >= piece.level or key in piece.reads:
                break
            if of is None or of.round != piece.round or of.shared != piece.shared:
                read = value, self._since(value, serial, last, piece.round, piece.shared)
                of = piece
            if not softly:
                piece.reads[key] = read
            elif key in piece.joins:
                break
            else:
                piece.joins[key] = read

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
        if value is None or is_fixed(value):
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
        round_ = self._rounds[-1] if self._rounds else -1
        shared = self._shared[-1] if self._shared else -1
        all_levels = self._levels
        for reads in (piece.reads, piece.joins):
            for key, (value, since) in reads.items():
                owner, name = key
                now = owner.fields.get(name)
                if now is not value and not is_alike(now, value):
                    return False
                if since >= 0:
                    levels = all_levels.get(key)
                    if since != self._since(now, owner.serial, levels[-1] if levels else -1, round_, shared):
                        return False
        return all(_parts(owner) == names for owner, names in piece.seen.items())

    def repeat(self, piece: Piece, depth: int, within: tuple[int, ...]) -> None:
        """Write what a piece wrote, which reads what it read, now within `depth` calls and these shared loops."""
        if self.pieces:
            for key in piece.reads:
                self.note(*key)
            for key in piece.joins:
                self.note(*key, softly=True)
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
            ref.fields = dict(fields)
        for made, loops in piece.placed.items():
            made.loops = loops if within == piece.within else within + loops[len(piece.within) :]
        for (owner, name), value in piece.writes.items():
            self.set(owner, name, value)

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
        for key, value in journal.items():
            owner, name = key
            self._levels[key].pop()
            after = left[key] = owner.fields.get(name)
            if (
                value is not after
                and isinstance(owner, _OF_DEFINITIONS)
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

    def merged(self, one: Written, other: Written, guard: Guard | None) -> Written:
        """What two ways from here leave together; `guard` is what ranks that may go different ones stand under."""
        together: Written = {}
        for key in dict.fromkeys([*one, *other]):
            now = key[0].fields.get(key[1])
            if self.pieces and (key not in one or key not in other):
                self.note(*key)
            under = guard
            if guard is not None and guard.place.kind is Kind.ROUND and (key not in one or key not in other):
                if not self.is_of_shared_round(*key):
                    # On the one way it has the value of the round before.
                    under = Guard(guard.kind, guard.why)
            written = one.get(key) or other.get(key)
            if key[1] == "#fill":
                under = None  # what filled a list is no value that ranks have
            by_round = guard is not None and _is_by_round(guard)
            alike = under is None or not under.parts_ranks or by_round
            if now is not None and written is not None and written.token == key and alike:
                now = replace(now, token=key, delta=None)  # on the one way it stays what it was
            left, right = one.get(key, now), other.get(key, now)
            # A length that is known on the one way alone is not known.
            found = None if key[1] == "#known" and left != right else join(left, right, under)
            if by_round and found is not None and left is not None and right is not None:
                found = _added_by_round(found, left, right)
            together[key] = found
        return together


def is_fixed(value: Value) -> bool:
    """Whether it is a function, a class or an import."""
    return bool(value.refs) and isinstance(value.refs[0], _FIXED)


def _parts(owner: Ref) -> frozenset[str]:
    """The names of the elements or fields of an object."""
    return frozenset([name for name in owner.fields if name[0] != "#"])


def join(left: Value | None, right: Value | None, guard: Guard | None = None) -> Value | None:
    """What a slot holds after two ways to it; `guard` is what the ranks stood under that went different ones."""
    counted = guard.why if guard is not None and guard.kind == "counted" and not guard.place.is_same else None
    if guard is not None and not guard.parts_ranks:
        guard = None
    if left is None or right is None:
        known = left or right
        if known is None or guard is None or known.refs:
            return known
        return _parted(known, guard)
    if left is right or (left == right and not _is_chosen(left, guard)):
        return left
    refs = left.refs if left.refs == right.refs else tuple(dict.fromkeys([*left.refs, *right.refs]))
    same_constant = (
        left.const is not UNSET and left.const == right.const and type(left.const) is type(right.const)
    )
    place, why = _place(left, right, None if same_constant else guard)
    if counted is not None and (chosen := _by_count(left, right, place)) is not None:
        place, why = chosen, counted
    token, delta = None, None
    if left.token is not None and left.token == right.token and guard is None:
        token = left.token
        deltas = [value.delta for value in (left, right) if value.delta is not None]
        begun = [delta for delta in deltas if delta.needs == BEGUN]
        if len(deltas) == 2 and begun:
            deltas = [replace(delta, needs="") if delta.needs == BEGUN else delta for delta in deltas]
        elif begun:
            token, deltas = None, []
        delta = joined(*deltas) if len(deltas) == 2 else deltas[0] if deltas else None
    elif guard is None:
        for one, other in ((left, right), (right, left)):
            if is_zero(one) and other.delta is not None and other.delta.is_same:
                token, delta = other.token, other.delta  # a count that begins anew
    return Value(
        place,
        why,
        refs,
        _type(left, right),
        left.const if same_constant else UNSET,
        token,
        delta,
        _optional(left, right, guard),
        left.text if same_constant or left.text == right.text != "" else joined_text(left, right),
        left.where if left.where == right.where else "",
    )


def _type(left: Value, right: Value) -> str:
    if left.type == right.type or right.const is None:
        return left.type
    # A rank, and the number of the one process that there is where it has none.
    numbers = RANK in (left.type, right.type) and isinstance(
        left.const if right.type == RANK else right.const, int
    )
    return right.type if left.const is None else RANK if numbers else ""


def _by_count(left: Value, right: Value, place: Placement) -> Placement | None:
    """What a count of the rounds of each process chooses between two numbers or two figures of the round."""
    if left.token is not None or right.token is not None:
        return None
    numbers = [value.const for value in (left, right) if isinstance(value.const, int | float)]
    if len(numbers) == 2 and numbers[0] != numbers[1] and not any(isinstance(one, bool) for one in numbers):
        return moved(UNRELATED, AFTER)
    if place.kind is Kind.ROUND and left.place.kind is right.place.kind:
        return replace(place, needs=COUNTED)
    return None


def _optional(left: Value, right: Value, guard: Guard | None) -> bool | str:
    """Whether one of two values is None on some ways, and whether those are the ways of all but the main process."""
    if (left.const is None) == (right.const is None):
        return left.optional if left.optional == right.optional else True
    of_main = guard is not None and guard.kind in ("main", "others")
    made = right if left.const is None else left
    return MAIN_FLAG if of_main or made.optional == MAIN_FLAG else True


def _is_chosen(value: Value, guard: Guard | None) -> bool:
    """Whether what ranks have that went different ways is another one, though all that is known of it is alike."""
    apart = guard is not None and guard.kind == "divergent" and guard.place.kind is Kind.OWN
    return apart and not value.refs and value.const is UNSET


def _is_by_clock(place: Placement) -> bool:
    return place.is_same or place.kind is Kind.CLOCK


def _is_by_round(guard: Guard) -> bool:
    """Whether it is this rank's round, and nothing else, that decides which way is taken."""
    return guard.kind == "divergent" and guard.place.kind is Kind.ROUND and not guard.place.needs


def _added_by_round(found: Value, left: Value, right: Value) -> Value:
    """A total to which a round adds by a condition of its own: so it does in the original."""
    deltas = [value.delta for value in (left, right) if value.delta is not None]
    if left.token is None or left.token != right.token or not deltas or not all(map(_is_of_round, deltas)):
        return found
    delta = joined(*deltas) if len(deltas) == 2 else deltas[0]
    return replace(
        found, token=left.token, delta=replace(ROUND, samples=None) if delta.kind is Kind.SAME else delta
    )


def _is_of_round(place: Placement) -> bool:
    return place.degree == 0 and place.kind in (Kind.SAME, Kind.ROUND)


def _parted(value: Value, guard: Guard) -> Value:
    """A value that ranks have which went one way, and others do not."""
    if guard.kind == "divergent":
        return value.placed(own("decided by all ranks together"), guard.why)
    return value.placed(MAIN, guard.why) if value.place.is_same else value


def _place(left: Value, right: Value, guard: Guard | None) -> tuple[Placement, Reason | None]:
    objects = [ref for ref in (*left.refs, *right.refs) if not isinstance(ref, Library)]
    if guard is not None and not objects:
        if guard.kind == "divergent":
            if guard.place.kind is Kind.ROUND and all(_is_of_round(value.place) for value in (left, right)):
                # A choice by this rank's round, between values of this round, is one of the original's rounds too.
                mixed = [value for value in (left, right) if value.place.mixed]
                why = next((value.why for value in (*mixed, left, right) if value.why), guard.why)
                rows = left.place.rows and right.place.rows
                samples = 0 if rows and left.place.samples == right.place.samples == 0 else None
                return replace(ROUND, rows=rows, samples=samples, mixed=bool(mixed)), why
            if guard.place.kind is Kind.CLOCK and all(_is_by_clock(value.place) for value in (left, right)):
                return guard.place, guard.why
            return own("decided by all ranks together"), guard.why
        if guard.kind == "main" and left.place.kind is Kind.CLOCK and right.place.is_same:
            return MAIN, guard.why
        parted = left if not left.place.is_same else right
        return (MAIN, guard.why) if parted.place.is_same else (parted.place, parted.why)
    if left.place == right.place:
        return left.place, left.why or right.why
    for one, other in ((left, right), (right, left)):
        # Nothing is there yet on one of the ways, or a total that begins with zero.
        if one.const is None or (is_zero(one) and other.place.kind in (Kind.SAME, Kind.LINEAR, Kind.ROUND)):
            return other.place, other.why
    place = joined(left.place, right.place)
    if place == left.place:
        return place, left.why
    return place, right.why if place == right.place else (right.why or left.why)
