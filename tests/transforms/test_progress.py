"""Progress bars."""

from __future__ import annotations

import pytest

from tests.transforms.support import check_noop, check_transformed

TQDM = "from tqdm import tqdm, trange"


@pytest.mark.parametrize(
    "head",
    [
        "for k in tqdm(range(4), disable=True):",
        "for k in tqdm(range(4), **options):",
        "for k in range(4):",
        "for k in tqdm_like(range(4)):",
    ],
)
def test_others_stay(head: str) -> None:
    check_noop("epoch", f"{head}\n    pass", "ACC202", imports=TQDM, setup="options = {}\ntqdm_like = list")


def test_a_function_of_that_name_stays() -> None:
    check_noop("epoch", "for k in tqdm(range(4)):\n    pass", "ACC202", setup="def tqdm(x):\n    return x")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("tqdm(test_loader)", "tqdm(test_loader, disable=not accelerator.is_local_main_process)"),
        ("trange(4)", "trange(4, disable=not accelerator.is_local_main_process)"),
        (
            "tqdm(range(4), desc='é',)",
            "tqdm(range(4), desc='é', disable=not accelerator.is_local_main_process)",
        ),
        (
            "enumerate(tqdm(test_loader))",
            "enumerate(tqdm(test_loader, disable=not accelerator.is_local_main_process))",
        ),
    ],
)
def test_bars(before: str, after: str) -> None:
    body = "    pass"
    check_transformed("epoch", f"for k in {before}:\n{body}", f"for k in {after}:\n{body}", imports=TQDM)


def test_by_module() -> None:
    check_transformed(
        "epoch",
        "bar = tqdm.tqdm(total=3)",
        "bar = tqdm.tqdm(total=3, disable=not accelerator.is_local_main_process)",
        imports="import tqdm",
    )
