"""What prepare refuses to be given."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from accelify.runtime.arguments import not_split

SECOND = torch.device("cuda", 1)


def split(model: nn.Module, *gpus: int) -> nn.Module:
    """The model in a DataParallel as it is on a machine that has these GPUs."""
    wrapped = nn.DataParallel(model)
    wrapped.device_ids = list(gpus)
    return wrapped


@pytest.mark.parametrize(("gpus", "processes"), [((), 2), ((1,), 2), ((0, 1), 1)])
def test_a_split_model_that_works_is_taken(gpus: tuple[int, ...], processes: int) -> None:
    model = split(nn.Linear(2, 2), *gpus)
    assert not_split(model, processes, SECOND) is model


@pytest.mark.parametrize("gpus", [(0,), (0, 1)])
def test_a_split_over_the_gpus_of_others_is_refused(gpus: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="^the model is in a torch.nn.DataParallel"):
        not_split(split(nn.Linear(2, 2), *gpus), 2, SECOND)
    with pytest.raises(ValueError, match="^the part `1` of the model is in a torch.nn.DataParallel"):
        not_split(nn.Sequential(nn.ReLU(), split(nn.Linear(2, 2), *gpus)), 2, SECOND)
