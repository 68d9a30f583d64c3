"""What makes values and objects the same ones in two calls."""

from __future__ import annotations

from collections.abc import Hashable

from accelify.heap.values import Bound, Function, Library, Ref, Value


class Identities:
    """What values are, as parts of keys.

    A method's receiver may be methods whose receivers are methods again, which share theirs: written out, a chain of n
    of them has 2^n parts. So methods and functions that are the same one get a number.
    """

    def __init__(self) -> None:
        self._of_refs: dict[Ref, Hashable] = {}
        self._numbers: dict[Hashable, int] = {}

    def content_of(self, value: Value) -> tuple[Hashable, ...]:
        """A value as a part of a key."""
        const = value.const if isinstance(value.const, Hashable) else id(value.const)
        return (
            value.place,
            tuple(map(self._of, value.refs)),
            value.type,
            type(const),
            const,
            value.optional,
            value.text,
            value.where,
        )

    def _of(self, ref: Ref) -> Hashable:
        """What makes an object the same one in two calls."""
        if isinstance(ref, Library):
            return ref.name
        if not isinstance(ref, (Bound, Function)):
            return ref
        found = self._of_refs.get(ref)
        if found is None:
            parts: Hashable = (
                (ref.method, self.content_of(ref.receiver))
                if isinstance(ref, Bound)
                else (ref.node, ref.outer, tuple(map(self.content_of, ref.defaults.values())))
            )
            found = self._of_refs[ref] = self._numbers.setdefault(parts, len(self._numbers))
        return found
