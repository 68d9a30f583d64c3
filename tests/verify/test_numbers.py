"""Texts of words and numbers: what rounding may do to a number that is shown, and what it may not."""

from __future__ import annotations

import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from accelify.verify.compare.numbers import (
    Match,
    compare_numbers,
    compare_parsed,
    compare_texts,
    compare_values,
    normal,
    parse,
)

TOLERANCE = 1e-5
FORMATS = ["{:.3f}", "{:.6f}", "{:.4e}", "{:.5g}", "{:10.4f}", "{!r}", "{:.2%}", "{:+.4f}"]


def match(a: str, b: str, tolerance: float = TOLERANCE, size: float = 0.0) -> Match:
    (x,), (y,) = parse(a).numbers, parse(b).numbers
    return compare_numbers(x, y, tolerance, size)


@given(
    st.floats(1e-3, 1e6),
    st.sampled_from([-1.0, 1.0]),
    st.floats(-0.9 * TOLERANCE, 0.9 * TOLERANCE),
    st.sampled_from(FORMATS),
)
def test_a_change_within_the_tolerance_is_never_different(
    size: float, sign: float, change: float, form: str
) -> None:
    value = sign * size
    one, other = form.format(value), form.format(value * (1 + change))
    # What is shown without a point is taken for a count.
    assume(not all(number.whole for text in (one, other) for number in parse(text).numbers))
    assert match(one, other) <= Match.NEAR


@given(st.floats(0.1, 1e3), st.floats(1e-4, 10.0), st.sampled_from(FORMATS), st.booleans())
def test_a_change_beyond_tolerance_and_last_digit_is_different(
    value: float, change: float, form: str, down: bool
) -> None:
    other = value / (1 + change) if down else value * (1 + change)
    (x,), (y,) = parse(form.format(value)).numbers, parse(form.format(other)).numbers
    unit = min(x.unit, y.unit)
    assume(abs(x.value - y.value) > 1.5 * unit + TOLERANCE * max(x.value, y.value))
    assert compare_numbers(x, y, TOLERANCE) is Match.DIFFERENT


@given(st.integers(-(10**9), 10**9), st.integers(-3, 3))
def test_counts_are_exact(count: int, more: int) -> None:
    expected = Match.DIFFERENT if more else Match.SAME
    assert match(f"n {count}", f"n {count + more}") is expected


def test_a_step_of_the_last_digit_is_rounding_where_the_tolerance_makes_it_likely() -> None:
    assert match("0.5512", "0.5513") is Match.ROUNDING
    assert match("0.55", "0.56") is Match.NEAR
    assert match("0.55", "0.56", tolerance=1e-3) is Match.ROUNDING
    assert match("0.5512", "0.5514") is Match.DIFFERENT
    assert match("45%", "46%") is Match.NEAR
    assert match("9.9e-5", "1.0e-4") is Match.NEAR


def test_shortest_forms_end_where_the_number_does() -> None:
    assert match("0.1", "0.05") is Match.DIFFERENT
    assert match("0.5", "0.499999") is Match.ROUNDING
    assert match("1e-05", "2e-04") is Match.DIFFERENT


def test_nan_and_infinity() -> None:
    assert match("nan", "nan") is Match.SAME
    assert match("inf", "-inf") is Match.DIFFERENT
    assert match("loss nan", "loss 0.1") is Match.DIFFERENT
    assert [number.text for number in parse("information nan, infinite").numbers] == ["nan"]


def test_what_is_left_of_larger_numbers_carries_their_rounding() -> None:
    assert match("1.2e-09", "3.1e-09") is Match.DIFFERENT
    assert match("1.2e-09", "3.1e-09", size=0.5) is Match.ROUNDING
    assert compare_values(1.2e-9, 3.1e-9, TOLERANCE, 0.5) is Match.ROUNDING
    assert compare_values(math.nan, math.nan, 0) is Match.SAME
    assert compare_values(1.0, math.inf, TOLERANCE) is Match.DIFFERENT


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ("epoch 1  loss 0.5000001", "epoch 1 loss 0.5000002", Match.ROUNDING),
        ("epoch 1 loss 0.5", "epoch 2 loss 0.5", Match.DIFFERENT),
        ("best", "new best", Match.DIFFERENT),
        ("tensor(0.5512, grad_fn=<MulBackward0>)", "tensor(0.5512)", Match.SAME),
        ("tensor([1.0000, 2.5000])", "tensor([1.0001, 2.5000])", Match.ROUNDING),
        ("tensor([1.0000, 2.5000])", "tensor([1.0000])", Match.DIFFERENT),
        ("<Model object at 0x7f33aa10>", "<Model object at 0x7f44bbbb0>", Match.SAME),
        ("saved to /tmp/tmpab12/x.pt", "saved to /tmp/tmpzz99q/x.pt", Match.SAME),
        ("saved to runs/a.pt", "saved to runs/b.pt", Match.DIFFERENT),
        ("2026-11-28", "2026-11-29", Match.DIFFERENT),
    ],
)
def test_texts(a: str, b: str, expected: Match) -> None:
    assert compare_texts(a, b, TOLERANCE) is expected


def test_a_date_has_no_negative_numbers() -> None:
    assert [number.value for number in parse("2026-11-28 at -3.5").numbers] == [2026, 11, 28, -3.5]


def test_normal_keeps_every_place() -> None:
    text = "tensor(1.5, grad_fn=<A>) at 0x7f001122 loss 0.25"
    assert len(normal(text, True)) == len(text)
    assert parse(normal(text, True)).numbers[-1].start == text.index("0.25")


def test_positions_that_are_left_out_are_not_compared() -> None:
    compared = compare_parsed(parse("0.5 in 3.2 s"), parse("0.5 in 9.9 s"), TOLERANCE, (), {1})
    assert compared.match is Match.SAME
    assert compared.matches == (Match.SAME, None)
