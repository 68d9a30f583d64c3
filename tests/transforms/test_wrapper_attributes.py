"""What a script asks a DataParallel for that no model has: the devices."""

from __future__ import annotations

import pytest

from tests.transforms.support import check_noop, convert, place_of

BUILD = """\
model = nn.DataParallel(nn.Linear(4, 2)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)"""
OWN = """\
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.line = nn.Linear(4, 2)
        self.device_ids = [0, 1]

    def forward(self, x):
        return self.line(x)"""


def test_what_a_model_has_itself_stays() -> None:
    build = BUILD.replace("nn.DataParallel(nn.Linear(4, 2))", "Net()")
    check_noop("epoch", "n = len(options.device_ids)", "ACC109")
    text = convert(setup=OWN, build=build, end="n = len(model.device_ids)").new_text
    assert "n = len(accelerator.unwrap_model(model).device_ids)" in text


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("n = len(model.device_ids)", "n = 1"),
        ("n = f'{len(model.device_ids)} GPUs'", "n = f'{1} GPUs'"),
        ("weights = torch.cat([w] * len(model.device_ids), 0)", "weights = torch.cat([w] * 1, 0)"),
        ("mask = w.to(model.device_ids[0])", "mask = w.to(accelerator.device)"),
        ("mask = w.cuda(model.output_device)", "mask = w.to(accelerator.device)"),
        (
            "mask = torch.ones(2, device=model.output_device)",
            "mask = torch.ones(2, device=accelerator.device)",
        ),
    ],
)
def test_the_devices_of_a_wrapper(before: str, after: str) -> None:
    conversion = convert(build=BUILD, ready="w = torch.ones(2)", epoch=before)
    assert place_of(conversion.new_text, "epoch") == after
    assert "ACC109" not in {f.code for f in conversion.remaining}


@pytest.mark.parametrize(
    "asked", ["ids = model.device_ids", "d = model.device_ids[1]", "d = f'{model.device_ids}'"]
)
def test_what_one_device_cannot_stand_for_is_named(asked: str) -> None:
    conversion = convert(build=BUILD, epoch=asked)
    assert "unwrap_model(model).device_ids" not in conversion.new_text
    assert "# TODO(accelify ACC712): take accelerator.device: a process has one" in conversion.new_text
