"""What becomes of the rows of a batch where an operation does not go row by row: each depends on others."""

from __future__ import annotations

from collections.abc import Iterable

from accelify.domains.placement import (
    AHEAD,
    BESIDE,
    PEAK,
    Kind,
    Placement,
    function,
    is_figure,
    turned,
    unsure,
    unturned,
    wide,
)
from accelify.domains.replacing import replace


def mixing(place: Placement) -> Placement:
    """What a function gives whose rows depend on other rows of the batch."""
    if place.kind is Kind.ROUND:
        return replace(place, samples=None, mixed=True)
    return wide(None, rows=True) if place.kind is Kind.WIDE else function((place,))


def at_axis(place: Placement, axis: int) -> Placement:
    """The same with its rows along an axis, which for one that is counted from the end may be any but the first."""
    place = replace(place, form="") if place.form else place
    return unturned(place) if axis == 0 else turned(place if axis > 0 else unsure(place), max(axis, 1))


def ahead(place: Placement) -> Placement:
    """Rows with an axis of one put ahead of theirs, where they are known to lie along the first."""
    form = AHEAD if place.sure and not (place.turned or place.form) else ""
    return replace(turned(unsure(place)) if place.axes else unsure(place), form=form)


def turned_over(place: Placement) -> Placement:
    """The same with its first two axes exchanged."""
    place = replace(place, form="") if place.form else place
    return unturned(place) if place.turned else turned(place)


def meeting(
    places: Iterable[Placement], *, of_peaks: bool = True, of_figures: bool = False, stretched: bool = False
) -> str:
    """How an operation goes elementwise over rows of a batch and others of the same batch, in words; "" where it goes
    row by row.

    Args:
        places: of its operands.
        of_peaks: whether what it gives goes by the largest of all rows where that is an operand beside rows.
        of_figures: whether it goes by a mean or a sum over all rows where that is.
        stretched: whether arrays of fewer axes get more in front, so that their rows come to lie along another one.
    """
    found = [place for place in places if place.kind is Kind.ROUND]
    forms = {place.form for place in found}
    if (AHEAD in forms and BESIDE in forms) or (stretched and _of_other_shapes(found)):
        return "puts each row of the batch beside all others"
    if not any(place.rows for place in found):
        return ""
    if of_peaks and PEAK in forms:
        return "goes by the largest or smallest of all rows"
    if of_figures and any(map(is_figure, found)):
        return "goes by a mean or a sum over all rows"
    return ""


def _of_other_shapes(places: Iterable[Placement]) -> bool:
    rows = [place for place in places if place.rows and not place.turned and place.form in ("", BESIDE)]
    return len({place.axes for place in rows if place.axes}) > 1


def meets(segment: str, words: str) -> str:
    """What is said of such an operation."""
    return f"`{segment}` {words}, each process that of its batch"
