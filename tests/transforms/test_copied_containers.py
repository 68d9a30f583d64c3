"""Copies of lists and dictionaries of models: target networks that nothing prepares."""

from __future__ import annotations

import pytest

from tests.transforms.support import check_transformed, convert, place_of

BUILD = """
import copy
nets = {made}
targets = copy.deepcopy(nets)
optimizer = torch.optim.SGD([p for n in nets{each} for p in n.parameters()], lr=0.1)
for net in nets{each}:
    net.cuda()
for target in targets{each}:
    target.cuda()
"""
LOSS = "loss = (nets[{0}](x.cuda()) - targets[{0}](x.cuda()).detach()).pow(2).mean()"


@pytest.mark.parametrize(
    ("made", "each", "key"),
    [
        ("[nn.Linear(4, 2) for _ in range(2)]", "", "0"),
        ("[nn.Linear(4, 2), nn.Linear(4, 2)]", "", "1"),
        ('{"a": nn.Linear(4, 2), "b": nn.Linear(4, 2)}', ".values()", '"a"'),
    ],
)
def test_what_a_copy_holds_is_moved_where_it_was(made: str, each: str, key: str) -> None:
    before = BUILD.format(made=made, each=each)
    after = before.replace(f"for net in nets{each}:\n    net.cuda()\n", "").replace(
        "target.cuda()", "target.to(accelerator.device)"
    )
    check_transformed("build", before, after, loss=LOSS.format(key))


def test_a_copy_that_is_trained_is_prepared() -> None:
    build = BUILD.format(made="copy.deepcopy([nn.Linear(4, 2), nn.Linear(4, 2)])", each="")
    build = build.replace("targets = copy.deepcopy(nets)", "targets = []")
    conversion = convert(build=build, loss="loss = nets[0](x.cuda()).pow(2).mean()")
    assert "net.cuda()" not in place_of(conversion.new_text, "build")
    assert "nets = [accelerator.prepare(net) for net in nets]" in conversion.new_text
