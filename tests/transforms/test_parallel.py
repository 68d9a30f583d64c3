"""DataParallel."""

from __future__ import annotations

import pytest

from tests.transforms.support import check_noop, check_transformed, convert, place_of

SGD = "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)"


def test_other_wrappers_stay() -> None:
    check_noop("build", f"model = nn.Sequential(nn.Linear(4, 2))\n{SGD}", "ACC109")


@pytest.mark.parametrize(
    "snippet",
    [
        "model = nn.DataParallel(model)",
        "model = torch.nn.DataParallel(model, device_ids=[0, 1])  # é",
        "if torch.cuda.device_count() > 1:\n    model = nn.DataParallel(model)",
        "if torch.cuda.device_count() > 1:\n    print('many')\n    model = nn.DataParallel(model)",
    ],
)
def test_the_wrapping_goes(snippet: str) -> None:
    conversion = check_transformed("ready", snippet, "")
    assert "ACC109" in {f.code for f in conversion.applied}


@pytest.mark.parametrize("arguments", ["", ", device_ids=[0, 1]"])
def test_the_model_inside_stays(arguments: str) -> None:
    before = f"model = nn.DataParallel(nn.Linear(4, 2){arguments})\n{SGD}"
    check_transformed("build", before, f"model = nn.Linear(4, 2)\n{SGD}")


def test_a_wrapper_that_is_moved_leaves_nothing_behind() -> None:
    text = convert(ready="model = nn.DataParallel(model).cuda()").new_text
    assert "DataParallel" not in text
    assert "model = model" not in text
    assert "accelerator.prepare(model, optimizer" in place_of(text, "ready")
