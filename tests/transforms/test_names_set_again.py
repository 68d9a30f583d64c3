"""Names of an evaluation that take something else behind the metrics: the outputs first, then a line to show."""

from __future__ import annotations

import pytest

from tests.transforms.support import codes, convert, place_of

LINES = """
hits = 0
for i, (a, b) in enumerate(test_loader):
    output = model(a)
    hits += (output.argmax(1) == b).sum().item()
    {shown}
print(hits / len(data))
"""
LINE = "output = 'batch {} of {}'.format(i, len(test_loader))"


@pytest.mark.parametrize(
    ("shown", "gathered"),
    [
        (f"if i % 10 == 0:\n        {LINE}\n        log.append(output + '!')", True),
        (f"{LINE}\n    log.append(output + '!')", True),
        (f"if i % 10 == 0:\n        {LINE}\n    log.append(output + '!')", False),
        ("log.append('at ' + output)", False),
    ],
)
def test_a_text_of_the_same_name(shown: str, gathered: bool) -> None:
    found = convert(ready="log = []", epoch=LINES.format(shown=shown))
    text = place_of(found.new_text, "epoch")
    assert ("gather_for_metrics((output, b))" in text) is gathered
    assert ("ACC303" in codes(found)) is not gathered


PARTS = """
labels = []
for batch in test_loader:
    a, b = batch
    {changed}
    if torch.cuda.is_available():
        a = a.cuda()
        b = b.cuda()
    output = model(a)
    labels.append(b.cpu())
b = numpy.array(labels)
print(b.mean())
"""


@pytest.mark.parametrize(("changed", "gone"), [("pass", True), ("b = other(b)", False)])
def test_a_part_of_the_batch_whose_name_is_that_of_an_array_later(changed: str, gone: bool) -> None:
    epoch = PARTS.format(changed=changed)
    found = convert(imports="import numpy\nfrom others import other", epoch=epoch)
    text = place_of(found.new_text, "epoch")
    assert "a.cuda()" not in text
    assert ("b = b.to(accelerator.device)" not in text) is gone
