"""Downloads."""

from __future__ import annotations

import pytest

from tests.transforms.support import check_noop, check_transformed

VISION = "from torchvision import datasets\nimport urllib.request"
LATER = "device = torch.device('cuda')"


@pytest.mark.parametrize(
    "snippet",
    [
        "a = datasets.MNIST('d', train=True, download=False)",
        "a = datasets.MNIST('d', train=True)",
        "download = True",
    ],
)
def test_others_stay(snippet: str) -> None:
    check_noop("ready", snippet, "ACC205", imports=VISION, setup=LATER)


@pytest.mark.parametrize(
    "line",
    [
        "a = datasets.MNIST('d', train=True, download=True)",
        "urllib.request.urlretrieve('http://example.org/é', 'x')",
        "a = datasets.CIFAR10(\n    'd',\n    download=True,\n)",
    ],
)
def test_one_process_first(line: str) -> None:
    inner = line.replace("\n", "\n    ")
    check_transformed(
        "ready", line, f"with accelerator.main_process_first():\n    {inner}", imports=VISION, setup=LATER
    )


def test_neighbours_under_one() -> None:
    check_transformed(
        "ready",
        """
        a = datasets.MNIST('d', train=True, download=True)
        b = datasets.MNIST('d', train=False, download=True)
        n = 1
        """,
        """
        with accelerator.main_process_first():
            a = datasets.MNIST('d', train=True, download=True)
            b = datasets.MNIST('d', train=False, download=True)
        n = 1
        """,
        imports=VISION,
        setup=LATER,
    )
