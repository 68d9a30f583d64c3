"""Evaluation loops whose models give back an object, and whose batches are dictionaries."""

from __future__ import annotations

import pytest

from tests.transforms.support import check_transformed, codes, convert

OBJECT = """
from types import SimpleNamespace
class Rows:
    def __len__(self):
        return 64
    def __getitem__(self, i):
        return {"words": torch.ones(4), "labels": 1, "title": "a"}
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 2)
    def forward(self, words, labels=None):
        logits = self.fc(words)
        return SimpleNamespace(loss=F.cross_entropy(logits, labels), logits=logits)
"""
BUILD = "model = Net()\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)"
LOSS = "loss = model(x, y).loss"
READY = "rows = DataLoader(Rows(), batch_size=8)"
HEAD = "with torch.no_grad():\n    for batch in rows:\n        outputs = model(**batch)\n"
PLACES = {"setup": OBJECT, "build": BUILD, "loss": LOSS, "ready": READY}


def body(*lines: str) -> str:
    return "".join(f"        {line}\n" for line in lines)


@pytest.mark.parametrize(
    ("metric", "after"),
    [
        (
            'hits += (outputs.logits.argmax(1) == batch["labels"]).sum().item()',
            [
                'logits, labels = accelerator.gather_for_metrics((outputs.logits, batch["labels"]))',
                "hits += (logits.argmax(1) == labels).sum().item()",
            ],
        ),
        (
            "hits += outputs.loss.item()",
            ['hits += accelerator.reduce(outputs.loss, reduction="mean").item()'],
        ),
        (
            "scores = outputs.logits\n        kept.append(scores)",
            ["scores = accelerator.gather_for_metrics(outputs.logits)", "kept.append(scores)"],
        ),
        (
            "kept.extend(batch['title'])",
            ["title = accelerator.gather_for_metrics(batch['title'])", "kept.extend(title)"],
        ),
        (
            'hits += (outputs["logits"].argmax(1) == batch["labels"]).sum()\n        n += batch["words"].size(0)',
            [
                'logits, labels = accelerator.gather_for_metrics((outputs["logits"], batch["labels"]))',
                "hits += (logits.argmax(1) == labels).sum()",
                "n += logits.size(0)",
            ],
        ),
    ],
)
def test_entries_are_gathered(metric: str, after: list[str]) -> None:
    head = "hits, n, kept = 0, 0, []\n" + HEAD
    end = "print(hits / 8, n, kept)"
    conversion = check_transformed(
        "epoch",
        head + f"        {metric}\n{end}",
        head + body(*after) + f"accelerator.{end}",
        **PLACES,
    )
    assert "ACC303" not in codes(conversion)


@pytest.mark.parametrize(
    "metric",
    [
        "hits += count(outputs, batch)",
        'hits += outputs.loss.item() * len(batch["labels"])',
        "hits += sum([outputs.loss for _ in range(2)])",
    ],
)
def test_what_is_used_as_a_whole_keeps_the_data_whole(metric: str) -> None:
    snippet = "hits = 0\n" + HEAD + f"        {metric}\nn = hits"
    setup = (
        OBJECT + 'def count(outputs, batch):\n    return (outputs.logits.argmax(1) == batch["labels"]).sum()'
    )
    conversion = check_transformed("epoch", snippet, snippet, **{**PLACES, "setup": setup})
    assert "ACC303" in {f.code for f in conversion.remaining}


def test_means_of_batches_over_the_number_of_samples_keep_the_data_whole() -> None:
    snippet = "hits = 0\n" + HEAD + "        hits += outputs.loss.item()\nn = hits / len(rows.dataset)"
    conversion = check_transformed("epoch", snippet, snippet, **PLACES)
    assert "ACC303" in {f.code for f in conversion.remaining}


def test_a_sum_of_means_that_is_shown_keeps_the_data_whole() -> None:
    snippet = "hits = 0\n" + HEAD + "        hits += outputs.loss.item()\nlogger.info('%.3f', hits)"
    conversion = convert(imports="import logging\nlogger = logging.getLogger()", epoch=snippet, **PLACES)
    assert "larger batches are fewer" in next(f.message for f in conversion.remaining if f.code == "ACC303")


@pytest.mark.parametrize("kind", ["SequenceClassification", "TokenClassification"])
def test_padded_batches_of_a_library_model(kind: str) -> None:
    conversion = convert(
        imports=f"from transformers import AutoModelFor{kind}, DataCollatorWithPadding",
        setup=OBJECT,
        build=f"model = AutoModelFor{kind}.from_pretrained('a')\noptimizer = torch.optim.SGD(model.parameters(), 0.1)",
        loss="loss = model(x).loss",
        ready="rows = DataLoader(Rows(), batch_size=8, collate_fn=DataCollatorWithPadding(data))",
        epoch="hits = 0\n"
        + HEAD
        + '        hits += (outputs.logits.argmax(-1) == batch["labels"]).sum()\nprint(hits)',
    )
    assert "ACC303" in codes(conversion)


@pytest.mark.parametrize(
    "metric",
    [
        "hits += count(batch.labels)",
        "kept = [int(row) for row in batch.labels]\n        hits += len(kept)",
    ],
)
def test_a_batch_that_is_an_object_keeps_the_data_whole(metric: str) -> None:
    head = "hits = 0\nwith torch.no_grad():\n    for batch in rows:\n        output = model(batch.words)\n"
    setup = OBJECT + "def count(x):\n    return int(x.sum())\ndevice = torch.device('cpu')"
    snippet = head + f"        {metric}\nn = hits"
    conversion = check_transformed("epoch", snippet, snippet, **{**PLACES, "setup": setup})
    assert "is an object" in next(f.message for f in conversion.remaining if f.code == "ACC303")


@pytest.mark.parametrize(
    "first", ["output.cpu().data[0].numpy()", "output[0].numpy()", "output.squeeze(0).numpy()"]
)
def test_the_first_sample_alone_keeps_the_data_whole(first: str) -> None:
    snippet = (
        f"kept = []\nfor a, b in test_loader:\n    output = model(a)\n    kept.append({first})\nn = kept"
    )
    conversion = check_transformed("epoch", snippet, snippet, setup="device = torch.device('cpu')")
    assert "ACC303" in codes(conversion)


@pytest.mark.parametrize("read", ["output.shape[0]", "output.max(1)[0].sum().item()", "output.size(0)"])
def test_sizes_and_maxima_are_no_first_sample(read: str) -> None:
    conversion = convert(
        epoch=f"n = 0\nfor a, b in test_loader:\n    output = model(a)\n    n += {read}\nprint(n)"
    )
    assert "gather_for_metrics" in conversion.new_text


EVALUATE = """
def evaluate():
    total, hits = 0, 0
    with torch.no_grad():
        for a, b in test_loader:
            scores = model(a)
            total += F.cross_entropy(scores, b).item()
            hits += (scores.argmax(1) == b).sum().item()
    {told}
"""


@pytest.mark.parametrize(
    ("told", "epoch", "whole"),
    [
        ("line = f'{total:.3f}'\n    print(line)\n    return hits", "evaluate()", True),
        ("return total, hits", "total, hits = evaluate()\nkept.append(total)\nprint('%.3f' % total)", True),
        ("last = total\n    print(last)\n    return hits", "evaluate()", True),
        ("return total, hits", "total, hits = evaluate()\nprint(hits, total / len(test_loader))", False),
        (
            "total /= len(test_loader)\n    return total",
            "print(evaluate())\ntotal = evaluate()\nprint(total)",
            False,
        ),
        ("return total, hits", "found = evaluate()\nprint(found)", False),
        ("return total", "total = evaluate()\nprint(total, measured(total))", False),
    ],
)
def test_a_sum_of_means_that_is_told_later_keeps_the_data_whole(told: str, epoch: str, whole: bool) -> None:
    places = {"imports": "from m import measured", "ready": f"kept = []\n{EVALUATE.format(told=told)}"}
    conversion = convert(epoch=epoch, **places)
    said = [f.message for f in conversion.remaining if f.code == "ACC303"]
    assert any("larger batches are fewer" in one for one in said) == whole
    assert ("gather_for_metrics" in conversion.new_text) != whole
