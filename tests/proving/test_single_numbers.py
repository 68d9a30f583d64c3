"""One number of what is gathered, which has one of each process."""

from __future__ import annotations

import pytest

from tests.proving.several_programs import named

HEAD = """
accelerator = Accelerator()
model = torch.nn.Linear(4, 4)
loader = DataLoader(data, batch_size=4)
model, loader = accelerator.prepare(model, loader)
figures = []
for x, y in loader:
    loss = F.mse_loss(model(x), y)
    losses = accelerator.gather_for_metrics(loss)
    outputs = accelerator.gather_for_metrics(model(x))
    {line}
"""


@pytest.mark.parametrize(
    "line",
    [
        "figures.append(losses.item())",
        "figures.append(float(losses.detach().cpu()))",
        "figures.append(int(accelerator.gather(loss)))",
        "figures.append(accelerator.gather(torch.tensor(len(x))).item())",
    ],
)
def test_a_number_of_each_process_is_not_one(line, tmp_path):
    assert named(HEAD.format(line=line), tmp_path, "accelerate") == [("ACC701", line)]


@pytest.mark.parametrize(
    "line",
    [
        "figures.append(losses.mean().item())",
        "figures.append(float(torch.mean(losses)))",
        "figures.append(losses[0].item())",
        "figures.append(sum(float(one) for one in losses))",
        "figures += losses.tolist()",
        "figures.append(float(outputs[0, 0]))",
        "figures.append((outputs.argmax(1) == 0).sum().item())",
        'figures.append(accelerator.reduce(loss, reduction="mean").item())',
        "figures.append(loss.item())",
        "figures.append(accelerator.gather(loss.repeat(len(x))).mean().item())",
    ],
)
def test_one_made_of_them_is_quiet(line, tmp_path):
    assert ("ACC701", line) not in named(HEAD.format(line=line), tmp_path, "accelerate")
