"""DataParallel."""

from __future__ import annotations

import pytest

from tests.transforms.support import check_noop, check_transformed, convert, place_of

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
    ("loading", "said"),
    [("net = nn.DataParallel(net)\n{}", 1), ("{}\nnet = nn.DataParallel(net)", 0)],
)
def test_files_of_a_wrapper_that_is_gone(loading: str, said: int) -> None:
    """What was saved from under it names its parts otherwise."""
    build = "net = nn.Linear(4, 2)\n" + loading.format("net.load_state_dict(torch.load('a.pt'))")
    sgd = "\noptimizer = torch.optim.SGD(net.parameters(), lr=0.1)"
    conversion = convert(build=build + sgd, loss="loss = F.cross_entropy(net(x), y)")
    found = [f for f in conversion.remaining if f.code == "ACC109"]
    assert len(found) == said
    assert all("`module.*`" in f.message for f in found)
