"""Evaluations that ask one question of each batch: their batches are not put together."""

from __future__ import annotations

import pytest

from accelify.analysis.metrics.evaluation import evaluation_loops
from tests.analysis.support import LOADER, LOOP, MODEL, OPTIMIZER, model_of

START = (
    "import numpy as np\n" + MODEL + OPTIMIZER + LOADER + "other = DataLoader(rest, batch_size=5)\n" + LOOP
)


def problem_of(*lines: str) -> str | None:
    body = "".join(f"    {line}\n" for line in lines)
    text = f"{START}right = wrong = 0\nfound = []\nfor x, y in other:\n{body}print(right / (right + wrong), found)\n"
    (loop,) = evaluation_loops(model_of(text))
    return loop.problem


@pytest.mark.parametrize(
    "lines",
    [
        ("scores = model(x).cpu().numpy()", "if np.argmax(scores) == 0:", "    right += 1"),
        ("scores = model(x)", "best = scores.argmax().item()", "if best == 0:", "    right += 1"),
        ("scores = model(x)", "right += int(torch.argmax(scores) == 0)"),
        ("scores = model(x)", "found.append((scores.max() > 0).item())"),
        ("scores = model(x)", "hit = (scores.argmax(1) == y).all()", "if hit:", "    right += 1"),
        ("scores = model(x)", "if seen:", "    if scores.mean() > 0.5:", "        found.append(1)"),
        ("scores = model(x)", "right += (scores.argmax() == y).sum()"),
        ("scores = model(x)", "best = scores.argmax()", "right += torch.sum(best == y)"),
        ("scores = model(x)", "right += 1 if (scores.argmax(1) == y).sum() > 3 else 0"),
    ],
)
def test_an_answer_of_all_rows(lines: tuple[str, ...]) -> None:
    problem = problem_of(*lines)
    assert "is one answer for a whole batch" in (problem or "")


@pytest.mark.parametrize(
    "lines",
    [
        ("scores = model(x)", "right += (scores.argmax(1) == y).sum().item()"),
        ("scores = model(x).cpu().numpy()", "right += int(np.sum(np.argmax(scores, axis=1) == 0))"),
        ("scores = model(x)", "right += (scores > scores.mean(1, keepdim=True)).sum()"),
        ("scores = model(x)", "for row in scores:", "    if row.argmax() == 0:", "        right += 1"),
        ("scores = model(x)", "right += sum(int(row.argmax() == 0) for row in scores)"),
        (
            "scores = model(x)",
            "if torch.isnan(scores).any():",
            "    print('NaN')",
            "right += (scores > 0).sum()",
        ),
        ("scores = model(x)", "best = scores.max(1)[1]", "right += (best == y).sum()", "wrong += len(y)"),
    ],
)
def test_answers_of_single_rows(lines: tuple[str, ...]) -> None:
    assert problem_of(*lines) is None
