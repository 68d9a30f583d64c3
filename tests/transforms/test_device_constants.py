"""ACC118: devices that another module of the project chooses."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent, indent

import pytest

from accelify.conversion import Conversion
from accelify.convert import convert_project
from accelify.proving import prove
from accelify.source import Source

DEVICE = 'device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")\n'
TRAIN = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
{imports}

class Net(nn.Module):
    def __init__(self, device):
        super().__init__()
        self.fc, self.device = nn.Linear(4, 2), device

    def forward(self, x):
        return self.fc(x)


model = Net(device=device).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(torch.randn(8, 4), torch.randint(0, 2, (8,))), batch_size=2)
for x, y in loader:
    x, y = x.to(device), y.to(device)
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
"""
SECOND = DEVICE.replace(":0", ":1")


def convert(folder: Path, script: str, **modules: str) -> Conversion:
    for name, text in modules.items():
        (folder / f"{name}.py").write_text("import torch\n\n" + text)
    (folder / "train.py").write_text(script)
    conversion = convert_project(Source.read(folder / "train.py"))[0]
    assert conversion.status == "converted", conversion.reason
    return conversion


def left(conversion: Conversion) -> list[str]:
    return [f.message for f in conversion.remaining if f.code == "ACC118"]


def test_a_constant_imported_by_name_is_bound_anew(tmp_path: Path) -> None:
    found = convert(tmp_path, TRAIN.format(imports="from conf import device"), conf=DEVICE)
    assert "accelerator = Accelerator()\ndevice = accelerator.device\nmodel = Net(device=device)\n" in (
        found.new_text
    )
    assert not left(found)


@pytest.mark.parametrize(
    ("text", "device"),
    [
        ('"cuda" if torch.cuda.is_available() else "cpu"', "accelerator.device.type"),
        ('"cuda:0" if torch.cuda.is_available() else "cpu"', "str(accelerator.device)"),
        ('"cuda" if torch.cuda.is_available() else torch.device("cpu")', "accelerator.device"),
    ],
)
def test_a_text_stays_one(tmp_path: Path, text: str, device: str) -> None:
    for imports, name in (("from conf import device", "device"), ("import conf", "conf.device")):
        script = TRAIN.format(imports=imports).replace("=device", f"={name}").replace("(device)", f"({name})")
        assert f"\n{name} = {device}\n" in convert(tmp_path, script, conf=f"device = {text}\n").new_text


def test_one_that_comes_through_stars_of_two_modules(tmp_path: Path) -> None:
    script = TRAIN.format(imports="from common import *")
    found = convert(tmp_path, script, conf=DEVICE, common="from conf import *\n")
    assert "device = accelerator.device\n" in found.new_text


def test_under_its_module_s_name(tmp_path: Path) -> None:
    script = TRAIN.format(imports="import conf").replace("=device", "=conf.device")
    found = convert(tmp_path, script.replace("(device)", "(conf.device)"), conf=DEVICE)
    assert "accelerator = Accelerator()\nconf.device = accelerator.device\n" in found.new_text


def test_nothing_is_bound_where_all_reads_go_with_the_moves(tmp_path: Path) -> None:
    script = TRAIN.format(imports="from conf import device").replace("device=device", "device=None")
    assert "accelerator.device" not in convert(tmp_path, script, conf=DEVICE).new_text


def test_in_functions_each_read_is_the_accelerator_s(tmp_path: Path) -> None:
    head, body = TRAIN.format(imports="from conf import device").split("\n\n\n")
    main = "def main():\n" + "".join(f"    {line}\n" for line in body.splitlines())
    script = f'{head}\n\n\n{main}\n\nif __name__ == "__main__":\n    main()\n'
    found = convert(tmp_path, script, conf=DEVICE)
    assert "model = Net(device=accelerator.device)\n" in found.new_text


def is_named(folder: Path, script: str, **modules: str) -> bool:
    found = convert(folder, script, **modules)
    prove([found], found)
    return "ACC714" in {one.code for one in found.remaining}


@pytest.mark.parametrize(
    ("noise", "name"),
    [
        ("from conf import device\n\ndef noise():\n    return torch.randn(4, device=device)\n", "noise()"),
        ("from conf import *\n\nfixed = torch.randn(4, device=device)\n", "fixed"),
        ("import conf\n\nfixed = torch.randn(4, device=conf.device)\n", "fixed"),
    ],
)
def test_a_module_that_goes_on_using_one_gpu_is_named(tmp_path: Path, noise: str, name: str) -> None:
    imports = f"from conf import device\nfrom noise import {name.removesuffix('()')}\n{name}"
    assert is_named(tmp_path, TRAIN.format(imports=imports), conf=SECOND, noise=noise)


def test_a_module_that_goes_on_using_the_first_gpu_gets_each_process_s_own(tmp_path: Path) -> None:
    (tmp_path / "conf.py").write_text("import torch\n\n" + DEVICE)
    (tmp_path / "noise.py").write_text(
        "import torch\nfrom conf import device\n\n\ndef noise():\n    return torch.randn(4, device=device)\n"
    )
    path = tmp_path / "train.py"
    path.write_text(TRAIN.format(imports="from conf import device\nfrom noise import noise\nnoise()"))
    found, changed = convert_project(Source.read(path))
    assert not left(found)
    assert changed.new_text == "import torch\n\n" + DEVICE.replace("cuda:0", "cuda")


def test_a_constant_that_asks_for_more_than_the_machine_decides_on_the_cpu(tmp_path: Path) -> None:
    conf = "import os\ndevice = torch.device('cuda' if os.environ.get('GPU') else 'cpu')\n"
    found = convert(tmp_path, TRAIN.format(imports="from conf import device"), conf=conf)
    assert 'Accelerator(cpu=str(device) == "cpu")' in found.new_text
    branches = "import sys\nif '--cpu' in sys.argv:\n    device = 'cpu'\nelse:\n    device = 'cuda'\n"
    found = convert(tmp_path, TRAIN.format(imports="from conf import device"), conf=branches)
    assert 'Accelerator(cpu=str(device) == "cpu")' in found.new_text


def test_the_cpu_stays_the_cpu(tmp_path: Path) -> None:
    found = convert(
        tmp_path, TRAIN.format(imports="from conf import device"), conf='device = torch.device("cpu")\n'
    )
    assert "Accelerator(cpu=True)" in found.new_text
    assert "accelerator.device" not in found.new_text


def test_the_options_have_another_name_where_the_accelerator_is_made(tmp_path: Path) -> None:
    conf = """
    class Config:
        def __init__(self, args):
            self.device = torch.device(args.device)
    """
    script = """
    import argparse
    import torch
    from conf import Config
    def fit(config, inputs):
        model = torch.nn.Linear(4, 2)
        model.to(config.device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for i in range(3):
            loss = model(inputs.to(config.device)).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    def main():
        parser = argparse.ArgumentParser()
        parser.add_argument("--device", default="cpu")
        conf = Config(parser.parse_args())
        loader = torch.utils.data.DataLoader([torch.ones(4)] * 8)
        for inputs in loader:
            fit(conf, inputs)
    main()
    """
    conversion = convert(tmp_path, dedent(script), conf=dedent(conf))
    made = 'accelerator = Accelerator(cpu=str(conf.device) == "cpu")\n    conf.device = accelerator.device'
    assert made in conversion.new_text
    assert "ACC410" not in {f.code for f in conversion.remaining}


MAIN = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
{early}

def main():
    loader = DataLoader(TensorDataset(torch.randn(8, 3)), batch_size=2)
    model = nn.Linear(3, 3).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for (x,) in loader:
        optimizer.zero_grad()
        loss = model(x.cuda() - {mean}).pow(2).mean()
        loss.backward()
        optimizer.step()


main()
"""


@pytest.mark.parametrize(
    ("given", "after"),
    [
        (".cuda()", ".to(accelerator.device)"),
        ('.to("cuda")', ".to(accelerator.device)"),
        (' + torch.ones(3, device="cuda:0")', " + torch.ones(3, device=accelerator.device)"),
    ],
)
def test_what_the_script_puts_on_a_gpu_before_its_functions_run(
    tmp_path: Path, given: str, after: str
) -> None:
    found = convert(tmp_path, MAIN.format(early=f"mean = torch.zeros(3){given}", mean="mean"))
    assert f"\naccelerator = Accelerator()\nmean = torch.zeros(3){after}\n" in found.new_text
    assert not left(found)


def test_what_is_put_there_before_the_options_are_known_is_named(tmp_path: Path) -> None:
    early = (
        "import argparse\nmean = torch.zeros(3).cuda()\n"
        "parser = argparse.ArgumentParser()\nargs = parser.parse_args()"
    )
    (message,) = left(convert(tmp_path, MAIN.format(early=early, mean="mean")))
    assert message.startswith("`mean` is put on the first GPU when the script starts")


def test_what_a_module_puts_on_a_gpu_when_it_is_imported_is_named(tmp_path: Path) -> None:
    conf = "mean = torch.zeros(3).cuda()\n"
    for early, mean in (("from conf import mean", "mean"), ("import conf", "conf.mean")):
        (message,) = left(convert(tmp_path, MAIN.format(early=early, mean=mean), conf=conf))
        assert message.startswith(f"`{mean}` is put on the first GPU when conf.py is imported")
        assert not left(convert(tmp_path, MAIN.format(early=early, mean=f"{mean}.to(x.device)"), conf=conf))
    assert not left(convert(tmp_path, MAIN.format(early="import conf\nmean = 0", mean="mean"), conf=conf))
    guarded = 'if __name__ == "__main__":\n    mean = torch.zeros(3).cuda()\nelse:\n    mean = 0\n'
    assert not left(convert(tmp_path, MAIN.format(early="import conf", mean="conf.mean"), conf=guarded))


def test_what_a_module_works_out_of_it_is_named_too(tmp_path: Path) -> None:
    conf = "mean = torch.zeros(3).cuda()\nupper = (1 - mean) / 2\nhost = (1 - mean.cpu()) / 2\nhalf = upper / 2\n"
    early = "from conf import half, host, mean, upper"
    (message,) = left(convert(tmp_path, MAIN.format(early=early, mean="mean + half + host"), conf=conf))
    assert message.startswith("`mean` and `half` are put on the first GPU when conf.py is imported")
    (message,) = left(convert(tmp_path, MAIN.format(early=early, mean="upper"), conf=conf))
    assert message.startswith("`upper` is put on the first GPU when conf.py is imported")
    assert not left(convert(tmp_path, MAIN.format(early=early, mean="host"), conf=conf))


KEPT = """
class Config:
    def __init__(self, args):
        self.device = torch.device({device})
"""
BATCHES = """
import argparse
from collections import namedtuple
import torch
from torch.utils.data import DataLoader
from conf import Config
Batch = namedtuple("Batch", "x y")
def collate(samples):
    return Batch(torch.stack([s[0] for s in samples]), torch.stack([s[1] for s in samples]))
def fit(config, loader):
    model = torch.nn.Linear(4, 1)
    model.to(config.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for batch in loader:
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(batch.x.to(config.device)), batch.y.to(config.device))
        loss.backward()
        optimizer.step()
def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--mode", default="train")
    args = parser.parse_args()
    if args.mode == "train":
        conf = Config(args)
        data = [(torch.randn(4), torch.randn(1)) for _ in range(32)]
        fit(conf, DataLoader(data, batch_size=4, shuffle=True, collate_fn=collate))
"""
OTHERWISE = """
    else:
        device = torch.device(args.device)
        print(device)
"""


@pytest.mark.parametrize("otherwise", ["", OTHERWISE])
def test_an_object_that_keeps_a_device_gets_the_accelerator_s_where_a_branch_makes_it(
    tmp_path: Path, otherwise: str
) -> None:
    script = BATCHES + otherwise.lstrip("\n") + "main()\n"
    text = convert(tmp_path, script, conf=KEPT.format(device="args.device")).new_text
    assert "        conf = Config(args)\n        conf.device = accelerator.device\n" in text
    on_cpu = convert(tmp_path, script, conf=KEPT.format(device='"cpu"')).new_text
    assert "conf.device = accelerator.device" not in on_cpu


def test_such_an_object_keeps_its_device_where_no_read_of_it_stays(tmp_path: Path) -> None:
    script = BATCHES + "main()\n"
    for word in ("x", "y"):
        script = script.replace(f"batch.{word}.to(config.device)", word)
    script = script.replace("for batch in", "for x, y in").replace("Batch(torch", "(torch")
    text = convert(tmp_path, script, conf=KEPT.format(device="args.device")).new_text
    assert "conf.device" not in text


def test_a_class_that_nothing_names_is_left_alone(tmp_path: Path) -> None:
    """Its module is converted with the script for another class, and names are looked up by what a variable holds."""
    kept = """
    from torch import nn
    class Spare(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.width = width
    class Saver:
        def __init__(self, net):
            self.net = net
    """
    engine = """
    from kept import Saver
    class Trainer:
        def __init__(self, loss="cross_entropy"):
            self.loss = getattr(torch.nn.functional, loss)
            self.net = torch.nn.Linear(4, 2)
            self.saver = Saver(self.net)
            self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)
        def fit(self, loader):
            for x, y in loader:
                self.optimizer.zero_grad()
                self.loss(self.net(x), y).backward()
                self.optimizer.step()
    """
    script = """
    import torch
    from engine import Trainer
    data = torch.utils.data.TensorDataset(torch.randn(8, 4), torch.randint(0, 2, (8,)))
    Trainer().fit(torch.utils.data.DataLoader(data, batch_size=2))
    """
    convert(tmp_path, dedent(script), kept=dedent(kept), engine=dedent(engine))


@pytest.mark.parametrize(("device", "said"), [(SECOND, True), (DEVICE, False)])
def test_reads_that_no_accelerator_comes_to_are_named(tmp_path: Path, device: str, said: bool) -> None:
    """Of a module that is converted as well: its number stands in one place, where it can be taken out."""
    body = TRAIN.partition("\n\n\n")[2]
    loop = indent(body[body.index("for x") :].replace("device", "place.device"), "    ")
    net = """
    import place
    from torch import nn
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(4, 2)
        def forward(self, x):
            return self.fc(x * torch.ones(4, device=place.device) + torch.zeros(4).to(place.device))
    def train(model, loader, optimizer):
    """
    made = body[: body.index("for x")].replace("(device)", "(place.device)").replace("device=device", "")
    script = f"import torch, place\nfrom torch.utils.data import DataLoader, TensorDataset\nfrom net import *\n{made}"
    modules = {"place": device, "net": f"{dedent(net)}{loop}"}
    script += "train(model, loader, optimizer)\n"
    assert "train(accelerator, " in convert(tmp_path, script, **modules).new_text
    found = convert_project(Source.read(tmp_path / "train.py"))
    prove(found, found[0])
    named = [one for each in found for one in each.remaining if one.code == "ACC714"]
    assert bool(named) is said


LOOP = """\
from torch import nn

{device}

def train(model, loader, optimizer):
    for x, y in loader:
        {moved}
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
"""
CALLER = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from loops import train

model = nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
train(model, DataLoader(TensorDataset(torch.randn(8, 4), torch.randint(0, 2, (8,)))), optimizer)
"""


@pytest.mark.parametrize(
    ("moved", "after"),
    [
        ("x, y = x.to(device).float(), y.to(device)", "x = x.float()"),
        ("x, y = x.to(device), y.to(device).long()", "y = y.long()"),
        ("x, y, n = x.to(device).float(), y.to(device), 1", "x, n = x.float(), 1"),
    ],
)
def test_a_move_that_goes_with_its_variable_takes_its_device_along(
    tmp_path: Path, moved: str, after: str
) -> None:
    (tmp_path / "loops.py").write_text("import torch\n" + LOOP.format(device=DEVICE, moved=moved))
    (tmp_path / "train.py").write_text(CALLER)
    texts = [one.new_text for one in convert_project(Source.read(tmp_path / "train.py"))]
    assert any(f"        {after}\n        optimizer" in text for text in texts)


def test_a_model_whose_move_is_gone_is_not_put_there(tmp_path: Path) -> None:
    text = """
    import torch
    from torch.utils.data import DataLoader, TensorDataset
    class Net(torch.nn.Linear):
        def __init__(self, width, cuda):
            super().__init__(3, width)
            self.in_cuda = cuda
    loader = DataLoader(TensorDataset(torch.randn(16, 3), torch.randn(16, 1)), batch_size=4)
    net = Net(1, True).cuda()
    optimizer = torch.optim.Adam(net.parameters())
    for x, y in loader:
        if net.in_cuda:
            x, y = x.cuda(), y.cuda()
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(net(x), y).backward()
        optimizer.step()
    """
    found = convert(tmp_path, dedent(text))
    assert "net = Net(1, True)\n" in found.new_text
    assert not left(found)
