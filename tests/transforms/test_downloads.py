"""Downloads."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from accelify.conversion import ConvertOptions
from accelify.convert import convert_project, convert_source
from accelify.source import Source
from tests.transforms.support import check_noop, check_transformed, convert, frame, place_of

VISION = (
    "from torchvision import datasets\nimport urllib.request\nimport zipfile\nfrom git import Repo\n"
    "from torch_geometric.datasets import TUDataset\nfrom torchtext.datasets import Multi30k\n"
    "from sklearn.datasets import fetch_california_housing"
)
LATER = "device = torch.device('cuda')"


@pytest.mark.parametrize(
    "snippet",
    [
        "a = datasets.MNIST('d', train=True, download=False)",
        "a = datasets.MNIST('d', train=True)",
        "download = True",
        "data = TUDataset.raw_dir",
        "words = table.text.str.extractall(pattern)",
    ],
)
def test_others_stay(snippet: str) -> None:
    check_noop("ready", snippet, "ACC205", imports=VISION, setup=LATER)


@pytest.mark.parametrize(
    "line",
    [
        "a = datasets.MNIST('d', train=True, download=True)",
        "a = datasets.CIFAR10(\n    'd',\n    download=True,\n)",
        "train = vars(datasets)[name.upper()]('data', download=True)",
        "a = datasets.MNIST('d', download=os.getpid() > 1)",
        "a = datasets.MNIST('d', True, None, None, True)",
        "words.load_vectors('glove.6B.100d')",
        "a = TUDataset('d', name='PROTEINS')",
        "a = Multi30k(split='train')",
        "a = fetch_california_housing()",
        "if not os.path.exists('d'):\n    Repo.clone_from('http://x', 'd')",
        "if not os.path.exists('d'):\n    pack = zipfile.ZipFile('d.zip')\n    pack.extractall('d')",
    ],
)
def test_one_process_first(line: str) -> None:
    inner = line.replace("\n", "\n    ")
    check_transformed(
        "ready", line, f"with accelerator.main_process_first():\n    {inner}", imports=VISION, setup=LATER
    )


@pytest.mark.parametrize(
    ("given", "fetched"),
    [("env", True), ("env, dataset=None", True), ("env, held", False), ("env, dataset=held", False)],
)
def test_a_library_that_fetches_what_it_is_not_handed(given: str, fetched: bool) -> None:
    line, imports = f"a = d4rl.qlearning_dataset({given})", "import d4rl, gym"
    setup = "env = gym.make('a')\nheld = env.held"
    if fetched:
        first = f"with accelerator.main_process_first():\n    {line}"
        check_transformed("ready", line, first, imports=imports, setup=setup)
    else:
        check_noop("ready", line, "ACC205", imports=imports, setup=setup)


def test_vectors_that_are_saved_behind_their_download() -> None:
    """The save waits for all processes, who come in there one behind the other."""
    check_transformed(
        "ready",
        """
        if os.path.isfile('w.pt'):
            words.vectors = torch.load('w.pt')
        else:
            words.load_vectors('glove.6B.100d')
            torch.save(words.vectors, 'w.pt')
        """,
        """
        if os.path.isfile('w.pt'):
            words.vectors = torch.load('w.pt')
        else:
            with accelerator.main_process_first():
                words.load_vectors('glove.6B.100d')
            accelerator.wait_for_everyone()
            accelerator.save(words.vectors, 'w.pt')
        """,
        setup="words = object()",
    )


def test_neighbours_under_one() -> None:
    check_transformed(
        "ready",
        """
        a = datasets.MNIST('d', train=True, download=True)
        b = datasets.MNIST('d', train=False, download=True)
        n = 1
        """,
        """
        with accelerator.main_process_first():
            a = datasets.MNIST('d', train=True, download=True)
            b = datasets.MNIST('d', train=False, download=True)
        n = 1
        """,
        imports=VISION,
        setup=LATER,
    )


def test_what_is_fetched_each_time_is_fetched_once() -> None:
    check_transformed(
        "ready",
        "urllib.request.urlretrieve('http://example.org/é', 'x')",
        """
        if accelerator.is_main_process:
            urllib.request.urlretrieve('http://example.org/é', 'x')
        accelerator.wait_for_everyone()
        """,
        imports=VISION,
        setup=LATER,
    )
    check_transformed(
        "ready",
        "path = urllib.request.urlretrieve('http://example.org/x', 'x')[0]",
        """
        with accelerator.main_process_first():
            path = urllib.request.urlretrieve('http://example.org/x', 'x')[0]
        accelerator.wait_for_everyone()
        """,
        imports=VISION,
        setup=LATER,
    )


def test_all_come_to_where_it_is_looked_what_is_there() -> None:
    check_transformed(
        "ready",
        """
        if not os.path.exists('x'):
            urllib.request.urlretrieve('http://example.org/x', 'x')
        """,
        """
        with accelerator.main_process_first():
            if not os.path.exists('x'):
                urllib.request.urlretrieve('http://example.org/x', 'x')
        """,
        imports=VISION,
        setup=LATER,
    )


def test_a_stream_that_is_unpacked_is_guarded_once() -> None:
    check_transformed(
        "ready",
        """
        with requests.get('http://example.org/x', stream=True) as answer:
            with tarfile.open(fileobj=answer.raw, mode='r|gz') as archive:
                archive.extractall()
        """,
        """
        if accelerator.is_main_process:
            with requests.get('http://example.org/x', stream=True) as answer:
                with tarfile.open(fileobj=answer.raw, mode='r|gz') as archive:
                    archive.extractall()
        accelerator.wait_for_everyone()
        """,
        imports="import requests\nimport tarfile",
        setup=LATER,
    )


def test_a_download_that_may_fail_leaves_nobody_waiting() -> None:
    tried = """
    try:
        urllib.request.urlretrieve("http://x/a", path)
    except OSError:
        print("failed")
    """
    asked = "if not os.path.isfile(path):\n" + textwrap.indent(textwrap.dedent(tried), "    ")
    setup = "path = 'a'"
    conversion = convert(imports="import urllib.request", setup=setup, ready=tried)
    text = place_of(conversion.new_text, "ready").splitlines()
    assert text[0] == "if accelerator.is_main_process:"
    assert text[1] == "    try:"
    assert text[5] == "accelerator.wait_for_everyone()"
    conversion = convert(imports="import urllib.request", setup=setup, ready=asked)
    assert place_of(conversion.new_text, "ready").startswith(
        "with accelerator.main_process_first():\n    if not os.path.isfile(path):"
    )
    assert "wait_for_everyone" not in conversion.new_text


def test_what_is_caught_behind_the_look_is_guarded_with_it() -> None:
    snippet = """
        if not os.path.exists('x'):
            try:
                urllib.request.urlretrieve('http://x', 'x')
            except OSError as error:
                print(error)
        """
    conversion = check_transformed(
        "ready",
        snippet,
        """
        with accelerator.main_process_first():
            if not os.path.exists('x'):
                try:
                    urllib.request.urlretrieve('http://x', 'x')
                except OSError as error:
                    accelerator.print(error)
        """,
        imports=VISION,
        setup=LATER,
    )
    assert "wait_for_everyone" not in conversion.new_text


def test_what_is_prepared_between_neighbours_parts_them(tmp_path: Path) -> None:
    helper = """
from torch.utils.data import DataLoader
from torchvision import datasets

def load(train):
    return DataLoader(datasets.MNIST("data", train=train, download=True), batch_size=8)
"""
    script = """
import torch
from torch import nn
import helper

source = helper.load(True)
target = helper.load(True)
net = nn.Linear(784, 8)
x0, _ = next(iter(source))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for (x, y), (z, _) in zip(source, target):
    loss = nn.functional.cross_entropy(net(x), y) + net(z).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
    (tmp_path / "helper.py").write_text(helper)
    (tmp_path / "train.py").write_text(script)
    (conversion,) = convert_project(Source.read(tmp_path / "train.py"))
    assert conversion.status == "converted"
    guarded = """\
with accelerator.main_process_first():
    source = helper.load(True)
source = accelerator.prepare(source)
with accelerator.main_process_first():
    target = helper.load(True)
"""
    assert guarded in conversion.new_text
    assert "ACC205" not in {f.code for f in conversion.remaining}


OWN_SET = """\
from torchvision.datasets import MNIST


class Own(MNIST):
    def __init__(self, {parameters}):
        super(Own, self).__init__({given})


class Plain:
    def __init__(self, **kwargs):
        pass


def load(root):
    return {made}
"""


@pytest.mark.parametrize(
    ("parameters", "given", "made", "fetched"),
    [
        ("*args, **kwargs", "*args, **kwargs", "Own(root, download=True)", True),
        ("root, download", "root, download=download", "Own(root, download=True)", True),
        ("*args, **kwargs", "*args, **kwargs", "Own(root, download=False)", False),
        ("root, download", "root", "Own(root, download=True)", False),
        ("root", "root", "Plain(download=True)", False),
    ],
)
def test_a_data_set_of_another_module_that_derives_from_a_library_s(
    tmp_path: Path, parameters: str, given: str, made: str, fetched: bool
) -> None:
    (tmp_path / "own.py").write_text(OWN_SET.format(parameters=parameters, given=given, made=made))
    text = frame(imports="from own import load", setup=LATER, ready="data = load('d')")
    new = convert_source(Source.from_text(text, tmp_path / "train.py"), ConvertOptions()).new_text
    assert place_of(new, "ready") == (
        "with accelerator.main_process_first():\n    data = load('d')" if fetched else "data = load('d')"
    )


MANY = "options = {'a': {'train': True, 'download': True}, 'b': {}}\nplain = {'download': False}\nname = 'a'"


@pytest.mark.parametrize(
    ("given", "fetched"),
    [
        ("**{'download': True}", True),
        ("**dict(download=True)", True),
        ("**options[name]", True),
        ("**options['a']", True),
        ("**(options['a'] if name else plain)", True),
        ("**options['b']", False),
        ("**plain", False),
        ("**unknown", False),
    ],
)
def test_a_data_set_that_options_tell_to_download(given: str, fetched: bool) -> None:
    line = f"data = kinds[name]('d', {given})"
    setup = (
        f"{LATER}\nfrom torchvision import datasets\nkinds = {{'a': datasets.MNIST}}\n{MANY}\nunknown = {{}}"
    )
    new = convert(setup=setup, ready=line).new_text
    assert place_of(new, "ready") == (
        f"with accelerator.main_process_first():\n    {line}" if fetched else line
    )


ARCHIVES = """
import os, shutil, tarfile, zipfile
import numpy as np

def zipped(path):
    if not os.path.isfile(path):
        with zipfile.ZipFile(path + ".zip") as pack:
            pack.extractall(path)
    return np.load(path), path

def packed(path):
    if not os.path.isfile(path):
        pack = tarfile.open(path + ".tar.gz")
        pack.extractall(path)
    return np.load(path), path

def unpacked(path):
    if not os.path.isfile(path):
        shutil.unpack_archive(path + ".zip", path)
    return np.load(path), path

def there(path):
    return np.load(path), path
"""


@pytest.mark.parametrize(
    ("function", "unpacks"), [("zipped", True), ("packed", True), ("unpacked", True), ("there", False)]
)
def test_an_archive_that_another_module_unpacks(tmp_path: Path, function: str, unpacks: bool) -> None:
    (tmp_path / "archives.py").write_text(ARCHIVES)
    line = f"rows, name = archives.{function}('d')"
    (tmp_path / "train.py").write_text(frame(imports="import archives", setup=LATER, ready=line))
    (conversion,) = convert_project(Source.read(tmp_path / "train.py"))
    guarded = f"with accelerator.main_process_first():\n    {line}"
    assert place_of(conversion.new_text, "ready") == (guarded if unpacks else line)


MOLECULES = """\
import torch
from torch_geometric.data import InMemoryDataset
from torch_geometric import data as pyg


class Molecules({base}):
    def __init__(self, root, kind=None):
        super().__init__(root)
        self.data, self.slices = torch.load(self.processed_paths[0])

    {method}


class More(Molecules):
    pass
"""
PROCESSES = "def process(self):\n        torch.save(read(self.raw_paths), self.processed_paths[0])"


@pytest.mark.parametrize(
    ("base", "method", "made", "taken"),
    [
        ("InMemoryDataset", PROCESSES, "Molecules('d')", True),
        ("pyg.Dataset", PROCESSES, "More('d', kind=1)", True),
        ("InMemoryDataset", "def get(self, i):\n        return i", "Molecules('d')", False),
        ("torch.utils.data.Dataset", PROCESSES, "Molecules('d')", False),
    ],
)
def test_what_a_data_set_of_graphs_makes_ready(
    tmp_path: Path, base: str, method: str, made: str, taken: bool
) -> None:
    (tmp_path / "own.py").write_text(MOLECULES.format(base=base, method=method))
    text = frame(imports="from own import Molecules, More", setup=LATER, ready=f"data = {made}")
    new = convert_source(Source.from_text(text, tmp_path / "train.py"), ConvertOptions()).new_text
    guarded = f"with accelerator.main_process_first():\n    data = {made}"
    assert place_of(new, "ready") == (guarded if taken else f"data = {made}")
