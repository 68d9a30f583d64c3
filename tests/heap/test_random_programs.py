"""What the engine calls proved in random programs, against what several ranks print."""

from __future__ import annotations

import warnings

import pytest
from hypothesis import HealthCheck, assume, given, settings

from accelify.knowledge import Knowledge
from accelify.obligations import Status, validate
from tests.heap.programs import HEAD, programs, run_on, same_figures

KNOWLEDGE = Knowledge()
SIZES = (2, 3)


def figures(text: str) -> dict[int, tuple[Status | None, bool]]:
    """For each line that prints: what the engine says of its figures, and whether they are the original's."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        original, error = run_on(text, 1, seed=1)
        assume(error is None)
        right = dict.fromkeys(original.values, True)
        for size in SIZES:
            printed, error = run_on(text, size, seed=1)
            assume(error is None)
            for line, values in original.values.items():
                right[line] &= line in printed.values and same_figures(values, printed.values[line], size)
    found = {
        one.line: one.status for one in validate(text, None, KNOWLEDGE).obligations if one.demand == "content"
    }
    return {line: (found.get(line), is_right) for line, is_right in right.items()}


@settings(max_examples=150, deadline=None, derandomize=True, suppress_health_check=[*HealthCheck])
@given(programs())
def test_what_is_proved_is_the_originals(text: str) -> None:
    for line, (status, is_right) in figures(text).items():
        assert status is not None, f"line {line} was not reached:\n{text}"
        assert is_right or status is not Status.PROVED, f"line {line} of\n{text}"


TOTAL = HEAD.replace("MODE", "split_batches=True")
EACH = HEAD.replace("MODE", "")
WRONG = {
    "a factor that goes with the round": "for i, (x, y) in enumerate(loader):\n    t += x.sum() * (i + 1)\n",
    "a counter that adds up": "for i, (x, y) in enumerate(loader):\n    t += i\n",
    "a total that adds up": "u = 0.0\nfor x, y in loader:\n    u += x.sum()\n    t += u\n",
    "a number that shrinks": "t = 1.0\nfor x, y in loader:\n    t = t * 0.9 + 1\n",
    "a moving average": "for x, y in loader:\n    t = 0.9 * t + x.sum()\n",
    "a total that begins with something": "t = 1.5\nfor x, y in loader:\n    t += x.sum()\n",
    "a total without the last round": "u = 0.0\nfor x, y in loader:\n    t = u\n    u += x.sum().item()\n",
    "another total's sum": "u = 0.0\nfor x, y in loader:\n    t = u + 5 * x.sum()\n    u += x.sum()\n",
    "products of means": (
        "for x, y in loader:\n"
        "    t += accelerator.reduce(x.mean(), 'mean') * accelerator.reduce(y.mean(), 'mean')\n"
        "t = t / accelerator.num_processes\n"
    ),
    "the largest of all rows": (
        "for x, y in loader:\n    t += accelerator.gather(x).max() / accelerator.num_processes\n"
    ),
    "means of gathered rows that they choose": (
        "for x, y in loader:\n    g = accelerator.gather(x)\n    t += g[g > 0.5].mean() / accelerator.num_processes\n"
    ),
    "twice the total": "for x, y in loader:\n    t += x.sum()\n    t += t\n",
}


@pytest.mark.parametrize("how", ["sum", "mean"])
@pytest.mark.parametrize("kind", WRONG)
def test_what_no_reduction_makes_the_originals(kind: str, how: str) -> None:
    text = f"{EACH}t = 0.0\n{WRONG[kind]}u = accelerator.reduce(t, {how!r})\naccelerator.print(u)\n"
    assert list(figures(text).values()) == [(Status.NAMED, False)]


RIGHT = {
    "a total": ("for x, y in loader:\n    t += x.sum()\n", "accelerator.reduce(t, 'sum')"),
    "an average over the rounds": (
        "for x, y in loader:\n    t += x.mean()\n",
        "accelerator.reduce(t, 'mean') / len(loader)",
    ),
    "by the counter": (
        "for i, (x, y) in enumerate(loader):\n    t += x.mean()\n",
        "accelerator.reduce(t, 'mean') / (i + 1)",
    ),
    "a counter from 1": (
        "for i, (x, y) in enumerate(loader, 1):\n    t += x.mean()\n",
        "accelerator.reduce(t, 'mean') / i",
    ),
    "parts of the average": (
        "for x, y in loader:\n    t += x.mean() / len(loader)\n",
        "accelerator.reduce(t, 'mean')",
    ),
    "a total next to nothing": (
        "for x, y in loader:\n    t += x.sum()\n",
        "accelerator.reduce(t, 'sum') / (1 + 1e-12)",
    ),
    "an object's average": (
        "meter = Meter()\nfor x, y in loader:\n    meter.update(x.mean(), len(x))\n",
        "accelerator.reduce(meter.sum, 'sum') / accelerator.reduce(meter.count, 'sum')",
    ),
    "rows that are gathered": (
        "n = 0\nfor x, y in loader:\n    g = accelerator.gather(x)\n    t += (g > 0.5).sum()\n    n += len(g)\n",
        "t / n",
    ),
    "gathered rows that they choose": (
        "n = 0\n"
        "for x, y in loader:\n"
        "    g = accelerator.gather(x)\n"
        "    c = g[g > 0.5]\n"
        "    t += c.sum()\n"
        "    n += len(c)\n",
        "t / n",
    ),
    "a list of gathered rows that they choose": (
        "l = []\nfor x, y in loader:\n    g = accelerator.gather(x)\n    l.append(g[g > 0.5])\n",
        "torch.cat(l).mean() + len(torch.cat(l))",
    ),
    "a list": (
        "l = []\nfor x, y in loader:\n    l.append(x.mean())\n",
        "accelerator.reduce(sum(l), 'mean') / len(l)",
    ),
    "an array of zeros": (
        "t = torch.zeros(2, dtype=torch.float64)\nfor x, y in loader:\n    t += x.sum()\n",
        "accelerator.reduce(t, 'sum')",
    ),
}


@pytest.mark.parametrize("kind", RIGHT)
def test_what_a_reduction_makes_the_originals(kind: str) -> None:
    loop, figure = RIGHT[kind]
    assert list(figures(f"{EACH}t = 0.0\n{loop}accelerator.print({figure})\n").values()) == [
        (Status.PROVED, True)
    ]


OF_ROWS = {
    "a row": ("r.sum()", (Status.PROVED, True)),
    "a row by its number": ("g[j].sum()", (Status.PROVED, True)),
    "a row in which some is written": ("c.sum()", (Status.PROVED, True)),
    "the number of a row": ("j", (Status.NAMED, False)),
    "the number of a row in its batch and before it": ("i * 6 + j", (Status.NAMED, False)),
    "a row by how many rounds there are": ("r.sum() / len(loader)", (Status.NAMED, False)),
}


@pytest.mark.parametrize("kind", OF_ROWS)
def test_what_is_shown_of_each_gathered_row(kind: str) -> None:
    figure, expected = OF_ROWS[kind]
    loop = "for i, (x, y) in enumerate(loader):\n    g = accelerator.gather(2 * x)\n    for j, r in enumerate(g):\n"
    row = "        c = r.clone()\n        c[c > 0.5] = 0.5 * c[c > 0.5]\n"
    assert list(figures(f"{EACH}{loop}{row}        accelerator.print({figure})\n").values()) == [expected]


def test_shares_of_batches_add_up() -> None:
    text = f"{TOTAL}t = 0.0\nfor x, y in loader:\n    t += x.sum()\naccelerator.print(accelerator.reduce(t, 'sum'))\n"
    assert list(figures(text).values()) == [(Status.PROVED, True)]
    text = text.replace("x.sum()", "x.sum() ** 2")
    assert list(figures(text).values()) == [(Status.NAMED, False)]


LEFT = {
    "a flag that some rounds do not set": (
        "t = False\nfor x, y in loader:\n    if x.sum() > 3:\n        continue\n    t = x.sum() > -9\n",
        Status.NAMED,
    ),
    "what is set after a question of all ranks": (
        "t = accelerator.process_index\nfor i in range(2):\n    if flag:\n        break\n    t = 1.0\n",
        Status.NAMED,
    ),
    "a total of some rounds": (
        "for x, y in loader:\n    if not flag:\n        continue\n    t += x.sum()\nt = accelerator.reduce(t, 'sum')\n",
        Status.PROVED,
    ),
    "what a function sets after it could return": (
        "class A: pass\na = A()\na.t = accelerator.process_index\n"
        "def set():\n    if flag:\n        return\n    a.t = 1.0\nset()\nt = a.t\n",
        Status.NAMED,
    ),
    "what a later round sets again": (
        "for i in range(3):\n    t = 0.0\n    if i == 1:\n        continue\n    t = 1.0\n",
        Status.PROVED,
    ),
}


@pytest.mark.parametrize("kind", LEFT)
def test_what_stands_there_on_a_way_that_left_early(kind: str) -> None:
    body, expected = LEFT[kind]
    text = f"{EACH}flag = len(dataset) > 5\nt = 0.0\n{body}accelerator.print(t)\n"
    ((status, is_right),) = figures(text).values()
    assert status is expected
    assert is_right or expected is Status.NAMED
