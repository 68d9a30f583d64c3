"""Tables and counts of one process's samples, and weights that go on from its figures: the engine names them."""

from __future__ import annotations

import pytest

from accelify.proving import prove
from tests.transforms.support import codes, convert

PAIRS = "for a, b in zip(y.tolist(), model(x).argmax(1).tolist()):\n    kept[a, b] += 1"
WEIGHT = "weight = 0.0\n"
WEIGHED = "fake = model(torch.zeros_like(x)).mean()\nloss = F.cross_entropy(model(x), y) - weight * fake"


@pytest.mark.parametrize(
    ("fresh", "body"),
    [
        ("kept = np.zeros((2, 2))", PAIRS),
        ("kept = [0, 0]", "for k in range(y.size(0)):\n    kept[y[k]] += 1"),
        ("kept = 0", "kept = max(kept, loss.item())"),
        ("kept = {}", "kept[x.sum().item()] = loss.item()"),
    ],
)
def test_a_table_or_an_extreme_that_is_shown(fresh: str, body: str) -> None:
    conversion = convert(
        imports="import numpy as np", ready=fresh, update=f"optimizer.step()\n{body}", end="print(kept)"
    )
    prove([conversion], conversion)
    assert "ACC701" in codes(conversion)


@pytest.mark.parametrize(
    ("added", "test", "code"),
    [
        ("seen += 8", "seen > 40", "ACC706"),
        ("seen -= 8", "seen < -40", "ACC706"),
        ("seen += len(x)", "seen > 40", "ACC704"),
        ("seen -= x.size(0)", "seen < -40", "ACC704"),
    ],
)
def test_a_count_of_samples_that_ends_a_loop(added: str, test: str, code: str) -> None:
    conversion = convert(ready="seen = 0", update=f"optimizer.step()\n{added}\nif {test}:\n    break")
    prove([conversion], conversion)
    assert code in codes(conversion)


@pytest.mark.parametrize(
    ("update", "named"),
    [
        ("weight = weight + 0.1 * (loss - fake).item()", True),
        ("weight += float(loss)", True),
        ("weight = min(weight + 0.1, 1)", False),
    ],
)
def test_a_weight_of_the_loss_that_goes_on_from_one_share(update: str, named: bool) -> None:
    conversion = convert(ready=WEIGHT, loss=WEIGHED, update=f"optimizer.step()\n{update}")
    prove([conversion], conversion)
    assert bool(codes(conversion) & {"ACC704", "ACC705"}) is named


@pytest.mark.parametrize(
    ("snippets", "code"),
    [
        ({"batch": "if (i + 1) * 8 > 40:\n    break"}, "ACC706"),
        ({"ready": "every = len(loader) // 10", "batch": "if i % every == 0:\n    print(i)"}, "ACC706"),
    ],
)
def test_samples_by_rounds_and_rhythms_that_can_be_zero(snippets: dict[str, str], code: str) -> None:
    conversion = convert(**snippets)
    prove([conversion], conversion)
    assert code in codes(conversion)
