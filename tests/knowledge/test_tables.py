"""The shipped tables: every row can be read, says what exists, and nothing stands twice."""

from __future__ import annotations

import importlib
import importlib.util
import re
import warnings
from fnmatch import fnmatchcase
from functools import cache
from typing import Any

import pytest

from accelify.knowledge import Knowledge
from accelify.knowledge.checking import problems, shipped
from accelify.knowledge.rows import Table, read_table

TEXTS = dict(shipped())
KNOWLEDGE = Knowledge()


def library(file: str) -> str:
    return file.removesuffix(".models")


def table(file: str) -> Table:
    return read_table(TEXTS[file], file)


@cache
def value(name: str) -> tuple[Any, ...]:
    """What a dotted name stands for, in a tuple; empty where there is none."""
    words = name.split(".")
    for count in range(len(words), 0, -1):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found: Any = importlib.import_module(".".join(words[:count]))
        except ImportError:
            continue
        try:
            for word in words[count:]:
                found = getattr(found, word)
        except AttributeError:
            return ()
        return (found,)
    return ()


def of_other_releases(file: str, line: int) -> bool:
    """Whether a comment in the row's line says that the installed release need not have it."""
    return "#" in TEXTS[file].split("\n")[line - 1]


@pytest.mark.parametrize("file", TEXTS)
def test_every_row_makes_sense(file: str) -> None:
    assert problems(TEXTS[file], file) == []


@pytest.mark.parametrize("file", TEXTS)
def test_a_table_speaks_of_its_library(file: str) -> None:
    found = table(file)
    start = "?" if file == "any.models" else library(file)
    names = [*found.rows, *found.classes, *found.aliases]
    assert names
    assert {name.partition(".")[0] for name in names} == {start}


@pytest.mark.parametrize(
    "file", [file for file in TEXTS if file != "any.models" and importlib.util.find_spec(library(file))]
)
def test_names_exist(file: str) -> None:
    if not value(library(file)):
        pytest.skip(f"{library(file)} cannot be imported here")
    absent = []
    for name, (_, line) in table(file).rows.items():
        if of_other_releases(file, line):
            continue
        parent, _, last = name.rpartition(".")
        if "*" not in last:
            there = bool(value(name))
        else:
            there = bool(value(parent)) and any(fnmatchcase(word, last) for word in dir(value(parent)[0]))
        if not there:
            absent.append(name)
    assert absent == []


@pytest.mark.parametrize("file", TEXTS)
def test_results_and_bases_are_known_types(file: str) -> None:
    """A type that a row returns, or a class derives from, has rows or exists: a slip of the pen has neither."""
    found = table(file)
    asked = {
        row.returns for name in found.rows if (row := KNOWLEDGE.row(name.replace("*", "X"))) and row.returns
    }
    asked |= {base for bases in found.classes.values() for base in bases}
    names = {name for text in (file, "torch.models", "builtins.models") for name in table(text).rows}
    names |= set(table(file).classes)
    unknown = [
        name
        for name in asked
        if not any(row.startswith(f"{name}.") for row in names)
        and KNOWLEDGE.row(name) is None
        and not value(name)
        and importlib.util.find_spec(name.partition(".")[0]) is not None
    ]
    assert unknown == []


@pytest.mark.parametrize("file", TEXTS)
def test_aliases_lead_to_rows(file: str) -> None:
    found = table(file)
    for name, other in found.aliases.items():
        target = KNOWLEDGE.canonical(name)
        library_of_target = "any" if target.startswith("?") else target.partition(".")[0]
        rows = table(f"{library_of_target}.models").rows
        assert target in rows or KNOWLEDGE.row(target) or any(row.startswith(f"{target}.") for row in rows), (
            other
        )


@pytest.mark.parametrize(
    ("name", "transfer", "effect"),
    [
        ("torch.relu", "rows", ""),
        ("torch.nn.functional.cross_entropy", "loss", ""),
        ("torch.nn.functional.mse_loss", "loss", ""),
        ("torch.cdist", "mix", ""),
        ("torch.save", "none", "file.write"),
        ("torch.manual_seed", "none", "random.seed"),
        ("torch.cuda.is_available", "same", ""),
        ("torch.randn", "draw", ""),
        ("torch.cat", "cat", ""),
        ("numpy.concatenate", "cat", ""),
        ("numpy.random.permutation", "draw", ""),
        ("numpy.median", "reduce", ""),
        ("print", "none", "terminal.write"),
        ("os.makedirs", "none", "folder.make"),
        ("os.getpid", "own", ""),
        ("time.time", "clock", ""),
        ("json.dump", "none", "file.write"),
        ("wandb.log", "none", "tracker.log"),
        ("tqdm.tqdm", "iterates", "bar.show"),
        ("shutil.rmtree", "none", "folder.delete"),
        ("subprocess.run", "own", "process.run"),
        ("requests.get", "read", "network.get"),
        ("matplotlib.pyplot.savefig", "none", "file.write"),
        ("logging.info", "none", "log.write"),
        ("gspread.Worksheet.insert_row", "own", "network.send"),
        ("timm.utils.CheckpointSaver.save_checkpoint", "pure", "file.write"),
        ("pathlib.Path.mkdir", "none", "folder.make"),
    ],
)
def test_what_scripts_call_most(name: str, transfer: str, effect: str) -> None:
    row = KNOWLEDGE.row(name)
    assert row is not None
    assert (row.transfer, row.effect) == (transfer, effect)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("torch.nn.Linear", "module"),
        ("torch.nn.CrossEntropyLoss", "loss"),
        ("torch.optim.AdamW", "optimizer"),
        ("torch.optim.lr_scheduler.StepLR", "scheduler"),
        ("torch.utils.data.DataLoader", "loader"),
        ("torch.utils.data.RandomSampler", "sampler"),
        ("torch.amp.GradScaler", "scaler"),
        ("torchmetrics.Accuracy", "metric"),
        ("torchvision.datasets.CIFAR10", "dataset"),
        ("torch.utils.tensorboard.SummaryWriter", "tracker"),
        ("argparse.ArgumentParser", "parser"),
        ("open", "file"),
    ],
)
def test_kinds_of_objects(name: str, kind: str) -> None:
    row = KNOWLEDGE.row(name)
    assert row is not None
    assert (row.transfer, row.kind) == ("new", kind)


@pytest.mark.parametrize(
    ("type_name", "method", "transfer"),
    [
        ("torch.nn.Conv2d", "eval", "identity"),
        ("torch.nn.Conv2d", "__call__", "rows"),
        ("torch.nn.BatchNorm2d", "__call__", "mix"),
        ("torch.nn.L1Loss", "__call__", "loss"),
        ("torch.nn.Parameter", "sum", "sum"),
        ("torch.optim.SGD", "zero_grad", "none"),
        ("torch.optim.lr_scheduler.StepLR", "get_last_lr", "pure"),
        ("torch.distributions.Categorical", "sample", "draw"),
        ("torchmetrics.classification.BinaryAccuracy", "compute", "same"),
        ("transformers.BertForMaskedLM", "state_dict", "pure"),
        ("collections.OrderedDict", "items", "iterates"),
    ],
)
def test_methods_of_types(type_name: str, method: str, transfer: str) -> None:
    row = KNOWLEDGE.method(type_name, method)
    assert row is not None
    assert row.transfer == transfer


def test_in_place_methods_write_to_their_receiver() -> None:
    """Of every method of a tensor whose name ends with one underscore."""
    for name in table("torch.models").rows:
        type_name, _, method = name.rpartition(".")
        if type_name == "torch.Tensor" and method.endswith("_") and not method.endswith("__"):
            row = KNOWLEDGE.method(type_name, method)
            assert row is not None
            if method not in ("requires_grad_", "detach_", "share_memory_"):
                assert any(argument.receiver for argument in (*row.mutates, *row.overwrites)), name


# What takes its content by position alone.
BY_POSITION = re.compile(
    r"^(\?|sys\.std\w+|socket\.socket|os|operator)\.\w+$|^scipy\.misc\.imshow$|\.__setitem__$|^sacred\.Experiment\.info$"
    r"|^wandb\.config\.get$"
)


@pytest.mark.parametrize("file", sorted(TEXTS))
def test_what_is_shown_is_known_by_its_name_too(file: str) -> None:
    """Handed over by its keyword, it would be no effect at all."""
    rows = re.findall(r"(?m)^(\S+) .*\beffect=\S+.*content=\d+(?: |$)", TEXTS[file])
    assert [name for name in rows if not BY_POSITION.search(name)] == []
