"""Kinds of scripts that were converted wrongly once: found in other people's repositories, written anew here."""

from pathlib import Path

import pytest

from accelify.convert import convert_project, convert_source
from accelify.source import Source
from tests.transforms.support import PATH

HEAD = """\
import argparse
import copy
import os
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from tqdm import tqdm

data = TensorDataset(torch.randn(20, 3), torch.randn(20, 1))
"""
LOOP = """\
for x, y in loader:
    loss = (model(x.to(WHERE)) - y.to(WHERE)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
MADE = """\
model = nn.Linear(3, 1).to(WHERE)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(data, batch_size=4)
"""


def converted(text: str) -> str:
    """The converted script, which converts to itself."""
    conversion = convert_source(Source.from_text(text, PATH))
    assert conversion.status == "converted", conversion.reason
    assert convert_source(Source.from_text(conversion.new_text, PATH)).status == "unchanged"
    return conversion.new_text


def script(*parts: str, device: str = '"cuda"') -> str:
    return HEAD + "".join(parts).replace("WHERE", device)


def test_a_progress_bar_with_a_name_is_no_loader() -> None:
    loop = LOOP.replace("in loader", "in bar")
    text = converted(script(MADE, "bar = tqdm(loader)\n", loop))
    assert (
        "model, optimizer, loader = accelerator.prepare(model, optimizer, loader)\nbar = tqdm(loader" in text
    )


def test_none_is_no_construction() -> None:
    text = converted(script("optimizer = None\n", MADE, LOOP))
    assert text.count("prepare(") == 1
    assert "loader = DataLoader(data, batch_size=4)\nmodel, optimizer, loader = accelerator.prepare" in text


def test_the_module_that_the_loop_calls_is_prepared_and_no_part_of_it() -> None:
    made = """\
class Net(nn.Module):
    def __init__(self, encoder, decoder):
        super().__init__()
        self.encoder, self.decoder = encoder, decoder

    def forward(self, x):
        return self.decoder(self.encoder(x))


encoder, decoder = nn.Linear(3, 2), nn.Linear(2, 1)
model = Net(encoder, decoder)
optimizer = torch.optim.SGD(model.decoder.parameters(), lr=0.1)
loader = DataLoader(data, batch_size=4)
"""
    assert "model, optimizer, loader = accelerator.prepare(" in converted(script(made, LOOP))


def test_the_accelerator_comes_behind_the_attributes_it_reads() -> None:
    made = """\
class Trainer:
    def __init__(self, args):
        self.args = args
        self.device = torch.device("cpu" if self.args.cpu else "cuda")
        self.model = nn.Linear(3, 1).to(self.device)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.loader = DataLoader(data, batch_size=4)

    def fit(self):
        for x, y in self.loader:
            loss = (self.model(x.to(self.device)) - y.to(self.device)).pow(2).mean()
            loss.backward()
            self.optimizer.step()


Trainer(argparse.ArgumentParser().parse_args()).fit()
"""
    text = converted(script(made))
    assert "        self.args = args\n        self.accelerator = Accelerator(cpu=self.args.cpu)\n" in text


def test_a_variable_number_of_visible_devices_is_chosen_before() -> None:
    text = converted(script('os.environ["CUDA_VISIBLE_DEVICES"] = "0"\n', MADE, LOOP))
    assert text.index("CUDA_VISIBLE_DEVICES") < text.index("= Accelerator(")


def test_parameters_are_no_options() -> None:
    made = MADE.replace(
        "optimizer = torch",
        "params = filter(lambda p: p.requires_grad, model.parameters())\noptimizer = torch",
    )
    text = converted(script('os.makedirs("out", exist_ok=True)\n', made, LOOP))
    assert text.index("= Accelerator(") < text.index("os.makedirs")


def test_a_helper_that_moves_models_and_tensors_mixes_nothing_up() -> None:
    helper = "def cuda(thing, flag):\n    return thing.cuda() if flag else thing\n\n\n"
    made = MADE.replace("nn.Linear(3, 1).to(WHERE)", "cuda(nn.Linear(3, 1), True)")
    text = converted(
        script(
            helper, made, "scale = cuda(torch.ones(1), True)\n", LOOP.replace("x.to(WHERE)", "cuda(x, True)")
        )
    )
    assert "model, optimizer, loader = accelerator.prepare(model, optimizer, loader)" in text
    assert "unwrap" not in text


def test_a_function_that_evaluates_before_the_training_needs_what_is_prepared() -> None:
    test = """\
def evaluate():
    hits = 0
    for x, y in test_loader:
        hits += (model(x.to(WHERE)) > y.to(WHERE)).sum().item()
    return hits


"""
    made = MADE + "test_loader = DataLoader(data, batch_size=4)\nprint(evaluate())\n"
    text = converted(script(test, made, LOOP))
    assert text.index("accelerator.prepare(") < text.index("print(evaluate(")


@pytest.mark.parametrize(
    ("device", "before", "kind"),
    [
        ("args.device", "args = argparse.ArgumentParser().parse_args()\n", ""),
        ('config["device"]', 'config = {"device": "cuda"}\n', ".type"),
    ],
)
def test_a_device_among_the_options_becomes_the_accelerators(device: str, before: str, kind: str) -> None:
    text = converted(script(before, MADE, "noise = torch.randn(3, device=WHERE)\n", LOOP, device=device))
    assert f'Accelerator(cpu=str({device}) == "cpu")\n{device} = accelerator.device{kind}\n' in text
    assert f"device={device})" in text


@pytest.mark.parametrize("name", ["options", "chosen"])
def test_a_device_that_an_options_class_chooses(name: str) -> None:
    before = f"""\
class Options:
    def __init__(self):
        self.device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")


{name} = Options()
"""
    text = converted(
        script(before, MADE, "noise = torch.randn(3, device=WHERE)\n", LOOP, device=f"{name}.device")
    )
    assert text.index("accelerator = Accelerator()\n") < text.index(
        "        self.device = accelerator.device\n"
    )
    assert f"torch.randn(3, device={name}.device)" in text


def test_a_device_as_a_parameter_with_a_default() -> None:
    body = (MADE + "noise = torch.randn(3, device=WHERE)\n" + LOOP).replace("\n", "\n    ").rstrip()
    text = converted(script(f'def train(device="cuda:0"):\n    {body}\n\n\ntrain()\n', device="device"))
    assert (
        '    accelerator = Accelerator(cpu=str(device) == "cpu")\n    device = str(accelerator.device)\n'
        in text
    )


def test_a_device_that_a_function_gives_is_no_wish_for_the_cpu() -> None:
    helper = 'def where():\n    return torch.device("cuda:0" if torch.cuda.is_available() else "cpu")\n\n\n'
    text = converted(script(helper, MADE, LOOP, device="where()"))
    assert "accelerator = Accelerator()" in text


def test_a_copied_model_needs_the_first_one_on_the_device() -> None:
    made = MADE.replace("optimizer = torch", "target = copy.deepcopy(model)\noptimizer = torch")
    text = converted(script(made, LOOP.replace("- y.to(WHERE)", "- target(x.to(WHERE))")))
    assert "model = nn.Linear(3, 1).to(accelerator.device)\ntarget = copy" in text


@pytest.mark.parametrize("last", ["loss.sum().backward()", "loss.mean().backward()"])
def test_a_loss_that_is_one_number_stays_what_it_is(last: str) -> None:
    text = converted(script(MADE, LOOP.replace("loss.backward()", last)))
    assert "reduction=" not in text
    summed = converted(script(MADE, LOOP.replace(".mean()", ".sum()").replace("loss.backward()", last)))
    assert 'reduction="sum"' in summed


def test_an_iterator_made_of_itself_ends() -> None:
    source = """\
def batches():
    loader = DataLoader(data, batch_size=4)
    loader = iter(loader)
    while True:
        try:
            yield next(loader)
        except StopIteration:
            loader = iter(DataLoader(data, batch_size=4))


"""
    assert "accelerator.backward(loss)" in converted(
        script(source, MADE, LOOP.replace("in loader", "in batches()"))
    )


def test_batches_of_an_iterator_called_by_its_own_methods() -> None:
    source = """\
def endless(iterable):
    iterator = iterable.__iter__()
    while True:
        try:
            yield iterator.__next__()
        except StopIteration:
            iterator = iterable.__iter__()


"""
    loop = LOOP.replace("for x, y in loader:", "for step in range(9):\n    x, y = batches.__next__()")
    text = converted(script(source, MADE, "batches = endless(loader)\n", loop))
    assert "model, optimizer, loader = accelerator.prepare(model, optimizer, loader)\nbatches = " in text


EVALUATION = """\
hits, seen = 0, 0
for x, y in test_loader:
    size = x.size(0)
    out = model(x.to(WHERE))
    y = y.to(WHERE)
    hits += (out > y).sum().item()
    seen += size
print(hits / seen)
"""
TESTED = MADE + "test_loader = DataLoader(data, batch_size=4)\n"


def test_the_size_of_a_batch_is_taken_again_from_what_was_gathered() -> None:
    text = converted(script(TESTED, LOOP, EVALUATION))
    assert "    out, y = accelerator.gather_for_metrics((out, y))\n    size = y.size(0)\n" in text


def test_sums_over_samples_are_divided_by_the_samples_of_all() -> None:
    loop = LOOP.replace(
        "    optimizer.step()\n", "    optimizer.step()\n    total += loss.item() * n\n    count += n\n"
    )
    loop = "total, count = 0.0, 0\n" + loop.replace("in loader:\n", "in loader:\n    n = x.size(0)\n")
    text = converted(script(MADE, loop, "print(total / count)\n"))
    assert 'accelerator.reduce((total, count), reduction="sum")' in text


def test_a_metric_that_is_no_average_keeps_its_batches() -> None:
    metric = "def psnr(a, b):\n    return 10 * torch.log10(1 / (a - b).pow(2).mean())\n\n\n"
    loop = "values = []\nfor x, y in test_loader:\n    out = model(x.to(WHERE))\n"
    loop += "    values.append(psnr(out, y.to(WHERE)))\n"
    text = converted(script(metric, TESTED, LOOP, loop, "print(sum(values) / len(values))\n"))
    assert "gather_for_metrics" not in text
    assert "model, optimizer, loader = accelerator.prepare(" in text


def test_numpy_reads_a_copy_in_main_memory() -> None:
    loop = "seen = []\nfor x, y in test_loader:\n    out = model(x.to(WHERE))\n    seen.append(y.numpy())\n"
    text = converted(script(TESTED, LOOP, loop + "    seen.append(out.detach().cpu().numpy())\n"))
    assert "seen.append(y.cpu().numpy())" in text
    assert "seen.append(out.detach().cpu().numpy())" in text


def test_a_model_in_a_dictionary_that_is_saved() -> None:
    text = converted(script(MADE, LOOP, 'state = {"net": model, "epoch": 1}\ntorch.save(state, "last.pt")\n'))
    assert 'state = {"net": accelerator.unwrap_model(model), "epoch": 1}' in text


def test_a_run_object_of_wandb_is_there_on_the_main_process_only() -> None:
    text = converted(
        script("import wandb\n", MADE, 'run = wandb.init(project="x")\nrun.config.update({"lr": 1})\n', LOOP)
    )
    assert 'run = wandb.init(project="x") if accelerator.is_main_process else None\nif accelerator' in text
    read = converted(script("import wandb\n", MADE, 'run = wandb.init(project="x")\nname = run.name\n', LOOP))
    assert "else None" not in read


def test_nothing_is_left_of_an_if_whose_body_went() -> None:
    made = (
        MADE.replace(".to(WHERE)", "")
        + "if torch.cuda.device_count() > 1:\n    model = nn.DataParallel(model)\n"
    )
    text = converted(script(made, LOOP))
    assert "pass" not in text
    assert "device_count" not in text


def test_parts_are_read_off_the_script_s_own_module() -> None:
    text = converted(script(MADE, LOOP, "for name, part in model.named_modules():\n    print(name)\n"))
    assert "accelerator.unwrap_model(model).named_modules()" in text


def test_a_converted_module_in_the_group_of_another_script(tmp_path: Path) -> None:
    (tmp_path / "engine.py").write_text("def train(accelerator, loss):\n    accelerator.backward(loss)\n")
    main = tmp_path / "main.py"
    main.write_text(
        "import torch\nfrom engine import train\n\ntrain(None, torch.ones(1, requires_grad=True))\n"
    )
    (conversion,) = convert_project(Source.read(main))
    assert conversion.status == "refused"
    assert "engine.py is converted already" in conversion.reason


def test_a_batch_is_on_the_device_until_its_names_are_bound_anew() -> None:
    loop = LOOP.replace(
        "in loader:\n",
        "in loader:\n    if use_cuda:\n        x, y = x.cuda(), y.cuda()\n    x, y = mix(x, y)\n",
    )
    loop = loop.replace(".to(WHERE)", "")
    mix = "use_cuda = torch.cuda.is_available()\n\n\ndef mix(x, y):\n    return 0.5 * x + 0.5 * x.flip(0), y\n\n\n"
    text = converted(script(mix, MADE, loop))
    assert "for x, y in loader:\n    x, y = mix(x, y)\n" in text


def test_a_loader_is_prepared_before_something_draws_from_it() -> None:
    made = MADE.replace("optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n", "")
    late = "batches = iter(loader)\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
    loop = LOOP.replace("for x, y in loader:", "for step in range(9):\n    x, y = next(batches)")
    text = converted(script(made, late, loop))
    assert "loader = accelerator.prepare(loader)\nbatches = iter(loader)" in text
    assert "model, optimizer = accelerator.prepare(model, optimizer)\nfor step" in text


@pytest.mark.parametrize(
    ("kept", "loop"),
    [
        ("batches = tqdm(enumerate(loader))\n", "for i, (x, y) in batches:\n"),
        ('parts = {"train": loader}\n', 'for x, y in parts["train"]:\n'),
        ("batches = cycle(loader)\n", "for step in range(9):\n    x, y = next(batches)\n"),
        ("batches = own(loader)\n", "for step in range(9):\n    x, y = next(batches)\n"),
        ("pairs = zip(loader, loader)\n", "for (x, y), _ in pairs:\n"),
    ],
)
def test_what_keeps_a_loader_keeps_the_prepared_one(kept: str, loop: str) -> None:
    before = (
        "from itertools import cycle\n\n\ndef own(loader):\n    while True:\n        for batch in loader:\n"
    )
    before += "            yield batch\n\n\nloader = DataLoader(data, batch_size=4)\n"
    made = MADE.replace("loader = DataLoader(data, batch_size=4)\n", "")
    text = converted(script(before, kept, made, LOOP.replace("for x, y in loader:\n", loop)))
    assert "loader = accelerator.prepare(loader)\n" + kept.split(" ")[0] in text
    assert "TODO" not in text
    assert "model((x))" in text or "model(x)" in text


def test_a_counter_that_divides_what_stays_local_stays_local() -> None:
    body = "    optimizer.step()\n    count += x.size(0)\n    total += loss.item() * x.size(0)\n"
    body += "    seen.append(len(y))\n"
    loop = "total, count, seen = 0.0, 0, []\n" + LOOP.replace("    optimizer.step()\n", body)
    text = converted(script(MADE, loop, "print(total / count, sum(seen) / count)\n"))
    assert 'total = accelerator.reduce(total, reduction="mean")' in text
    assert "count = " not in text.split("for x, y in loader")[1]


def test_names_that_star_imports_hand_on(tmp_path: Path) -> None:
    (tmp_path / "inner.py").write_text("import torch\nfrom torch import nn\n")
    (tmp_path / "outer.py").write_text("from inner import *\n")
    main = tmp_path / "main.py"
    text = script(MADE, LOOP).replace("import torch\nfrom torch import nn\n", "from outer import *\n")
    main.write_text(text + 'torch.save(model.state_dict(), "last.pt")\n')
    (conversion,) = convert_project(Source.read(main))
    assert "accelerator.save(accelerator.unwrap_model(model).state_dict()" in conversion.new_text


def test_the_name_that_trains_is_prepared_and_not_its_first_one() -> None:
    made = MADE.replace(
        "model = nn.Linear(3, 1).to(WHERE)", "net = nn.Linear(3, 1)\nmodel = nn.DataParallel(net)"
    )
    fit = "def fit(model, optimizer, loader):\n    " + LOOP.replace("\n", "\n    ").rstrip() + "\n\n\n"
    text = converted(script(fit, made, "fit(model, optimizer, loader)\n"))
    assert "model, optimizer, loader = accelerator.prepare(model, optimizer, loader)" in text


def test_a_model_called_by_its_forward() -> None:
    text = converted(script(MADE, LOOP.replace("model(x", "model.forward(x")))
    assert "model.forward(x)" in text
    assert "unwrap_model" not in text


def test_a_method_of_the_script_s_own_that_is_named_like_a_move() -> None:
    made = """\
class Agent:
    def __init__(self):
        self.net = nn.Linear(3, 1)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)
        if torch.cuda.is_available():
            self.cuda()

    def cuda(self):
        self.net.cuda()

    def fit(self):
        for x, y in DataLoader(data, batch_size=4):
            loss = (self.net(x.cuda()) - y.cuda()).pow(2).mean()
            loss.backward()
            self.optimizer.step()


Agent().fit()
"""
    text = converted(script(made))
    assert "            self.cuda()\n" in text


def test_a_module_by_whose_name_the_loop_calls_its_batch() -> None:
    text = script(MADE, LOOP)
    text = text.replace(
        "from torch.utils.data import DataLoader, TensorDataset\n",
        "from torch.utils import data\nfrom torch.utils.data import TensorDataset\n",
    )
    text = text.replace("data = TensorDataset", "points = TensorDataset")
    text = text.replace("DataLoader(data, batch_size=4)", "data.DataLoader(points, batch_size=4)")
    text = text.replace("for x, y in loader:\n", "for data in loader:\n    x, y = data\n")
    assert "model, optimizer, loader = accelerator.prepare(model, optimizer, loader)" in converted(text)
