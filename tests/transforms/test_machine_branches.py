"""What the script asks of the machine, branch by branch."""

from __future__ import annotations

import pytest

from tests.transforms.support import codes, convert

DEVICE = "device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')"
CHOSEN = "accelerator = Accelerator()\ndevice = accelerator.device"
SGD = "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)"


NESTED = """\
if torch.cuda.is_available():
    device = torch.device("cuda")
elif torch.backends.mps.is_available():
    {asked}
    if {test}:
        device = torch.device("mps")
    else:
        device = torch.device("cpu")
else:
    device = torch.device("cpu")"""


@pytest.mark.parametrize(
    ("asked", "test"),
    [
        ('major, minor = map(int, torch.__version__.split(".")[:2])', "(major, minor) >= (2, 9)"),
        ("print('no GPU')", "torch.__version__ >= '2.9'"),
    ],
)
def test_what_one_branch_of_the_machine_asks_is_nobody_s_wish(asked: str, test: str) -> None:
    """Another machine never comes to the test: on it, neither its names nor its answer count."""
    text = convert(setup=NESTED.format(asked=asked, test=test)).new_text
    assert "accelerator = Accelerator()\n" in text
    flag = (
        "if torch.cuda.is_available():\n    print('GPU')\n    if {}:\n        device = torch.device('cpu')\n"
    )
    flag += "    else:\n        device = torch.device('cuda')\nelse:\n    device = torch.device('cpu')"
    setup = "import argparse\nargs = argparse.ArgumentParser().parse_args()\n"
    assert "Accelerator(cpu=args.no_cuda)" in convert(setup=setup + flag.format("args.no_cuda")).new_text


BRANCH = """\
import argparse
args = argparse.ArgumentParser().parse_args()
{before}if args.gpus:
    count = int(args.gpus)
    if count > 0:
        device = torch.device("cuda")
    else:
        device = torch.device("cpu")
{other}"""


@pytest.mark.parametrize("other", ["", "else:\n    device = torch.device('cpu')"])
def test_a_name_that_only_one_branch_sets_is_not_read(other: str) -> None:
    found = convert(setup=BRANCH.format(before="", other=other))
    assert "accelerator = Accelerator()\n" in found.new_text
    assert "ACC410" in codes(found)


@pytest.mark.parametrize(
    ("before", "other", "cpu"),
    [
        ("count = 0\n", "", "count <= 0"),
        ("", "else:\n    count = 0\n    device = torch.device('cpu')", "not (args.gpus and count > 0)"),
        ("", "else:\n    raise SystemExit", "count <= 0"),
        ("", "else:\n    import sys\n    sys.exit()", "count <= 0"),
    ],
)
def test_a_name_that_every_branch_sets_is_read(before: str, other: str, cpu: str) -> None:
    found = convert(setup=BRANCH.format(before=before, other=other))
    assert f"Accelerator(cpu={cpu})" in found.new_text
    assert "ACC410" not in codes(found)


KEPT = """\
class Reader:
    def __init__(self):
        self.gpu = torch.cuda.is_available()

class Trainer:
    def __init__(self):
        self.gpu = {gpu}
        self.device = torch.device('cuda' if self.gpu else 'cpu')
        self.model = nn.Linear(4, 2).to(self.device)

reader, trainer = Reader(), Trainer()
model = trainer.model
"""


@pytest.mark.parametrize(("gpu", "asked"), [("torch.cuda.is_available()", False), ("input() == 'gpu'", True)])
def test_a_flag_that_several_classes_keep_asks_the_machine_alike(gpu: str, asked: bool) -> None:
    found = convert(build=KEPT.format(gpu=gpu) + SGD)
    assert ("Accelerator(cpu=" in found.new_text or "ACC410" in codes(found)) is asked
