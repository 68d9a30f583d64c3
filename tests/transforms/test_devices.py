"""Device choices, moves and selections."""

from __future__ import annotations

import pytest

from tests.transforms.support import check_noop, check_transformed, codes, convert

DEVICE = "device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')"
CHOSEN = "accelerator = Accelerator()\ndevice = accelerator.device"
SGD = "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)"


@pytest.mark.parametrize(
    "snippet",
    [
        "x = x.double()\ny = y.to(torch.int64)",
        "x = x.to(dtype=torch.float64)",
        "noise = torch.randn(x.size(0), 4, device=device)",
        "noise = torch.randn(x.size(0), 4).to(device)",
        "noise = x.new_zeros(3)",
        "a = x.cpu().numpy()",
        "where = x.device",
    ],
)
def test_what_is_right_already_stays(snippet: str) -> None:
    check_noop("batch", snippet, "ACC104", "ACC113", setup=DEVICE)


@pytest.mark.parametrize(
    "snippet",
    [
        DEVICE,
        "device = 'cuda' if torch.cuda.is_available() else 'cpu'",
        "device = 'cuda:0'",
        "device = torch.device('cuda', 0)",
        "if torch.cuda.is_available():\n    device = torch.device('cuda')\nelse:\n    device = torch.device('cpu')",
    ],
)
def test_choices(snippet: str) -> None:
    check_transformed("setup", snippet, CHOSEN)


def test_the_cpu_stays_the_cpu() -> None:
    after = "accelerator = Accelerator(cpu=True)\ndevice = accelerator.device"
    check_transformed("setup", "device = torch.device('cpu')", after)


@pytest.mark.parametrize(
    "snippet",
    [
        "x, y = x.to(device), y.to(device)",
        "x = x.cuda()\ny = y.cuda()",
        "x = x.to(device, non_blocking=True)",
        "x = x.cuda(non_blocking=True)  # é",
        "if torch.cuda.is_available():\n    x, y = x.cuda(), y.cuda()",
    ],
)
def test_moves_of_batches_go(snippet: str) -> None:
    check_transformed("batch", snippet, "", setup=DEVICE)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("x = x.view(-1, 4).to(device)", "x = x.view(-1, 4)"),
        ("noise = torch.randn(3).cuda()", "noise = torch.randn(3).to(accelerator.device)"),
        ("noise = (x + 1).cuda()", "noise = (x + 1).to(accelerator.device)"),
        ("noise = torch.randn(3, device='cuda')", "noise = torch.randn(3, device=accelerator.device)"),
        ("é = torch.ones(2).cuda(0); n = 'ü'", "é = torch.ones(2).to(accelerator.device); n = 'ü'"),
    ],
)
def test_moves_that_leave_something(before: str, after: str) -> None:
    check_transformed("batch", before, after, setup=DEVICE)


@pytest.mark.parametrize(
    "model",
    [
        "model = nn.Linear(4, 2).to(device)",
        "model = nn.Linear(4, 2)\nmodel.cuda()",
        "model = nn.Linear(4, 2)\nmodel = model.cuda()",
        "model = nn.Linear(4, 2)\nmodel.to(device)",
        "model = nn.Linear(4, 2)\nmodel.to(device);",
        "model = nn.Linear(4, 2)\nif torch.cuda.is_available():\n    model = model.cuda()",
    ],
)
def test_models_are_placed_by_prepare(model: str) -> None:
    check_transformed("build", f"{model}\n{SGD}", f"model = nn.Linear(4, 2)\n{SGD}", setup=DEVICE)


@pytest.mark.parametrize(
    ("there", "back"),
    [
        ("model.cpu()", "model.to(device)"),
        ("model.eval().cpu()", "model.to(device).train()"),
        ("model = model.to('cpu')", "model = model.to(device)"),
    ],
)
def test_a_model_that_was_taken_to_the_cpu_comes_back(there: str, back: str) -> None:
    conversion = convert(build=f"model = nn.Linear(4, 2)\n{SGD}", setup=DEVICE, epoch=f"{there}\n{back}")
    assert conversion.status == "converted", conversion.reason
    assert f"{there}\n    {back}\n" in conversion.new_text


def test_a_criterion_is_moved_still() -> None:
    check_transformed(
        "ready",
        "criterion = nn.CrossEntropyLoss().cuda()",
        "criterion = nn.CrossEntropyLoss().to(accelerator.device)",
        setup=DEVICE,
        loss="loss = criterion(model(x), y)",
    )


def test_selections() -> None:
    check_transformed("setup", f"{DEVICE}\ntorch.cuda.set_device(1)", CHOSEN)
    conversion = convert(setup=f"os.environ['CUDA_VISIBLE_DEVICES'] = '1'\n{DEVICE}")
    assert "os.environ['CUDA_VISIBLE_DEVICES'] = '1'" in conversion.new_text
    assert "ACC113" in codes(conversion)


def test_the_wish_for_a_gpu_is_read_where_models_are_made() -> None:
    setup = """
args = argparse.Namespace(gpu=None)
args.cuda = args.gpu is not None
class Data:
    def __init__(self, cuda):
        self.cuda = cuda
    def get(self):
        x = torch.zeros(4)
        return x.cuda() if self.cuda else x
"""
    conversion = convert(
        imports="import argparse",
        setup=setup,
        build=f"model = nn.Linear(4, 2)\nif args.cuda:\n    model.cuda()\n{SGD}",
    )
    assert conversion.status == "converted", conversion.reason
    assert "Accelerator(cpu=args.gpu is None)" in conversion.new_text


def test_what_the_machine_lacks_is_no_wish() -> None:
    setup = """args = argparse.Namespace(no_cuda=False)
device = "cpu" if (not torch.cuda.is_available() or args.no_cuda) else "cuda:0"
"""
    conversion = convert(
        imports="import argparse", setup=setup, build=f"model = nn.Linear(4, 2).to(device)\n{SGD}"
    )
    assert "Accelerator(cpu=args.no_cuda)" in conversion.new_text


def test_both_branches_of_a_flag_say_nothing_once_the_moves_are_gone() -> None:
    check_transformed(
        "batch",
        "if use_cuda:\n    x, y = x.cuda(), y.cuda()\nelse:\n    x, y = x.cpu(), y.cpu()",
        "",
        setup="use_cuda = torch.cuda.is_available()",
    )


def test_a_choice_in_both_branches_is_made_once() -> None:
    check_transformed(
        "setup",
        """
        if torch.cuda.is_available():
            device = torch.device("cuda")
            torch.backends.cudnn.benchmark = True
        else:
            device = torch.device("cpu")
        """,
        """
        accelerator = Accelerator()
        device = accelerator.device
        if torch.cuda.is_available():
            torch.backends.cudnn.benchmark = True
        """,
    )


def test_of_two_parts_the_one_that_stays() -> None:
    check_transformed("batch", "x, y = x.cuda(), torch.clamp(y, 0)", "y = torch.clamp(y, 0)")


def test_the_move_of_an_argument_stays_one() -> None:
    check_transformed(
        "ready",
        """
        weight = torch.ones(2)
        if torch.cuda.is_available():
            criterion = nn.CrossEntropyLoss(weight.cuda())
        else:
            criterion = nn.CrossEntropyLoss(weight)
        """,
        """
        weight = torch.ones(2)
        criterion = nn.CrossEntropyLoss(weight.to(accelerator.device))
        """,
        setup=DEVICE,
        loss="loss = criterion(model(x), y)",
    )
