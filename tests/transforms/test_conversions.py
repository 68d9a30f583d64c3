"""Objects that convert what they were made with by the first batch, and keep nothing of the batch."""

from __future__ import annotations

import pytest

from tests.transforms.support import convert, names_figures

SCALE = """
class Scale:
    def __init__(self, mean, std):
        self.mean, self.std = mean, std
    def back(self, x):
        if isinstance(x, torch.Tensor) and isinstance(self.mean, np.ndarray):
            {convert}
        return x * self.std + self.mean
scale = Scale(np.zeros(4, dtype="float32"), np.ones(4, dtype="float32"))
"""


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("self.mean = torch.from_numpy(self.mean).to(x.device)", False),
        ("self.mean = torch.from_numpy(self.mean).to(x.device).type(x.dtype)", False),
        ("self.mean, self.std = torch.tensor(self.mean), torch.tensor(self.std)", False),
        ("self.mean = self.mean.type_as(x)", False),
        ("self.mean = torch.as_tensor(x.mean(0)).to(x.device)", True),
        ("self.mean = torch.tensor(self.mean) + x.mean(0)", True),
        ("self.mean = x.to(x.device)", True),
        ("self.mean += torch.from_numpy(x.numpy())", True),
    ],
)
def test_what_is_only_converted_is_no_figure(line: str, named: bool) -> None:
    conversion = convert(
        imports="import numpy as np",
        ready=SCALE.format(convert=line),
        loss="loss = F.cross_entropy(model(x), y) + scale.back(x).sum() * 0",
        epoch="print(scale.mean)",
    )
    assert names_figures(conversion) is named
