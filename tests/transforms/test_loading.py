"""Checkpoints that are loaded."""

from __future__ import annotations

import pytest

from tests.transforms.support import check_noop, check_transformed


@pytest.mark.parametrize(
    "snippet",
    [
        "state = torch.load('m.pt', map_location='cpu')",
        "optimizer.load_state_dict(torch.load('m.pt', 'cpu'))",
        "vocabulary = torch.load('vocabulary.pt')",
        "import json\ntext = json.load(open('a.json'))",
    ],
)
def test_others_stay(snippet: str) -> None:
    check_noop("end", snippet, "ACC207")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            "model.load_state_dict(torch.load('é.pt'))",
            "model.load_state_dict(torch.load('é.pt', map_location=accelerator.device))",
        ),
        (
            "checkpoint = torch.load(\n    'm.pt',\n)\nmodel.load_state_dict(checkpoint['model'])",
            "checkpoint = torch.load(\n    'm.pt',\n    map_location=accelerator.device,\n)\n"
            "model.load_state_dict(checkpoint['model'])",
        ),
    ],
)
def test_loads(before: str, after: str) -> None:
    check_transformed(
        "ready",
        before,
        f"{after}\nmodel, optimizer, loader = accelerator.prepare(model, optimizer, loader)",
    )


def test_by_imported_name() -> None:
    check_transformed(
        "build",
        """
        model = nn.Linear(4, 2)
        model.load_state_dict(load('m.pt'))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        """,
        """
        model = nn.Linear(4, 2)
        model.load_state_dict(load('m.pt', map_location=accelerator.device))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        """,
        imports="from torch import load",
    )
