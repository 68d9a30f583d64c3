"""Scripts that run on the CPU and only speak of a device, and what they make on the host where prepare uses a GPU."""

from __future__ import annotations

import pytest

from tests.transforms.support import check_transformed, convert

# A script that meets its model with tensors of its own, which are made on the host.
ON_THE_HOST = "out = model(torch.randn(3, 4))\nright = out.argmax(1) == torch.ones(3)"


def creation(**snippets: str) -> str:
    text = convert(**snippets).new_text
    return next(line.strip() for line in text.splitlines() if "= Accelerator(" in line)


@pytest.mark.parametrize(
    "shown",
    [
        "DEVICE = str(torch.device('cuda' if torch.cuda.is_available() else 'cpu'))\nprint('Using:', DEVICE)",
        "device = 'cuda' if torch.cuda.is_available() else 'cpu'\nprint(f'on {device}')",
        "device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')\nprint('on {}'.format(device))",
    ],
)
def test_a_device_that_is_only_shown_chooses_nothing(shown: str) -> None:
    assert creation(setup=shown, end=ON_THE_HOST) == "accelerator = Accelerator(cpu=True)"


@pytest.mark.parametrize(
    "used",
    [
        "device = 'cuda' if torch.cuda.is_available() else 'cpu'\nprint(torch.ones(2, device=device))",
        "device = 'cuda' if torch.cuda.is_available() else 'cpu'\nother = nn.Linear(4, 2).to(device)",
        "device = 'cuda' if torch.cuda.is_available() else 'cpu'\nkept = [device]",
    ],
)
def test_one_that_something_is_put_on_does(used: str) -> None:
    assert creation(setup=used, end=ON_THE_HOST) == "accelerator = Accelerator()"


GPU = "device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')"
DRAWN = "import matplotlib.pyplot as plt\nimport numpy as np"


@pytest.mark.parametrize(
    "batch",
    [
        "number, (a, b) = next(enumerate(test_loader))",
        "examples = enumerate(test_loader)\nnumber, (a, b) = next(examples)",
        "examples = enumerate(test_loader)\nnumber, rows = next(examples)\na = rows[0]",
        "a = next(enumerate(test_loader))[1][0]",
        "a, b = next(iter(test_loader))",
    ],
)
def test_a_batch_that_is_drawn_with_its_number_lies_on_the_device(batch: str) -> None:
    moved = "a, b = a.to(device), b.to(device)"
    evaluation = f"for a, b in test_loader:\n    {moved}\n    i += (model(a).argmax(1) == b).sum()"
    check_transformed(
        "ready",
        f"{batch}\nfor row in range(6):\n    plt.imshow(a[row])",
        f"{batch}\nfor row in range(6):\n    plt.imshow(a[row].cpu())",
        imports=DRAWN,
        setup=GPU,
        build="model = nn.Linear(4, 2).to(device)\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)",
        batch="x, y = x.to(device), y.to(device)",
        epoch=evaluation,
    )


def test_the_number_of_such_a_batch_is_none() -> None:
    batch = "number, (a, b) = next(enumerate(loader))"
    conversion = convert(
        imports=DRAWN,
        setup=GPU,
        build="model = nn.Linear(4, 2).to(device)\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)",
        batch="x, y = x.to(device), y.to(device)",
        end=f"{batch}\nnp.ones(number)",
    )
    assert "np.ones(number)" in conversion.new_text


@pytest.mark.parametrize(
    "made",
    [
        "torch.tensor(rows['x'].astype('float32'))",
        "torch.tensor(rows['x'].transpose().astype('long'))",
        "torch.tensor(np.load('a.npy'))",
        "torch.tensor([1.0, 2.0])",
    ],
)
def test_tensors_of_arrays_meet_the_model_of_a_function_s_caller(made: str) -> None:
    converted = convert(
        imports=DRAWN,
        setup=f"{GPU}\ndef look(net, rows):\n    a = {made}\n    return (net(a).argmax(1) == a[:, 0]).sum()",
        build="model = nn.Linear(4, 2).to(device)\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)",
        batch="x, y = x.to(device), y.to(device)",
        end="look(model, {})",
    ).new_text
    # Made on the device or moved there.
    assert "net(a.to(accelerator.device)).argmax(1)" in converted or ", device=" in converted


def test_tensors_of_tensors_lie_beside_them() -> None:
    check_transformed("batch", "x = x.to(device)\nrest = torch.tensor(x.flatten()) + x.sum()",
                      "rest = torch.tensor(x.flatten()) + x.sum()", setup=GPU,
                      build="model = nn.Linear(4, 2).to(device)\n"
                      "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)")  # fmt: skip


@pytest.mark.parametrize("made", ["nn.Linear(4, 2).to('cpu')", "nn.Linear(4, 2).cpu()"])
def test_a_model_that_was_made_for_the_cpu_is_given_what_is_on_the_host(made: str) -> None:
    evaluation = """\
with torch.no_grad():
    total = 0
    for a, b in test_loader:
        output = model({given})
        total += F.cross_entropy({output}, b)
    total /= len(test_loader)
print(total)"""
    converted = convert(
        build=f"model = {made}\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)",
        end=evaluation.format(given="a", output="output") + f"\n{GPU}\nother = nn.Linear(4, 2).to(device)",
        ready="test_loader = DataLoader(data, batch_size=9)",
    ).new_text
    assert "output = model(a.to(accelerator.device))" in converted
    assert "total += F.cross_entropy(output.cpu(), b)" in converted
