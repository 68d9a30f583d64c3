"""How a loss goes by the samples of its batch, in a word, and what two such losses are together."""

from __future__ import annotations

MEAN, SUM, MIXED, NEUTRAL, UNCLEAR = "mean", "sum", "mixed", "neutral", "unclear"
# A term over the weights alone: it is the same on every process, whatever the batch.
PENALTY = "penalty"


def either(a: str, b: str) -> str:
    """What is known when it can be one or the other."""
    if a == b or b == NEUTRAL:
        return a
    if a in (NEUTRAL, PENALTY):
        return b
    if b == PENALTY:
        return a
    if UNCLEAR in (a, b):
        return b if a == UNCLEAR else a
    return MIXED


def together(a: str, b: str) -> str:
    """What a sum of two losses is. A term over the weights fits an averaged loss only."""
    if PENALTY in (a, b):
        other = b if a == PENALTY else a
        return {SUM: MIXED, NEUTRAL: PENALTY}.get(other, other)
    return either(a, b)
