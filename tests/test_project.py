"""Projects: a script whose training loop stands in other modules is converted with them, as one group."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from accelify.convert import convert_paths, convert_project, convert_source
from accelify.project import Imports
from accelify.source import Source

PROJECT = Path(__file__).resolve().parent.parent / "fixtures" / "project"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A copy of the project as its author wrote it."""
    return Path(shutil.copytree(PROJECT / "before", tmp_path / "project"))


def write(folder: Path) -> list[str]:
    """Convert the project in place; the names of the files that changed."""
    conversions = convert_paths([folder / "train.py"])
    for conversion in conversions:
        assert conversion.source.path is not None
        conversion.source.path.write_text(conversion.new_text)
    return sorted(c.source.path.name for c in conversions if c.changed and c.source.path is not None)


def test_every_file_that_needs_it_is_converted(project: Path) -> None:
    assert write(project) == ["engine.py", "train.py"]
    for path in sorted(PROJECT.glob("after/*.py")):
        assert (project / path.name).read_text() == path.read_text(), path.name


def test_the_group_is_converted_once(project: Path) -> None:
    write(project)
    assert write(project) == []


def test_findings_name_their_own_file(project: Path) -> None:
    train, engine = convert_project(Source.read(project / "train.py"))
    assert {Path(f.path).name for f in train.applied} == {"train.py"}
    assert {Path(f.path).name for f in engine.applied} == {"engine.py"}
    backward = next(f for f in engine.applied if f.code == "ACC107")
    assert "loss.backward()" in (project / "engine.py").read_text().splitlines()[backward.line - 1]


@pytest.mark.parametrize(
    ("library", "code", "reason"),
    [
        ("import deepspeed\n", "ACC001", "its module engine.py uses DeepSpeed already"),
        (
            "from apex import amp\n",
            "ACC011",
            "apex, which is taken out of a script that is converted by itself",
        ),
    ],
)
def test_all_or_none(project: Path, library: str, code: str, reason: str) -> None:
    """Where one file cannot be converted, the others are left alone too."""
    engine = project / "engine.py"
    engine.write_text(library + engine.read_text())
    conversions = convert_project(Source.read(project / "train.py"))
    assert [c.changed for c in conversions] == [False]
    assert reason in conversions[0].reason
    assert [f.code for f in conversions[0].remaining] == [code]


def test_a_helper_alone_says_what_to_convert(project: Path) -> None:
    (conversion,) = convert_project(Source.read(project / "engine.py"))
    assert conversion.status == "refused"
    assert "convert the script that makes it" in conversion.reason


def test_files_without_a_final_newline_keep_it_so(project: Path) -> None:
    engine = project / "engine.py"
    engine.write_text(engine.read_text().rstrip("\n"))
    write(project)
    assert not engine.read_text().endswith("\n")


TRAINER = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Trainer:
    def __init__(self):
        self.model = nn.Linear(3, 1).cuda()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.loader = DataLoader(TensorDataset(torch.randn(20, 3), torch.randn(20, 1)), batch_size=4)

    def fit(self):
        for x, y in self.loader:
            loss = (self.model(x.cuda()) - y.cuda()).pow(2).mean()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
"""
ENGINE = """\
def train(model, optimizer, loader):
    for x, y in loader:
        loss = (model(x) - y).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
MAIN = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from engine import train

model = nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(torch.randn(20, 3), torch.randn(20, 1)), batch_size=4)
train(model, optimizer, loader)
"""


def lay_out(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        (folder / f"{name}.py").write_bytes(text.encode())
    return folder


def changed(paths: list[Path]) -> dict[str, str]:
    return {c.source.path.name: c.new_text for c in convert_paths(paths) if c.changed and c.source.path}


def test_an_entry_without_a_word_of_training_leads_to_its_modules(tmp_path: Path) -> None:
    lay_out(tmp_path, trainer=TRAINER, main="from trainer import Trainer\n\nTrainer().fit()\n")
    found = changed([tmp_path / "main.py"])
    assert set(found) == {"trainer.py"}
    assert "self.accelerator.backward(loss)" in found["trainer.py"]


def test_a_script_that_starts_no_training_is_unchanged(tmp_path: Path) -> None:
    lay_out(tmp_path, trainer=TRAINER, main="import trainer\n\nprint(trainer.__doc__)\n")
    (conversion,) = convert_paths([tmp_path / "main.py"])
    assert conversion.status == "unchanged"


def test_a_converted_module_is_not_converted_again(tmp_path: Path) -> None:
    lay_out(tmp_path, engine=ENGINE, main=MAIN)
    for name, text in changed([tmp_path / "main.py"]).items():
        (tmp_path / name).write_text(text)
    assert "accelify" not in (tmp_path / "engine.py").read_text()
    (conversion,) = convert_paths([tmp_path / "engine.py"])
    assert (conversion.status, conversion.changed) == ("unchanged", False)


def test_a_module_named_together_with_its_entry_is_converted_once(tmp_path: Path) -> None:
    lay_out(tmp_path, engine=ENGINE, main=MAIN)
    both = convert_paths([tmp_path / "main.py", tmp_path / "engine.py"])
    assert [c.source.path.name for c in both if c.source.path] == ["main.py", "engine.py"]
    assert "accelerator.backward(loss)" in both[1].new_text


def test_every_file_keeps_its_line_ends(tmp_path: Path) -> None:
    lay_out(tmp_path, engine=ENGINE.replace("\n", "\r\n"), main=MAIN)
    found = changed([tmp_path / "main.py"])
    assert found["engine.py"].count("\r\n") == found["engine.py"].count("\n") > 0
    assert "\r" not in found["main.py"]


def test_roles_in_keyword_arguments(tmp_path: Path) -> None:
    kept = "class Fit:\n    def __init__(self, **kwargs):\n"
    kept += "        self.net, self.opt = kwargs['net'], kwargs['opt']\n\n    def run(self, loader):\n"
    loop = ENGINE.split("\n", 1)[1].replace("model(", "self.net(").replace("optimizer", "self.opt")
    engine = kept + loop.replace("    ", "        ", 1).replace("\n    ", "\n        ")
    main = MAIN.replace("import train", "import Fit").replace(
        "train(model, optimizer, loader)", "Fit(net=model, opt=optimizer).run(loader)"
    )
    lay_out(tmp_path, engine=engine, main=main)
    assert (
        "model, optimizer, loader = accelerator.prepare(model, optimizer, loader)"
        in changed([tmp_path / "main.py"])["main.py"]
    )


def test_who_else_calls_a_converted_function_can_go_on(tmp_path: Path) -> None:
    lay_out(tmp_path, engine=ENGINE, main=MAIN, other="from engine import train\n\ntrain(None, None, [])\n")
    main, engine = convert_project(Source.read(tmp_path / "main.py"))
    assert ", accelerator=accelerator)" in main.new_text
    assert ", accelerator=None):" in engine.new_text
    assert not [f for f in main.remaining if f.code == "ACC409"]


def test_two_entries_that_need_other_edits_of_one_module(tmp_path: Path) -> None:
    summed = MAIN.replace("import train", "import train").replace("nn.Linear(3, 1)", "nn.Linear(3, 1).cuda()")
    lay_out(tmp_path, engine=ENGINE, main=MAIN, other=summed)
    conversions = convert_paths([tmp_path / "main.py", tmp_path / "other.py"])
    texts = {c.source.path.name: c for c in conversions if c.source.path}
    assert texts["engine.py"].changed
    assert all(c.changed or c.status == "refused" for c in conversions)


@pytest.mark.distributed
def test_the_converted_project_has_the_same_losses(project: Path) -> None:
    from accelify.verify.session import verify

    report = verify(project / "train.py", processes=2).to_json()
    verdicts = [run["verdict"] for run in report["runs"]]
    assert verdicts[0] == "equal"
    assert verdicts[1] in ("equal", "equal to rounding")


KEEPER = """\
import torch


class Step:
    def __init__(self, model):
        self.model = model
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def run(self, x):
        loss = self.model(x).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()
"""
ROUNDS = """\
import torch
import step


def train(data, steps):
    return sum(steps.run(x) for x in data)


def look(data, model):
    model.eval()
    with torch.no_grad():
        return [model(x) for x in data]
"""
START = """\
import torch
from torch import nn
import rounds
import step

model = nn.Linear(3, 1).cuda()
steps = step.Step(model)
data = list(torch.randn(4, 3))
for epoch in range(3):
    rounds.train(data, steps)
    print(rounds.look(data, model))
"""


def test_converting_again_from_another_file_changes_nothing(tmp_path: Path) -> None:
    lay_out(tmp_path, step=KEEPER, rounds=ROUNDS, start=START, other=START.replace("range(3)", "range(4)"))
    for name, text in changed([tmp_path / "start.py"]).items():
        (tmp_path / name).write_text(text)
    for name in ("start", "rounds", "step"):
        found = convert_paths([tmp_path / f"{name}.py"])
        assert [(c.status, c.changed) for c in found] == [("unchanged", False)], name
    (other,) = convert_paths([tmp_path / "other.py"])
    assert (other.status, other.changed) == ("refused", False)
    assert "pass it the Accelerator" in other.reason


def test_a_starter_of_a_converted_trainer_is_unchanged(tmp_path: Path) -> None:
    lay_out(tmp_path, trainer=TRAINER, main="from trainer import Trainer\n\nTrainer().fit()\n")
    for name, text in changed([tmp_path / "main.py"]).items():
        (tmp_path / name).write_text(text)
    (conversion,) = convert_paths([tmp_path / "main.py"])
    assert (conversion.status, conversion.changed) == ("unchanged", False)


def test_a_class_whose_base_in_another_file_is_handed_the_model(tmp_path: Path) -> None:
    """The place that stands in the way lies in the other file; that is said, and nothing fails."""
    base = (
        "# a comment\n" * 60
        + """\
import torch


class Base:
    def __init__(self, model):
        self.model = model
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
"""
    )
    trainer = """\
import torch
from base import Base


class Trainer(Base):
    def fit(self, loader):
        for x, y in loader:
            loss = (self.model(x.cuda()) - y.cuda()).pow(2).mean()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
"""
    (tmp_path / "base.py").write_text(base)
    (tmp_path / "trainer.py").write_text(trainer)
    conversion = convert_source(Source.read(tmp_path / "trainer.py"))
    assert conversion.status == "refused", conversion.reason
    assert all(finding.line <= trainer.count("\n") for finding in conversion.remaining)


def test_a_script_that_its_own_module_imports_is_converted_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However its path is told: as another module its old `async=` was mended once more, in the original's text."""
    (tmp_path / "plots.py").write_text("def plot():\n    from train import load\n\n    return load(1)\n")
    script = """\
import torch
from torch import nn
from torch.utils.data import DataLoader
from plots import plot


def load(x):
    return x.cuda(async=True)


model = nn.Linear(4, 2).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in DataLoader(samples, batch_size=4):
    loss = nn.functional.cross_entropy(model(x.cuda()), y.cuda())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
plot()
"""
    (tmp_path / "train.py").write_text(script)
    monkeypatch.chdir(tmp_path)
    found = convert_project(Source.read(Path("train.py")))
    assert [str(c.source.path) for c in found if c.changed] == ["train.py"]


def test_files_that_name_a_script_have_its_name_as_a_word(tmp_path: Path) -> None:
    texts = {
        "naming.py": "from examples.train import main\n",
        "by_path.py": 'PLACE = "examples/fit.py"\n',
        "other.py": '"""Counterexamples for what is trained, in training."""\n',
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    files = [tmp_path / name for name in texts]
    found = Imports().naming_place(files, tmp_path / "examples" / "train.py")
    assert [path.name for path in found] == ["naming.py", "by_path.py"]
