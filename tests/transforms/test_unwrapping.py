"""Attributes and methods of prepared models."""

from __future__ import annotations

from pathlib import Path

import pytest

from accelify.convert import convert_project
from accelify.source import Source
from tests.transforms.support import check_noop, check_transformed, convert, frame, place_of

NET = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 2)
        self.hidden = None

    def forward(self, x):
        return self.fc(x)

    def decode(self, x):
        return self.fc(x)
"""
BUILD = "model = Net()\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)"


@pytest.mark.parametrize(
    "snippet",
    [
        "model.train()\nmodel.zero_grad()\nmodel.eval()",
        "for p in model.parameters():\n    n = p.shape",
        "for name, p in model.named_parameters():\n    n = p.shape",
        "out = model(x)",
        "other = nn.Linear(4, 2)\nn = other.weight",
    ],
)
def test_what_a_wrapper_has_stays(snippet: str) -> None:
    check_noop("batch", snippet, "ACC208")


def test_a_method_called_to_train_stays() -> None:
    check_noop("loss", "loss = F.cross_entropy(model.decode(x), y)", "ACC208", setup=NET, build=BUILD)


def test_a_method_that_one_process_calls_is_the_model_s_own() -> None:
    check_transformed(
        "update",
        "np.save('a', model.decode(x))",
        "if accelerator.is_main_process:\n    np.save('a', accelerator.unwrap_model(model).decode(x))",
        imports="import numpy as np",
        setup=NET,
        build=BUILD,
    )


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("model.hidden = None", "accelerator.unwrap_model(model).hidden = None"),
        ("é = model.fc.weight.shape", "é = accelerator.unwrap_model(model).fc.weight.shape"),
        (
            "with torch.no_grad():\n    sample = model.decode(x)",
            "with torch.no_grad():\n    sample = accelerator.unwrap_model(model).decode(x)",
        ),
    ],
)
def test_attributes(before: str, after: str) -> None:
    check_transformed("epoch", before, after, setup=NET, build=BUILD)


def test_bare_uses() -> None:
    check_transformed(
        "end",
        "n = len(model), model[0]",
        "n = len(accelerator.unwrap_model(model)), accelerator.unwrap_model(model)[0]",
        build="model = nn.Sequential(nn.Linear(4, 2))\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)",
    )


def test_module_of_a_data_parallel() -> None:
    check_transformed(
        "end",
        "n = model.module.weight",
        "n = accelerator.unwrap_model(model).weight",
        ready="model = nn.DataParallel(model)",
    )


def test_module_of_a_data_parallel_that_is_gone_before_prepare() -> None:
    before = """
model = nn.DataParallel(nn.Sequential(nn.Linear(4, 2)))
parts = list(model.module.parameters()) + [model.module.training, model.module]
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""
    after = before.replace(
        "nn.DataParallel(nn.Sequential(nn.Linear(4, 2)))", "nn.Sequential(nn.Linear(4, 2))"
    )
    check_transformed("build", before, after.replace(".module", ""))


@pytest.mark.parametrize("moved", ["cpu()", "cpu().eval()", "to('cpu')"])
def test_module_behind_a_move(moved: str) -> None:
    text = check_transformed(
        "end",
        f"model = model.{moved}.module\nn = model.weight",
        f"model = accelerator.unwrap_model(model).{moved}\nn = model.weight",
        ready="model = nn.DataParallel(model)",
    ).new_text
    assert "DataParallel" not in text
    before = f"""
    model = nn.DataParallel(nn.Linear(4, 2))
    if os.path.exists("wide"):
        model = model.{moved}.module
        model.weight.data.zero_()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    """
    text = convert(build=before).new_text
    assert f"model = model.{moved}\n" in text
    assert ".module" not in text


def test_what_is_taken_out_and_wrapped_again_is_prepared_again() -> None:
    check_transformed(
        "end",
        "model = model.cpu().module\nmodel.weight.data.zero_()\nmodel = nn.DataParallel(model).cuda()\nout = model(x)",
        "model = accelerator.unwrap_model(model).cpu()\nmodel.weight.data.zero_()\n"
        "model = accelerator.prepare(model)\nout = model(x)",
        ready="model = nn.DataParallel(model).cuda()",
    )


def test_what_is_taken_out_to_the_host_is_given_what_is_there() -> None:
    end = "model = model.cpu().module\nout = model(torch.randn(3, 4))"
    text = convert(ready="model = nn.DataParallel(model).cuda()", end=end).new_text
    assert place_of(text, "end").endswith("\nout = model(torch.randn(3, 4))")


PART_CALLED_MODULE = """
class Wrap(nn.Module):
    def __init__(self):
        super().__init__()
        self.module = nn.Linear(4, 2)

    def forward(self, x):
        return self.module(x)
"""


def test_a_part_that_is_called_module_behind_a_move() -> None:
    build = "model = Wrap()\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)"
    check_noop("build", f"{build}\nn = model.cpu().module.weight", "ACC208", setup=PART_CALLED_MODULE)


def test_a_part_that_is_called_module() -> None:
    build = "model = Wrap()\noptimizer = torch.optim.SGD(model.module.parameters(), lr=0.1)"
    after = check_transformed(
        "build", build, build, setup=PART_CALLED_MODULE, end="n = model.module.weight"
    ).new_text
    assert "n = accelerator.unwrap_model(model).module.weight" in after


def test_module_of_a_wrapper_that_is_gone_in_the_branch_that_made_it() -> None:
    build = """
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
    model = model.cuda()
    if torch.cuda.device_count() > 1:
        model = nn.DataParallel(model)
        optimizer = torch.optim.SGD(filter(id, model.module.parameters()), lr=0.1)
    else:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    """
    text = convert(build=build).new_text
    assert "filter(id, model.parameters())" in text
    assert ".module" not in text


def test_what_a_model_defines_in_the_place_of_torchs_method_is_its_own() -> None:
    setup = """
    class Net(nn.Linear):
        def eval(self):
            return super().eval()

        def train(self{mode}):
            return super().train()
    """
    build = "model = Net(4, 2)\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)"
    asked = "model.eval()\nmodel.train()"
    text = place_of(convert(setup=setup.format(mode=""), build=build, epoch=asked).new_text, "epoch")
    assert text == "accelerator.unwrap_model(model).eval()\naccelerator.unwrap_model(model).train()"
    text = place_of(
        convert(setup=setup.format(mode=", mode=True"), build=build, epoch=asked).new_text, "epoch"
    )
    assert text == "accelerator.unwrap_model(model).eval()\nmodel.train()"


def test_a_models_own_train_that_takes_more_than_a_mode() -> None:
    setup = """
    class Net(nn.Linear):
        def train(self{own}):
            return super().train()
    """
    build = "model = Net(4, 2)\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)"
    kept = [(", mode", "True"), (", flag=True", ""), (", on: bool", "True"), (", *args", "")]
    taken = [
        (", x, y", "x, y"),
        (", epochs=10", ""),
        (", batches", "x"),
        (", mode=True, deep=False", "deep=True"),
    ]
    for own, given in [*kept, *taken]:
        text = convert(
            setup=setup.format(own=own), build=build, end=f"x = y = 0\nmodel.train({given})"
        ).new_text
        model = "accelerator.unwrap_model(model)" if (own, given) in taken else "model"
        assert f"\n{model}.train({given})" in text, own


def test_what_is_not_prepared_yet_has_nothing_to_unwrap() -> None:
    """Of a notebook that goes on with another model under the same name, and of a loader that is prepared earlier."""
    before = """
    model = nn.Sequential(nn.Linear(4, 2))
    model.head = nn.Identity()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in loader:
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
    """
    after = """
    model = nn.Sequential(nn.Linear(4, 2))
    model.head = nn.Identity()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer = accelerator.prepare(model, optimizer)
    for x, y in loader:
        optimizer.zero_grad()
        accelerator.backward(F.cross_entropy(model(x), y))
        optimizer.step()
    """
    check_transformed("end", before, after)


def test_the_parts_of_a_model_are_its_own() -> None:
    check_transformed(
        "batch",
        "for n, part in enumerate(model.children()):\n    print(n)",
        "for n, part in enumerate(accelerator.unwrap_model(model).children()):\n    accelerator.print(n)",
    )


@pytest.mark.parametrize("place", ["batch", "epoch"])
def test_a_model_that_is_given_back_to_its_name_stays_prepared(place: str) -> None:
    check_noop(place, "model = model.apply(lambda part: part)", "ACC208")


def test_a_method_that_one_process_runs_alone_is_the_model_s(tmp_path: Path) -> None:
    log = "\n    def log(self, path):\n        with open(path, 'a') as f:\n            f.write('done')\n"
    (tmp_path / "net.py").write_text(f"import torch.nn as nn\n{NET}{log}")
    script = frame(imports="from net import Net", build=BUILD, batch="model.log('log.txt')")
    (tmp_path / "train.py").write_text(script)
    text = convert_project(Source.read(tmp_path / "train.py"))[0].new_text
    after = "if accelerator.is_main_process:\n    accelerator.unwrap_model(model).log('log.txt')"
    assert place_of(text, "batch") == after


@pytest.mark.parametrize(
    "asked",
    [
        "type({}) is Net",
        "type({}).__name__ == 'Net'",
        "isinstance({}, Net)",
        "isinstance({}, (nn.Linear, nn.Sequential))",
    ],
)
def test_the_class_of_a_model_is_its_own(asked: str) -> None:
    before, after = asked.format("model"), asked.format("accelerator.unwrap_model(model)")
    check_transformed("epoch", f"if {before}:\n    n = 1", f"if {after}:\n    n = 1", setup=NET, build=BUILD)


@pytest.mark.parametrize(
    "text",
    [
        'f"{{epoch}}: {0}.__class__.__name__ = {{{0}.__class__.__name__}}"',
        'f"über {{epoch}}, {{type({0}).__name__:>8}}"',
        'f"{{epoch}} {{{0}.__class__.__name__}}\\n" f"{{{0}.__class__!r}}"',
    ],
)
def test_the_class_of_a_model_in_text_is_its_own(text: str) -> None:
    before = f"with open(name, 'w') as file:\n    file.write({text.format('model')})\nlabel = {text.format('model')}"
    parts = text.format("accelerator.unwrap_model(model)")
    parts = parts.replace(
        "accelerator.unwrap_model(model).__class__.__name__ =", "model.__class__.__name__ ="
    )
    conversion = convert(epoch=before, setup=f"name = 'log'\n{NET}", build=BUILD)
    assert f"label = {parts}" in conversion.new_text


def test_the_class_of_a_model_that_is_prepared_or_not() -> None:
    setup = f"{NET}\ndef name_of(net):\n    return net.__class__.__name__\n"
    text = convert(epoch="print(name_of(model), name_of(Net()))", setup=setup, build=BUILD).new_text
    assert "return accelerator.unwrap_model(net).__class__.__name__" in text


def test_a_library_that_refuses_other_classes_is_handed_the_model_itself() -> None:
    before = "weights = gradient_update_parameters(model, loss, step_size=0.5)"
    after = before.replace("model", "accelerator.unwrap_model(model)")
    check_transformed(
        "loss",
        f"loss = F.cross_entropy(model(x), y)\n{before}",
        f"loss = F.cross_entropy(model(x), y)\n{after}",
        imports="from torchmeta.utils.gradient_based import gradient_update_parameters",
    )


@pytest.mark.parametrize("asked", ["isinstance(model, nn.Module)", "isinstance(model, nn.DataParallel)"])
def test_whether_it_is_a_module_or_wrapped_may_be_asked_of_a_wrapper(asked: str) -> None:
    check_noop("epoch", f"if {asked}:\n    n = 1", "ACC208", setup=NET, build=BUILD)


ATTACK = """
def attack(net, x):
    net = copy.deepcopy(net)
    net.fc = nn.Identity()
    x = x.detach().requires_grad_(True)
    net(x).sum().backward()
    {use}
    return x.grad
"""


@pytest.mark.parametrize(
    ("use", "unwrapped"),
    [("net.eval()", True), ("for p in net.parameters():\n        p.data -= p.grad", False)],
)
def test_a_copy_that_is_only_run_is_of_the_model_itself(use: str, unwrapped: bool) -> None:
    setup = NET + ATTACK.format(use=use)
    text = convert(imports="import copy", setup=setup, build=BUILD, batch="x = attack(model, x)").new_text
    assert ("net = copy.deepcopy(accelerator.unwrap_model(net))" in text) == unwrapped


PLANNER = """
from torch import jit

class Planner(jit.ScriptModule):
    def __init__(self, net, n=1):
        super().__init__()
        self.net = net

    @jit.script_method
    def forward(self, x):
        return self.net(x).argmax(1)
"""


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("Planner(model)", "Planner(accelerator.unwrap_model(model))"),
        ("Planner(n=3, net=model)", "Planner(n=3, net=accelerator.unwrap_model(model))"),
        ("torch.jit.trace(model, x)", "torch.jit.trace(accelerator.unwrap_model(model), x)"),
        ("jit.script(model.eval()).code", "jit.script(accelerator.unwrap_model(model).eval()).code"),
    ],
)
def test_what_torchscript_is_handed(before: str, after: str) -> None:
    check_transformed(
        "epoch", f"compiled = {before}", f"compiled = {after}", imports=PLANNER, setup=NET, build=BUILD
    )


def test_what_torchscript_compiles_before_it_is_prepared_stays() -> None:
    build = BUILD.replace("\n", "\nmodel = torch.jit.script(model)\n")
    assert "unwrap_model" not in convert(setup=NET, build=build).new_text


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("model.float()", None),
        ("torch.onnx.export(model, x, 'net.onnx')", "torch.onnx.export({}, x, 'net.onnx')"),
        ("torch.onnx.export(model.float(), x, 'net.onnx')", "torch.onnx.export({}.float(), x, 'net.onnx')"),
        ("torch.onnx.export(x, model=model.cpu().eval())", "torch.onnx.export(x, model={}.cpu().eval())"),
        ("torch.jit.script(model).save('net.pt')", "torch.jit.script({}).save('net.pt')"),
    ],
)
def test_what_one_process_exports_is_the_model_itself(before: str, after: str | None) -> None:
    text = convert(setup=NET, build=BUILD, end=before).new_text
    bare = "accelerator.unwrap_model(model)"
    guarded = f"\nif accelerator.is_main_process:\n    {(after or '').format(bare)}\n"
    assert (f"\n{before}\n" if after is None else guarded) in text


def test_a_compiled_model_is_written_once_and_not_prepared() -> None:
    end = "scripted = torch.jit.script(model.eval())\nscripted.save('net.pt')"
    text = convert(setup=NET, build=BUILD, end=end).new_text
    assert "scripted = torch.jit.script(accelerator.unwrap_model(model).eval())\n" in text
    assert "if accelerator.is_main_process:\n    scripted.save('net.pt')\n" in text
    assert text.count("prepare(") == 1


PARTS = """
def parts(layers):
    {made}
    return [layer for layer in layers]
"""


@pytest.mark.parametrize(
    ("made", "unwrapped"),
    [
        ("pass", True),
        ("if not isinstance(layers, list):\n        layers = [*layers.modules()]", False),
        ("layers = list(layers.modules())", False),
        ("if len(layers) > 1:\n        layers = [*layers.modules()]", True),
    ],
)
def test_a_name_that_holds_a_list_by_then_is_no_model(made: str, unwrapped: bool) -> None:
    build = (
        "model = nn.Sequential(nn.Linear(4, 2))\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
    )
    text = convert(setup=PARTS.format(made=made), build=build, end="found = parts(model)").new_text
    assert ("for layer in accelerator.unwrap_model(layers)" in text) is unwrapped
    assert ("for layer in layers]" in text) is not unwrapped


@pytest.mark.parametrize(
    ("asked", "unwrapped"),
    [
        ("isinstance(data, (list, tuple))", False),
        ("isinstance(data, list)", False),
        ("type(data) in (list, tuple)", False),
        ("type(data) is list", False),
        ("isinstance(data, nn.ModuleList)", True),
        ("not isinstance(data, list)", True),
        ("deep", True),
    ],
)
def test_a_name_that_is_asked_for_a_list_is_no_model(asked: str, unwrapped: bool) -> None:
    move = f"def parts(data, deep=True):\n    if {asked}:\n        return [parts(x) for x in data]\n    return data\n"
    text = convert(setup=move, ready="own = parts(model)\nboth = parts([model, model])").new_text
    assert ("for x in accelerator.unwrap_model(data)]" in text) == unwrapped


@pytest.mark.parametrize(
    "bound",
    ["bare = model.module", "bare = model.module if hasattr(model, 'module') else model"],
)
def test_what_was_unwrapped_where_it_was_bound_is_not_unwrapped_again(bound: str) -> None:
    text = convert(build=NET + BUILD, epoch=f"{bound}\nbare.save_pretrained('d')\nn = bare.hidden").new_text
    epoch = place_of(text, "epoch")
    assert "bare = accelerator.unwrap_model(model)" in epoch
    assert epoch.count("unwrap_model") == 1


def test_a_name_that_is_the_prepared_model_on_one_way_is_unwrapped() -> None:
    bound = "bare = model\nif epoch:\n    bare = model.module"
    text = convert(build=NET + BUILD, epoch=f"{bound}\nn = bare.hidden").new_text
    assert "n = accelerator.unwrap_model(bare).hidden" in place_of(text, "epoch")


@pytest.mark.parametrize("made", ["copy.deepcopy(model)", "nn.Linear(4, 2)"])
def test_a_second_name_that_holds_a_copy_at_times_is_not_prepared(made: str) -> None:
    """What is made for each evaluation would be held to the end of the run."""
    update = (
        f"optimizer.step()\nif i > 2:\n    shown = {made}\nelse:\n    shown = model\nshown.eval()\nshown(x)"
    )
    text = convert(imports="import copy", update=update).new_text
    assert text.count("accelerator.prepare(") == 1
    assert "model, optimizer, loader = accelerator.prepare(model, optimizer, loader)" in text


@pytest.mark.parametrize(("wrap", "edited"), [("nn.DataParallel(model)", True), ("model", False)])
def test_a_copy_of_a_model_that_has_no_wrapper_any_more(wrap: str, edited: bool) -> None:
    build = (
        f"{NET}\nmodel = Net().cuda()\nmodel = {wrap}\nshadow = copy.deepcopy(model)\n{BUILD.splitlines()[1]}"
    )
    text = convert(imports="import copy", build=build, end="print(shadow.module.hidden)").new_text
    kept = "accelerator.print(shadow.module.hidden)"
    assert ("accelerator.print(accelerator.unwrap_model(shadow).hidden)" in text) is edited
    assert (kept in text) is not edited


RUNNER = """\
import copy

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Runner:
    def __init__(self, net):
        self.net = net
        self.shadow = copy.deepcopy(net.module)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)

    def train(self, loader):
        for x, y in loader:
            loss = nn.functional.mse_loss(self.net(x), y)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()


net = nn.DataParallel(nn.Linear(4, 1))
Runner(net).train(DataLoader(TensorDataset(torch.randn(8, 4), torch.randn(8, 1)), batch_size=2))
"""


def test_a_model_that_was_prepared_elsewhere_is_unwrapped_above_another_prepare(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(RUNNER)
    (conversion,) = convert_project(Source.read(path))
    assert conversion.status == "converted", conversion.reason
    assert "self.optimizer = accelerator.prepare(self.optimizer)" in conversion.new_text
    assert "self.shadow = copy.deepcopy(accelerator.unwrap_model(net))" in conversion.new_text


def test_type_of_a_prepared_optimizer_and_schedule() -> None:
    check_transformed(
        "end",
        "print(type(optimizer).__name__, type(schedule), type(model).__name__)",
        "accelerator.print(type(optimizer.optimizer).__name__, type(schedule.scheduler), "
        "type(accelerator.unwrap_model(model)).__name__)",
        ready="schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2)",
        update="optimizer.step()\nschedule.step()",
    )
    early = convert(build=f"{BUILD}\nname = type(optimizer).__name__", setup=NET).new_text
    assert "name = type(optimizer).__name__" in early
    check_noop("end", "name = optimizer.__class__.__name__, type(loss), type(loader.dataset)", "ACC208")


@pytest.mark.parametrize("given", ["a", "a.to('cuda')"])
def test_what_is_gathered_is_asked_of_the_model_too(given: str) -> None:
    conversion = check_transformed(
        "epoch",
        f"""
        total = 0.0
        with torch.no_grad():
            for a, b in test_loader:
                total += F.cross_entropy(model.decode({given}), b, reduction="sum").item()
        """,
        """
        total = 0.0
        with torch.no_grad():
            for a, b in test_loader:
                output, b = accelerator.gather_for_metrics((accelerator.unwrap_model(model).decode(a), b))
                total += F.cross_entropy(output, b, reduction="sum").item()
        """,
        setup=NET,
        build=BUILD,
    )
    assert not conversion.remaining
