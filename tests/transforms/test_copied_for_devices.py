"""What is made once for each GPU of DataParallel."""

from __future__ import annotations

import pytest

from tests.transforms.support import check_noop, check_transformed

SETUP = "import argparse\nargs = argparse.ArgumentParser().parse_args()\nn_gpu, times = args.gpus, 3\nids = [0, 1]"
SGD = "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)"


def built(ids: str) -> str:
    return f"model = nn.DataParallel(nn.Linear(4, 2), {ids}).cuda()\n{SGD}"


@pytest.mark.parametrize(
    ("build", "snippet"),
    [
        (built("ids"), "k = y.repeat(times, 1, 1)"),
        (built("ids"), "k = y.repeat(n_gpu)"),
        (built("ids"), "k = 'ab'.replace('a', 'b')"),
        (f"model = nn.Linear(4, 2).cuda()\n{SGD}", "k = y.repeat(torch.cuda.device_count(), 1)"),
    ],
)
def test_other_copies_stay(build: str, snippet: str) -> None:
    check_noop("batch", snippet, "ACC125", setup=SETUP, build=build)


@pytest.mark.parametrize(
    ("ids", "count"),
    [
        ("list(range(n_gpu))", "n_gpu"),
        ("device_ids=range(args.gpus)", "args.gpus"),
        ("device_ids=ids", "len(ids)"),
        ("ids", "torch.cuda.device_count()"),
    ],
)
@pytest.mark.parametrize("copying", ["repeat({}, 1, 1)", "expand({}, -1, -1)"])
def test_one_process_has_one(ids: str, count: str, copying: str) -> None:
    check_transformed(
        "batch",
        f"k = y.unsqueeze(0).{copying.format(count)}",
        f"k = y.unsqueeze(0).{copying.format('1')}",
        setup=SETUP,
        build=built(ids),
    )
