"""Counts of the samples that were seen, where something is decided by them: those of all processes."""

from __future__ import annotations

import pytest

from tests.transforms.support import codes, convert, names_figures, place_of

SIZE = "batch_size = 8"
OWN = 'accelerator.reduce({}, reduction="sum")'


def _converted(update, batch_size="per-process", **snippets):
    found = convert(
        batch_size, setup=SIZE, ready="seen = 0\n", update=f"optimizer.step()\n{update}", **snippets
    )
    return place_of(found.new_text, "update").removeprefix("optimizer.step()\n"), found


@pytest.mark.parametrize(
    ("added", "after"),
    [
        ("batch_size", "batch_size * accelerator.num_processes"),
        ("loader.batch_size", "loader.batch_size * accelerator.num_processes"),
        ("x.size(0)", OWN.format("x.size(0)")),
        ("len(x)", OWN.format("len(x)")),
    ],
)
@pytest.mark.parametrize("adding", ["seen += {}", "seen = seen + {}"])
def test_what_ends_a_loop_counts_all_processes(added, after, adding):
    update = adding + "\nif seen >= len(data):\n    break"
    text, found = _converted(update.format(added))
    assert text == update.format(after)
    assert "ACC412" in codes(found)


def test_a_count_that_is_kept_over_epochs_and_one_that_goes_on_from_it():
    update = "done += batch_size\nseen += batch_size\nif seen >= len(data):\n    break"
    text, _ = _converted(
        update, batch="if i == 0:\n    seen = seen % len(data)\n    done = epoch * 64 + seen\n"
    )
    assert text == update.replace("+= batch_size", "+= batch_size * accelerator.num_processes")


def test_a_count_behind_the_loop_is_whole_already():
    text, found = _converted("seen += len(x)\nif seen > 100:\n    break", epoch="print(seen)\n")
    assert text.startswith("seen += " + OWN.format("len(x)"))
    assert found.new_text.count("reduce(") == 1
    assert not names_figures(found)


@pytest.mark.parametrize("batch_size", ["per-process", "total"])
def test_a_batch_that_is_split_is_a_share_where_it_is_asked_itself(batch_size):
    update = "seen += {}\nif seen > 100:\n    break"
    nominal = "batch_size" if batch_size == "total" else "batch_size * accelerator.num_processes"
    assert _converted(update.format("batch_size"), batch_size)[0] == update.format(nominal)
    assert _converted(update.format("len(x)"), batch_size)[0] == update.format(OWN.format("len(x)"))


@pytest.mark.parametrize(
    "update",
    [
        "seen += batch_size\nif seen % 64 == 0:\n    torch.cuda.empty_cache()",
        "seen += batch_size\nif seen > 0:\n    torch.cuda.empty_cache()",
        "seen += batch_size\nif seen >= len(loader) * batch_size:\n    break",
        "seen += 1\nif seen >= 100:\n    break",
    ],
    ids=["a rhythm", "the first", "the loader's own", "steps"],
)
def test_other_counts_stay(update):
    assert _converted(update)[0] == update


@pytest.mark.parametrize(
    "before",
    ["if y.sum() > 3:\n    {}", "if y.sum() > 3:\n    continue\n{}"],
    ids=["in a branch", "behind one"],
)
def test_a_count_that_not_all_processes_come_to_is_named(before):
    ends = "\nif seen > 100:\n    break"
    _, found = _converted(before.format("seen += len(x)") + ends)
    assert "seen += len(x)\n" in found.new_text
    assert "ACC412" in {f.code for f in found.remaining}
    assert "len(x)" in _converted("if epoch > 0:\n    seen += len(x)" + ends)[0]


def test_a_share_of_what_is_to_be_seen_is_one_of_all_processes():
    update = "seen += batch_size\nshare = min(1, 1 / LIMIT * (seen + 1))\nif seen > LIMIT:\n    seen = 0"
    text, _ = _converted(
        update, imports="LIMIT = 50", batch="share = 1", loss="loss = share * model(x).mean()"
    )
    assert text == update.replace("+= batch_size", "+= batch_size * accelerator.num_processes")


@pytest.mark.parametrize("added", ["batch_size", "len(x)"])
@pytest.mark.parametrize(
    "mean",
    ["total / seen", "total / max(seen, 1)", "total * (1 / (seen + 1e-8))", "total / (seen / batch_size)"],
)
def test_a_count_that_divides_what_is_one_process_s_is_named(added, mean):
    update = f"total = total + loss.item()\nseen += {added}\nprint({mean})\nif seen > 100:\n    break"
    _, found = _converted(update, batch="total = 0.0\n")
    assert f"seen += {added}\n" in found.new_text
    assert [f.message for f in found.remaining if f.code == "ACC412"] == [
        "`seen` counts the samples that one process has seen and is compared with `100`: all N have seen N times as "
        "many"
    ]


KEPT = """
class Trainer:
    def __init__(self):
        self.seen, self.shown = 0, 0

    def fit(self, loader, model, optimizer):
        for x, y in loader:
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
            {update}

trainer = Trainer()
trainer.fit(DataLoader(data, batch_size=8), model, optimizer)
"""


@pytest.mark.parametrize(
    ("update", "named"),
    [
        ("self.seen += len(x)\n            if self.seen > 100: break", True),
        ("self.seen += x.size(0)\n            if self.seen + 8 >= len(data): return", True),
        ("self.seen += batch_size\n            if self.seen > 100: break", True),
        ("self.seen += len(x)\n            print(self.seen)", False),
        ("self.seen += 1\n            if self.seen > 100: break", False),
        ("self.seen += len(x)\n            if self.seen > 0: break", False),
    ],
)
def test_a_count_that_a_class_keeps_is_named_where_it_decides(update, named):
    found = convert(setup=SIZE, ready=KEPT.format(update=update), backward="pass", update="pass")
    assert found.status == "converted", found.reason
    said = [f.message for f in found.remaining if f.code == "ACC412"]
    assert [text.startswith("`self.seen` counts the samples that one process") for text in said] == [
        True
    ] * named
    assert found.new_text.count("TODO(accelify ACC706)") == named


@pytest.mark.parametrize(
    ("taken", "after"),
    [("batch_size", "batch_size * accelerator.num_processes"), ("len(x)", OWN.format("len(x)"))],
)
@pytest.mark.parametrize("test", ["seen <= 0", "0 >= seen", "seen < 0"])
def test_what_is_left_goes_down_by_the_samples_of_all_processes(taken, after, test):
    update = f"seen -= {{}}\nif {test}:\n    seen = 100\n    torch.save(model.state_dict(), 'm.pt')\n"
    text, found = _converted(update.format(taken))
    assert text.startswith(f"seen -= {after}\n")
    assert "ACC412" in codes(found)


@pytest.mark.parametrize(
    "update",
    [
        "seen -= len(x)\nprint(seen)",
        "seen -= 1\nif seen <= 0:\n    break",
        "seen -= loss.item()\nif seen <= 0:\n    break",
    ],
)
def test_what_goes_down_otherwise_stays(update):
    text, found = _converted(update)
    assert "seen -= accelerator" not in text
    assert "num_processes" not in text
    assert "ACC412" not in codes(found)


@pytest.mark.parametrize(
    ("divided", "named"),
    [
        ("epoch = seen // len(data)", True),
        ("done = 100 * seen / len(data)", False),
        ("epoch = seen // 100", False),
    ],
)
def test_an_epoch_that_is_worked_out_of_the_samples_seen(divided, named):
    text, found = _converted("seen += len(x)", end=f"{divided}\n")
    assert (text == f"seen += {OWN.format('len(x)')}") is named
    assert ("ACC412" in codes(found)) is named


def test_it_is_named_where_an_average_of_one_process_goes_by_the_count() -> None:
    update = "seen += len(x)\ndecay = min(0.9, seen / (10 + seen))"
    text, found = _converted(update, end="epoch = seen // len(data)\n")
    assert "accelerator.reduce(len(x)" not in text
    said = [f.message for f in found.remaining if f.code == "ACC412"]
    assert len(said) == 1
    assert "is divided by `len(data)`" in said[0]
