"""Attributes and methods of prepared models."""

from __future__ import annotations

import pytest

from tests.transforms.support import check_noop, check_transformed

NET = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 2)
        self.hidden = None

    def forward(self, x):
        return self.fc(x)

    def decode(self, x):
        return self.fc(x)
"""
BUILD = "model = Net()\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)"


@pytest.mark.parametrize(
    "snippet",
    [
        "model.train()\nmodel.zero_grad()\nmodel.eval()",
        "for p in model.parameters():\n    n = p.shape",
        "for name, p in model.named_parameters():\n    n = p.shape",
        "out = model(x)",
        "other = nn.Linear(4, 2)\nn = other.weight",
    ],
)
def test_what_a_wrapper_has_stays(snippet: str) -> None:
    check_noop("batch", snippet, "ACC208")


def test_a_method_called_to_train_stays() -> None:
    check_noop("loss", "loss = F.cross_entropy(model.decode(x), y)", "ACC208", setup=NET, build=BUILD)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("model.hidden = None", "accelerator.unwrap_model(model).hidden = None"),
        ("é = model.fc.weight.shape", "é = accelerator.unwrap_model(model).fc.weight.shape"),
        (
            "with torch.no_grad():\n    sample = model.decode(x)",
            "with torch.no_grad():\n    sample = accelerator.unwrap_model(model).decode(x)",
        ),
    ],
)
def test_attributes(before: str, after: str) -> None:
    check_transformed("epoch", before, after, setup=NET, build=BUILD)


def test_bare_uses() -> None:
    check_transformed(
        "end",
        "n = len(model), model[0]",
        "n = len(accelerator.unwrap_model(model)), accelerator.unwrap_model(model)[0]",
        build="model = nn.Sequential(nn.Linear(4, 2))\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)",
    )


def test_module_of_a_data_parallel() -> None:
    check_transformed(
        "end",
        "n = model.module.weight",
        "n = accelerator.unwrap_model(model).weight",
        ready="model = nn.DataParallel(model)",
    )
