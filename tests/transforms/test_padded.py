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
def without_none(batch):
    batch = list(filter(lambda b: b is not None, batch))
    return torch.utils.data.default_collate(batch)
def chosen(batch):
    batch = [b for b in batch if b[1] >= 0]
    return torch.stack([b[0] for b in batch]), torch.tensor([b[1] for b in batch])
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


@pytest.mark.parametrize(
    ("bound", "whole"),
    [
        ("partial(stacked)", False),
        ("functools.partial(to_the_width_of_all, n=32)", False),
        ("lambda batch: stacked(batch)", False),
        ("partial(longest)", True),
        ("functools.partial(to_the_widest)", True),
        ("lambda batch: tuple(zip(*batch))", True),
    ],
)
def test_a_function_that_puts_batches_together_is_read_under_its_name(bound: str, whole: bool) -> None:
    snippet = "hits = 0\nfor a, b in other:\n    output = model(a)\n    hits += (output.argmax(1) == b).sum().item()\n"
    setup = "import functools\nfrom functools import partial\n" + COLLATES
    made = f"together = {bound}\nother = DataLoader(data, 8, collate_fn=together)"
    conversion = convert(setup=setup, ready=made, epoch=snippet + "print(hits)")
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


WIDTHS = """
import numpy as np
def zeros_size(batch):
    n = max([b[0].size(0) for b in batch])
    out = torch.zeros(len(batch), n)
    for i, b in enumerate(batch):
        out[i, :b[0].size(0)] = b[0]
    return out, torch.stack([b[1] for b in batch])
def zeros_shape(batch):
    n = max(b[0].shape[0] for b in batch)
    out = torch.zeros(len(batch), n)
    return out, torch.stack([b[1] for b in batch])
def sorted_first(batch):
    batch.sort(key=lambda b: len(b[0]), reverse=True)
    n = len(batch[0][0])
    out = torch.zeros(len(batch), n)
    return out, torch.stack([b[1] for b in batch])
def sorted_again(batch):
    batch = sorted(batch, key=lambda b: b[0].size(0), reverse=True)
    n = batch[0][0].size(0)
    out = torch.zeros(len(batch), n)
    return out, torch.stack([b[1] for b in batch])
def longest_sample(batch):
    def func(p):
        return p[0].size(0)
    longest = max(batch, key=func)[0]
    out = torch.zeros(len(batch), longest.size(0))
    return out, torch.stack([b[1] for b in batch])
def sizes(batch):
    sizes = [b[0].size(0) for b in batch]
    out = torch.zeros(len(batch), max(sizes))
    return out, torch.stack([b[1] for b in batch])
def fill(xs):
    n = max(len(x) for x in xs)
    return torch.stack([torch.cat([x, torch.zeros(n - len(x))]) for x in xs])
def helper(batch):
    return fill([b[0] for b in batch]), torch.stack([b[1] for b in batch])
def loop(batch):
    n = 0
    for b in batch:
        if len(b[0]) > n:
            n = len(b[0])
    out = torch.zeros(len(batch), n)
    return out, torch.stack([b[1] for b in batch])
def loop_max(batch):
    n = 0
    for b in batch:
        n = max(n, len(b[0]))
    out = torch.zeros(len(batch), n)
    return out, torch.stack([b[1] for b in batch])
def counts(batch):
    ns = torch.tensor([b[0].size(0) for b in batch])
    out = torch.zeros(len(batch), ns.max())
    return out, torch.stack([b[1] for b in batch])
def np_max(batch):
    n = np.max([b[0].size(0) for b in batch])
    out = torch.zeros(len(batch), n)
    return out, torch.stack([b[1] for b in batch])
class Collate:
    def __call__(self, batch):
        return self.pad([b[0] for b in batch]), torch.stack([b[1] for b in batch])
    def pad(self, xs):
        n = max(x.size(0) for x in xs)
        return torch.stack([torch.cat([x, torch.zeros(n - x.size(0))]) for x in xs])
class Rows(TensorDataset):
    @staticmethod
    def together(batch):
        n = max(b[0].size(0) for b in batch)
        out = torch.zeros(len(batch), n)
        return out, torch.stack([b[1] for b in batch])
    def own(self, batch):
        n = max(b[0].size(0) for b in batch)
        out = torch.zeros(len(batch), n)
        return out, torch.stack([b[1] for b in batch])
rows = Rows(torch.zeros(4), torch.zeros(4))
def fast(batch):
    imgs = [b[0] for b in batch]
    w, h = imgs[0].size(0), imgs[0].size(1)
    out = torch.zeros((len(imgs), 3, h, w))
    return out, torch.tensor([b[1] for b in batch])
def clipped(batch):
    top = max(b[0].max() for b in batch)
    return torch.stack([b[0] / top for b in batch]), torch.stack([b[1] for b in batch])
def cut(batch):
    out = torch.zeros(len(batch), 64)
    for i, b in enumerate(batch):
        n = min(len(b[0]), 64)
        out[i, :n] = b[0][:n]
    return out, torch.stack([b[1] for b in batch])
def by_tensor(batch):
    lengths = torch.tensor([len(b[0]) for b in batch])
    lengths, order = lengths.sort(descending=True)
    out = torch.zeros(len(batch), lengths[0])
    return out, torch.stack([b[1] for b in batch])
def limited(batch):
    n = max(1, len(batch))
    return torch.stack([b[0] for b in batch]) / n, torch.stack([b[1] for b in batch])
"""
BY_THE_SAMPLES = """
zeros_size
zeros_shape
sorted_first
sorted_again
longest_sample
sizes
helper
loop
loop_max
counts
np_max
by_tensor
Collate()
Rows.together
rows.own
""".split()


@pytest.mark.parametrize("collate", BY_THE_SAMPLES)
def test_widths_of_the_longest_sample_in_all_spellings(collate: str) -> None:
    snippet = "hits = 0\nfor a, b in other:\n    output = model(a)\n    hits += (output.argmax(1) == b).sum().item()\n"
    loader = f"other = DataLoader(data, 8, collate_fn={collate})"
    conversion = convert(setup=WIDTHS, ready=loader, epoch=snippet + "print(hits)")
    (said,) = [f.message for f in conversion.remaining if f.code == "ACC303"]
    assert "its batches are padded, each to its own length" in said


@pytest.mark.parametrize("collate", ["cut", "fast", "clipped", "limited"])
def test_widths_that_are_the_same_for_all_batches(collate: str) -> None:
    snippet = "hits = 0\nfor a, b in other:\n    output = model(a)\n    hits += (output.argmax(1) == b).sum().item()\n"
    loader = f"other = DataLoader(data, 8, collate_fn={collate})"
    conversion = convert(setup=WIDTHS, ready=loader, epoch=snippet + "print(hits)")
    assert "gather_for_metrics" in conversion.new_text


SIZES = {
    "1": "",
    "conf.size": "class conf: size = {}\n",
    "conf['size']": "conf = dict(size={})\n",
    "conf.get().size": "class conf:\n    def __init__(self):\n        self.size = {}\n",
    "args.size": (
        "import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('--size', default={})\n"
        "args = parser.parse_args()\n"
    ),
}


@pytest.mark.parametrize("size", SIZES)
def test_of_single_samples_no_more_is_said_than_is_known(size: str) -> None:
    snippet = "hits = 0\nfor a, b in other:\n    output = model(a)\n    hits += (output.argmax(1) == b).sum().item()\n"
    ready = f"other = DataLoader(data, batch_size={size})"
    for other in (*(["8", "1 if x else 2"] if size != "1" else []), "1"):
        conversion = convert(setup=SIZES[size].format(other), ready=ready, epoch=snippet + "print(hits)")
        assert ("gather_for_metrics" in conversion.new_text) == (other != "1")
    (said,) = [f.message for f in conversion.remaining if f.code == "ACC303"]
    assert "its batches are single samples, which may have shapes, and give figures, of their own" in said


@pytest.mark.parametrize("collate", ["without_none", "chosen"])
def test_samples_that_are_left_out_leave_batches_of_other_sizes(collate: str) -> None:
    snippet = "hits = 0\nfor a, b in other:\n    output = model(a)\n    hits += (output.argmax(1) == b).sum().item()\n"
    ready = f"other = DataLoader(data, 8, collate_fn={collate})"
    conversion = convert(setup=COLLATES, ready=ready, epoch=snippet + "print(hits)")
    (said,) = [f.message for f in conversion.remaining if f.code == "ACC303"]
    assert "its collate function leaves samples out" in said
    assert "gather_for_metrics" not in conversion.new_text
