"""Evaluation loops over samples that need not have one shape."""

from __future__ import annotations

import pytest

from tests.transforms.support import codes, convert

GATHER = "output, b = accelerator.gather_for_metrics((output, b))"


COLLATES = """
WIDTH = 64
def lists(batch):
    return torch.stack([b[0] for b in batch]), [b[1] for b in batch]
def longest(batch):
    n = max([b[0].size(0) for b in batch])
    return torch.stack([F.pad(b[0], (0, n - b[0].size(0))) for b in batch]), torch.stack([b[1] for b in batch])
def stacked(batch):
    xs, ys = zip(*batch)
    xs = torch.stack(xs)
    ys = torch.stack(ys)
    return xs, ys
def texts(batch):
    return tokenizer([b[0] for b in batch], padding=True)
def by_lengths(batch):
    take = lambda k: [b[k] for b in batch]
    lens = take(1)
    n = torch.tensor(lens).max()
    return torch.tensor([b[0].tolist() + [0] * (n - len(b[0])) for b in batch]), lens
def to_the_widest(batch):
    lens = [b[1] for b in batch]
    n = sorted(lens)[-1]
    return torch.tensor([b[0].tolist() + [0] * (n - len(b[0])) for b in batch]), lens
def to_a_width(batch):
    n = 64
    rows = torch.tensor([b[0].tolist() + [0] * (n - len(b[0])) for b in batch])
    return rows, torch.tensor([b[1] for b in batch])
def to_the_width_of_all(batch, n=WIDTH):
    rows = torch.tensor([b[0].tolist() + [0] * (n - len(b[0])) for b in batch])
    return rows, torch.tensor([b[1] for b in batch])
"""


@pytest.mark.parametrize(
    ("loader", "whole"),
    [
        ("DataLoader(data, 8, collate_fn=lists)", True),
        ("DataLoader(data, 8, collate_fn=longest)", True),
        ("DataLoader(data, 8, collate_fn=texts)", True),
        ("DataLoader(data, 8, collate_fn=lambda batch: tuple(zip(*batch)))", True),
        ("DataLoader(data, 1)", True),
        ("DataLoader(data, 8, collate_fn=by_lengths)", True),
        ("DataLoader(data, 8, collate_fn=to_the_widest)", True),
        ("DataLoader(data, 8, collate_fn=stacked)", False),
        ("DataLoader(data, 8, collate_fn=to_a_width)", False),
        ("DataLoader(data, 8, collate_fn=to_the_width_of_all)", False),
        ("DataLoader(data, 8)", False),
    ],
)
def test_samples_that_need_not_have_one_shape_keep_the_data_whole(loader: str, whole: bool) -> None:
    snippet = "hits = 0\nfor a, b in other:\n    output = model(a)\n    hits += (output.argmax(1) == b).sum().item()\n"
    conversion = convert(setup=COLLATES, ready=f"other = {loader}", epoch=snippet + "print(hits)")
    assert ("ACC303" in codes(conversion)) is whole
    assert ("gather_for_metrics" in conversion.new_text) is not whole


@pytest.mark.parametrize("collate", ["by_lengths", "to_the_widest"])
def test_lists_of_lengths_beside_padded_rows_are_not_the_reason(collate: str) -> None:
    snippet = "hits = 0\nfor a, b in other:\n    output = model(a)\n    hits += (output.argmax(1) == b).sum().item()\n"
    loader = f"other = DataLoader(data, 8, collate_fn={collate})"
    conversion = convert(setup=COLLATES, ready=loader, epoch=snippet + "print(hits)")
    (said,) = [f.message for f in conversion.remaining if f.code == "ACC303"]
    assert "its batches are padded, each to its own length" in said


def test_lists_are_not_said_to_hold_tensors() -> None:
    snippet = "hits = 0\nfor a, b in other:\n    output = model(a)\n    hits += (output.argmax(1) == b).sum().item()\n"
    loader = "other = DataLoader(data, 8, collate_fn=lists)"
    conversion = convert(setup=COLLATES, ready=loader, epoch=snippet + "print(hits)")
    (said,) = [f.message for f in conversion.remaining if f.code == "ACC303"]
    assert "its batches hold lists, with an entry for each sample" in said
