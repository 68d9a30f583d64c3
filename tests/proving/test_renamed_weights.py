"""Weights of a wrapped model that a script writes under other names than the wrapper's."""

from __future__ import annotations

import pytest

from tests.proving.several_programs import GROUP, NET, named

OTHERS = {
    "replaced": 'names = {k.replace("module.", ""): v for k, v in model.state_dict().items()}',
    "split": 'names = {k.split("module.")[-1]: v.cpu() for k, v in model.state_dict().items()}',
    "cut": "names = {k[7:]: v for k, v in model.state_dict().items()}",
    "cut before": "names = {}\nfor k, v in model.state_dict().items():\n    name = k[7:]\n    names[name] = v",
    "without the prefix": (
        'names = {}\nfor k, v in model.state_dict().items():\n    names[k.removeprefix("module.")] = v'
    ),
}
SAME = {
    "all": "names = model.state_dict()",
    "on the host": "names = {k: v.cpu() for k, v in model.state_dict().items()}",
    "one by one": "names = {}\nfor k, v in model.state_dict().items():\n    names[k] = v",
}
SAVED = '\nif dist.get_rank() == 0:\n    torch.save(names, "a.pt")\n'


@pytest.mark.parametrize("rest", OTHERS.values(), ids=OTHERS)
def test_other_names(rest, tmp_path):
    assert named(GROUP + NET + rest + SAVED, tmp_path) == []


@pytest.mark.parametrize("rest", SAME.values(), ids=SAME)
def test_the_wrapper_s_names(rest, tmp_path):
    assert named(GROUP + NET + rest + SAVED, tmp_path) == [("ACC707", 'torch.save(names, "a.pt")')]
