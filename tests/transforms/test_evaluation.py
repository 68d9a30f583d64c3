"""Evaluation loops."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from accelify.convert import convert_project
from accelify.source import Source
from tests.transforms.support import check_noop, check_transformed, codes, convert, frame

GATHER = "output, b = accelerator.gather_for_metrics((output, b))"


def test_a_loop_that_only_looks_stays() -> None:
    check_noop("epoch", "for a, b in test_loader:\n    shape = a.shape\n    break", "ACC301", "ACC303")


def test_no_loop_over_a_loader() -> None:
    check_noop("epoch", "for k in range(3):\n    n = k + 1", "ACC301", "ACC303")


def test_a_carried_state_keeps_the_data_whole() -> None:
    snippet = "state = 0\nfor a, b in test_loader:\n    state = model(a) + state\nn = state.mean()"
    after = snippet.replace("model(a)", "model(a.to(accelerator.device))")
    conversion = check_transformed("epoch", snippet, after)
    assert "ACC303" in {f.code for f in conversion.remaining}
    assert "accelerator.prepare(model, optimizer, loader)" in conversion.new_text


@pytest.mark.parametrize("loader", ["loader", "test_loader"])
def test_output_and_target_are_gathered(loader: str) -> None:
    check_transformed(
        "epoch",
        f"""
        hits = 0
        with torch.no_grad():
            for a, b in {loader}:
                output = model(a)
                hits += (output.argmax(1) == b).sum().item()
        """,
        f"""
        hits = 0
        with torch.no_grad():
            for a, b in {loader}:
                output = model(a)
                {GATHER}
                hits += (output.argmax(1) == b).sum().item()
        """,
    )


def test_rounds_are_counted_before_the_model_as_behind_it() -> None:
    loop = """
        losses, rounds = 0, 0
        for a, b in test_loader:
            rounds += 1
            output = model(a)
            {}losses += F.cross_entropy(output, b).item()
        print(losses / rounds)
        """
    conversion = check_transformed(
        "epoch",
        loop.format(""),
        loop.format(f"{GATHER}\n            ").replace("print", "accelerator.print"),
    )
    assert "ACC303" not in codes(conversion)


@pytest.mark.parametrize("reduction", ["", ", reduction='sum'"])
def test_a_forward_inside_of_the_loss(reduction: str) -> None:
    check_transformed(
        "epoch",
        f"""
        total = 0
        for a, b in test_loader:
            total += F.cross_entropy(model(a), b{reduction}).item()
        """,
        f"""
        total = 0
        for a, b in test_loader:
            output, b = accelerator.gather_for_metrics((model(a), b))
            total += F.cross_entropy(output, b{reduction}).item()
        """,
    )


def test_collected_outputs() -> None:
    check_transformed(
        "epoch",
        "outputs = []\nfor a, b in test_loader:\n    outputs.append(model(a))\nn = torch.cat(outputs)",
        """
        outputs = []
        for a, b in test_loader:
            outputs.append(accelerator.gather_for_metrics(model(a)).cpu())
        n = torch.cat(outputs)
        """,
    )


SHARE = """
def accuracy(output, target):
    return float((output.argmax(1) == target).sum()) / float(target.size(0))
def count(output, target):
    return float((output.argmax(1) == target).sum())
"""


@pytest.mark.parametrize(
    ("metric", "given"),
    [
        (
            "total += F.cross_entropy(output, b).item()\nn = total / len(test_loader.dataset)",
            "a.to(accelerator.device)",
        ),
        ("total += accuracy(output, b)\n    n += b.size(0)\nn = total / n", "a.to(accelerator.device)"),
        (
            "total += 10 * math.log10(1 / F.mse_loss(output, b).item())\nn = total / len(test_loader)",
            "a.to(accelerator.device)",
        ),
        ("rows[i : i + 4] = output", "a.to(accelerator.device)"),
        # A tensor that comes to more than the model keeps the script on the CPU.
        ("label = torch.arange(2).repeat(2)\n    total += F.cross_entropy(output, label).item()", "a"),
    ],
)
def test_figures_that_gathering_would_change(metric: str, given: str) -> None:
    head = "total, n, i = 0, 0, 0\nfor a, b in test_loader:\n    output = model(a)\n    "
    snippet = head + metric
    after = snippet.replace("model(a)", f"model({given})")
    if given != "a":
        after = re.sub(r"F\.\w+\(output", r"\g<0>.cpu()", after)
    conversion = check_transformed("epoch", snippet, after, imports="import math", setup=SHARE)
    assert "ACC303" in {f.code for f in conversion.remaining}
    assert "accelerator.prepare(model, optimizer, loader)" in conversion.new_text


@pytest.mark.parametrize(
    ("given", "whole"),
    [
        ("list((p * y).sum(dim=-2).sum(dim=-1) / (p + y).sum((-2, -1)))", False),
        ("(torch.sum(p * y, (1, 2)) / (p + y).sum((1, 2))).tolist()", False),
        ("list((p * y).sum((0, 2)) / (p + y).sum((0, 2)))", True),
        ("list((p * y).sum() / (p + y).sum(-1))", True),
        ("((p * y).sum((1, 2)) / (p + y).sum((1, 2))).mean()", True),
    ],
)
def test_an_overlap_of_each_sample(given: str, whole: bool) -> None:
    setup = f"def jaccard(p, y):\n    return {given}\n"
    snippet = "scores = []\nfor a, b in test_loader:\n    scores += jaccard(model(a), b)\nprint(sum(scores))"
    conversion = convert(setup=setup, epoch=snippet)
    said = [f.message for f in conversion.remaining if f.code == "ACC303"]
    why = "of several batches at once" if whole else "what `jaccard` lists for each sample is not gathered"
    assert any(why in one for one in said)
    assert "gather_for_metrics" not in conversion.new_text


OVERLAP = """
import torch
from torch import nn

def {function}(p, y):
    return 2 * (p * y).sum((0, 2)) / (p * p + y * y).sum((0, 2))

class {name}(nn.Module):
    def score(self, p, y):
        return {function}(p, y)

    def forward(self, output, y):
        return 1 - torch.mean(self.score(torch.sigmoid(output), y))
"""


@pytest.mark.parametrize(
    ("name", "function", "whole"),
    [("DiceLoss", "channels", True), ("OverlapLoss", "soft_dice", True), ("MarginLoss", "of_indices", False)],
)
def test_a_loss_of_another_module_that_is_no_average(
    tmp_path: Path, name: str, function: str, whole: bool
) -> None:
    (tmp_path / "losses.py").write_text(OVERLAP.format(name=name, function=function))
    epoch = "total = 0\nfor a, b in test_loader:\n    total += criterion(model(a), b).item()\n"
    script = frame(
        imports=f"from losses import {name}",
        setup=f"criterion = {name}()",
        epoch=epoch + "n = total / len(test_loader)",
    )
    (tmp_path / "train.py").write_text(script)
    (conversion,) = convert_project(Source.read(tmp_path / "train.py"))
    said = [f.message for f in conversion.remaining if f.code == "ACC303"]
    assert any("of several batches at once is not the average of theirs" in one for one in said) is whole
    assert ("gather_for_metrics" in conversion.new_text) is not whole


@pytest.mark.parametrize(
    "metric",
    [
        "total += F.cross_entropy(output, b).item()\nn = total / len(test_loader)",
        "total += F.cross_entropy(output, b, reduction='sum').item()\nn = total / len(test_loader.dataset)",
        "total += count(output, b)\nn = total / len(test_loader.dataset)",
        "total += math.exp(n) * (output.argmax(1) == b).sum().item()",
        "rows['output'] = b - output",
    ],
)
def test_figures_that_gathering_leaves(metric: str) -> None:
    head = "rows, total, n = {}, 0, 0\nfor a, b in test_loader:\n    output = model(a)\n    "
    after = head + f"{GATHER}\n    " + metric
    check_transformed("epoch", head + metric, after, imports="import math", setup=SHARE)


def test_targets_made_in_branches_are_gathered_with_the_outputs() -> None:
    snippet = """
    total = 0
    for batch in test_loader:
        if torch.cuda.is_available():
            a = torch.clamp(batch[0].cuda(), 0)
            b = torch.clamp(batch[1].cuda(), 0)
        else:
            a = torch.relu(batch[0])
            b = torch.relu(batch[1])
        output = model(a)
        total += F.cross_entropy(output, b).item()
    """
    text = convert(epoch=snippet, batch="x, y = x.cuda(), y.cuda()").new_text
    assert "output, b = accelerator.gather_for_metrics((output, b))" in text


@pytest.mark.parametrize(
    "loop",
    [
        "for x, y in test_loader:\n    x = x.float()\n    break\nprint(x.shape)",
        "for x, y in loader:\n    x = x.float()\n    break\nprint(x.shape)",
        "n = 0\nfor x, y in loader:\n    n += x.shape[0]\nprint(n)",
        "n = 0\nfor x, y in test_loader:\n    n += x.shape[0]\nprint(n)",
    ],
)
def test_a_loop_that_evaluates_nothing_is_no_evaluation(loop: str) -> None:
    conversion = convert(end=loop)
    assert not codes(conversion) & {"ACC301", "ACC303"}


def test_a_loop_over_what_was_collected_is_no_evaluation() -> None:
    end = """
seen, outputs = [], []
for x, y in loader:
    outputs.append(model(x))
    seen.append(y)
seen = torch.cat(seen)
wrong = []
for one, two in zip(seen, outputs):
    wrong.append(one)
"""
    conversion = convert(end=end)
    assert not [f for f in conversion.remaining if f.code == "ACC301" and "no call" in f.message]


@pytest.mark.parametrize(
    "taken",
    [
        "loss.item()",
        "float(loss)",
        "(F.cross_entropy(logits, y) + 2 * loss).item()",
        "whole.item()",
        "whole.data[0]",
    ],
)
def test_a_number_that_the_model_gives_back_is_not_gathered(taken: str) -> None:
    end = f"""
total = 0
for x, y in test_loader:
    logits, loss = model(x, y)
    whole = F.cross_entropy(logits, y) + loss
    total += {taken}
print(total / len(test_loader))
"""
    conversion = convert(end=end)
    assert "gather_for_metrics" not in conversion.new_text
    assert "number that the model makes" in next(
        f.message for f in conversion.remaining if f.code == "ACC303"
    )


NUMBERS = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x, y):
        return F.cross_entropy(self.layer(x), y)

model = Net()
"""


@pytest.mark.parametrize(
    "taken",
    [
        "total += model(x, y).item()",
        "error = model(x, y); total += float(error.detach().cpu().item())",
        "error = model(x, y); total += error",
        "error = model(x, y); total += error.cpu().numpy()",
        "errors.append(model(x, y))",
        "errors += [float(model(x, y))]",
    ],
)
def test_what_backward_is_called_on_in_training_is_no_row_in_an_evaluation(taken: str) -> None:
    body = "\n    ".join(taken.split("; "))
    end = f"""
total, errors = 0, []
for x, y in test_loader:
    {body}
print(total, errors)
"""
    conversion = convert(setup=NUMBERS, loss="loss = model(x, y)", end=end)
    assert "loss.backward()" not in conversion.new_text
    assert "gather_for_metrics" not in conversion.new_text


@pytest.mark.parametrize(
    "chosen",
    [
        "mask = y != 2; x, y = x[mask], y[mask]",
        "rows = torch.nonzero((y > 0) & ~(y == 3)).flatten(); x = x[rows]; y = y[rows]",
        "kept = [i for i, one in enumerate(y) if one > 1]; x, y = x[kept], y[kept]",
        "x = x[torch.where(y > 0)[0]]; y = y[y > 0]",
    ],
)
@pytest.mark.parametrize(
    "output", ["output = model(x)", "output = model(x[:4])[y[:4] > 0]; y = y[:4][y[:4] > 0]"]
)
def test_rows_that_each_process_chooses_are_not_gathered(chosen: str, output: str) -> None:
    body = "\n    ".join(f"{chosen}; {output}".split("; "))
    end = f"""
hits = 0
for x, y in test_loader:
    {body}
    hits += (output.argmax(1) == y).sum().item()
print(hits)
"""
    assert "gather_for_metrics" not in convert(end=end).new_text
    order = end.replace(body, "order = y.argsort()\n    x, y = x[order], y[order]\n    output = model(x)")
    assert "gather_for_metrics((output, y))" in convert(end=order).new_text


def test_a_number_that_a_criterion_of_the_script_s_gives_is_not_called_the_model_s() -> None:
    setup = """
    class Smooth(nn.Module):
        def each(self, output, y):
            return 0.9 * F.cross_entropy(output, y, reduction="none") - 0.1 * output.mean(1)

        def forward(self, output, y):
            return self.each(output, y).mean()

    criterion = Smooth()
    """
    end = """
    total = 0
    for x, y in test_loader:
        output = model(x)
        loss = criterion(output, y)
        total += loss.item() * x.size(0)
    print(total / len(data))
    """
    conversion = convert(setup=setup, loss="loss = criterion(model(x), y)", end=end)
    (message,) = [f.message for f in conversion.remaining if f.code == "ACC303"]
    assert "`loss` is a number that `criterion` makes of the local batch" in message


@pytest.mark.parametrize("bound", ["8", "batch_size", "args.batch_size"])
def test_samples_that_are_counted_off(bound: str) -> None:
    """As many samples as were gathered, and not as many as one process's batch has."""
    epoch = f"""
    seen = [0, 0]
    for a, b in test_loader:
        output = model(a)
        right = output.argmax(1) == b
        for i in range({bound}):
            seen[b[i]] += right[i].item()
        for i in range(2):
            seen[i] += 0
    n = seen
    """
    text = convert(
        setup="batch_size = 8\nargs = parse()", imports="from m import parse", epoch=epoch
    ).new_text
    assert "for i in range(b.size(0)):" in text
    assert "for i in range(2):" in text


COLLATE = """
from torch.nn.utils.rnn import pad_sequence
def collate(samples):
    return pad_sequence([a for a, _ in samples]{first}), torch.stack([b for _, b in samples])
padded = DataLoader(data, batch_size=8, collate_fn=collate)
"""
COUNTED = """
hits = 0
for a, b in {batches}:
    output = model({inputs})
    hits += (output.argmax(-1) == b).sum().item()
"""


@pytest.mark.parametrize(
    ("first", "batches", "inputs"),
    [
        ("", "padded", "a"),
        (", batch_first=True", "padded", "a"),
        ("", "test_loader", "a[:-1]"),
        ("", "test_loader", "a[1:, 0]"),
    ],
)
def test_rows_that_are_no_samples(first: str, batches: str, inputs: str) -> None:
    conversion = convert(
        ready=COLLATE.format(first=first), epoch=COUNTED.format(batches=batches, inputs=inputs)
    )
    assert "gather_for_metrics" not in conversion.new_text
    assert "ACC303" in codes(conversion)


@pytest.mark.parametrize("inputs", ["a", "a[:8]", "a[:, 1:]", "a[:, :-1]", "a.view(a.shape[1:])"])
def test_rows_that_are_samples(inputs: str) -> None:
    conversion = convert(epoch=COUNTED.format(batches="test_loader", inputs=inputs))
    assert "gather_for_metrics" in conversion.new_text


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (
            "name = b[0]\n    output = model(a)\n    total += name.split('.')[0].count('1')",
            "one sample of the batch",
        ),
        ("output = model(a[0].unsqueeze(0))\n    total += output.sum().item()", "one sample of the batch"),
        ("output = model(a)\n    total += 1\n    np.save(f'{i}.npy', output.cpu().numpy())", "writes a file"),
        (
            "output = model(a)\n    total += (output.sum() > 0).item() + os.path.exists('out/' + b)",
            "is a text",
        ),
        ("output = model(a)\n    total += output.sum().item()\n    break", "ends with its first batch"),
    ],
)
def test_loops_that_work_on_one_sample_keep_the_data_whole(body: str, reason: str) -> None:
    snippet = f"total = 0\nfor i, (a, b) in enumerate(test_loader):\n    {body}\nn = total"
    conversion = convert(imports="import numpy as np", epoch=snippet)
    assert "gather_for_metrics" not in conversion.new_text
    assert "accelerator.prepare(model, optimizer, loader)" in conversion.new_text
    said = [f.message for f in conversion.remaining if f.code == "ACC303"]
    assert reason in said[0] if said else "break" in body


def test_a_first_sample_that_is_only_looked_at_is_gathered_with_the_others() -> None:
    count = "hits += (output.argmax(1) == b).sum().item()"
    snippet = f"hits = 0\nfor a, b in test_loader:\n    output = model(a)\n    {count}\n"
    conversion = convert(
        epoch=snippet + "    if hits == 1:\n        print(a[0].shape, output[0])\nprint(hits)"
    )
    assert "gather_for_metrics((output, a, b))" in conversion.new_text


def test_outputs_that_nobody_reads_are_not_gathered() -> None:
    snippet = "kept = []\nfor a, b in test_loader:\n    model(a)\n    kept.append(1)\nprint(kept)"
    conversion = convert(epoch=snippet)
    assert "gather_for_metrics" not in conversion.new_text
    assert "ACC303" in codes(conversion)


@pytest.mark.parametrize(
    ("added", "whole"), [("hits", True), ("hits.item()", True), ("hits.item() / len(b)", False)]
)
def test_a_count_under_a_name_over_batches_counted_by_hand(added: str, whole: bool) -> None:
    loop = (
        "total, seen = 0, 0\nwith torch.no_grad():\n    for a, b in test_loader:\n        output = model(a)\n"
        f"        hits = (output.argmax(1) == b).sum()\n        total += {added}\n        seen += 8\n"
        "print(total / seen)"
    )
    conversion = convert(epoch=loop)
    assert ("ACC303" in codes(conversion)) is whole


@pytest.mark.parametrize("number", [".item()", ".data.item()", ".data[0]", ".detach().cpu().item()"])
def test_means_of_batches_over_the_number_of_samples(number: str) -> None:
    loop = (
        "total = 0\nfor a, b in test_loader:\n    output = model(a)\n"
        f"    total += F.cross_entropy(output, b){number}\ntotal /= len(test_loader.dataset)\nprint(total)"
    )
    assert "ACC303" in codes(convert(epoch=loop))


@pytest.mark.parametrize(
    ("added", "whole"),
    [
        ("hits[k] += (guess[y == k] == k).sum().item() / float((y == k).sum())", True),
        ("shares.append((guess == y).sum().item() / (y == 1).sum().item())", True),
        ("hits[k] += (guess == y).sum().item() / y.size(0)", False),
    ],
)
def test_the_share_in_a_part_of_a_batch_is_not_gathered(added: str, whole: bool) -> None:
    end = f"""
hits, shares, k = [0, 0], [], 1
for x, y in test_loader:
    output = model(x)
    guess = output.argmax(1)
    {added}
print(hits[1] / len(test_loader), shares)
"""
    assert ("gather_for_metrics" not in convert(end=end).new_text) == whole


BEFORE = """
labels, probs, n = [], [], 0
for a, b in test_loader:
    {kept}
    {model}
print(labels, probs, n)
"""
MODELS = ["probs.append(model(a))", "output = model(a)\n    probs.append(output)"]


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(
    ("kept", "reason"),
    [
        ("for one in b:\n        labels.append(one.item())", "`labels` is filled from the local batch"),
        ("labels.append(b)", "`labels` is filled from the local batch"),
        ("n += b.size(0)", "`n` is filled from the local batch"),
        ("labels = torch.cat((labels, b))", "`labels` is filled from the local batch"),
        ("labels[n:] = b", "`labels[n:]` is filled from the local batch"),
    ],
)
def test_what_cannot_be_gathered_before_the_call_keeps_the_data_whole(
    kept: str, reason: str, model: str
) -> None:
    conversion = convert(epoch=BEFORE.format(kept=kept, model=model))
    assert "gather_for_metrics" not in conversion.new_text
    assert reason in next(f.message for f in conversion.remaining if f.code == "ACC303")


HITS = (
    "hits = 0\nfor a, b in {0}:\n    output = model(a)\n    {1}hits += (output.argmax(1) == b).sum().item()"
)


def test_whole_batches_that_several_processes_would_drop() -> None:
    ready = "test_loader = DataLoader(data, batch_size=8, drop_last=True)"
    snippet = HITS.format("test_loader", "")
    after = snippet.replace("model(a)", "model(a.to(accelerator.device))").replace(
        "argmax(1)", "argmax(1).cpu()"
    )
    conversion = check_transformed("epoch", snippet, after, ready=ready)
    (said,) = [f.message for f in conversion.remaining if f.code == "ACC303"]
    assert "drop_last=True would leave out whole batches of it on several processes" in said
    check_transformed(
        "epoch", snippet, HITS.format("test_loader", f"{GATHER}\n    "), ready=ready, batch_size="total"
    )
    trained = "loader = DataLoader(data, batch_size=8, shuffle=True, drop_last=True)"
    after = HITS.format("loader", f"{GATHER}\n    ")
    conversion = check_transformed("epoch", HITS.format("loader", ""), after, ready=trained)
    (said,) = [f.message for f in conversion.applied if f.code == "ACC301"]
    assert "of a loader with drop_last=True, up to N-1 whole batches of a pass are left out" in said


FOUND = """
def collect(model, loader):
    inputs, labels = [], []
    for a, b in loader:
        output = model(a)
        inputs.append(a)
        labels.append(b)
    inputs = torch.cat(inputs)
    return inputs, torch.cat(labels)
def score(model, loader):
    hits = 0
    for a, b in loader:
        hits += (model(a).argmax(1) == b).sum().item()
    return hits
"""


@pytest.mark.parametrize("loop", ["for a, b in zip(inputs, labels):", "for a in inputs:"])
def test_rows_of_what_an_evaluation_collected_are_no_batches(loop: str) -> None:
    end = (
        f"wrong = []\ninputs, labels = collect(model, test_loader)\n{loop}\n    wrong.append(a)\nprint(wrong)"
    )
    ready = FOUND + "valid_loader = DataLoader(data, batch_size=8)"
    conversion = convert(
        ready=ready, epoch="print(score(model, test_loader), score(model, valid_loader))", end=end
    )
    assert not codes(conversion) & {"ACC303"}
    assert "prepare(\n    model, optimizer, loader, test_loader, valid_loader\n)" in conversion.new_text


def test_a_loader_that_another_loop_needs_whole_is_named() -> None:
    ready = FOUND + "valid_loader = DataLoader(data, batch_size=8)"
    epoch = """
    print(score(model, test_loader), score(model, valid_loader))
    total = 0
    for a, b in test_loader:
        total += 10 * math.log10(1 / F.mse_loss(model(a), b).item())
    print(total)
    """
    conversion = convert(imports="import math", ready=ready, epoch=epoch)
    said = [f.message for f in conversion.remaining if f.code == "ACC303"]
    assert any(
        "it also runs over `test_loader`, which another loop needs whole: `log10`" in text for text in said
    )


WHOLE = """
with {opened}:
    for (a,) in whole:
        for one in a:
            {shown}(str(model(one).sum().item()))
"""


@pytest.mark.parametrize(
    ("opened", "shown", "guarded"),
    [("open('out.txt', mode='w') as out", "out.write", True), ("torch.no_grad()", "lines.append", False)],
)
def test_a_loop_that_the_main_process_alone_comes_to_repeats_nothing(
    opened: str, shown: str, guarded: bool
) -> None:
    whole = "lines = []\nwhole = DataLoader(TensorDataset(torch.randn(16, 4)), batch_size=4)\n"
    conversion = convert(ready=whole, epoch=WHOLE.format(opened=opened, shown=shown))
    assert ("if accelerator.is_main_process:\n        with open" in conversion.new_text) is guarded
    assert ("ACC303" in codes(conversion)) is not guarded


METHODS = """
class Net(nn.Linear):
    def decode(self, x):
        return self.forward(x).argmax(1)
model = Net(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def hits(x, y):
    return (model(x).argmax(1) == y).sum().item()
def halved(x):
    return x / 2
"""


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (
            "n += (model.decode(a) == b).sum().item()",
            "the model's method `decode` is called, and not the model itself",
        ),
        ("n += (model.decode(x=halved(a)) == b).sum().item()", "the model's method `decode` is called"),
        ("n += hits(a, b)", "the model is called inside `hits`"),
        (
            "n += halved(a).mean().item()",
            "no call of a model is seen, neither in it nor in the functions that it calls",
        ),
    ],
)
def test_why_no_call_of_the_model_is_seen(line: str, reason: str) -> None:
    snippet = f"n = 0\nwith torch.no_grad():\n    for a, b in test_loader:\n        {line}\nprint(n)"
    (finding,) = [f for f in convert(build=METHODS, epoch=snippet).remaining if f.code == "ACC303"]
    assert reason in finding.message


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("rates.append(optimizer.param_groups[0]['lr'])", False),
        ("optimizer.zero_grad()\n    step += 1\n    rates.append(0.1 * step)", False),
        ("rates.append(optimizer.param_groups[0]['lr'] * x.size(0))", True),
        ("optimizer.zero_grad()\n    step += len(x)", True),
    ],
)
def test_a_loop_that_only_draws_a_schedule_has_no_metric(body: str, said: bool) -> None:
    end = f"rates, step = [], 0\nfor x, y in loader:\n    {body}\nprint(rates, step)"
    assert bool(codes(convert(end=end)) & {"ACC301", "ACC302", "ACC304"}) is said


IN_BETWEEN = """\
if i % 5 == 0:
    model.eval()
    for _ in range(2):
        a, b = next(drawn)
        {kept}save_image(model(a), f"{i}.png")
    model.train()
{later}
"""


@pytest.mark.parametrize(
    ("kept", "later", "shared"),
    [
        ("", "", False),
        ("", "a = x * 2\nprint(a)", False),
        ("", "print(a)", True),
        ("rows.append(model(a)); ", "print(len(rows))", True),
        ("model.rows = a; ", "", True),
    ],
)
def test_what_a_training_loop_draws_to_look_at_is_not_trained_on(kept: str, later: str, shared: bool) -> None:
    ready = "from torchvision.utils import save_image\ndrawn = iter(test_loader)\nrows = []"
    update = "optimizer.step()\n" + IN_BETWEEN.replace("{kept}", kept).replace("{later}", later)
    end = """
    model.eval()
    for n, (a, b) in enumerate(test_loader):
        save_image(model(a), f"test_{n}.png")
    """
    text = convert(ready=ready, update=update, end=end).new_text
    assert ("accelerator.prepare(model, optimizer, loader, test_loader)" in text) == shared


@pytest.mark.parametrize("place", ["i * 8:(i + 1) * 8", "i * size:"])
def test_results_that_are_put_where_the_rounds_count_keep_the_data_whole(place: str) -> None:
    """A gathered batch has the rows of all processes, and would not fit there."""
    end = f"""
    size = 8
    for i, (a, b) in enumerate(test_loader):
        output = model(a).data.cpu().numpy()
        if i == 0:
            found = np.zeros((64, 2))
        found[{place}] = output
    print(found.mean())
    """
    conversion = convert(imports="import numpy as np", end=end)
    assert "ACC303" in codes(conversion)
    assert "gather_for_metrics" not in conversion.new_text
    # A share of the script's own batch is gathered to that batch.
    total = convert("total", imports="import numpy as np", end=end).new_text
    assert "gather_for_metrics" in total


SHOWN = """\
for n, (a, b) in enumerate({data}):
    picture = torch.cat((a, model(a)), 1)
    plt.imsave(str(n) + '.png', picture.cpu().numpy())
{end}
"""
SOME = "    if n == 4:\n        break"
IMPORTS = {"imports": "import matplotlib.pyplot as plt"}


def test_pictures_of_some_batches_are_no_metrics() -> None:
    shown = "\n".join(SHOWN.format(data=data, end=SOME) for data in ("loader", "test_loader"))
    found = codes(convert(epoch=shown, **IMPORTS))
    assert not found & {"ACC301", "ACC303", "ACC412"}


def test_a_picture_of_every_batch_of_a_share_is_named() -> None:
    (said,) = [
        f.message
        for f in convert(epoch=SHOWN.format(data="loader", end=""), **IMPORTS).remaining
        if f.code == "ACC301"
    ]
    assert "`plt.imsave` writes a file for every batch" in said


def test_a_name_that_may_hold_the_last_batch_is_no_look() -> None:
    behind = "if os.environ:\n    picture = 0\nprint(picture.mean())"
    assert "ACC301" in codes(convert(epoch=f"{SHOWN.format(data='loader', end=SOME)}{behind}", **IMPORTS))


LISTED = """
for a, b in test_loader:
    {listed}
    found = model(a).argmax(1)
    total += sum(one == other for one, other in zip(found.tolist(), {read}))
print(total)
"""


@pytest.mark.parametrize(
    ("listed", "read", "whole"),
    [
        ("wanted = []\n    for one in b:\n        wanted.append(int(one))", "wanted", True),
        (
            "wanted = {}\n    for i, one in enumerate(b):\n        wanted[i] = int(one)",
            "wanted.values()",
            True,
        ),
        ("wanted = []\n    wanted.extend(int(one) for one in b)", "wanted", True),
        ("seen = []\n    for one in b:\n        seen.append(int(one))", "b.tolist()", False),
    ],
)
def test_a_list_of_the_local_targets_meets_no_gathered_outputs(listed: str, read: str, whole: bool) -> None:
    snippet = "total = 0" + LISTED.format(listed=listed, read=read).replace("model(a).argmax(1)", "model(a)")
    conversion = convert(epoch=snippet.replace("found.tolist()", "found.argmax(1).tolist()"))
    assert ("gather_for_metrics" in conversion.new_text) is not whole
    reasons = [f.message for f in conversion.remaining if f.code == "ACC303"]
    assert any("`wanted` is made from the local batch" in reason for reason in reasons) is whole
