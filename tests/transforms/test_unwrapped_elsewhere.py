"""Functions of modules that are not converted which take a model out of its DataParallel."""

from __future__ import annotations

from pathlib import Path

import pytest

from accelify.conversion import Conversion
from accelify.convert import convert_project
from accelify.source import Source
from tests.transforms.support import frame, place_of

HELPERS = """\
def score(net, x, parallel=True):
    if parallel:
        net = net.module
    return net(x).mean().item()


def moved(net, x, parallel):
    if parallel:
        net = net.module
        x = x.cuda()
    return net(x).mean().item()


def inner(net):
    return net.module.weight.sum().item()


def through(net):
    return inner(net)


def asked(net):
    net = net.module if hasattr(net, "module") else net
    return net.weight.sum().item()


def again(net):
    if isinstance(net, torch.nn.DataParallel):
        made = torch.nn.DataParallel(type(net.module)(4, 2))
    else:
        made = type(net)(4, 2)
    made.load_state_dict(net.state_dict())
    return made


def other(net, data):
    return data.module


import torch
"""
WRAP = "parallel = os.path.exists('gpus')\nif parallel:\n    model = nn.DataParallel(model)"


def converted(folder: Path, end: str, ready: str = WRAP) -> Conversion:
    (folder / "helpers.py").write_text(HELPERS)
    script = folder / "train.py"
    script.write_text(frame(imports="import helpers", ready=ready, end=end))
    found = convert_project(Source.read(script))
    assert [c.status for c in found] == ["converted"], found[0].reason
    again = convert_project(Source.from_text(found[0].new_text, script))
    assert again[0].new_text == found[0].new_text
    return found[0]


def said(conversion: Conversion) -> list[str]:
    return [f.message for f in conversion.remaining if f.code == "ACC109" and "out of" in f.message]


def test_a_function_is_told_that_the_model_is_not_wrapped(tmp_path: Path) -> None:
    end = "v = helpers.score(model, torch.randn(3, 4).cuda(), parallel)"
    conversion = converted(tmp_path, end)
    call = "helpers.score(accelerator.unwrap_model(model), torch.randn(3, 4)"
    assert place_of(conversion.new_text, "end").startswith(f"v = {call}")
    assert place_of(conversion.new_text, "end").endswith(", False)")
    assert said(conversion) == []


@pytest.mark.parametrize(
    ("call", "name", "line"),
    [
        ("score(model, x, True)", "score", 3),
        ("score(model, x)", "score", 3),
        ("moved(model, x, parallel)", "moved", 9),
        ("inner(model)", "inner", 15),
        ("through(net=model)", "inner", 15),
    ],
)
def test_where_nothing_tells_it_the_function_is_named(
    tmp_path: Path, call: str, name: str, line: int
) -> None:
    conversion = converted(tmp_path, f"v = helpers.{call}")
    assert said(conversion) == [
        f"`{name}` takes the model out of a DataParallel (helpers.py, line {line}), in which it no longer is"
    ]
    mark = f"# TODO(accelify ACC712): take `.module` out of `{name}` (helpers.py, line {line})"
    assert mark in conversion.new_text


@pytest.mark.parametrize(
    "call", ["score(model, x, False)", "asked(model)", "other(model, data)", "inner(nn.DataParallel(data))"]
)
def test_who_reads_no_wrapper_stays(tmp_path: Path, call: str) -> None:
    conversion = converted(tmp_path, f"v = helpers.{call}")
    assert said(conversion) == []
    assert "TODO(accelify ACC712): take `.module`" not in conversion.new_text


def test_a_model_that_was_never_wrapped_says_nothing(tmp_path: Path) -> None:
    assert said(converted(tmp_path, "v = helpers.inner(model)", ready="")) == []


@pytest.mark.parametrize(
    ("epoch", "after"),
    [
        ("copy = helpers.again(model)", "copy = helpers.again(accelerator.unwrap_model(model))"),
        ("v = helpers.asked(model)", "v = helpers.asked(model)"),
    ],
)
def test_a_model_of_the_same_class_is_made_of_the_script_s_own(
    tmp_path: Path, epoch: str, after: str
) -> None:
    """And what wraps it only where it was wrapped is no DataParallel in a converted script."""
    (tmp_path / "helpers.py").write_text(HELPERS)
    script = tmp_path / "train.py"
    script.write_text(frame(imports="import helpers", ready="model = nn.DataParallel(model)", epoch=epoch))
    (found,) = convert_project(Source.read(script))
    assert place_of(found.new_text, "epoch") == after
    assert "ACC109" not in {f.code for f in found.remaining}
