"""How findings read: what happens on several processes, the link that decides, and what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from accelify.findings import Finding
from accelify.linting import lint
from accelify.project import Imports
from accelify.source import Source

HEAD = """\
import torch
from torch.utils.data import DataLoader, TensorDataset
from accelerate import Accelerator

accelerator = Accelerator()
data = TensorDataset(torch.ones(64, 4), torch.ones(64, 1))
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(data, batch_size=8)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
"""
LOOP = """\
for x, y in loader:
    loss = torch.nn.functional.mse_loss(model(x), y)
    if torch.isnan(loss):
        continue
    accelerator.backward(loss)
    optimizer.step()
"""


def found(folder: Path, text: str, **modules: str) -> list[Finding]:
    for name, other in modules.items():
        (folder / f"{name}.py").write_text(other)
    path = folder / "train.py"
    path.write_text(text)
    return lint(Source.read(path), Imports()).findings


def messages(folder: Path, text: str, **modules: str) -> list[str]:
    return [one.message for one in found(folder, text, **modules)]


def test_what_happens_why_and_what_to_do(tmp_path: Path) -> None:
    (one,) = found(tmp_path, HEAD + LOOP)
    assert one.message == (
        "`accelerator.backward` is not reached by all ranks: `torch.isnan(loss)` can be true on one rank only "
        "(line 13), from this rank's batch of `loader` (line 11); let all come there, or agree on the condition "
        "first; the same at line 16 (`optimizer.step`)"
    )
    # All that lies between.
    assert any("`model(x)` (line 12)" in step for step in one.evidence)


def test_a_finding_ends_where_its_call_does(tmp_path: Path) -> None:
    text = f'{HEAD}torch.save([1], "a.pt")\nprint(\n    1\n)\n'
    assert [(one.line, one.end_line, one.column, one.end_column) for one in found(tmp_path, text)] == [
        (11, 11, 1, 24),
        (12, 12, 1, 6),
    ]


def test_other_calls_are_findings_by_themselves(tmp_path: Path) -> None:
    text = f'{HEAD}torch.save([1], "a.pt")\nopen("b.txt", "w").write("x")\nprint(1)\nprint(2)\n'
    said = [(one.line, one.message) for one in found(tmp_path, text)]
    guard = "put it under `if accelerator.is_main_process:`"
    assert said == [
        (
            11,
            "every process writes a file here: `torch.save`; write it with `accelerator.save`, which all "
            "processes call",
        ),
        (12, f"every process writes a file here: `open('b.txt', 'w').write`; {guard}"),
        (13, f"every process prints this: `print`; {guard}"),
        (14, f"every process prints this: `print`; {guard}"),
    ]


def test_a_comment_silences_its_own_line_alone(tmp_path: Path) -> None:
    text = f"{HEAD}print(1)  # accelify: ignore[ACC702]\nprint(2)\nprint(3)  # accelify: ignore\n"
    assert [(one.line, one.code) for one in found(tmp_path, text)] == [(12, "ACC702")]


def test_other_files_are_findings_by_themselves_with_the_call(tmp_path: Path) -> None:
    text = f"{HEAD}from helper import shown\n\nprint(1)\nshown()\n"
    said = found(tmp_path, text, helper="def shown():\n    print(3)\n")
    places = [(Path(one.path).name, one.line, one.column) for one in said]
    assert places == [("train.py", 13, 1), ("helper.py", 2, 5)]
    assert "`print` (called at train.py:14);" in said[1].message


def test_a_bar_is_switched_off(tmp_path: Path) -> None:
    text = f"from tqdm import tqdm\n{HEAD}for (x, y) in tqdm(loader):\n    pass\n"
    (said,) = messages(tmp_path, text)
    assert (
        said
        == "every process shows this bar: `tqdm.tqdm`; pass `disable=not accelerator.is_local_main_process`"
    )


@pytest.mark.parametrize(
    "fetched",
    ["torchvision.datasets.MNIST('data', download=True)", "torchtext.datasets.Multi30k(split='train')"],
)
def test_downloads_are_called_downloads(tmp_path: Path, fetched: str) -> None:
    (said,) = messages(tmp_path, f"import torchtext, torchvision\n{HEAD}{fetched}\n")
    assert said.startswith("every process downloads this at the same time")
    assert said.endswith("; let the main process do it first")


def test_another_order_is_not_called_a_way_that_some_do_not_go(tmp_path: Path) -> None:
    text = f"""\
{HEAD}value = torch.ones(1)
if accelerator.is_main_process:
    value = accelerator.reduce(value)
    accelerator.wait_for_everyone()
else:
    accelerator.wait_for_everyone()
    value = accelerator.reduce(value)
"""
    (said,) = messages(tmp_path, text)
    first, other = "`accelerator.reduce`", "`accelerator.wait_for_everyone`"
    assert said.startswith(f"the main process reaches {first} first and the others {other}: ")


def test_what_a_wrapper_does_not_have_is_not_said_to_be_written(tmp_path: Path) -> None:
    text = HEAD.replace("torch.nn.Linear(4, 1)", "AutoModel.from_config(1)").replace(
        "import torch\n", "import torch\nfrom transformers import AutoModel\n", 1
    )
    codes = [one.code for one in found(tmp_path, f'{text}model.save_pretrained("out")\n')]
    assert codes == ["ACC702", "ACC715"]


def test_without_an_accelerator_none_is_spoken_of(tmp_path: Path) -> None:
    text = """\
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
torch.save(model, "model.pt")
print(1)
"""
    said = messages(tmp_path, text)
    assert len(said) == 3
    assert not any("accelerator" in one or "prepare" in one for one in said)
    assert any("take the model out of the wrapper: model.module" in one for one in said)


def test_a_long_condition_shows_who_it_is_true_for(tmp_path: Path) -> None:
    text = f"""\
{HEAD}the_tracker_that_the_user_has_asked_for_is_there = len(data) > 3
if the_tracker_that_the_user_has_asked_for_is_there and accelerator.is_main_process:
    accelerator.wait_for_everyone()
"""
    (said,) = messages(tmp_path, text)
    assert "`the_tracker_that_the_user_has_asked_ ... and accelerator.is_main_process` (line 12)" in said


def test_of_a_conversion_too(tmp_path: Path) -> None:
    text = """\
import math

import torch
from torch.utils.data import DataLoader, TensorDataset

loader = DataLoader(TensorDataset(torch.randn(64, 4)), batch_size=8)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    figures = {}
    for (x,) in loader:
        loss = model(x).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        figures["a"] = figures.get("a", 0) + torch.log10(loss).item()
    print(math.sqrt(figures["a"]))
"""
    said = [one.message for one in found(tmp_path, text) if one.code == "ACC701"]
    assert said == [
        'what is printed is not what it would be on a single process: `math.sqrt(figures["a"])` (line 17), from '
        '`figures.get("a", 0) + torch.log10(loss).item()` (line 16), from this rank\'s batch of `loader` (line 11); '
        "put it together over the processes first (reduce or gather)"
    ]


def test_a_second_condition_is_found_where_it_stands(tmp_path: Path) -> None:
    around = (
        "start = int(open('a').read()) if accelerator.is_main_process else 0\nfor epoch in range(start, 9):\n"
    )
    text = HEAD + around + "".join(f"    {line}\n" for line in LOOP.splitlines())
    said = [
        (one.line, one.message.partition(": ")[2]) for one in found(tmp_path, text) if one.code == "ACC704"
    ]
    assert [line for line, _ in said] == [15, 17]
    assert said[0][1].startswith("`torch.isnan(loss)` can be true on one rank only (line 15)")
    assert said[1][1].startswith("`range(start, 9)` has other rounds on other ranks (line 12)")


STATE = "put it under `if PartialState().is_main_process:`"


def test_where_no_accelerator_is_in_reach_the_state_is_asked(tmp_path: Path) -> None:
    text = f"from helper import shown\nprint(0)\n{HEAD}shown()\n"
    said = messages(tmp_path, text, helper="def shown():\n    print(3)\n")
    assert [one.partition("; ")[2] for one in said] == [STATE, STATE]


def test_a_script_with_a_state_alone_has_no_process_group(tmp_path: Path) -> None:
    text = "from accelerate import PartialState\nstate = PartialState()\nprint(1)\n"
    assert messages(tmp_path, text) == [f"every process prints this: `print`; {STATE}"]


def test_before_the_process_group_none_is_asked(tmp_path: Path) -> None:
    text = """\
import torch
import torch.distributed as dist
print(1)
dist.init_process_group("gloo")
print(2)
"""
    guard = "put it under `if dist.get_rank() == 0:`"
    said = [one.partition("; ")[2] for one in messages(tmp_path, text)]
    assert said == [f"{guard} once the process group is there (after init_process_group)", guard]


def test_a_figure_of_a_share_names_no_layer_on_its_way(tmp_path: Path) -> None:
    model = "torch.nn.Sequential(torch.nn.Linear(4, 1), torch.nn.BatchNorm1d(1))"
    text = HEAD.replace("torch.nn.Linear(4, 1)", model) + LOOP.replace(
        "    if torch.isnan(loss):\n        continue\n", "    values.append(loss.item())\n"
    ).replace("for x", "values = []\nfor x")
    (said,) = messages(tmp_path, f"import numpy as np\n{text}accelerator.print(np.mean(values))\n")
    assert "mixes rows" not in said
    assert "`np.mean(values)` (line 18)" in said
    assert "from this rank's batch of `loader` (line 13)" in said


def test_what_is_decided_by_one_share_is_no_share(tmp_path: Path) -> None:
    text = f"""\
{HEAD}start = -1
for x, y in loader:
    accelerator.backward(model(x).mean())
    optimizer.step()
if model(x).mean() > 3:
    start = 7
accelerator.print(start)
"""
    (said,) = messages(tmp_path, text)
    assert said.startswith("what can differ between the processes is printed: ")
    assert said.endswith("; let all ranks decide together")


def test_a_device_is_named_where_it_is_chosen(tmp_path: Path) -> None:
    chosen = 'device = "cuda:0" if torch.cuda.is_available() else "cpu"'
    used = "one, other = torch.nn.Linear(4, 1).to(device), torch.nn.Linear(4, 1).to(device)"
    (said,) = messages(tmp_path, f"{HEAD}{chosen}\n{used}\n")
    assert said.startswith('`"cuda:0" if torch.cuda.is_available() else "cpu"` names one device')


def test_a_decorator_is_put_under_no_condition(tmp_path: Path) -> None:
    text = f"import hydra\n{HEAD}\n@hydra.main(config_path='conf')\ndef main(cfg):\n    pass\n\n\nmain()\n"
    (said,) = messages(tmp_path, text)
    assert said.startswith("every process makes a folder here")
    assert "hydra.run.dir" in said


EVALUATED = """\
pairs = TensorDataset(torch.randn(64, 4), torch.ones(64, 1))
test = DataLoader(pairs, batch_size=4)
def evaluate(model, batches):
    for x, y in batches:
        model(x)
evaluate(model, test)
"""


def test_a_loader_that_is_not_prepared_is_named_where_it_is_made(tmp_path: Path) -> None:
    (one,) = [
        text for text in messages(tmp_path, HEAD + LOOP + EVALUATED) if "gets a batch on the host" in text
    ]
    assert (
        "batch of `batches` (line 20), as `DataLoader(pairs, batch_size=4)` makes that loader (line 18)"
        in one
    )
    assert one.endswith("; prepare it")


def test_what_is_thrown_away_is_assigned(tmp_path: Path) -> None:
    text = f"{HEAD}{LOOP}    accelerator.gather(loss)\n".replace("accelerator", "a")
    (one,) = [text for text in messages(tmp_path, text) if "nothing takes the result" in text]
    assert one.endswith("nothing takes the result; assign it: `loss = a.gather(loss)`")
