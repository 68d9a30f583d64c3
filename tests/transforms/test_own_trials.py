"""Searches for settings that every process would run by itself."""

from __future__ import annotations

import pytest

from accelify.convert import convert_source
from accelify.source import Source
from tests.transforms.support import PATH

SCRIPT = """\
import functools
import torch
from torch import nn
from torch.utils.data import DataLoader
{imports}

data = list(torch.randn(8, 3))


def objective(trial, epochs=1):
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x in DataLoader(data, batch_size=2):
        optimizer.zero_grad()
        loss = model(x).mean()
        loss.backward()
        optimizer.step()
    return loss.item()


def other(x):
    return x


if __name__ == "__main__":
    {run}
"""


def said(imports: str, run: str) -> list[str]:
    found = convert_source(Source.from_text(SCRIPT.format(imports=imports, run=run), PATH))
    assert found.status == "converted", found.reason
    return [f.message for f in found.remaining if f.code == "ACC430"]


@pytest.mark.parametrize(
    ("imports", "run"),
    [
        ("import optuna", "study = optuna.create_study()\n    study.optimize(objective, n_trials=3)"),
        (
            "import optuna",
            "study = optuna.create_study()\n    study.optimize(lambda trial: objective(trial, 3), n_trials=3)",
        ),
        (
            "from hyperopt import fmin",
            "fmin(fn=functools.partial(objective, epochs=2), space={{}}, max_evals=3)",
        ),
        ("from skopt import gp_minimize", "gp_minimize(objective, [(0.1, 1.0)])"),
        ("import wandb", "wandb.agent('sweep', function=objective, count=3)"),
    ],
)
def test_a_search_around_the_training_is_named(imports: str, run: str) -> None:
    (message,) = said(imports, run)
    assert "on every process by itself" in message


@pytest.mark.parametrize(
    ("imports", "run"),
    [
        ("import optuna", "objective(None)"),
        ("import optuna", "optuna.create_study().optimize(other)\n    objective(None)"),
        ("import plain", "plain.optimize(objective)\n    objective(None)"),
    ],
)
def test_other_calls_are_none(imports: str, run: str) -> None:
    assert said(imports, run) == []
