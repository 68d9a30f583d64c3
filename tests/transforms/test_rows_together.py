"""Evaluations whose model is given several rows a sample: the crops of a picture, taken together."""

from __future__ import annotations

import pytest

from tests.transforms.support import clean, codes, convert, place_of

LOOP = """\
seen, right = torch.zeros(0, 2), torch.zeros(0)
model.eval()
with torch.no_grad():
    for x, y in test_loader:
        {first}
        n, crops, width = x.size()
        {rows}
        output = model(rows)
        {parted}
        seen = torch.cat((seen, {kept}), 0)
        {last}
print((seen.argmax(1) == right).float().mean())
"""
JOINED = "right = torch.cat((right, y), 0)"
FLAT = "rows = x.view(-1, width)"


def test_the_first_of_a_shape_is_no_configured_size() -> None:
    parted = "mean = output.view(n, crops, -1).mean(1)"
    text = LOOP.format(first="", rows=FLAT, parted=parted, kept="mean", last=JOINED)
    conversion = convert(end=text.replace("n, crops", "bs, crops"))
    assert parted.replace("n,", "bs,") in place_of(conversion.new_text, "end")
    assert "ACC404" not in codes(conversion)


@pytest.mark.parametrize(
    ("parted", "kept"),
    [
        ("output = torch.sigmoid(output)", "output.view(n, crops, -1).mean(1)"),
        ("mean = output.view(n, crops, -1).mean(1)", "mean.data"),
        ("mean = output.view(n, crops, -1).mean(0)", "mean.expand(n, 2)"),
    ],
)
def test_a_size_is_never_taken_of_rows_that_are_together(parted: str, kept: str) -> None:
    text = LOOP.format(first="", rows=FLAT, parted=parted, kept=kept, last="")
    conversion = convert(end=text)
    assert "gather_for_metrics" not in conversion.new_text
    (found,) = [f for f in conversion.remaining if f.code == "ACC303"]
    assert (
        "`n` counts the local batch's samples, of which the model is given the rows together" in found.message
    )


def test_a_size_of_plain_batches_is_taken_again() -> None:
    text = LOOP.format(
        first="", rows="rows = x.view(n, -1)", parted="", kept="output.view(n, -1)", last=JOINED
    )
    after = clean(place_of(convert(end=text).new_text, "end"))
    assert "output, y = accelerator.gather_for_metrics((output, y))\n        n = y.size()[0]" in after
