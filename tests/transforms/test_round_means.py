"""Means over the rounds of an evaluation: which are named (tests/distributed says by how much they differ)."""

from __future__ import annotations

import pytest

from accelify.conversion import Conversion, ConvertOptions
from accelify.convert import convert_source
from accelify.findings import Severity
from accelify.source import Source
from tests.transforms.round_means import BY_CALLER, BY_SAMPLES, OVER_ROUNDS, script
from tests.transforms.support import PATH, convert, frame


def _converted(text: str, batch_size: str = "per-process") -> Conversion:
    found = convert_source(Source(PATH, text), ConvertOptions(batch_size=batch_size))
    assert found.status == "converted", found.reason
    assert "gather_for_metrics" in found.new_text
    return found


def _notes(found: Conversion) -> list[tuple[int, str]]:
    notes = [f for f in found.remaining if f.code == "ACC309"]
    assert all(f.severity == Severity.INFO and not f.fixable for f in notes)
    return [(f.line, f.message) for f in notes]


@pytest.mark.parametrize("parts", [*BY_SAMPLES.values()], ids=BY_SAMPLES)
def test_means_over_samples_are_silent(parts):
    assert not _notes(_converted(script(*parts)))


@pytest.mark.parametrize("case", [*OVER_ROUNDS, *BY_CALLER])
def test_means_over_rounds_are_named_once_at_what_adds_to_them(case):
    parts = {**OVER_ROUNDS, **BY_CALLER}[case]
    text = script(*parts)
    line = next(n for n, s in enumerate(text.splitlines(), 1) if s.strip() == parts[1])
    notes = _notes(_converted(text))
    assert [n for n, _ in notes] == [line]
    assert "--batch-size total" in notes[0][1]
    assert not _notes(_converted(text, "total"))


EACH = """
figures = []
for a, b in test_loader:
    output = model(a)
    n = b.size(0)
    rows, width = output.shape
    heads = [output, output]
    for {each}:
        figures.append({one}.mean().item())
print(np.mean(figures))
"""


@pytest.mark.parametrize(
    ("each", "one", "named"),
    [
        ("k in range(len(b))", "(output[k] - b[k])", False),
        ("k in range(b.shape[0])", "(output[k] - b[k])", False),
        ("k in range(n)", "(output[k] - b[k])", False),
        ("k in range(rows)", "(output[k] - b[k])", False),
        ("k in range(width)", "(output[:, k] - b)", True),
        ("row, wanted in zip(output, b)", "(row - wanted)", False),
        ("k, (row, wanted) in enumerate(zip(output, b))", "(row - wanted)", False),
        ("k in range(2)", "(output[:, k] - b)", True),
        ("k in np.unique(b.cpu())", "(output[b == k])", True),
        ("head, weight in zip(heads, [1, 2])", "(weight * (head - b[:, None]))", True),
    ],
)
def test_means_of_single_samples_are_silent(each: str, one: str, named: bool) -> None:
    found = convert(imports="import numpy as np", epoch=EACH.format(each=each, one=one))
    assert "gather_for_metrics" in found.new_text
    assert [m.split()[0] for _, m in _notes(found)] == (["`figures`"] if named else [])


def test_a_loader_that_is_read_whole_is_silent():
    text = script(*OVER_ROUNDS["length"]).replace(
        "(x, y), batch_size=2)", "(x, y), batch_size=2, drop_last=True)"
    )
    found = convert_source(Source(PATH, text), ConvertOptions())
    assert found.status == "converted"
    assert not _notes(found)


def test_methods_that_keep_their_totals_on_self():
    text = script("self.total = 0", "self.total += loss.item()", "return self.total / len(val_loader)")
    text = text.replace("def evaluate():", "class Evaluator:\n  def evaluate(self):").replace(
        "evaluate()\n", "Evaluator().evaluate()\n"
    )
    assert [m.split()[0] for _, m in _notes(_converted(text))] == ["`self.total`"]


@pytest.mark.parametrize("factor", ["batch_size", "2", "val_loader.batch_size"])
@pytest.mark.parametrize("spelling", ["loss.item() * {}", "{} * loss.item()"])
def test_a_configured_size_weighs_fewer_rounds_than_there_were_batches(factor, spelling):
    added = spelling.format(factor)
    text = script("total = 0", f"total += {added}", "return total / len(val_loader.dataset)")
    found = convert_source(Source(PATH, text), ConvertOptions())
    assert found.status == "converted"
    assert "gather_for_metrics" not in found.new_text
    assert "ACC303" in {f.code for f in found.remaining}


NESTED = """
def evaluate(batches, deep):
    losses, total, seen = [], 0, 0
    with torch.no_grad():
        for a, b in batches:
            if deep:
                output = model(a)
            else:
                output = model(a)[:, :1]
            loss = F.cross_entropy(output, b)
            losses.append(loss.item())
            total += loss.item() * len(b)
            seen += len(b)
    return {result}
"""


@pytest.mark.parametrize(
    ("result", "named"),
    [
        ("sum(losses) / len(losses)", ["`losses`"]),
        ("np.average(losses)", ["`losses`"]),
        ("total / seen", []),
    ],
)
def test_means_that_are_reduced_where_nothing_can_be_gathered(result: str, named: list[str]) -> None:
    parts = {"imports": "import numpy as np", "ready": NESTED.format(result=result)}
    shared = convert(**parts, epoch="print(evaluate(loader, True))")
    assert [m.split()[0] for _, m in _notes(shared)] == named
    whole = convert(**parts, epoch="print(evaluate(test_loader, True))")
    assert _notes(whole) == []


def test_a_loader_that_loses_whole_batches_has_no_shorter_round() -> None:
    ready = NESTED.format(result="sum(losses) / len(losses)")
    text = frame(ready=ready, epoch="print(evaluate(loader, True))")
    text = text.replace("shuffle=True)", "shuffle=True, drop_last=True)")
    found = convert_source(Source.from_text(text, PATH))
    assert _notes(found) == []


def test_one_of_several_loaders_that_drops_its_last_batch_does_not_silence_the_others() -> None:
    """Which of them is gone through is not seen where their names stand in a list."""
    found = convert(
        ready="""\
        loaders = {'train': DataLoader(data, batch_size=8, drop_last=True), 'test': DataLoader(data, batch_size=8)}

        def evaluate(names=['test']):
            for name in names:
                losses = []
                for x, y in loaders[name]:
                    losses.append(F.cross_entropy(model(x), y).item())
                print(sum(losses) / len(losses))
        """,
        epoch="for x, y in loaders['train']:\n    F.cross_entropy(model(x), y).backward()\nevaluate()",
    )
    assert [m.split()[0] for _, m in _notes(found)] == ["`losses`"]
    told = next(f.message for f in found.applied if f.code == "ACC301")
    assert "of a loader with drop_last=True" in told
