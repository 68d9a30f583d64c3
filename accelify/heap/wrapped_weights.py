"""The weights of a wrapped model, under the names that the wrapper gives them."""

from __future__ import annotations

from accelify.domains.replacing import replace
from accelify.heap.values import TENSOR, Value

# The type of the weights with those names, which their keys have too, and of those without.
WRAPPED_WEIGHTS, BARE_WEIGHTS = "#wrapped weights", "#bare weights"


def under_key(value: Value, key: Value) -> Value:
    """What is put into a dictionary under a key: a weight under another name than it had lost the wrapper's."""
    if value.type != WRAPPED_WEIGHTS or key.type == WRAPPED_WEIGHTS:
        return value
    return replace(value, type=TENSOR)
