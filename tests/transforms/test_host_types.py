"""What only a tensor on the host is: of one of the CPU's types, or fit to be the lengths of packed sequences."""

from __future__ import annotations

import pytest

from tests.transforms.support import check_transformed, codes, convert

MOVED = "x, y = x.cuda(), y.cuda()"
PACKS = "from torch.nn.utils.rnn import pack_padded_sequence"


@pytest.mark.parametrize(
    "batch",
    [
        f"{MOVED}\nassert isinstance(x, torch.cuda.FloatTensor)",
        f"assert isinstance(i, int)\n{MOVED}",
        f"assert isinstance(x, torch.Tensor)\n{MOVED}",
        f"assert x.dtype == torch.float32\n{MOVED}",
        f"assert isinstance(x, (torch.FloatTensor, torch.cuda.FloatTensor))\n{MOVED}",
        "device = torch.device('cpu')\nassert isinstance(x, torch.FloatTensor)",
    ],
)
def test_types_that_stay(batch: str) -> None:
    conversion = convert(batch=batch)
    assert "ACC121" not in codes(conversion)
    line = batch.replace(MOVED, "").strip().splitlines()[-1]
    assert line in conversion.new_text


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            "assert isinstance(x, torch.FloatTensor)",
            "isinstance(x, (torch.FloatTensor, torch.cuda.FloatTensor))",
        ),
        (
            "assert isinstance(x, (list, torch.LongTensor))",
            "isinstance(x, (list, torch.LongTensor, torch.cuda.LongTensor))",
        ),
        (
            "if x.type() != 'torch.FloatTensor': x = x.float()",
            "x.type() not in ('torch.FloatTensor', 'torch.cuda.FloatTensor')",
        ),
        (
            'flat = y.type() == "torch.LongTensor"',
            'y.type() in ("torch.LongTensor", "torch.cuda.LongTensor")',
        ),
    ],
)
def test_types_of_both_devices(before: str, after: str) -> None:
    conversion = convert(batch=f"{before}\n{MOVED}")
    assert "ACC121" in codes(conversion)
    assert after in conversion.new_text


@pytest.mark.parametrize(
    "batch",
    [
        f"{MOVED}\npacked = pack_padded_sequence(x, [3, 2])",
        f"packed = pack_padded_sequence(x, y.tolist())\n{MOVED}",
        f"packed = pack_padded_sequence(x, y.cpu())\n{MOVED}",
        "packed = pack_padded_sequence(x, torch.tensor([3, 2]))",
    ],
)
def test_lengths_that_stay(batch: str) -> None:
    assert batch.replace(MOVED, "").strip() in convert(imports=PACKS, batch=batch).new_text


def test_lengths_are_fetched() -> None:
    check_transformed(
        "batch",
        f"y = y.squeeze()\npacked = pack_padded_sequence(x.cuda(), y)\n{MOVED}",
        "y = y.squeeze()\npacked = pack_padded_sequence(x, y.cpu())",
        imports=PACKS,
    )


def test_lengths_that_may_be_a_list() -> None:
    packing = "pack_padded_sequence(x.cuda(), y, enforce_sorted=False)"
    conversion = convert(imports=PACKS, loss=f"loss = model({packing}.data).sum()")
    assert 'pack_padded_sequence(x, torch.as_tensor(y, device="cpu"), enf' in conversion.new_text
