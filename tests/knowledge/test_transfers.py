"""What the tables call row by row, linear or a reduction is, on parts of a batch and on the whole."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from accelify.knowledge import Knowledge
from accelify.knowledge.rows import TABLES, read_table

torch = pytest.importorskip("torch")

KNOWLEDGE = Knowledge()
# What functions raise that want other arguments.
WANTS_SOMETHING_ELSE = (
    TypeError, RuntimeError, ValueError, AttributeError, IndexError, NotImplementedError, AssertionError,
)  # fmt: skip
# These move the axis of the rows elsewhere, so that the concatenation is along another axis.
MOVES_AXES = set(
    "torch.t torch.adjoint torch.Tensor.t torch.Tensor.adjoint torch.Tensor.t_ numpy.transpose "
    "numpy.ndarray.transpose numpy.matrix_transpose numpy.permute_dims torch.Tensor.permute".split()
)
# The result is a matrix or a block beside the rows.
ADDS_AXES = set("torch.atleast_3d torch.Tensor.atleast_3d torch.atleast_2d".split())
# A mean of those that are numbers, a mean with weights: of all values in this test, but not in general.
MEANS_OF_SOME = ("torch.nanmean", "torch.Tensor.nanmean", "numpy.nanmean", "numpy.average")
WHOLE = np.random.default_rng(0).uniform(0.1, 0.9, (6, 5))
PARTS = (WHOLE[:2], WHOLE[2:])


def functions(library: str, *transfers: str) -> list[str]:
    table = read_table((TABLES / f"{library}.models").read_text(), library)
    names = []
    for name in table.rows:
        parent = name.rpartition(".")[0]
        if parent not in (library, "torch.Tensor", "torch.nn.functional", "numpy.ndarray") or "*" in name:
            continue
        row = KNOWLEDGE.row(name)
        assert row is not None
        if row.transfer in transfers and not row.mutates and name not in MOVES_AXES | ADDS_AXES:
            names.append(name)
    return names


def called(name: str, value: np.ndarray[Any, Any]) -> Any:
    """The result for one tensor or array, or for two, as an array; None where the function wants something else."""
    library, *words = name.split(".")
    found: Any = {"torch": torch, "numpy": np}[library]
    result = None
    for count in (1, 2):
        values = (value, value * 0.7)[:count]
        arguments = [torch.tensor(each) if library == "torch" else each.copy() for each in values]
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                function = found
                for word in words:
                    function = getattr(function, word)
                result = function(*arguments) if callable(function) else None
        except WANTS_SOMETHING_ELSE:
            continue
        break
    if isinstance(result, torch.Tensor):
        result = result.detach() if result.layout == torch.strided else result.detach().to_dense()
        wider = (
            torch.cdouble
            if result.is_complex()
            else torch.double
            if result.is_floating_point()
            else result.dtype
        )
        result = result.to(wider).resolve_conj().resolve_neg().numpy()
    if isinstance(result, list):
        result = np.array(result)
    return (
        result if isinstance(result, np.ndarray | np.generic) and np.asarray(result).dtype != object else None
    )


def both(name: str) -> tuple[Any, list[Any]] | None:
    """The function of the whole batch, and of its parts."""
    if (whole := called(name, WHOLE)) is None:
        return None
    return whole, [called(name, part) for part in PARTS]


def random(name: str) -> bool:
    """Whether two calls differ: those of training mode, of memory that nobody has written, and the like."""
    first, second = called(name, WHOLE), called(name, WHOLE)
    return not np.array_equal(first, second, equal_nan=first is not None and first.dtype.kind == "f")


def concatenation(whole: Any, parts: list[Any]) -> bool:
    """Whether the whole is the parts put together along the first axis."""
    fits = np.ndim(parts[0]) > 0 and np.shape(parts[0])[1:] == np.shape(parts[1])[1:]
    return fits and equal(whole, np.concatenate(parts))


def equal(one: Any, other: Any) -> bool:
    return np.shape(one) == np.shape(other) and bool(np.allclose(one, other, equal_nan=True))


def wrong(names: list[str], right: Callable[[str, Any, list[Any]], bool]) -> tuple[list[str], int]:
    found, tried = [], 0
    for name in names:
        if (results := both(name)) is None or random(name):
            continue
        tried += 1
        if any(part is None for part in results[1]) or not right(name, *results):
            found.append(name)
    return found, tried


@pytest.mark.parametrize(("library", "least"), [("torch", 300), ("numpy", 120)])
def test_row_by_row(library: str, least: int) -> None:
    names = [
        name
        for name in functions(library, "rows", "linear", "reshaped", "plus", "minus", "times", "over")
        if "empty" not in name and "dropout" not in name
    ]
    found, tried = wrong(names, lambda name, whole, parts: concatenation(whole, parts))
    assert found == []
    assert tried >= least


@pytest.mark.parametrize(("library", "least"), [("torch", 40), ("numpy", 20)])
def test_linear(library: str, least: int) -> None:
    """The mean over ranks passes through."""
    wrong_ones, tried = [], 0
    for name in functions(library, "linear", "reshaped", "turned"):
        one, other = called(name, WHOLE), called(name, WHOLE[::-1] ** 2)
        middle = called(name, (WHOLE + WHOLE[::-1] ** 2) / 2)
        if one is None or other is None or middle is None:
            continue
        tried += 1
        if not np.allclose(middle, (one + other) / 2, rtol=1e-2):
            wrong_ones.append(name)
    assert wrong_ones == []
    assert tried >= least


@pytest.mark.parametrize("library", ["torch", "numpy"])
@pytest.mark.parametrize(
    ("transfer", "together"),
    [
        ("sum", lambda parts: parts[0] + parts[1]),
        ("mean", lambda parts: (2 * parts[0] + 4 * parts[1]) / 6),
        ("max", max),
        ("min", min),
        ("any", any),
        ("all", all),
    ],
)
def test_reductions(library: str, transfer: str, together: Callable[[list[Any]], Any]) -> None:
    found, tried = wrong(
        functions(library, transfer), lambda name, whole, parts: bool(np.allclose(whole, together(parts)))
    )
    assert found == []
    assert tried


@pytest.mark.parametrize("library", ["torch", "numpy"])
def test_figures_of_all_rows_are_not_means_of_parts(library: str) -> None:
    """`reduce` is for what is neither the sum nor the mean of its parts: else a better word stands in the row."""
    better = []
    for name in functions(library, "reduce"):
        results = both(name)
        if (
            name in MEANS_OF_SOME
            or results is None
            or np.ndim(results[0]) != 0
            or any(np.ndim(part) != 0 for part in results[1])
        ):
            continue
        whole, parts = results
        if np.allclose(whole, parts[0] + parts[1]) or np.allclose(whole, (2 * parts[0] + 4 * parts[1]) / 6):
            better.append(name)
    assert better == []
