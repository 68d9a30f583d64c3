"""DataParallel."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from accelify.convert import convert_project, convert_source
from accelify.source import Source
from tests.transforms.support import check_noop, check_transformed, convert, frame, place_of

SGD = "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)"


def test_other_wrappers_stay() -> None:
    check_noop("build", f"model = nn.Sequential(nn.Linear(4, 2))\n{SGD}", "ACC109")


@pytest.mark.parametrize(
    "snippet",
    [
        "model = nn.DataParallel(model)",
        "model = torch.nn.DataParallel(model, device_ids=[0, 1])  # é",
        "if torch.cuda.device_count() > 1:\n    model = nn.DataParallel(model)",
        "if torch.cuda.device_count() > 1:\n    print('many')\n    model = nn.DataParallel(model)",
        "if type(ids) is list:\n    if len(ids) > 1:\n        model = nn.DataParallel(model)",
    ],
)
def test_the_wrapping_goes(snippet: str) -> None:
    conversion = check_transformed("ready", snippet, "")
    assert "ACC109" in {f.code for f in conversion.applied}


@pytest.mark.parametrize("arguments", ["", ", device_ids=[0, 1]"])
def test_the_model_inside_stays(arguments: str) -> None:
    before = f"model = nn.DataParallel(nn.Linear(4, 2){arguments})\n{SGD}"
    check_transformed("build", before, f"model = nn.Linear(4, 2)\n{SGD}")


def test_a_wrapper_that_is_moved_leaves_nothing_behind() -> None:
    text = convert(ready="model = nn.DataParallel(model).cuda()").new_text
    assert "DataParallel" not in text
    assert "model = model" not in text
    assert "accelerator.prepare(model, optimizer" in place_of(text, "ready")


@pytest.mark.parametrize("made", ["ParallelWithHooks(model, device_ids=[0, 1])", "DataParallelOfOurs(model)"])
def test_a_wrapper_of_a_module_that_is_not_read_goes_as_well(made: str) -> None:
    name = made.partition("(")[0]
    ready = (
        f"if os.path.exists('gpus'):\n    model = {made}\n    bare = model.module\nelse:\n    bare = model"
    )
    conversion = convert(imports=f"from outside.wrappers import {name}", ready=ready)
    assert f"{name}(" not in conversion.new_text
    assert ".module" not in conversion.new_text
    found = [f for f in conversion.applied if f.code == "ACC109"]
    assert [(f.safety.value, f.message.partition("; ")[2]) for f in found] == [
        ("review", f"`{name}`, which is not read, passes for a DataParallel and must not wrap it")
    ]


@pytest.mark.parametrize(
    "made",
    [
        "ShardedDataParallel(model)",
        "Board(model, device_ids=[0, 1])",
        "ParallelRunner(path='a', device_ids=[0, 1])",
        "DataParallelBy(2, model)",
    ],
)
def test_what_else_is_not_read_stays(made: str) -> None:
    name = made.partition("(")[0]
    check_noop("ready", f"other = {made}", "ACC109", imports=f"from outside.wrappers import {name}")


def test_one_of_a_library_with_options_of_its_own_stays_and_is_named() -> None:
    """What it keeps as `module` is its own: the names of the weights in files stay what they were."""
    build = f"model = wrappers.DataParallel(nn.Linear(4, 2), minibatch=True)\n{SGD}"
    end = (
        "if isinstance(model, wrappers.DataParallel):\n    torch.save(model.module.state_dict(), 'm.pt')\n"
        "bare = model.module"
    )
    conversion = convert(imports="from outside import wrappers", build=build, end=end)
    text = place_of(conversion.new_text, "end")
    model = "accelerator.unwrap_model(model)"
    assert f"if isinstance({model}, wrappers.DataParallel):" in text
    assert f"accelerator.save({model}.module.state_dict(), 'm.pt')" in text
    assert f"bare = {model}.module" in text
    assert [f.message.partition(" and would")[0] for f in conversion.remaining if f.code == "ACC109"] == [
        "`wrappers.DataParallel`, which is not read, stays around the model,"
    ]
    text = convert(
        imports="from outside import wrappers", build=build.replace("minibatch=True", "[0, 1]")
    ).new_text
    assert place_of(text, "build").startswith("model = nn.Linear(4, 2)\n")


def test_a_part_of_a_model_is_read_without_its_wrapper() -> None:
    net = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = self.make()
        self.head = nn.Linear(self.body{module}.out_features, 2)

    def make(self):
        body = nn.Linear(4, 3)
        {wrap}return body

    def forward(self, x):
        return self.head(self.body(x))

model = Net()
"""
    before = net.format(module=".module", wrap="body = nn.DataParallel(body)\n        ") + SGD
    check_transformed("build", before, net.format(module="", wrap="") + SGD)


@pytest.mark.parametrize(
    "wrap",
    [
        "net, model = nn.DataParallel(net), nn.DataParallel(model)",
        "if torch.cuda.device_count() > 1:\n    net, model = nn.DataParallel(net), nn.DataParallel(model)",
        "if torch.cuda.device_count() > 1:\n    model = nn.DataParallel(model)\n    net = nn.DataParallel(net)",
        "for i in range(len(model)):\n    model[i] = nn.DataParallel(model[i])",
        "if flag:\n    for i in range(len(model)):\n        model[i] = nn.DataParallel(model[i])",
    ],
)
def test_several_wrappings_leave_nothing_behind(wrap: str) -> None:
    made = "net = nn.Linear(4, 4)\nmodel = nn.Sequential(net, nn.Linear(4, 2))\n"
    text = convert(setup="flag = bool(torch.cuda.device_count())", build=f"{made}{wrap}\n{SGD}").new_text
    assert made + SGD in place_of(text, "build")


WRAPPER = """
class Wide(nn.DataParallel):
    def __init__(self, module, gpus):
        super().__init__(module)
        self.gpus = gpus
{more}
model = nn.Linear(4, 2)
model = Wide(model, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""


def test_a_wrapper_of_the_script_s_own_goes_too() -> None:
    text = convert(build=WRAPPER.format(more="")).new_text
    assert "model = nn.Linear(4, 2)\noptimizer" in place_of(text, "build")


def test_one_that_runs_the_model_in_its_own_way_stays() -> None:
    forward = "\n    def forward(self, x):\n        return self.module(x) * self.gpus\n"
    assert "Wide(model, 2)" in convert(build=WRAPPER.format(more=forward)).new_text


OUTPUTS_APART = """
class Apart(nn.DataParallel):
    def gather(self, outputs, output_device):
        return outputs
class ApartCriterion(nn.DataParallel):
    def forward(self, inputs, *targets):
        targets, _ = self.scatter(targets, {{}}, self.device_ids)
        if len(self.device_ids) == 1:
            return self.module(inputs, *targets[0])
        copies = self.replicate(self.module, self.device_ids)
        return sum(copy(x, *y) for copy, x, y in zip(copies, inputs, targets)) / len(copies)
model = {model}
criterion = {criterion}
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""


def test_the_criterion_of_outputs_that_lie_apart_goes_with_them() -> None:
    wrapped = {"model": "Apart(nn.Linear(4, 2))", "criterion": "ApartCriterion(nn.CrossEntropyLoss())"}
    bare = {"model": "nn.Linear(4, 2)", "criterion": "nn.CrossEntropyLoss()"}
    text = convert(build=OUTPUTS_APART.format(**wrapped)).new_text
    for name, made in bare.items():
        assert f"{name} = {made}\n" in text


@pytest.mark.parametrize(
    ("head", "kept"),
    [
        (
            "if torch.cuda.device_count() > 1:",
            "state = {}\n# the names\nmodel.load_state_dict(state, strict=False)",
        ),
        ("if args.multi_gpu:", "state = {}\n# the names\nmodel.load_state_dict(state, strict=False)"),
        (
            "if args.cuda:",
            "if not args.cuda:\n    state = {}\n    # the names\n    model.load_state_dict(state, strict=False)",
        ),
    ],
)
def test_what_is_done_without_the_wrapper_is_done_always(head: str, kept: str) -> None:
    snippet = f"""
    {head}
        print("several")
        model = nn.DataParallel(model)
    else:
        state = {{}}
        # the names
        model.load_state_dict(state, strict=False)
    """
    setup = "import argparse\nargs = argparse.ArgumentParser().parse_args()\n"
    text = place_of(convert(ready=snippet, setup=setup).new_text, "ready")
    assert text.split("\nmodel, optimizer, loader")[0] == kept


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("model, x.cuda(), range(torch.cuda.device_count())", "model(x)"),
        ("model, inputs=x", "model(x)"),
        ("model, (x, y[:, None]), [0, 1]", "model(x, y[:, None])"),
        ("model, x, module_kwargs={'y': y}", "model(x, **{'y': y})"),
    ],
)
def test_a_run_on_parts_of_the_batch_is_one_of_the_model(given: str, kept: str) -> None:
    conversion = check_transformed(
        "loss",
        f"loss = F.cross_entropy(nn.parallel.data_parallel({given}), y)",
        f"loss = F.cross_entropy({kept}, y)",
    )
    assert "ACC109" in {f.code for f in conversion.applied}


@pytest.mark.parametrize("made", ["[x, x]", "(x, x) if len(x) else [x, x]", "(x, x)\nboth = [x, x]"])
def test_parts_in_what_may_be_a_list_are_left_to_a_person(made: str) -> None:
    loss = f"both = {made}\nloss = F.cross_entropy(nn.parallel.data_parallel(model, both), y)"
    assert "ACC109" in {f.code for f in convert(loss=loss).remaining}


@pytest.mark.parametrize(
    ("given", "kept"),
    [("model, both, [0, 1]", "model(*both)"), ("model, both, module_kwargs=more", "model(*both, **more)")],
)
def test_parts_in_a_tuple_that_is_written_out_are_spread(given: str, kept: str) -> None:
    lines = "more = {}\nboth = (x, x)\nloss = F.cross_entropy({}, y)\nboth = x, y".replace("{}, y", "RUN, y")
    check_transformed(
        "loss", lines.replace("RUN", f"nn.parallel.data_parallel({given})"), lines.replace("RUN", kept)
    )


def test_the_branch_of_a_forward_that_splits_its_batch_is_the_other_one() -> None:
    net = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.main = nn.Linear(4, 2)
        self.ngpu = 1

    def forward(self, x):
        {forward}
        return output

model = Net()
"""
    both = "if x.is_cuda and self.ngpu > 1:\n            output = {}\n        else:\n            output = self.main(x)"
    before = net.format(forward=both.format("nn.parallel.data_parallel(self.main, x, range(self.ngpu))"))
    check_transformed("build", before + SGD, net.format(forward="output = self.main(x)") + SGD)


COPIED = """
def on_all(model, x):
    ids = list(range(torch.cuda.device_count()))
    replicas = torch.nn.parallel.replicate(model, ids)
    parts = torch.nn.parallel.scatter(x, ids)
    outs = torch.nn.parallel.parallel_apply(replicas[: len(parts)], parts)
    return torch.nn.parallel.gather(outs, ids[0])
"""


def test_copies_that_the_script_makes_are_left_to_a_person(tmp_path: Path) -> None:
    loss = "loss = F.cross_entropy(on_all(model, x), y)"
    found = [f for f in convert(setup=COPIED, loss=loss).remaining if f.code == "ACC109"]
    assert [f.message.split(" copies")[0] for f in found] == ["it"]
    (tmp_path / "copies.py").write_text(f"import torch\n{COPIED}")
    (tmp_path / "main.py").write_text(frame(imports="from copies import on_all", loss=loss))
    conversion = convert_project(Source.read(tmp_path / "main.py"))[0]
    found = [f for f in conversion.remaining if f.code == "ACC109"]
    assert [f.message.split(" copies")[0] for f in found] == ["`on_all`"]
    assert "# TODO(accelify ACC712)" in conversion.new_text


OWN_WRAPPER = """\
from torch import nn
{imports}


class Spread(nn.Module):
    def __init__(self, module, gpus):
        super().__init__()
        self.module, self.gpus = module, gpus

    def forward(self, *given):
        copies = self.copies_of(self.module)
        return self.gathered(self.{run}(copies, given))

    def copies_of(self, module):
        return [module for _ in self.gpus]

    def gathered(self, found):
        return found[0]

    def parallel_apply(self, copies, given):
        return parallel_apply(copies, given)

    def one_by_one(self, copies, given):
        return [copy(*given) for copy in copies]
"""


@pytest.mark.parametrize(
    ("imports", "run", "named"),
    [
        ("from torch.nn.parallel import parallel_apply", "parallel_apply", True),
        ("from threads import parallel_apply", "parallel_apply", True),
        ("from torch.nn.parallel import parallel_apply", "one_by_one", False),
    ],
)
def test_a_wrapper_of_the_project_that_runs_copies_in_a_method_is_named(
    tmp_path: Path, imports: str, run: str, named: bool
) -> None:
    (tmp_path / "spread.py").write_text(OWN_WRAPPER.format(imports=imports, run=run))
    (tmp_path / "threads.py").write_text(
        "def parallel_apply(copies, given):\n    return [c(*given) for c in copies]\n"
    )
    build = f"model = Spread(nn.Linear(4, 2), [0, 1])\n{SGD}"
    (tmp_path / "main.py").write_text(frame(imports="from spread import Spread", build=build))
    conversion = convert_project(Source.read(tmp_path / "main.py"))[0]
    found = [f.message.split(" copies")[0] for f in conversion.remaining if f.code == "ACC109"]
    assert found == (["`Spread.forward`"] if named else [])


LOADS = "model = nn.DataParallel(model)\n{}\n"
BARE = '{{name.removeprefix("module."): weight for name, weight in {}.items()}}'


@pytest.mark.parametrize("place", ["torch.load('m.pt')", "state['model']"])
def test_weights_that_were_saved_under_the_wrapper(place: str) -> None:
    lines = f"state = torch.load('m.pt')\nmodel.load_state_dict({place})"
    text = convert(ready=LOADS.format(lines)).new_text
    mapped = place.replace("'m.pt'", "'m.pt', map_location=accelerator.device")
    assert f"model.load_state_dict({BARE.format(mapped)})\n" in text


READS = "def resume(path):\n    state = torch.load(path)\n    return state\n"


def test_weights_that_a_function_gives_back(tmp_path: Path) -> None:
    lines = "state = resume('m.pt')\nmodel.load_state_dict(state['model'])"
    bare = BARE.format("state['model']")
    wanted = f"model.load_state_dict({bare})\n"
    assert wanted in convert(setup=READS, ready=LOADS.format(lines)).new_text
    (tmp_path / "files.py").write_text(f"import torch\n\n\n{READS}")
    (tmp_path / "train.py").write_text(frame(imports="from files import resume", ready=LOADS.format(lines)))
    assert wanted in convert_project(Source.read(tmp_path / "train.py"))[0].new_text
    (tmp_path / "files.py").write_text("import torch\n\n\ndef resume(path):\n    return {'model': {}}\n")
    assert "removeprefix" not in convert_project(Source.read(tmp_path / "train.py"))[0].new_text


@pytest.mark.parametrize("above", ["def", "class"])
def test_where_the_function_that_trains_stands_above(above: str) -> None:
    trains = "    optimizer.zero_grad()\n    F.cross_entropy(model(x), y).backward()\n    optimizer.step()\n"
    setup = f"{above} train(x, y):\n{trains}"
    if above == "class":
        setup = "class Trainer:\n    def train(self, x, y):\n" + textwrap.indent(trains, "    ")
    update = "train(x, y)" if above == "def" else "Trainer().train(x, y)"
    ready = LOADS.format("model.load_state_dict(torch.load('m.pt'))")
    text = convert(setup=setup, ready=ready, update=update).new_text
    loaded = BARE.format("torch.load('m.pt', map_location=accelerator.device)")
    assert f"model.load_state_dict({loaded})\n" in text


@pytest.mark.parametrize(
    "snippets",
    [
        {"ready": "model.load_state_dict(torch.load('m.pt'))\nmodel = nn.DataParallel(model)"},
        {"ready": LOADS.format("model.module.load_state_dict(torch.load('m.pt'))")},
        {"ready": LOADS.format(""), "end": "model.load_state_dict(torch.load('best.pt'))"},
        {"ready": LOADS.format(""), "end": "if seen:\n    model.load_state_dict(torch.load('best.pt'))"},
        {"ready": LOADS.format("optimizer.load_state_dict(torch.load('m.pt'))")},
        {"ready": LOADS.format("state = model.state_dict()\nmodel.load_state_dict(state)")},
        {"ready": "model.load_state_dict(torch.load('m.pt'))"},
    ],
)
def test_weights_without_the_prefix_stay(snippets: dict[str, str]) -> None:
    assert "removeprefix" not in convert(**snippets).new_text


def test_a_file_that_was_loaded_before_the_training_may_not_have_been_written_anew() -> None:
    loaded = "model.load_state_dict(torch.load('best.pt'))"
    ready = LOADS.format(f"if os.path.exists('best.pt'):\n    {loaded}")
    assert convert(ready=ready, end=loaded).new_text.count("removeprefix") == 2


STANDING = """\
import sys
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

loader = DataLoader(TensorDataset(torch.randn(32, 4), torch.randn(32, 1)), batch_size=8)
{around}
    model = nn.DataParallel(nn.Linear(4, 1))
    {before}
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    if len(sys.argv) < 2:
        for x, y in loader:
            loss = nn.functional.mse_loss(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
        {leaving}
    {behind}
"""
LOADED = "model.load_state_dict(torch.load('m.pt'))"


@pytest.mark.parametrize(
    ("around", "before", "leaving", "behind", "stripped"),
    [
        ("if __name__ == '__main__':", LOADED, "pass", "pass", True),
        ("for seed in range(2):", LOADED, "pass", "pass", True),
        ("with torch.device('cpu'):", LOADED, "pass", "pass", True),
        ("if __name__ == '__main__':", "pass", "pass", LOADED, True),
        ("if __name__ == '__main__':", "pass", "sys.exit()", LOADED, True),
        ("if __name__ == '__main__':", "pass", "pass", f"else:\n        {LOADED}", True),
        ("if __name__ == '__main__':", "pass", LOADED, "pass", False),
    ],
)
def test_weights_are_told_from_those_of_this_run_by_the_steps_before(
    around: str, before: str, leaving: str, behind: str, stripped: bool
) -> None:
    source = STANDING.format(around=around, before=before, leaving=leaving, behind=behind)
    conversion = convert_source(Source.from_text(source, Path("/nowhere/train.py")))
    assert conversion.status == "converted"
    assert ("removeprefix" in conversion.new_text) is stripped


NET = "from torch import nn\n\n\nclass Net(nn.Linear):\n    pass\n"
WRAPPED = "model = nn.DataParallel(Net(4, 2))\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)"


SAMPLERS = """
import copy
class Sampler(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model
    def forward(self, x):
        return self.model(x)
net = nn.Linear(4, 2)
{second}
optimizer = torch.optim.SGD([*net.parameters(), {more}], lr=0.1)
model = Sampler(net).cuda()
slow = Sampler(other).cuda()
model = nn.DataParallel(model)
slow = nn.DataParallel(slow)
"""


@pytest.mark.parametrize(
    ("second", "more", "prepared"),
    [
        ("other = copy.deepcopy(net)", "", "model, optimizer"),
        ("other = nn.Linear(4, 2)", "", "model, optimizer"),
        ("other = nn.Linear(4, 2)", "*other.parameters()", "model, slow, optimizer"),
        ("other = net if os.environ else nn.Linear(4, 2)", "", "model, slow, optimizer"),
    ],
)
def test_a_wrapped_model_that_is_never_trained_is_not_prepared(second: str, more: str, prepared: str) -> None:
    """Objects of one class, each around a model of its own: that of the average only runs."""
    build = SAMPLERS.format(second=second, more=more)
    text = convert(build=build, loss="slow(x)\nloss = F.cross_entropy(model(x), y)\n").new_text
    assert f"= accelerator.prepare({prepared}, loader" in text
    assert ("slow = Sampler(other).to(accelerator.device)" in text) == ("slow" not in prepared)
    assert "DataParallel" not in text


def test_a_wrapped_model_of_another_run_stays_in_its_wrapper() -> None:
    ready = "if os.path.exists('old.pt'):\n    start = torch.load('old.pt')['net'].module\n"
    converted = convert(
        build="model = nn.DataParallel(nn.Linear(4, 2))\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)",
        ready=ready,
        end="torch.save({'net': model}, 'm.pt')",
    )
    assert "['net'].module" in place_of(converted.new_text, "ready")
