"""Classes of a script that derive from an Accelerator, or from the wrapper around a model."""

from __future__ import annotations

import pytest

from accelify.linting import lint
from accelify.project import Imports
from accelify.source import Source
from tests.proving.several_programs import LOOP, named

ACCELERATED = """
class Wrapped(Accelerator):
    {body}

accelerator = Wrapped({given})
model = torch.nn.Linear(4, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(data, batch_size=4)
model, opt, loader = accelerator.prepare(model, opt, loader)
for x, y in loader:
    loss = F.mse_loss(model(x), y)
    accelerator.backward(loss)
    opt.step()
    opt.zero_grad()
{after}
"""
BEGINS = """
    def __init__(self, seed):
        super().__init__(mixed_precision="no")
        self.seed = seed
"""
PREPARES = """
    @property
    def is_first(self):
        return self.process_index == 0

    def prepare(self, *args):
        return super().prepare(*args)
"""


def script(body="pass", given="", after=""):
    return ACCELERATED.format(body=body, given=given, after=after)


@pytest.mark.parametrize(("body", "given"), [("pass", ""), (BEGINS, "2"), (PREPARES, "")])
def test_what_is_right_with_an_accelerator_of_a_class_of_the_script(body, given, tmp_path):
    after = "accelerator.save_state('out')\nif accelerator.is_main_process:\n    print('done')"
    assert named(script(body, given, after=after), tmp_path, "accelerate") == []


@pytest.mark.parametrize(("body", "given"), [("pass", ""), (BEGINS, "2"), (PREPARES, "")])
def test_what_is_wrong_with_an_accelerator_of_a_class_of_the_script(body, given, tmp_path):
    after = "if accelerator.is_main_process:\n    accelerator.wait_for_everyone()\nprint('done')"
    assert named(script(body, given, after=after), tmp_path, "accelerate") == [
        ("ACC704", "accelerator.wait_for_everyone()"),
        ("ACC702", "print('done')"),
    ]


def test_what_a_class_asks_of_the_accelerator_that_it_is(tmp_path):
    text = script(PREPARES, after="if accelerator.is_first:\n    accelerator.wait_for_everyone()")
    assert named(text, tmp_path, "accelerate") == [("ACC704", "accelerator.wait_for_everyone()")]


WRAPPER = """
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
        self.names = ["a"]

    def forward(self, x):
        return self.layer(x)

class Shared(DDP):
    {body}

dist.init_process_group("gloo")
loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data, shuffle=False))
model = Shared(Net())
opt = torch.optim.SGD(model.parameters(), lr=0.1)
"""
PASSES_ON = """
    def __getattr__(self, name):
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self.module, name)
"""
SAVED = """
if dist.get_rank() == 0:
    print({names})
    torch.save({saved}.state_dict(), "model.pt")
"""


@pytest.mark.parametrize(
    ("body", "names"), [("pass", "1"), (PASSES_ON, "model.names"), ("rows = 3", "model.rows")]
)
def test_a_wrapper_of_a_class_of_the_script_is_one(body, names, tmp_path):
    begun = WRAPPER.format(body=body) + LOOP
    assert named(begun + SAVED.format(names=names, saved="model.module"), tmp_path) == []
    assert named(begun + SAVED.format(names=names, saved="model"), tmp_path) == [
        ("ACC707", 'torch.save(model.state_dict(), "model.pt")')
    ]


def test_a_wrapper_that_passes_nothing_on_has_no_attribute_of_the_model(tmp_path):
    text = WRAPPER.format(body="pass") + LOOP + "print(len(model.names), dist.get_rank())"
    assert [code for code, _ in named(text, tmp_path)] == ["ACC715"]


@pytest.mark.parametrize(
    ("stmt", "codes"),
    [
        ("model.names = []", ["ACC715"]),
        ("model.module.names = []", []),
        ("model.seen = 3\nprint(model.seen, dist.get_rank())", []),
    ],
)
def test_what_is_set_on_a_wrapper_is_not_seen_by_the_model(stmt, codes, tmp_path):
    text = WRAPPER.format(body="pass").replace("Shared(Net())", "DDP(Net())") + LOOP + stmt + "\n"
    assert [code for code, _ in named(text, tmp_path)] == codes


def test_a_property_that_asks_the_accelerator_for_its_own(tmp_path):
    body = """
    @property
    def is_main_process(self):
        return super().is_main_process
"""
    text = script(body, after="if accelerator.is_main_process:\n    accelerator.wait_for_everyone()")
    assert named(text, tmp_path, "accelerate") == [("ACC704", "accelerator.wait_for_everyone()")]


def test_an_accelerator_within_a_class_of_another_module(tmp_path):
    """The script has no word of it."""
    (tmp_path / "engine.py").write_text(
        "from accelerate import Accelerator\n"
        "class Engine:\n"
        "    def __init__(self):\n        self.inner = Accelerator()\n"
        "    def __getattr__(self, name):\n        return getattr(self.inner, name)\n"
    )
    path = tmp_path / "train.py"
    path.write_text(
        "import torch\nfrom engine import Engine\n"
        "engine = Engine()\n"
        "model = engine.prepare(torch.nn.Linear(4, 1))\n"
        "if engine.is_main_process:\n    engine.save_state('out')\n"
    )
    found = lint(Source.read(path), Imports()).findings
    assert [(one.code, one.line) for one in found] == [("ACC704", 6)]
