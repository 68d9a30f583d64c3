"""Checkpoints that are loaded."""

from __future__ import annotations

from pathlib import Path

import pytest

from accelify.convert import convert_project, convert_source
from accelify.source import Source
from tests.transforms.support import PATH, check_noop, check_transformed, convert, frame, place_of


@pytest.mark.parametrize(
    "snippet",
    [
        "state = torch.load('m.pt', map_location='cpu')",
        "optimizer.load_state_dict(torch.load('m.pt', 'cpu'))",
        "vocabulary = torch.load('vocabulary.pt')",
        "words = torch.load('vocabulary.pt')['words']",
        "images = torch.load('best.pt')['images']",
        "mean = torch.load('best.pt')['mean'].numpy()",
        "first = torch.load('best.pt')[0]",
        "import json\ntext = json.load(open('a.json'))",
    ],
)
def test_others_stay(snippet: str) -> None:
    check_noop("end", snippet, "ACC207")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            "model.load_state_dict(torch.load('é.pt'))",
            "model.load_state_dict(torch.load('é.pt', map_location=accelerator.device))",
        ),
        (
            "checkpoint = torch.load(\n    'm.pt',\n)\nmodel.load_state_dict(checkpoint['model'])",
            "checkpoint = torch.load(\n    'm.pt',\n    map_location=accelerator.device,\n)\n"
            "model.load_state_dict(checkpoint['model'])",
        ),
    ],
)
def test_loads(before: str, after: str) -> None:
    check_transformed(
        "ready",
        before,
        f"{after}\nmodel, optimizer, loader = accelerator.prepare(model, optimizer, loader)",
    )


@pytest.mark.parametrize(
    ("place", "moved"),
    [
        ("'cuda:0'", True),
        ("'cuda:%d' % int(os.environ['GPU'])", True),
        ("f'cuda:{i}'", True),
        ("'cuda:' + str(i)", True),
        ("'cuda:{}'.format(i)", True),
        ("torch.device('cuda:0')", True),
        ("torch.device(f'cuda:{i}')", True),
        ("torch.device('cpu')", False),
        ("{'cuda:0': 'cuda:1'}", False),
        ("f'{kind}:{i}'", False),
        ("torch.device('cuda', i)", False),
    ],
)
def test_a_load_to_one_gpu(place: str, moved: bool) -> None:
    line = "model.load_state_dict(torch.load('m.pt', map_location={}))"
    text = convert(setup="i, kind = 0, 'cuda'\n", ready=line.format(place)).new_text
    assert (line.format("accelerator.device") in text) is moved
    assert (line.format(place) in text) is not moved


def test_an_entry_of_a_checkpoint() -> None:
    check_transformed(
        "ready",
        "radius = torch.load(os.environ['CKPT'])['radius']",
        "radius = torch.load(os.environ['CKPT'], map_location=accelerator.device)['radius']",
    )


def test_by_imported_name() -> None:
    check_transformed(
        "build",
        """
        model = nn.Linear(4, 2)
        model.load_state_dict(load('m.pt'))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        """,
        """
        model = nn.Linear(4, 2)
        model.load_state_dict(load('m.pt', map_location=accelerator.device))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        """,
        imports="from torch import load",
    )


WAIT = "accelerator.wait_for_everyone()"


def test_each_read_behind_a_write_waits() -> None:
    conversion = convert(
        ready="state = torch.load('a.pt')",
        end="""
        torch.save(model.state_dict(), 'a.pt')
        state = torch.load('a.pt')
        n = 1
        torch.save({'n': n}, 'a.pt')
        state = torch.load('a.pt')
        again = torch.load('a.pt', 'cpu')
        """,
    )
    assert WAIT not in place_of(conversion.new_text, "ready")
    lines = place_of(conversion.new_text, "end").splitlines()
    assert [lines[n - 1] == WAIT for n, line in enumerate(lines) if "torch.load" in line] == [
        True,
        True,
        False,
    ]


def test_a_file_that_a_function_writes_is_waited_for() -> None:
    text = convert(
        imports="import numpy as np",
        setup="def keep(path, rows):\n    with open(path, 'w') as f:\n        f.write(str(rows))",
        end="keep('rows.txt', 3)\nn = 1\nrows = np.loadtxt('rows.txt')\nother = np.loadtxt('other.txt')",
    ).new_text
    assert place_of(text, "end").splitlines()[2:] == [
        WAIT,
        "rows = np.loadtxt('rows.txt')",
        "other = np.loadtxt('other.txt')",
    ]


def test_who_looks_whether_it_is_there_waits_first() -> None:
    check_transformed(
        "end",
        """
        torch.save(model.state_dict(), 'a.pt')
        if os.path.exists('a.pt'):
            vocabulary = torch.load('a.pt')
        """,
        """
        accelerator.wait_for_everyone()
        accelerator.save(accelerator.unwrap_model(model).state_dict(), 'a.pt')
        accelerator.wait_for_everyone()
        if os.path.exists('a.pt'):
            vocabulary = torch.load('a.pt')
        """,
    )


def test_a_file_named_to_a_library_is_waited_for() -> None:
    check_transformed(
        "ready",
        "rows.to_csv('clean.csv')\ntable = tables.Table(path='clean.csv')\nother = tables.Table(path='other.csv')",
        f"""
        if accelerator.is_main_process:
            rows.to_csv('clean.csv')
        {WAIT}
        table = tables.Table(path='clean.csv')
        other = tables.Table(path='other.csv')
        """,
        imports="import tables",
        setup="rows = tables.Rows()",
    )


KEEP = "def keep(x, path='kept.png'):\n    {}\n"
SAVES = "save_image(x, path)"
DRAWS = "Image.fromarray(x.numpy()).save(path)"
IMPORTS = "import cv2\nfrom PIL import Image\nfrom torchvision.utils import save_image\nimport matplotlib.pyplot as plt"


@pytest.mark.parametrize(
    ("setup", "written", "read"),
    [
        (KEEP.format(SAVES), "keep(data[0][0])", "Image.open('kept.png')"),
        (KEEP.format(DRAWS), "keep(data[0][0])", "Image.open('kept.png')"),
        (KEEP.format(SAVES), "keep(data[0][0])", "display.Image('kept.png')"),
        (KEEP.format(SAVES), "keep(data[0][0], path='a.png')", "display.Image(filename='a.png')"),
        (KEEP.format(SAVES), "keep(data[0][0], f'{name}/a.png')", "cv2.imread(os.path.join(name, 'a.png'))"),
        ("def draw():\n    plt.savefig('a.png')", "draw()", "Image.open('a.png')"),
        ("def look():\n    return Image.open('a.png')", "plt.savefig('a.png')", "look()"),
        ("", "plt.savefig('a.png')", "Image.open('a.png')"),
        ("", "plt.savefig(name)", "Image.open(name)"),
        ("", "save_image(data[0][0], name)", "cv2.imread(name)"),
        ("", "image.save('a.png')", "Image.open('a.png')"),
    ],
)
def test_a_picture_that_is_looked_at_again_is_waited_for(setup: str, written: str, read: str) -> None:
    setup = f"name = 'out'\nimage = Image.new('L', (1, 1))\nfrom IPython import display\n{setup}"
    end = f"{written}\nagain = {read}\nother = Image.open('other.png')"
    text = place_of(convert(imports=IMPORTS, setup=setup, end=end).new_text, "end")
    assert text.endswith(f"\n{WAIT}\nagain = {read}\nother = Image.open('other.png')")
    assert text.count(WAIT) == 1


def test_who_draws_again_does_not_wait_for_itself() -> None:
    setup = "def draw(log, path='a.png'):\n    plt.plot(open(log).readlines())\n    plt.savefig(path)\n"
    text = convert(imports=IMPORTS, setup=setup, end="draw('a.txt')\nn = 1\ndraw('a.txt')").new_text
    assert WAIT not in place_of(text, "end")


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("keep(data[0][0])", "Image.open('other.png')"),
        ("keep(data[0][0], 'a.png')", "Image.open('kept.png')"),
        ("plt.title('a.png')", "Image.open('a.png')"),
    ],
)
def test_another_picture_is_not_waited_for(written: str, read: str) -> None:
    text = convert(imports=IMPORTS, setup=KEEP.format(SAVES), end=f"{written}\nagain = {read}").new_text
    assert WAIT not in place_of(text, "end")


@pytest.mark.parametrize(("path", "waits"), [("args.cache", False), ("args.resume", True)])
def test_what_is_resumed_from_is_waited_for_where_it_was_written(path: str, waits: bool) -> None:
    ready = f"""
    torch.save(data.tensors, {path})
    if args.resume:
        start = torch.load(args.resume)
    """
    parsed = "import argparse\nargs = argparse.ArgumentParser().parse_args()"
    text = convert(setup=parsed, ready=ready).new_text
    assert text.count("wait_for_everyone()") == 1 + waits


def test_a_file_that_was_just_saved_is_asked_for_when_it_is_there() -> None:
    end = (
        "torch.save(model.state_dict(), 'a.pt')\nassert os.path.isfile('a.pt')\nprint(os.path.exists('b.pt'))"
    )
    text = place_of(convert(end=end).new_text, "end")
    assert "'a.pt')\naccelerator.wait_for_everyone()\nassert os.path.isfile('a.pt')\n" in text
    assert text.count("wait_for_everyone") == 2


@pytest.mark.parametrize(
    ("call", "kept"),
    [
        ("torch.set_rng_state(checkpoint['random'])", "torch.set_rng_state(checkpoint['random'].cpu())"),
        ("state = checkpoint.get('random')\ntorch.random.set_rng_state(state)", None),
        (
            "torch.cuda.set_rng_state_all(checkpoint['cuda'])",
            "torch.cuda.set_rng_state_all([state.cpu() for state in checkpoint['cuda']])",
        ),
        (
            "torch.set_rng_state(checkpoint['random'].cpu())",
            "torch.set_rng_state(checkpoint['random'].cpu())",
        ),
    ],
)
def test_states_of_random_numbers_lie_on_the_host(call: str, kept: str | None) -> None:
    text = convert(end=f"checkpoint = torch.load('m.pt')\n{call}").new_text
    kept = kept or call.replace("set_rng_state(state)", "set_rng_state(state.cpu())")
    assert (
        place_of(text, "end") == f"checkpoint = torch.load('m.pt', map_location=accelerator.device)\n{kept}"
    )


def test_states_of_this_run_stay() -> None:
    check_noop("end", "state = torch.get_rng_state()\ntorch.set_rng_state(state)", "ACC207")
    loads = "checkpoint = torch.load('m.pt')\nstate = torch.get_rng_state()\ntorch.set_rng_state(state)"
    assert convert(end=loads).new_text.count(".cpu()") == 0


RESTORED = """
class Net(nn.Linear):
    @classmethod
    def load(cls, path):
        package = {0}
        return cls.of(package)

    @classmethod
    def of(cls, package):
        net = cls(*package['size'])
        net.load_state_dict(package['weights'])
        return net


def read(path):
    data = {1}
    return data, data['epoch']


def restore(path, optimizer):
    package = {2}
    optimizer.load_state_dict(package['optimizer'])


def restored(package, net):
    net.load_state_dict(package.get('net'))


class Trainer:
    def resume(self, path, net):
        self.package = {3}
        net.load_state_dict(self.package['net'])
"""


def test_packages_that_states_are_taken_from() -> None:
    own = ["torch.load(path)", "torch.load(path)", "torch.load(path)", "torch.load(path)"]
    build = """
    model = Net.load('a.pt')
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    restore('b.pt', optimizer)
    read_before, epoch = read('c.pt')
    restored(read_before, model)
    Trainer().resume('d.pt', model)
    """
    found = convert(setup=RESTORED.format(*own), build=build)
    assert found.new_text.count("torch.load(path, map_location=accelerator.device)") == 4


def test_what_no_state_is_taken_from_stays() -> None:
    setup = """
    def read(path):
        data = torch.load(path)
        return data


    vectors = read('a.pt')
    words = torch.load('b.pt')
    scale = words['scale']
    """
    found = convert(setup=setup, end="model.load_state_dict(model.state_dict())")
    assert "map_location" not in found.new_text


NAMED = """\
import argparse
from kept import keep, kept
args = argparse.ArgumentParser().parse_args()
name = args.name
"""
KEPT = """\
import os

import torch


def kept(name, part):
    path = name + part + '.pt'
    if not os.path.exists(path):
        torch.save(part, path)
    return torch.load(path)


def keep(name, state):
    torch.save(state, name + '.pt')
"""


@pytest.mark.parametrize(
    ("ready", "waits"),
    [
        ("rows = kept(name, 'rows')\nmore = kept(name, 'more')", False),
        ("keep(name, 3)\nn = 1\nmore = open(name).read()", True),
    ],
)
def test_what_each_process_writes_for_itself_is_not_waited_for(
    tmp_path: Path, ready: str, waits: bool
) -> None:
    """A helper of another module whose result all of them use; one that only writes is the main process's."""
    (tmp_path / "kept.py").write_text(KEPT)
    text = frame(imports=NAMED, ready=ready)
    (tmp_path / "train.py").write_text(text)
    (found,) = convert_project(Source.read(tmp_path / "train.py"))
    assert (WAIT in place_of(found.new_text, "ready")) == waits


def test_a_state_in_memory_is_not_waited_for() -> None:
    end = "best = model.state_dict()\ntorch.save(best, 'a.pt')\nother = nn.Linear(4, 2)\nother.load_state_dict(best)"
    text = place_of(convert(end=end).new_text, "end")
    assert text.endswith("'a.pt')\nother = nn.Linear(4, 2)\nother.load_state_dict(best)")


TRAIN_AND_TEST = """\
import sys
import torch
from torch import nn
from torch.utils.data import DataLoader

PATH = "net.pt"


def train():
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    best = 0
    for x in DataLoader(torch.randn(16, 4), batch_size=4):
        optimizer.zero_grad()
        loss = model(x).pow(2).mean()
        loss.backward()
        optimizer.step()
{save}


def test():
    state = torch.load({read})


if __name__ == "__main__":
    train()
    test()
"""
SAVED = "    torch.save(model.state_dict(), PATH)"
SAVED_BY_LOSS = "        if loss < best:\n            torch.save(model.state_dict(), PATH)"


@pytest.mark.parametrize("save", [SAVED, SAVED_BY_LOSS])
def test_who_loads_without_an_accelerator_is_named(save: str) -> None:
    text = TRAIN_AND_TEST.format(save=save, read="PATH")
    found = convert_source(Source.from_text(text, Path("train.py")))
    (said,) = [f.message for f in found.remaining if f.code == "ACC207"]
    assert said.startswith("only the main process saves what this loads")


STAGES = """\
import torch
from torch import nn
from torch.utils.data import DataLoader


def fit(model):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x in DataLoader(torch.randn(16, 4), batch_size=4):
        optimizer.zero_grad()
        model(x.cuda()).pow(2).mean().backward()
        optimizer.step()


def first(model):
    fit(model)
    torch.save(model.state_dict(), "first.pt")


def second(model):
    {before}
    fit(model)
    {behind}


net = nn.Linear(4, 1).cuda()
first(net)
second(net)
"""
LOADS = "model.load_state_dict(torch.load('first.pt'))"


@pytest.mark.parametrize(
    ("before", "behind", "waits"), [(LOADS, "", True), ("", LOADS, False), ("", "", False)]
)
def test_a_stage_begins_from_what_the_one_before_has_left(before: str, behind: str, waits: bool) -> None:
    text = STAGES.format(before=before, behind=behind)
    found = convert_source(Source.from_text(text, Path("train.py")))
    assert ("first(net)\naccelerator.wait_for_everyone()\nsecond(net)" in found.new_text) is waits


MADE_AND_READ = """\
import pickle, sys
path = sys.argv[1]
table = [1, 2]
if len(sys.argv) > 2:
    with open(path, "wb") as file:
        pickle.dump(table, file)
{between}
with open(path, "rb") as file:
    table = pickle.load(file)
"""


@pytest.mark.parametrize(("between", "waits"), [("", 1), ("print(open(path).read())", 2)])
def test_who_waits_for_a_file_waits_once(between: str, waits: int) -> None:
    found = convert(imports="", end=MADE_AND_READ.format(between=between)).new_text
    assert found.count("accelerator.wait_for_everyone()") == waits


NET = """\
import torch
from torch import nn
from torch.utils.data import DataLoader

class Net(nn.Linear):
    def read(self, path, optimizer):
        checkpoint = torch.load(path{given})
        self.load_state_dict(checkpoint["net"])
        optimizer.load_state_dict(checkpoint["optimizer"])

def main():
    model = Net(4, 2)
    if torch.cuda.is_available():
        model = model.cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    {call}
    for x, y in DataLoader(data(), batch_size=8):
        loss = nn.functional.cross_entropy(model(x.cuda()), y.cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

main()
"""


@pytest.mark.parametrize(
    ("call", "given"), [("model.read('a', optimizer)", ', map_location="cpu"'), ("print(model)", "")]
)
def test_a_method_without_an_accelerator_loads_to_the_host(call: str, given: str) -> None:
    before = NET.format(call=call, given="")
    after = convert_source(Source.from_text(before, PATH)).new_text
    assert f"torch.load(path{given})" in after
