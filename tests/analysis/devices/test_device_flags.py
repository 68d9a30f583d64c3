"""Device choices and the `cpu=` argument that keeps their flags."""

from __future__ import annotations

import pytest

from accelify.analysis.devices.device_flags import Devices
from accelify.analysis.statements.negation import negated
from tests.analysis.support import model_of

CHOICE = "device = torch.device('cuda' if {} else 'cpu')"


@pytest.mark.parametrize(
    ("body", "cpu"),
    [
        (CHOICE.format("torch.cuda.is_available()"), None),
        (CHOICE.format("torch.cuda.device_count() > 0"), None),
        (CHOICE.format("args.cuda"), "not args.cuda"),
        (CHOICE.format("not args.cpu"), "args.cpu"),
        (CHOICE.format("torch.cuda.is_available() and not args.no_cuda"), "args.no_cuda"),
        (CHOICE.format("args.cuda or torch.cuda.is_available()"), None),
        (CHOICE.format("args.cuda and args.gpu"), "not (args.cuda and args.gpu)"),
        (CHOICE.format("args.gpu >= 0"), "args.gpu < 0"),
        (CHOICE.format("args.device == 'gpu'"), "args.device != 'gpu'"),
        ("use = not args.no_cuda and torch.cuda.is_available()\n" + CHOICE.format("use"), "args.no_cuda"),
        ("use = torch.cuda.is_available()\n" + CHOICE.format("use"), None),
        ("use = True if torch.cuda.is_available() else False\n" + CHOICE.format("use"), None),
        ("args.cuda = not args.no_cuda and torch.cuda.is_available()\n" + CHOICE.format("args.cuda"), "args.no_cuda"),
        ("args.cuda = True if args.cuda == 'yes' else False\n" + CHOICE.format("args.cuda"), "not args.cuda"),
        ("args.cuda = args.cuda == 'yes' and args.gpu\n" + CHOICE.format("args.cuda"), "not args.cuda"),
        ("args.cuda = args.where == 'gpu'\n" + CHOICE.format("args.cuda"), "args.where != 'gpu'"),
        ("USE = True\n" + CHOICE.format("USE"), "not USE"),
        ("device = torch.device('cpu' if args.no_cuda else 'cuda')", "args.no_cuda"),
        ("device = torch.device('cuda') if args.gpu is not None else torch.device('cpu')", "args.gpu is None"),
        ("device = torch.device(f'cuda:{args.gpu}' if torch.cuda.is_available() else 'cpu')", None),
        ("device = torch.device('cuda:%d' % args.gpu if args.gpu >= 0 else 'cpu')", "args.gpu < 0"),
        ("device = torch.device(args.device)", 'str(args.device) == "cpu"'),
        ("device = torch.device('cuda')", None),
        ("device = torch.device('cpu')", "True"),
        ("device = 'cpu'", "True"),
        ("device = torch.accelerator.current_accelerator()", None),
        ("args.device = torch.device('cuda' if args.cuda else 'cpu')", "not args.cuda"),
    ],
)  # fmt: skip
def test_one_assignment(body: str, cpu: str | None) -> None:
    (found,) = Devices(model_of(body)).assignments
    assert found.cpu == cpu
    assert found.whole is None
    assert found.names == (frozenset() if cpu in (None, "True") else {"USE"} if "USE" in body else {"args"})


@pytest.mark.parametrize(
    ("body", "cpu"),
    [
        ("if args.cpu:\n    device = 'cpu'\nelse:\n    device = 'cuda'", "args.cpu"),
        ("if args.gpu >= 0:\n    device = torch.device('cuda', args.gpu)\nelse:\n    device = torch.device('cpu')",
         "args.gpu < 0"),
    ],
)  # fmt: skip
def test_a_choice_in_branches(body: str, cpu: str) -> None:
    found = Devices(model_of(body)).assignments
    assert {a.cpu for a in found} == {cpu}
    assert len({a.whole for a in found} - {None}) == 1


ONE_OF = "'cuda:1' if args.gpu < torch.cuda.device_count() else 'cuda:0'"
EARLY = """\
def pick(args, number):
    if {}:
        return torch.device('cpu')
    if torch.cuda.is_available():
        return torch.device(f'cuda:{{number}}')
    return torch.device('cpu')
device = pick(args, args.gpu)"""


@pytest.mark.parametrize(
    ("body", "cpu"),
    [
        (f"if args.cuda and torch.cuda.is_available():\n    device = {ONE_OF}\nelse:\n    device = 'cpu'",
         "not args.cuda"),
        (f"device = ({ONE_OF}) if args.cuda else 'cpu'", "not args.cuda"),
        (f"device = 'cpu' if args.cpu else ({ONE_OF}) if torch.cuda.is_available() else 'cpu'", "args.cpu"),
        ("if torch.cuda.is_available():\n    if args.cpu:\n        device = 'cpu'\n    else:\n"
         "        device = 'cuda'\nelse:\n    device = 'cpu'", "args.cpu"),
        ("device = 'cuda:0' if args.cuda else 'cpu'\nif args.cuda and args.gpu > 0:\n    device = 'cuda:1'",
         "not (args.cuda and args.gpu > 0) and not args.cuda"),
        (EARLY.format("args.cpu"), "args.cpu"),
        (EARLY.format("not args.cuda"), "not args.cuda"),
        (EARLY.format("args.where == 'host'"), "args.where == 'host'"),
        (EARLY.format("number < 0"), "args.gpu < 0"),
        ("device = {True: 'cuda', False: 'cpu'}[args.cuda]", "not args.cuda"),
        ("device = ('cpu', 'cuda')[args.cuda and torch.cuda.is_available()]", "not args.cuda"),
        ("device = {'host': 'cpu', 'gpu': 'cuda'}[args.where]", 'args.where == "host"'),
        ("device = args.cuda and torch.cuda.is_available() and 'cuda' or 'cpu'", "not args.cuda"),
        ("device = 'cuda'\nif __name__ == '__main__':\n    device = 'cuda' if args.where == 'gpu' else 'cpu'",
         "args.where != 'gpu'"),
        ("device = args.device or 'cpu'", 'not (args.device and str(args.device) != "cpu")'),
        ("if args.device == 'auto':\n    device = 'cuda' if torch.cuda.is_available() else 'cpu'\n"
         "else:\n    device = args.device", 'str(args.device) == "cpu"'),
        ("if args.device is None:\n    args.device = 'cuda' if torch.cuda.is_available() else 'cpu'",
         'str(args.device) == "cpu"'),
        ("match args.where:\n    case 'gpu' | 'cuda':\n        device = torch.device('cuda')\n    case _:\n"
         "        device = torch.device('cpu')", "args.where != 'gpu' and args.where != 'cuda'"),
    ],
)  # fmt: skip
def test_choices_within_choices(body: str, cpu: str) -> None:
    found = next((a.cpu for a in Devices(model_of(body)).assignments if a.cpu), "")
    assert found.replace('"', "'") == cpu.replace('"', "'")


@pytest.mark.parametrize(
    ("test", "cpu"), [("args.cuda", "not args.cuda"), ("torch.cuda.is_available()", None)]
)
def test_a_default_and_an_override(test: str, cpu: str | None) -> None:
    found = Devices(model_of(f"device = 'cpu'\nif {test}:\n    device = 'cuda'")).assignments
    assert [a.cpu for a in found] == [cpu, cpu]
    assert [a.whole for a in found] == [None, None]


@pytest.mark.parametrize("body", ["device = 3", "name = 'resnet'", "x = torch.zeros(3)"])
def test_what_chooses_no_device(body: str) -> None:
    assert Devices(model_of(body)).assignments == []


@pytest.mark.parametrize(
    ("text", "opposite"),
    [
        ("a", "not a"), ("a == b", "a != b"), ("a < b", "a >= b"), ("a is None", "a is not None"),
        ("a in b", "a not in b"), ("a and b", "not (a and b)"), ("True", "False"), ("f(x)", "not f(x)"),
        ("a < b < c", "not (a < b < c)"),
    ],
)  # fmt: skip
def test_negated(text: str, opposite: str) -> None:
    assert negated(text) == opposite


def test_a_double_negation_goes() -> None:
    assert negated(negated("a.b")) == "a.b"
