"""A DataParallel around a part of a model, whose old files have `module.` within the names of its weights."""

from __future__ import annotations

import pytest

from tests.transforms.support import convert

NET = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.features, self.head = nn.Linear(4, 3), nn.Linear(3, 2)

    def forward(self, x):
        return self.head(self.features(x))

model = Net()
{wrap}
if resume:
    model.load_state_dict(torch.load("last.pt")["state"])
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""
PART = "model.features = nn.DataParallel(model.features)"
EITHER = f"if arch.startswith('vgg'):\n    {PART}\nelse:\n    model = nn.DataParallel(model)"


@pytest.mark.parametrize(
    ("wrap", "taken"),
    [
        (PART, '.replace("features.module.", "features.")'),
        (EITHER, '.removeprefix("module.").replace("features.module.", "features.")'),
        ("model = nn.DataParallel(model)", '.removeprefix("module.")'),
    ],
)
def test_old_names_of_the_weights_are_taken_for_the_new_ones(wrap: str, taken: str) -> None:
    text = convert(setup="resume, arch = False, 'vgg16'", ready=NET.format(wrap=wrap)).new_text
    assert f'model.load_state_dict({{name{taken}: weight for name, weight in torch.load("last.pt"' in text
    assert "DataParallel" not in text
    assert "arch.startswith" not in text


def test_without_a_wrapper_names_stay() -> None:
    text = convert(setup="resume, arch = False, 'vgg16'", ready=NET.format(wrap="pass")).new_text
    assert 'model.load_state_dict(torch.load("last.pt"' in text
