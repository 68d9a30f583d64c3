"""Reads of all processes before and after what the main process writes, with and without a wait between."""

from __future__ import annotations

from pathlib import Path

import pytest

from accelify.knowledge import Knowledge
from accelify.obligations import Status, validate

KNOWLEDGE = Knowledge()
HEAD = """\
import argparse, glob, json, os, pandas as pd, torch
from pathlib import Path
from accelify.runtime import Accelerator
accelerator = Accelerator()
parser = argparse.ArgumentParser()
parser.add_argument("--out")
parser.add_argument("--root", default="./kept")
parser.add_argument("--last", default="kept/last.pt")
args = parser.parse_args()
"""
MAIN = "if accelerator.is_main_process:\n    "
WAIT = "accelerator.wait_for_everyone()\n"
PAIRS = {
    "one name": (
        MAIN + "torch.save(1, os.path.join(args.out, 'a.pt'))\n",
        "torch.load(os.path.join(args.out, 'a.pt'))\n",
    ),
    "made in two ways": (
        "accelerator.save(1, f'{args.out}/a.pt')\n",
        "torch.load(args.out + '/a.pt')\n",
    ),
    "through a path": (
        MAIN + "(Path(args.out) / 'log.json').write_text('1')\n",
        "open(str(Path(args.out) / 'log.json')).read()\n",
    ),
    "an open file": (
        MAIN + "with open('a.json', 'w') as f: json.dump(1, f)\n",
        "with open('./a.json') as f: json.load(f)\n",
    ),
    "in a function": (
        "def path(name): return 'out/%s.csv' % name\n" + MAIN + "pd.DataFrame().to_csv(path('x'))\n",
        "pd.read_csv(path('x'))\n",
    ),
    "a folder that is an option's default": (
        MAIN + "torch.save(1, 'kept/a.pt')\n",
        "torch.load(os.path.join(args.root, 'a.pt'))\n",
    ),
    "a file that is an option's default": (
        "accelerator.save(1, f'{args.root}/last.pt')\n",
        "torch.load(args.last)\n",
    ),
    "a command": (
        MAIN + "os.system(f'cp {args.out} work/data/a.png')\n",
        "import torchvision; torchvision.datasets.ImageFolder('work/data')\n",
    ),
    "a listed pattern": (
        MAIN + "import subprocess; subprocess.run(['cp', args.out, 'work/a.png'])\n",
        "import glob; glob.glob('work/*.png')\n",
    ),
    "in a list of pairs": (
        MAIN + "torch.save(1, os.path.join(args.out, 'a.pt'))\nlisted = [('b', 'b.pt')]\n"
        "listed.append(('a', os.path.join(args.out, 'a.pt')))\n",
        "for _, path in listed: torch.load(path)\n",
    ),
    "a folder": (MAIN + "torch.save(1, 'out/a.pt')\n", "os.listdir('out')\n"),
}


def named(body: str) -> list[int]:
    """The lines of the reads that are named, from 1 in the body."""
    found = validate(HEAD + body, None, KNOWLEDGE).of(Status.NAMED)
    return [one.line - HEAD.count("\n") for one in found if one.demand == "order"]


@pytest.mark.parametrize("pair", PAIRS.values(), ids=PAIRS)
def test_a_read_after_the_main_processs_write(pair: tuple[str, str]) -> None:
    write, read = pair
    assert named(write + read) == [write.count("\n") + 1]
    assert named(write + WAIT + read) == []
    assert named(read + WAIT + write) == []
    assert named(write + MAIN + read.replace("\n", "\n    ").rstrip()) == []
    assert named(write + f"with accelerator.main_process_first():\n    {read}") == []


@pytest.mark.parametrize("name", ["one name", "made in two ways", "through a path", "an open file"])
def test_a_read_before_the_main_processs_write(name: str) -> None:
    """A slower process reads what is written by then, or a part of it."""
    write, read = PAIRS[name]
    assert named(read + write) == [1]
    assert named(MAIN + read.replace("\n", "\n    ").rstrip() + "\n" + write) == []
    loss = "accelerator.backward(torch.nn.Linear(1, 1)(torch.ones(1)))\n"
    assert named(read + loss + write) == []


@pytest.mark.parametrize("write", ["os.remove('a.json')", "open('a.json', 'a').write('1')"])
def test_a_read_before_the_main_process_takes_the_file_away(write: str) -> None:
    for read, lines in (("open('a.json').read()\n", [1]), ("os.path.isfile('a.json')\n", [])):
        assert named(read + MAIN + write + "\n") == lines
        assert named(read + WAIT + MAIN + write + "\n") == []


@pytest.mark.parametrize("asks", ["os.path.exists('a.json')", "Path('a.json').is_file()"])
def test_a_read_of_what_the_main_process_makes_where_it_is_not_there(asks: str) -> None:
    """Who asks late finds the file, and reads a part of it."""
    either = f"if {asks}:\n    text = open('a.json').read()\nelse:\n    text = '1'\n    "
    write = "if accelerator.is_main_process: Path('a.json').write_text(text)\n"
    assert named(either + write) == [2]
    agreed = "from accelify.runtime import broadcast_object_list\n"
    assert named(agreed + either.replace(asks, f"broadcast_object_list([{asks}])[0]") + write) == []
    swapped = (
        f"if broadcast_object_list([not {asks}])[0]:\n    {write}else:\n    text = open('a.json').read()\n"
    )
    assert named(agreed + swapped) == []


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("f'out/model_{args.out}.pt'", [2]),
        ("f'out/{args.out}.pt'", []),
        ("f'out/other_{args.out}.pt'", []),
        ("f'out/model_{args.out}/a.pt'", []),
    ],
)
def test_a_read_under_a_name_of_which_only_the_beginning_is_known(name: str, lines: list[int]) -> None:
    write = "if accelerator.is_main_process: torch.save(1, 'out/model_best.pt')\n"
    assert named(f"{write}torch.load({name})\n") == lines


@pytest.mark.parametrize(
    ("asks", "other", "lines"),
    [
        ("args.mode == 'train'", "else", []),
        ("args.mode == 'train'", "elif args.mode == 'tune'", []),
        ("args.train and not args.tune", "else", []),
        ("args.mode == 'train'", "if args.mode == 'tune'", [5]),
        ("there", "else", [5]),
    ],
)
def test_a_read_on_another_way_than_the_write(asks: str, other: str, lines: list[int]) -> None:
    """Where all ranks go the same way, another run of the script has written what this one reads."""
    write = "    if accelerator.is_main_process: torch.save(1, 'a.pt')\n"
    both = f"there = os.path.exists('a.pt')\nif {asks}:\n{write}{other}:\n    torch.load('a.pt')\n"
    assert named(both) == lines


def test_a_read_of_another_file() -> None:
    assert named(MAIN + "torch.save(1, 'a.pt')\ntorch.load('b.pt')\n") == []


SETTINGS = """\
import settings_library, yaml
file = yaml.safe_load(open("a.yaml"))
text = json.load(open("a.json"))
made = settings_library.load("a.toml")
"""


@pytest.mark.parametrize(
    ("path", "other"),
    [
        ("args.out", "args.old"),
        ("getattr(args, 'out')", "getattr(args, 'old')"),
        ("file['out']['name']", "file['old']['name']"),
        ("file.get('out')", "file.get('old')"),
        ("made.paths.out", "made.paths.old"),
        ("made['out'][0]", "made['out'][1]"),
        ("os.environ['OUT']", "os.environ['OLD']"),
        ("os.path.join(text['folder'], text['name'])", "os.path.join(text['folder'], text['old'])"),
        ("f\"{file['folder']}/{file['name']}\"", "f\"{file['folder']}/{text['name']}\""),
        ("Path(made.folder) / made.name", "Path(made.folder) / made.old"),
        ("'%s/%s' % (args.out, args.name)", "'%s/%s' % (args.out, args.old)"),
        ("'{}/{}'.format(args.out, args.name)", "'{}/{}'.format(args.out, args.old)"),
        ("'{:s}/{}'.format(args.out, args.name)", "'{:s}/{}'.format(args.out, args.old)"),
    ],
)
def test_a_path_that_a_configuration_has(path: str, other: str) -> None:
    """What it has under a name is not known, and is one path all the same."""
    write = f"{SETTINGS}accelerator.save(1, {path})\n"
    assert named(f"{write}torch.load({path})\n") == [7 - 1]
    assert named(f"{write}{WAIT}torch.load({path})\n") == []
    assert named(f"{write}torch.load({other})\n") == []


def test_a_folder_that_a_configuration_has() -> None:
    make = f"{MAIN}os.makedirs(args.out)\n"
    assert named(f"{make}open(args.out + '/a.txt', 'w')\n") == [3]
    assert named(f"{make}open(args.old + '/a.txt', 'w')\n") == []
    assert named(f"{make}import absent\nx = absent.score(args.out + '/a.txt')\n") == [4]


def test_a_read_in_the_next_round() -> None:
    loop = (
        "for trial in range(3):\n"
        "    if trial: pd.read_csv('t.csv')\n"
        "    accelerator.wait_for_everyone()\n"
        "    if accelerator.is_main_process: pd.DataFrame().to_csv('t.csv')\n"
    )
    assert named(loop) == [2]
    assert named(loop + "    accelerator.wait_for_everyone()\n") == []


@pytest.mark.parametrize(
    ("loop", "name"),
    [
        ("for fold in range(args.folds)", "f'out/fold{fold}.pt'"),
        ("for fold, (a, b) in enumerate(text['folds'])", "'out/fold%d.pt' % fold"),
        ("for fold in text['folds']", "os.path.join('out', f'fold_{fold.name}.pt')"),
        ("for a, fold in zip(text['a'], text['folds'])", "'out/{}.pt'.format(fold)"),
    ],
)
def test_a_file_of_each_round(loop: str, name: str) -> None:
    """What one round writes the next does not read, which has a file of its own."""
    body = (
        "text = json.load(open('a.json'))\n"
        "def train(path):\n"
        "    if args.resume and os.path.exists(path): torch.load(path)\n"
        "    accelerator.wait_for_everyone()\n"
        "    accelerator.save(1, path)\n"
        f"{loop}:\n"
        f"    args.path = {name}\n"
        "    train(args.path)\n"
    )
    assert named(body) == []
    assert named(body.replace(name, "'out/' + args.name + '.pt'")) == [3, 3]


def test_a_search_for_a_free_name() -> None:
    search = "n = 0\nwhile (Path('runs') / f'run_{n}').exists():\n    n += 1\n"
    make = MAIN + "(Path('runs') / f'run_{n}').mkdir()\n"
    assert named(search + make) == [2]
    assert named(search + WAIT + make) == []
    assert (
        named("if not os.path.exists('runs'):\n    if accelerator.is_main_process: os.makedirs('runs')\n")
        == []
    )


def test_a_search_that_begins_with_another_name() -> None:
    search = (
        "n, folder = 1, Path('runs/run')\n"
        "while folder.exists():\n"
        "    n += 1\n"
        "    folder = Path(f'runs/run_{n}')\n"
    )
    make = MAIN + "folder.mkdir(parents=True)\n"
    assert named(search + make) == [2]
    assert named(search + WAIT + make) == []
    assert named(search + MAIN + "Path(f'other/run_{n}').mkdir()\n") == []


def test_one_of_two_names() -> None:
    either = "name = 'best.pt' if args.out else 'last.pt'\n"
    assert named(either + MAIN + "torch.save(1, name)\ntorch.load('old.pt')\n") == []


def test_a_module_that_is_imported_after_the_write(tmp_path: Path) -> None:
    (tmp_path / "loads.py").write_text("import torch\nstate = torch.load('a.pt')\ndef get(): return state\n")
    script = tmp_path / "train.py"
    late = (
        "def last():\n"
        "    accelerator.save(1, 'a.pt')\n"
        "    {wait}\n"
        "    from loads import get\n"
        "    return get()\n"
        "for epoch in range(3):\n"
        "    if epoch == 2: last()\n"
    )
    for wait, lines in (("pass", [2]), ("accelerator.wait_for_everyone()", [])):
        text = HEAD + late.format(wait=wait)
        found = validate(text, script, KNOWLEDGE).of(Status.NAMED)
        assert [one.line for one in found if one.demand == "order"] == lines
    early = f"from loads import get\n{WAIT}accelerator.save(1, 'a.pt')\nget()\n"
    assert [
        o for o in validate(HEAD + early, script, KNOWLEDGE).of(Status.NAMED) if o.demand == "order"
    ] == []


def test_a_file_in_a_folder_that_the_main_process_makes() -> None:
    make = MAIN + "os.makedirs(args.out + '/logs', exist_ok=True)\n"
    write = "open(args.out + '/logs/a.txt', 'w')\n"
    assert named(make + write) == [3]
    assert named(make + "accelerator.wait_for_everyone()\n" + write) == []
    assert named("os.makedirs(args.out + '/logs', exist_ok=True)\n" + write) == []


@pytest.mark.parametrize(("wait", "is_named"), [("", True), (WAIT, False)])
def test_a_read_after_a_loop_that_writes(wait: str, is_named: bool) -> None:
    """What a path is does not change by the loop that it is passed on in."""
    body = (
        "def save(path): torch.save(1, path)\n"
        "path = os.path.join(args.out, 'a.pt')\n"
        "for epoch in range(3):\n"
        "    if accelerator.is_main_process:\n        save(path)\n"
    )
    found = named(f"{body}{wait}torch.load(path)\n")
    assert bool(found) == is_named


@pytest.mark.parametrize(
    ("lists", "makes"),
    [
        ("n = len(os.listdir('runs'))\n", "os.makedirs(f'runs/v{n}')\n"),
        ("n = len(os.listdir('runs'))\n", f"{MAIN}os.makedirs(f'runs/v{{n}}/logs')\n"),
        ("n = len(list(Path('runs').glob('v*')))\n", "Path(f'runs/v{n}').mkdir()\n"),
        ("n = len(glob.glob('runs/v*'))\n", f"{MAIN}torch.save(1, f'runs/v{{n}}.pt')\n"),
    ],
)
def test_a_folder_that_is_listed_for_the_next_free_name(lists: str, makes: str) -> None:
    assert named(lists + makes) == [1]
    assert named(lists + WAIT + makes) == []
    assert named(MAIN + lists + makes) == []
    # Names that are written out are there before, or are no part of what was looked for.
    assert named(lists + makes.replace("v{n}", "v")) == []
    assert named(lists + makes.replace("runs/", "other/")) == []


ROUNDS = """\
data = torch.utils.data.TensorDataset(torch.ones(32, 1))
loader = torch.utils.data.DataLoader(data, batch_size=4)
total = 2 * len(loader)
loader, net, n = accelerator.prepare(loader), accelerator.prepare(torch.nn.Linear(1, 1)), 0
for epoch in range(2):
    for i, x in enumerate(loader):
        accelerator.backward(net(x).mean())
        n += 1
        if i % 4 == 0:
            accelerator.save(1, f"in_{i}.pt")
    accelerator.save(1, "of_%02d_%04d.pt" % (epoch, i + 1))
accelerator.save(1, f"all_{n}.pt")
accelerator.save(1, f"epoch_{epoch}.pt")
accelerator.wait_for_everyone()
"""


@pytest.mark.parametrize(
    ("name", "is_named"),
    [
        ("f'all_{total}.pt'", True),
        ("f'all_{2 * (len(data) // 4)}.pt'", True),
        ("'of_%02d' % 1 + '_%04d.pt' % (len(data) / 4)", True),
        ("'in_{}.pt'.format(int(len(data) / 4) - 4)", True),
        ("'all_16.pt'", True),
        ("f'all_{n}.pt'", False),
        ("f'all_{2 * len(loader)}.pt'", False),
        ("f'all_{args.steps}.pt'", False),
        ("f'epoch_{len(range(2)) - 1}.pt'", False),
        ("f'other_{total}.pt'", False),
    ],
)
def test_a_name_by_rounds_that_is_read_by_a_length(name: str, is_named: bool) -> None:
    found = validate(f"{HEAD}{ROUNDS}torch.load({name})\n", None, KNOWLEDGE).of(Status.NAMED)
    assert [one.demand for one in found if one.sink == "file.read"] == ["rounds"] * is_named


def test_a_listed_file_that_is_moved_is_no_new_one() -> None:
    go = "for name in os.listdir('runs'):\n    path = os.path.join('runs', name)\n    {do}\n"
    assert named(go.format(do="if accelerator.is_main_process: os.rename(path, path + '.old')")) == []
    assert named("n = len(os.listdir('runs'))\nos.makedirs(f'runs/{n}_{args.out}')\n") == [1]
