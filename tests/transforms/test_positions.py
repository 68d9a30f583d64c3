"""Figures kept by their sample's position."""

from __future__ import annotations

import pytest

from tests.transforms.support import codes, convert

ROOM = "losses = torch.zeros(len(loader.dataset))\nfor i, (a, b) in enumerate(loader):\n    "


@pytest.mark.parametrize(
    "fill",
    [
        "losses[4 * i : 4 * i + 4] = F.mse_loss(model(a), b, reduction='none').detach()",
        "losses[i] = 1",
        "keep(i, losses)",
    ],
)
def test_places_of_samples(fill: str) -> None:
    conversion = convert(setup="def keep(i, kept):\n    kept[i] = 1", epoch=ROOM + fill)
    assert "ACC305" in codes(conversion)


@pytest.mark.parametrize(
    "snippet",
    [
        "losses = torch.zeros(3)\nfor i, (a, b) in enumerate(loader):\n    losses[i % 3] = 1",
        "losses = torch.zeros(len(loader.dataset))\nfor i in range(3):\n    losses[i] = 1",
        "n = len(loader.dataset)",
    ],
)
def test_other_tensors(snippet: str) -> None:
    assert "ACC305" not in codes(convert(epoch=snippet))


def test_the_one_of_several_that_has_the_places() -> None:
    snippet = "n, rooms = 0, torch.zeros(len(loader.dataset))\nfor a, b in loader:\n    {}\n    n += 1"
    conversion = convert(epoch=snippet.format("rooms[n] = a.sum()"))
    assert [f.message.split()[0] for f in conversion.remaining if f.code == "ACC305"] == ["`rooms`"]
