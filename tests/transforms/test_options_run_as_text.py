"""Options that a module takes from text it runs (`exec(open("settings.py").read())`): the Accelerator reads them."""

from __future__ import annotations

import pytest

from tests.transforms.support import convert

MOVED = """
model = nn.Linear(4, 2)
model.to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""
CHOSEN = 'device = "cuda" if torch.cuda.is_available() else "cpu"'


@pytest.mark.parametrize(
    "run",
    [
        'found = {}\nexec("lr = 0.1", found)',
        'def run():\n    exec("lr = 0.1")',
        'exec("from nets import %s" % name)',
        'exec(f"from nets import {name}")',
        'exec("import {}".format(name))',
    ],
)
def test_text_that_sets_no_name_of_the_module(run: str) -> None:
    text = convert(setup=f"{CHOSEN}\n{run}", build=MOVED).new_text
    assert text.index("accelerator = Accelerator()") < text.index("exec(")


def test_text_that_runs_when_the_model_is_made_already() -> None:
    text = convert(setup=CHOSEN, build=MOVED, ready='exec(open("settings.py").read())').new_text
    assert text.index("accelerator = Accelerator()") < text.index("model = nn.Linear")


@pytest.mark.parametrize("chosen", ['device = "cuda"', CHOSEN])
@pytest.mark.parametrize("run", ["exec(open(path).read())", "for one in path:\n    exec(one, globals())"])
@pytest.mark.parametrize(
    ("later", "made"),
    [
        (
            'kind = "cuda" if "cuda" in device else "cpu"',
            'accelerator = Accelerator(cpu="cuda" not in device)\n',
        ),
        ("", "accelerator = Accelerator()\ndevice = accelerator.device.type\n"),
    ],
)
def test_text_that_may_set_the_device(chosen: str, run: str, later: str, made: str) -> None:
    setup = f'path = "settings.py"\n{chosen}\n{run}\n{later}'
    text = convert(setup=setup, build=MOVED, batch="x = x + torch.randn(8, 4).to(device)").new_text
    above, _, below = text.partition(made)
    assert "exec(" in above
    assert chosen in above
    assert "model = nn.Linear" in below
