"""What a model is given from the host: several tensors in a list, and what only runs where there is no GPU."""

from __future__ import annotations

import pytest

from tests.transforms.support import check_transformed, codes, convert, place_of

PLACED = "cuda = torch.cuda.is_available()\nif cuda:\n    model.cuda()"
BATCH = "if cuda:\n    x, y = x.cuda(), y.cuda()"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            "a = torch.zeros(1, 4).numpy()\nmodel([torch.ones(1, 4), torch.from_numpy(a)])",
            "a = torch.zeros(1, 4).numpy()\n"
            "model([torch.ones(1, 4, device=accelerator.device), torch.from_numpy(a).to(accelerator.device)])",
        ),
        (
            "a = [torch.zeros(1, 4)]\nmodel((a[0] + 1, torch.ones(1, 4)))",
            "a = [torch.zeros(1, 4)]\n"
            "model(((a[0] + 1).to(accelerator.device), torch.ones(1, 4, device=accelerator.device)))",
        ),
    ],
)
def test_a_list_is_moved_one_by_one(before: str, after: str) -> None:
    check_transformed("end", before, after, ready=PLACED, batch=BATCH)


def test_a_list_with_a_name_is_said() -> None:
    end = "both = [torch.zeros(1, 4), torch.ones(1, 4)]\nmodel(both)"
    found = convert(end=end, ready=PLACED, batch=BATCH)
    assert place_of(found.new_text, "end") == end
    (message,) = [f.message for f in found.remaining if f.code == "ACC120"]
    assert message.startswith("`both` holds tensors of the host")
    assert "accelerator.device" in message


def test_a_name_that_holds_the_joined_list_by_then_is_a_tensor() -> None:
    end = "both = [torch.zeros(1, 4), torch.ones(1, 4)]\nboth = torch.cat(both, 0)\nmodel(both)"
    check_transformed(
        "end", end, end.replace("(both)", "(both.to(accelerator.device))"), ready=PLACED, batch=BATCH
    )


@pytest.mark.parametrize("test", ["cuda", "torch.cuda.is_available()"])
def test_the_arm_without_a_gpu_is_joined_to_the_other(test: str) -> None:
    loop = """
    for x, y in DataLoader(TensorDataset(torch.zeros(8, 4), torch.ones(8, 4)), batch_size=4):
        with torch.no_grad():
            if {test}:
                one = model([x.cuda(), y.cuda()])
            else:
                one = model([x, y])
            seen = float(one.mean())
    """
    found = convert(end=loop.format(test=test), ready=PLACED, batch=BATCH)
    assert found.status == "converted", found.reason
    joined = place_of(found.new_text, "end")
    assert joined.count("one = model([") == 1
    assert "else" not in joined
    assert "ACC120" not in codes(found)


def test_the_arm_without_a_gpu_stays() -> None:
    end = "if cuda:\n    print('GPU')\nelse:\n    model(torch.zeros(1, 4))"
    found = convert(end=end, ready=PLACED, batch=BATCH)
    assert "model(torch.zeros(1, 4))" in place_of(found.new_text, "end")
    end = "if not cuda:\n    print('CPU')\nelse:\n    model(torch.zeros(1, 4))"
    found = convert(end=end, ready=PLACED, batch=BATCH)
    assert "torch.zeros(1, 4, device=accelerator.device)" in place_of(found.new_text, "end")
