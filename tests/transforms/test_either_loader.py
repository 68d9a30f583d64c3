"""A function that goes through a loader that is prepared, and one that is not: its batches are on either side."""

from __future__ import annotations

import pytest

from tests.transforms.support import convert

# What keeps a loader whole: a batch that is read both by the model and beside it in a nested block.
EVALUATE = """
def evaluate(net, batches):
    for x, y in batches:
        {made}
        for part in range(2):
            shown = net(x.cuda())
        print({read})
"""
BUILD = "model = nn.Linear(4, 2).cuda()\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
LOSS = "loss = F.cross_entropy(model(x.cuda()), y.cuda())\n"


@pytest.mark.parametrize(
    ("made", "read", "mended"),
    [
        (
            "hot = torch.zeros(8, 2)",
            "hot.scatter_(1, y.view(-1, 1), 1.0)",
            "hot.scatter_(1, y.view(-1, 1).cpu(), 1.0)",
        ),
        ("pass", "shown.max(1)[1].cpu().eq(y)", "shown.max(1)[1].cpu().to(y.device).eq(y)"),
        ("pass", "shown.max(1)[1].cpu() == y", "shown.max(1)[1].cpu().to(y.device) == y"),
        ("pass", "y.numpy()", "y.cpu().numpy()"),
    ],
)
def test_what_meets_a_batch_of_either_side_follows_it(made: str, read: str, mended: str) -> None:
    setup = EVALUATE.format(made=made, read=read)
    epoch = "evaluate(model, loader)\nevaluate(model, test_loader)"
    text = convert(setup=setup, build=BUILD, loss=LOSS, epoch=epoch).new_text
    assert f"accelerator.print({mended})" in text
    assert "shown = net(x.to(accelerator.device))" in text
    alone = convert(setup=setup, build=BUILD, loss=LOSS, epoch="evaluate(model, test_loader)").new_text
    assert f"accelerator.print({read})" in alone
