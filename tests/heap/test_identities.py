"""What makes values the same ones in two calls."""

from __future__ import annotations

from accelify.heap.identities import Identities
from accelify.heap.values import Bound, Instance, Value


def _chain(start: Value, length: int) -> Value:
    """Methods of methods, each of two that share their receiver."""
    value = start
    for _ in range(length):
        value = Value(refs=(Bound(value, "first"), Bound(value, "second")))
    return value


def test_methods_that_share_their_receivers_are_gone_through_once() -> None:
    """Written out this chain has 2^200 parts."""
    identities, one, other = Identities(), Instance(None), Instance(None)
    known = identities.content_of(_chain(Value(refs=(one,)), 200))
    assert identities.content_of(_chain(Value(refs=(one,)), 200)) == known
    assert identities.content_of(_chain(Value(refs=(other,)), 200)) != known
    assert identities.content_of(_chain(Value(refs=(one,)), 199)) != known
