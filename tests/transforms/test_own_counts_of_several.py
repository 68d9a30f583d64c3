"""Losses averaged over several counts of a batch, and over the words of its sentences."""

from __future__ import annotations

import pytest

from tests.transforms.support import codes, convert

HARD = """
class Hard(nn.Module):
    def pick(self, p, t):
        positive = (t > 0).bool()
        negative = (1 - t).bool()
        n = positive.float().sum()
        k = min(int(negative.sum()), int(3 * n))
        worst, _ = torch.topk(F.cross_entropy(p[negative], t[negative], reduction="none"), k)
        chosen = F.cross_entropy(p[positive], t[positive], reduction="sum")
        return (chosen + worst.sum()) / (n + k).float()
    def forward(self, scores, y):
        return self.pick(scores.view(-1, 2), y.view(-1))
criterion = Hard()
"""
PACKED = "from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence\ncriterion = nn.CrossEntropyLoss()\n"


@pytest.mark.parametrize(
    ("setup", "loss", "said"),
    [
        (HARD, "loss = criterion(model(x), y)", "divided by `(n + k).float()`"),
        (
            PACKED,
            "words = pack_padded_sequence(y[:, None], [1] * 8, batch_first=True)[0]\nloss = criterion(model(x), words)",
            "averaged over `pack_padded_sequence(",
        ),
        (
            PACKED,
            "words = pack_padded_sequence(y[:, None], [1] * 8)\nloss = F.cross_entropy(model(x), words.data)",
            "averaged over `pack_padded_sequence(",
        ),
    ],
)
def test_counts_that_differ_between_shares(setup: str, loss: str, said: str) -> None:
    conversion = convert(setup=setup, loss=loss)
    (found,) = [f for f in conversion.remaining if f.code == "ACC425"]
    assert said in found.message


@pytest.mark.parametrize(
    "loss",
    [
        # A quotient of sums is no mean over a count.
        "p = model(x).softmax(1)[:, 0]\nloss = 1 - 2 * (p * y).sum() / (p.sum() + y.sum())",
        "z = model(x)\npacked = pack_padded_sequence(z, [1] * 8)\nloss = criterion(model(x), y)",
        "words = pack_padded_sequence(x, [1] * 8)\nloss = criterion(model(pad_packed_sequence(words)[0]), y)",
    ],
)
def test_what_is_no_such_count(loss: str) -> None:
    assert "ACC425" not in codes(convert(setup=PACKED, loss=loss))
