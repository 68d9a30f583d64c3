"""Names of weights that were read with the `module.` of a DataParallel."""

from __future__ import annotations

from pathlib import Path

import pytest

from accelify.conversion import ConvertOptions
from accelify.convert import convert_project, convert_source
from accelify.source import Source
from tests.transforms.support import PATH, check_noop, convert, frame, place_of

NET = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(4, 4), nn.Linear(4, 2)

    def forward(self, x):
        return self.head(self.body(x))

HEADS = ["module.head.weight", "module.head.bias"]
RATES = {"module.body.bias": 0.2}

def is_head(name):
    return name.startswith("module.head")

model = nn.DataParallel(Net())
"""
SGD = "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
PARAMETERS = "model.named_parameters()"


def built(snippet: str, net: str = NET) -> str:
    """What becomes of lines behind the model."""
    text = place_of(convert(build=f"{net}# here\n{snippet}\n{SGD}").new_text, "build")
    return text.partition("# here\n")[2].partition("\noptimizer =")[0]


@pytest.mark.parametrize(
    "snippet",
    [
        "few = [p for n, p in {} if n == 'module.head.bias']",
        "few = [p for n, p in {} if n not in HEADS]",
        "few = [p for n, p in {} if is_head(n)]",
        "few = {{n: RATES.get(n, 0.1) for n, p in {}}}",
        "few = {{n: RATES[n] for n, p in {} if n in RATES}}",
        "few = {{n[7:]: p for n, p in {}}}",
        "few = {{n[len('module.'):]: p for n, p in {}}}",
        "few = list(filter(lambda pair: pair[0] in HEADS, {}))",
        "few = [pair[1] for pair in list({}) if 'module.head' in pair[0]]",
        "for i, (n, p) in enumerate({}):\n    p.requires_grad = n.startswith(('module.head', 'module.neck'))",
        "for n, p in {}:\n    _, layer, kind = n.split('.')",
        "for n, p in {}:\n    parts = n.split('.')\n    p.requires_grad = parts[1] == 'head'",
        "few = [p for n, p in {} for part in ('head', 'body') if n == f'module.{{part}}.bias']",
    ],
)
def test_what_reads_names_with_the_prefix_is_given_them(snippet: str) -> None:
    assert built(snippet.format(PARAMETERS)) == snippet.format('model.named_parameters(prefix="module")')


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            "few = {n[7:]: w for n, w in model.state_dict().items()}",
            'few = {n[7:]: w for n, w in model.state_dict(prefix="module.").items()}',
        ),
        (
            "state = model.state_dict()\nfew = {n[7:]: w for n, w in state.items()}",
            'state = model.state_dict(prefix="module.")\nfew = {n[7:]: w for n, w in state.items()}',
        ),
        (
            "few = [m for n, m in model.named_modules() if n == 'module.head']",
            "few = [m for n, m in model.named_modules(prefix=\"module\") if n == 'module.head']",
        ),
        ("model.get_submodule('module.head')", "model.get_submodule('head')"),
        ("few = model.state_dict()[r'module.head.bias']", "few = model.state_dict()[r'head.bias']"),
        (
            "few = dict(model.named_parameters())\nfew['module.head.bias'].data.zero_()",
            "few = dict(model.named_parameters())\nfew['head.bias'].data.zero_()",
        ),
    ],
)
def test_other_names_of_the_model(before: str, after: str) -> None:
    assert built(before) == after


@pytest.mark.parametrize(
    "snippet",
    [
        "few = [p for n, p in model.named_parameters() if n.endswith('bias') or n.split('.')[-1] == 'weight']",
        "few = {n.replace('module.', ''): p for n, p in model.named_parameters()}",
        "few = {n[7:] if n.startswith('module.') else n: p for n, p in model.named_parameters()}",
        "few = [p for n, p in model.named_parameters() if n in ('head.bias', 'module.head.bias')]",
        "few = model.state_dict()['head.bias']",
        "few = [p for n, p in model.module.named_parameters() if n.split('.')[0] == 'module.head']",
        "for n, p in model.named_parameters():\n    part = model\n    for one in n.split('.')[:-1]:\n"
        "        part = getattr(part, one)",
    ],
)
def test_who_reads_them_without_it_is_given_them_so(snippet: str) -> None:
    assert "prefix=" not in built(snippet)


@pytest.mark.parametrize(
    ("test", "snippet", "safety"),
    [
        ("torch.cuda.is_available()", "few = [n.split('.')[1] for n, p in model.named_parameters()]", "safe"),
        ("torch.cuda.device_count() > 1", "few = [n[7:] for n, p in model.named_parameters()]", "review"),
        (
            "torch.cuda.device_count() > 1",
            "few = [n.split('.')[1] for n, p in model.named_parameters()]",
            None,
        ),
    ],
)
def test_a_model_that_is_wrapped_at_times(test: str, snippet: str, safety: str | None) -> None:
    net = NET.replace(
        "model = nn.DataParallel(Net())", f"model = Net()\nif {test}:\n    model = nn.DataParallel(model)"
    )
    conversion = convert(build=f"{net}{snippet}\n{SGD}")
    found = [f.safety.value for f in conversion.applied if "names of weights" in f.message]
    assert found == ([safety] if safety is not None else [])


def test_names_of_a_model_that_was_never_wrapped_stay() -> None:
    loop = "few = [p for n, p in model.named_parameters() if n == 'module.head.bias']\n"
    check_noop("build", NET.replace("nn.DataParallel(Net())", "Net()") + loop + SGD, "ACC109")


CHOSEN = """
def chosen(state):
    def wanted(key):
        return {test}
    return {{{key}: w for key, w in state.items() if wanted(key)}}
"""


@pytest.mark.parametrize(
    ("test", "key", "given", "named"),
    [
        ("key in HEADS", "key", "model.state_dict()", True),
        ("key.startswith('module.head')", "key", "model.state_dict()", True),
        ("'bias' in key", "key[7:]", "model.state_dict()", True),
        ("'bias' in key", "key", "model.state_dict()", False),
        ("key in HEADS", "key", "torch.load('net.pt')", False),
    ],
)
def test_a_function_that_is_handed_the_names_is_named(test: str, key: str, given: str, named: bool) -> None:
    conversion = convert(build=NET + CHOSEN.format(test=test, key=key) + SGD, end=f"few = chosen({given})")
    found = [f.message for f in conversion.remaining if f.code == "ACC109"]
    told = "the names of weights begin with `module.` under DataParallel alone: `chosen` reads them with it"
    assert found == [told] * named


HELPER = """\
def groups(net):
    for name, p in net.named_parameters():
        {}
        yield p


def through(model):
    return list(groups(model))
"""


@pytest.mark.parametrize("taken", ["groups", "through"])
@pytest.mark.parametrize(
    ("body", "named"),
    [
        ("_, layer, kind = name.split('.')", True),
        ("if name.startswith('module.head'): continue", True),
        ("if name.endswith('bias'): continue", False),
    ],
)
def test_functions_of_other_modules_are_named(tmp_path: Path, body: str, named: bool, taken: str) -> None:
    (tmp_path / "helpers.py").write_text(HELPER.format(body))
    script = tmp_path / "train.py"
    script.write_text(
        frame(imports=f"from helpers import {taken}", build=f"{NET}few = list({taken}(model))\n{SGD}")
    )
    found = [f.message for f in convert_project(Source.read(script))[0].remaining if f.code == "ACC109"]
    told = "the names of weights begin with `module.` under DataParallel alone: `groups` reads them with it"
    assert found == ([f"{told} (helpers.py, line 2)"] if named else [])


def test_modules_of_a_prepared_model_are_those_of_the_model_itself() -> None:
    end = "few = [m for n, m in model.named_modules() if n == 'module.head']"
    whole = 'accelerator.unwrap_model(model).named_modules(prefix="module")'
    assert place_of(convert(build=NET + SGD, end=end).new_text, "end") == end.replace(
        "model.named_modules()", whole
    )


@pytest.mark.parametrize(("runtime", "kept"), [("accelify", False), ("accelerate", True)])
def test_where_the_wrapper_of_torch_puts_its_own_prefix_they_are_left_to_a_person(
    runtime: str, kept: bool
) -> None:
    end = "few = [p for n, p in model.named_parameters() if n == 'module.head.bias']"
    source = Source.from_text(frame(build=NET + SGD, end=end), PATH)
    text = place_of(convert_source(source, ConvertOptions(runtime=runtime)).new_text, "end")
    assert text.splitlines()[-1] == (end if kept else end.replace("()", '(prefix="module")'))
    assert ("TODO(accelify ACC712)" in text) is kept
