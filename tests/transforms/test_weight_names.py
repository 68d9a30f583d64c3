"""Names of weights that were read with the `module.` of a DataParallel."""

from __future__ import annotations

import pytest

from accelify.conversion import ConvertOptions
from accelify.convert import convert_source
from accelify.source import Source
from tests.transforms.support import PATH, check_noop, convert, frame, place_of

NET = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(4, 4), nn.Linear(4, 2)

    def forward(self, x):
        return self.head(self.body(x))

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
        "few = {{n[7:]: p for n, p in {}}}",
        "few = [pair[1] for pair in list({}) if 'module.head' in pair[0]]",
        "for i, (n, p) in enumerate({}):\n    p.requires_grad = n.startswith(('module.head', 'module.neck'))",
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
            "few = [m for n, m in model.named_modules() if n == 'module.head']",
            "few = [m for n, m in model.named_modules(prefix=\"module\") if n == 'module.head']",
        ),
        (
            "first = model.state_dict()['module.head.bias']",
            "first = model.state_dict(prefix=\"module.\")['module.head.bias']",
        ),
        (
            "every = dict(model.named_parameters())\nfirst = every['module.head.bias']",
            "every = dict(model.named_parameters(prefix=\"module\"))\nfirst = every['module.head.bias']",
        ),
        (
            "means = {f'module.{n}': 1 for n in ('head', 'body')}\n"
            "few = [m for n, m in model.named_modules() if n in means]",
            "means = {f'module.{n}': 1 for n in ('head', 'body')}\n"
            'few = [m for n, m in model.named_modules(prefix="module") if n in means]',
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
        "means = {'head': 1, 'body': 1}\nfew = [means[n] for n, m in model.named_modules() if n in means]",
        "means = {n.replace('module.', ''): 1 for n in names}\n"
        "few = [means[n] for n, m in model.named_modules() if n in means]",
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
