"""Batch sizes that count the GPUs of the machine."""

from __future__ import annotations

import pytest

from tests.transforms.support import check_noop, check_transformed, convert

MODEL = "model = nn.Linear(4, 2)\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
COUNT = "torch.cuda.device_count()"
SHARED = "train = DataLoader(data, batch_size=size)\nfor x, y in train:\n    F.cross_entropy(model(x), y).backward()"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (f"size = 8 * {COUNT}", "size = 8"),
        (f"size = {COUNT} * 8", "size = 8"),
        (f"size = 8 * max(1, {COUNT})", "size = 8"),
        (f"n = {COUNT}\nsize = 8 * n", f"n = {COUNT}\nsize = 8"),
        (f"n = {COUNT} if torch.cuda.is_available() else 1\nsize = 8 * n", None),
        (f"size = 8\nn = {COUNT}\nif n > 1:\n    size *= n", f"size = 8\nn = {COUNT}"),
        (
            f"size = 8\nif {COUNT} > 1:\n    size *= {COUNT}\n    n = 1",
            f"size = 8\nif {COUNT} > 1:\n    n = 1",
        ),
    ],
)
def test_the_factor_goes(before: str, after: str | None) -> None:
    conversion = convert(build=f"{MODEL}{before}", end=SHARED)
    assert "ACC413" in {f.code for f in conversion.applied}
    assert "size = 8\n" in conversion.new_text
    if after is not None:
        check_transformed("build", f"{MODEL}{before}", f"{MODEL}{after}", end=SHARED)


@pytest.mark.parametrize(
    "size", ["size = 8 * 2", f"size = 8 * 2\nworkers = 4 * {COUNT}", f"n = {COUNT}\nsize = 8"]
)
def test_other_sizes_stay(size: str) -> None:
    check_noop("build", f"{MODEL}{size}", "ACC413", end=SHARED)


def test_a_total_counts_the_gpus_rightly() -> None:
    text = convert("total", build=f"{MODEL}size = 8 * {COUNT}", end=SHARED).new_text
    assert f"size = 8 * {COUNT}" in text
