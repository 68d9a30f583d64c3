"""Accumulation windows and mixed precision."""

from __future__ import annotations

import pytest

from accelify.analysis.schedules.mixed_precision import mixed_precision
from accelify.analysis.schedules.windows import find_window
from tests.analysis.support import LOADER, MODEL, OPTIMIZER, model_of

LOOP = """
for i, (x, y) in enumerate(loader{start}):
    loss = F.mse_loss(model(x), y) / {n}
    loss.backward()
    if {test}:
        optimizer.step()
        optimizer.zero_grad()
"""


def window(test: str, n: str = "4", start: str = "") -> tuple[str, bool] | None:
    script = model_of(MODEL + OPTIMIZER + LOADER + LOOP.format(test=test, n=n, start=start))
    found = find_window(script)
    return None if isinstance(found, str) else (found.steps, found.flushes)


@pytest.mark.parametrize(
    ("test", "start", "wanted"),
    [
        ("(i + 1) % 4 == 0", "", ("4", False)),
        ("i % 4 == 0", ", 1", ("4", False)),
        ("i % 4 == 0", ", start=1", ("4", False)),
        ("(i + 1) % 4 == 0 or i + 1 == len(loader)", "", ("4", True)),
        ("i % 4 == 0", "", None),
        ("(i + 1) % 4 == 0", ", 1", None),
        ("(i + 1) % 4 == 1", "", None),
        ("(i + 1) % 8 == 0", "", None),
        ("(i + 1) % 4 == 0 or done", "", None),
        ("(i + 1) % 4 == 0 and ready", "", None),
    ],
)
def test_windows(test: str, start: str, wanted: tuple[str, bool] | None) -> None:
    assert window(test, start=start) == wanted


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        (
            "(i + 1) % 4",
            "i % 4",
            "the condition of the step is not `(i + 1) % n == 0`, with a name or a number for n",
        ),
        (" / 4", "", "the loss is not divided by `4` once, in this loop"),
        (
            "enumerate(loader)",
            "zip(loader, loader)",
            "the loop around the backward is no `for i, batch in enumerate(loader)`",
        ),
        ("loss.backward()", "loss.backward()\n    loss.backward()", "there are 2 backward passes"),
        (
            "    if (i",
            "    optimizer.zero_grad()\n    if (i",
            "gradients are set to zero outside of the `if` around the step",
        ),
    ],
)
def test_what_another_form_lacks(old: str, new: str, why: str) -> None:
    text = LOOP.format(test="(i + 1) % 4 == 0", n="4", start="").replace(old, new, 1)
    assert find_window(model_of(MODEL + OPTIMIZER + LOADER + text)) == why


def test_the_size_is_kept_as_it_is_written() -> None:
    assert window("(i + 1) % args.steps == 0", "args.steps") == ("args.steps", False)


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        ("x = 1", None),
        ("with torch.autocast('cuda'):\n    pass", '"fp16" if torch.cuda.is_available() else "no"'),
        ("with torch.cuda.amp.autocast():\n    pass", '"fp16" if torch.cuda.is_available() else "no"'),
        ("s = torch.cuda.amp.GradScaler()", '"fp16" if torch.cuda.is_available() else "no"'),
        ("with torch.autocast('cpu', dtype=torch.bfloat16):\n    pass", '"bf16"'),
        ("with torch.cuda.amp.autocast(enabled=args.amp):\n    pass",
         '"fp16" if args.amp and torch.cuda.is_available() else "no"'),
        ("with torch.autocast('cuda', dtype=kind):\n    pass", None),
    ],
)  # fmt: skip
def test_mixed_precision(body: str, wanted: str | None) -> None:
    found = mixed_precision(model_of(body))
    assert (found and found[0]) == wanted
