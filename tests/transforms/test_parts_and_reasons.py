"""Models that are seen by what is trained of them, devices among other results, and why a script is left alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from accelify.conversion import Conversion, ConvertOptions
from accelify.convert import convert_project, convert_source
from accelify.source import Source
from tests.transforms.support import frame

TRAIN = """\
import sys
import torch
from torch import nn
from torch.utils.data import DataLoader
import zoo

{made}
optimizer = torch.optim.SGD([{{"params": net.body.parameters()}}, {{"params": net.head.parameters()}}], lr=0.1)
loader = DataLoader(list(range(8)))
for x, y in loader:
    loss = nn.functional.cross_entropy({run}(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def convert(folder: Path, script: str, zoo: str = "") -> Conversion:
    (folder / "zoo.py").write_text("import torch\n" + zoo)
    (folder / "train.py").write_text(script)
    return convert_project(Source.read(folder / "train.py"))[0]


def test_what_is_called_and_trained_in_parts_is_the_model(tmp_path: Path) -> None:
    found = convert(tmp_path, TRAIN.format(made="net = zoo.__dict__[sys.argv[1]]()", run="net"))
    assert "net, optimizer, loader = accelerator.prepare(net, optimizer, loader)" in found.new_text


@pytest.mark.parametrize(
    "params",
    [
        "net.get_input_embeddings().parameters()",
        "zoo.of_embeddings(net)",
        '[{"params": net.get_encoder().parameters()}, {"params": net.head.parameters()}]',
    ],
)
def test_what_a_method_of_the_model_gives_is_a_part_of_it(tmp_path: Path, params: str) -> None:
    helper = "def of_embeddings(net):\n    return list(net.get_input_embeddings().parameters())\n"
    made = "from transformers import AutoModel\nnet = AutoModel.from_pretrained('bert')"
    lines = TRAIN.format(made=made, run="net").splitlines()
    lines = [f"optimizer = torch.optim.SGD({params}, lr=0.1)" if "SGD" in one else one for one in lines]
    found = convert(tmp_path, "\n".join(lines) + "\n", helper)
    assert "net, optimizer, loader = accelerator.prepare(net, optimizer, loader)" in found.new_text


TAKEN_IN = """\
import sys
import torch
from torch import nn
from torch.utils.data import DataLoader


class Both(nn.Module):
    def __init__(self, first, rest):
        super().__init__()
        self.first, self.rest = first, rest

    def forward(self, x):
        return self.rest(self.first(x))


model = nn.Linear(4, 4)
{lines}
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x in DataLoader(torch.randn(16, 4), batch_size=4):
    optimizer.zero_grad()
    model(x).pow(2).mean().backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    "lines",
    [
        "if sys.argv[1:]:\n    model = Both(model, nn.Linear(4, 1))",
        "if sys.argv[1:]:\n    rest = nn.Linear(4, 1)\n    model = Both(model, rest)\nelse:\n    print('one')",
        "model = Both(model, nn.Linear(4, 1))",
    ],
)
def test_one_that_another_takes_in_is_prepared_behind_it(lines: str) -> None:
    found = convert_source(Source.from_text(TAKEN_IN.format(lines=lines), Path("train.py")))
    prepared = "lr=0.1)\nmodel, optimizer = accelerator.prepare(model, optimizer)\n"
    assert prepared in found.new_text
    assert "model = accelerator.prepare(model)" not in found.new_text


@pytest.mark.parametrize(
    "pairs",
    [
        "dict(body.named_parameters()).items()",
        "body.named_parameters()",
        "{k: p for k, p in body.named_parameters()}.items()",
    ],
)
def test_one_whose_parameters_are_looked_at_one_by_one(pairs: str) -> None:
    text = frame(
        build="body, head = nn.Linear(4, 3), nn.Linear(3, 2)\nparameters = []\n"
        f"for key, value in {pairs}:\n    parameters += [{{'params': [value], 'lr': 0.1}}]\n"
        "first = torch.optim.SGD(parameters)\noptimizer = torch.optim.SGD(head.parameters(), lr=0.1)",
        loss="loss = F.cross_entropy(head(body(x)), y)",
        update="first.step()\noptimizer.step()",
    )
    found = convert_source(Source.from_text(text, Path("train.py")))
    assert "body, head, first, optimizer, loader = accelerator.prepare(" in found.new_text


def test_one_that_is_wrapped_before_it_is_called(tmp_path: Path) -> None:
    made = "net = zoo.__dict__[sys.argv[1]]()\nnet.load_state_dict(torch.load('x'))\nnet.eval()"
    script = TRAIN.format(made=made, run="net").replace(
        "loader = D", "net = nn.DataParallel(net)\nloader = D"
    )
    found = convert(tmp_path, script)
    assert "net, optimizer, loader = accelerator.prepare(net, optimizer, loader)" in found.new_text


def test_parts_of_what_is_not_called_stay_models_of_their_own(tmp_path: Path) -> None:
    found = convert(tmp_path, TRAIN.format(made="net = zoo.__dict__[sys.argv[1]]()", run="net.body"))
    assert found.status == "refused"


def test_a_device_among_other_results(tmp_path: Path) -> None:
    zoo = "def choose(n):\n    return torch.device('cuda:0' if n else 'cpu'), list(range(n))\n"
    made = "device, ids = zoo.choose(1)\nnet = zoo.__dict__[sys.argv[1]]().to(device)\nprint(device)"
    found = convert(tmp_path, TRAIN.format(made=made, run="net"), zoo)
    assert "device, ids = zoo.choose(1)\ndevice = accelerator.device\n" in found.new_text


def test_a_caller_that_can_be_seen_is_named(tmp_path: Path) -> None:
    (tmp_path / "loop.py").write_text(
        "def train(net, loader, optimizer):\n    for x, y in loader:\n        loss = (net(x) - y).mean()\n"
        "        loss.backward()\n        optimizer.step()\n        optimizer.zero_grad()\n"
    )
    script = (
        "import torch\nfrom loop import train\nfrom zoo import make\n\ntrain(make(1), make(2), make(3))\n"
    )
    found = convert(tmp_path, script, "def make(name):\n    pass\n")
    assert found.status == "refused"
    assert "outside of this file" not in found.reason
    assert "(line 5)" in found.reason


@pytest.mark.parametrize(
    ("asked", "called"),
    [
        ("net.train()\n    loss = net.loss(x)", ""),
        ("loss = net.loss(x) + sum(p.norm() for p in net.parameters())", ""),
        ("net.train()\n    loss = net.loss(x)", "train(1, 50)\n"),
    ],
)
def test_a_model_that_is_called_by_a_method_is_handed_over(tmp_path: Path, asked: str, called: str) -> None:
    script = f"def train(net, x):\n    {asked}\n    loss.backward()\n{called}"
    assert "the model `net` is handed to `train` by a caller outside" in convert(tmp_path, script).reason


@pytest.mark.parametrize("call", ["net(x)", "net.forward(x)"])
def test_a_function_that_is_handed_what_it_trains_says_so(tmp_path: Path, call: str) -> None:
    script = f"def train(net, x):\n    loss = {call}.mean()\n    loss.backward()\n"
    assert "the model `net` is handed to `train` by a caller outside" in convert(tmp_path, script).reason


STEP = """
def {name}(model, optimizer, x):
    loss = model(x).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
RUN = """
model = nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""
HEAD = "import torch\nfrom torch import nn\nfrom somewhere import run, register\n"


def reason(text: str) -> str:
    return convert_source(Source.from_text(HEAD + text, Path("/nowhere/train.py"))).reason


def test_a_function_that_nobody_calls_keeps_no_script_from_being_converted() -> None:
    text = (
        HEAD
        + STEP.format(name="old")
        + STEP.format(name="step")
        + RUN
        + "step(model, optimizer, torch.rand(2, 4))\n"
    )
    found = convert_source(Source.from_text(text, Path("/nowhere/train.py")))
    assert found.status == "converted", found.reason
    assert STEP.format(name="old") in found.new_text
    assert found.new_text.count("accelerator.backward(loss)") == 1


def test_an_image_that_is_trained_is_called_no_model() -> None:
    text = (
        "def tune(model, image):\n    optimizer = torch.optim.Adam((image,))\n    loss = model(image).sum()\n"
        "    loss.backward()\n    optimizer.step()\n\ntune(run(), torch.rand(3, 4, requires_grad=True))\n"
    )
    assert reason(text).startswith("no model is trained here: the optimizer is given tensors")


def test_tensors_that_are_trained_beside_a_model_that_is_only_run() -> None:
    text = (
        "model = run()\nimage = model.style(torch.rand(9, 4)).mean(0)\nmore = [torch.zeros(4) for _ in range(2)]\n"
        "optimizer = torch.optim.Adam([image] + more)\nloss = (model(image) + more[0]).sum()\nloss.backward()\n"
        "optimizer.step()\n"
    )
    assert reason(text).startswith("no model is trained here: the optimizer is given tensors")


def test_a_list_of_tensors_that_is_trained_is_called_no_model() -> None:
    text = (
        "class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.style = nn.Linear(4, 4)\n        self.out = nn.Linear(4, 2)\n\n"
        "    def forward(self, x):\n        return self.out(x)\n\n\n"
        "net = Net()\nlatent = net.style(torch.randn(4)).detach()\nnoises = [torch.zeros(4) for i in range(2)]\n"
        "optimizer = torch.optim.Adam([latent] + noises)\nloss = net(latent + noises[0]).sum()\n"
        "loss.backward()\noptimizer.step()\n"
    )
    assert reason(text).startswith("no model is trained here: the optimizer is given tensors")


LAYERS = """
class Layer(nn.Linear):
    def __init__(self, a, b):
        super().__init__(a, b)
        self.opt = torch.optim.SGD(self.parameters(), lr=0.1)

    def learn(self, x):
        loss = self.forward(x).mean()
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()


class Net(nn.Module):
    def __init__(self, dims):
        super().__init__()
        self.layers = []
        for a, b in zip(dims, dims[1:]):
            self.layers = self.layers + [Layer(a, b)]

    def learn(self, x):
        for layer in self.layers:
            layer.learn(x)


Net([4, 3, 2]).learn(torch.rand(2, 4))
"""


def test_a_list_that_one_function_makes_anew_is_not_said_to_be_filled_by_several() -> None:
    assert "which is filled in a way that is not followed" in reason(LAYERS)


def test_an_option_that_was_given_is_not_advised(tmp_path: Path) -> None:
    main = (
        "import torch\nfrom torch import nn\nfrom torch.nn.parallel import DistributedDataParallel\n"
        "from loop import step\n\nmodel = DistributedDataParallel(nn.Linear(4, 2))\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\nstep(model, optimizer, torch.rand(2, 4))\n"
    )
    (tmp_path / "main.py").write_text(main)
    (tmp_path / "loop.py").write_text("import torch\n" + STEP.format(name="step"))
    source = Source.read(tmp_path / "main.py")
    assert convert_project(source)[0].reason.endswith("; --replace-ddp may convert it")
    asked = convert_project(source, ConvertOptions(replace_ddp=True))[0].reason
    assert asked.endswith("--replace-ddp converts scripts whose loop is in their own file")


def test_a_part_that_is_replaced_by_the_trained_model_in_the_end(tmp_path: Path) -> None:
    build = """
    whole = nn.Sequential()
    whole.body = nn.Linear(4, 2)
    source = whole.body
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    """
    loss = "loss = (model(x) - source(x).detach()).mean()"
    text = convert(tmp_path, frame(build=build, loss=loss, end="whole.body = model")).new_text
    assert "model, optimizer, loader = accelerator.prepare(model, optimizer, loader)\n" in text


LEARNER = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Learner(nn.Module):
    def __init__(self):
        super().__init__()
        self.classifier = nn.Linear(4, 2)
        self.optimizer = torch.optim.Adam(self.parameters(), lr=0.1)
        if torch.cuda.device_count() > 1:
            self.classifier = nn.DataParallel(self.classifier)

    def step(self, x, y):
        if torch.cuda.device_count() > 1:
            {line}
        else:
            self.classifier.zero_grad()
        loss = nn.functional.cross_entropy(self.classifier(x), y)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()


model = Learner()
for x, y in DataLoader(TensorDataset(torch.randn(32, 4), torch.randint(2, (32,))), batch_size=8):
    model.step(x, y)
"""


def test_the_gradients_of_a_wrapped_part_are_none_of_a_hidden_optimizer(tmp_path: Path) -> None:
    found = convert(tmp_path, LEARNER.format(line="self.classifier.module.zero_grad()"))
    assert found.status == "converted", found.reason
    assert "model = accelerator.prepare(model)" in found.new_text
    assert ".module" not in found.new_text


def test_no_class_is_said_to_be_made_elsewhere_that_is_made_here(tmp_path: Path) -> None:
    # An optimizer that nobody sees, of a part: it cannot be prepared.
    found = convert(tmp_path, LEARNER.format(line="self.classifier.optim.step()"))
    assert found.status == "refused"
    assert "made in this file" not in found.reason
    assert "`Learner` trains its own model `classifier`, a part of it, by itself" in found.reason
