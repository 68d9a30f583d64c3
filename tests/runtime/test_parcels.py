"""A batch that is packed for another rank comes out as it was, and takes no more room than its own numbers."""

import pytest
import torch
from torch.utils.data import default_collate

from accelify.runtime.data.parcels import packed, unpacked
from accelify.runtime.nested import leaves

BATCHES = [
    torch.arange(6.0).view(2, 3),
    {"x": torch.tensor([True, False, True]), "name": ["a", "b"], "n": 3},
    (torch.tensor(1.5), torch.empty(0, 3), torch.tensor([1, 2], dtype=torch.int16)),
    [torch.randn(3, dtype=torch.bfloat16), torch.randn(3, dtype=torch.complex64).conj(), None],
    torch.arange(12).view(3, 4).t(),
    default_collate([{"x": torch.ones(2), "y": 1}, {"x": torch.zeros(2), "y": 2}]),
]


@pytest.mark.parametrize("batch", BATCHES)
def test_a_batch_comes_out_as_it_was(batch):
    found = unpacked(*packed(batch))
    assert type(found) is type(batch)
    for one, other in zip(leaves(found), leaves(batch), strict=True):
        if isinstance(other, torch.Tensor):
            torch.testing.assert_close(one, other, rtol=0, atol=0)
        else:
            assert one == other


def test_of_a_share_only_the_share_is_packed():
    whole = torch.arange(100_000.0)
    _, content = packed([whole[10:20], whole[30:31]])
    assert content.numel() == 10 * 4 + 8 + 4 + 12


def test_what_is_no_plain_tensor_stays_in_the_note():
    sparse = torch.eye(3).to_sparse()
    note, content = packed({"s": sparse, "x": torch.ones(1)})
    assert content.numel() == 16
    assert torch.equal(unpacked(note, content)["s"].to_dense(), torch.eye(3))
