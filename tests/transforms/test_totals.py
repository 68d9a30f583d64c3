"""Running totals of training loops."""

from __future__ import annotations

import textwrap

import pytest

from tests.transforms.support import check_noop, check_transformed, convert, names_figures

LOOP = """\
def train_epoch():
    total = 0
    for x, y in loader:
        optimizer.zero_grad()
        output = model(x)
        loss = F.cross_entropy(output, y)
        {backward}
        optimizer.step()
        {body}
{reduce}    return {result}
"""


def script(body: str, result: str, reduction: str = "") -> tuple[str, str]:
    reduce = f'    total = accelerator.reduce(total, reduction="{reduction}")\n' if reduction else ""
    before = LOOP.format(backward="loss.backward()", body=body, reduce="", result=result)
    return before, LOOP.format(backward="accelerator.backward(loss)", body=body, reduce=reduce, result=result)


@pytest.mark.parametrize(
    ("body", "result"),
    [("total += 1", "total"), ("total += loss.item()", "None"), ("total = loss.item()", "1")],
)
def test_counters_and_totals_nobody_reads_stay(body: str, result: str) -> None:
    before, after = script(body, result)
    conversion = check_transformed("ready", before, after, epoch="train_epoch()")
    assert "ACC302" not in {f.code for f in conversion.applied}


def test_totals_outside_of_training_stay() -> None:
    check_noop("epoch", "total = 0\nfor k in range(3):\n    total += k\nn = total", "ACC302")


@pytest.mark.parametrize(
    ("body", "result", "reduction"),
    [
        ("total += loss.item()", "total / len(loader)", "mean"),
        ("total = total + loss.item()", "total / len(loader)", "mean"),
        ("total += float(loss)", "total / len(loader)", "mean"),
        ("total += loss", "total / len(loader)", "mean"),
        ("total += loss / len(loader)", "total", "mean"),
        ("total += (output.argmax(1) == y).float().mean() / len(loader)", "total", "mean"),
        ("total += loss.item() * x.size(0)", "total / len(loader.dataset)", "sum"),
        ("total += (output.argmax(1) == y).sum().item()", "total / len(loader.dataset)", "sum"),
        ("total += loss.item()", "total / len(loader.dataset)", "sum"),
        ("total += loss.item()", "total * 8 / len(loader.dataset)", "sum"),
        ("total += x.size(0)", "total", "sum"),
        ("total += len(x)", "total", "sum"),
    ],
)
def test_totals(body: str, result: str, reduction: str) -> None:
    check_transformed("ready", *script(body, result, reduction), epoch="train_epoch()")


def test_what_a_share_of_a_set_size_leaves_is_no_sum() -> None:
    body = "share = 1 - (output.argmax(1) != y).sum() / size; total += share.item()"
    before, after = script(body, "total / len(loader)", "mean")
    check_transformed("ready", before, after, imports="size = 8", epoch="train_epoch()")
    left = before.replace("loss.backward()", "accelerator.backward(loss)")
    conversion = check_transformed(
        "ready", before, left, imports="size = 8", epoch="print(train_epoch())", batch_size="total"
    )
    assert names_figures(conversion)


def test_a_counter_that_counts_something_else_afterwards() -> None:
    before = """
    def train_epoch():
        total = count = 0
        for x, y in loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            total += loss.item() * x.size(0)
            count += x.size(0)
        first = total / count
        count = 3
        return first, len(data) / count
    """
    text = convert(ready=before, epoch="n = train_epoch()").new_text
    assert 'total, count = accelerator.reduce((total, count), reduction="sum")' in text


@pytest.mark.parametrize(
    ("body", "result", "line"),
    [
        ("n += 8; total += HITS", "total / n", 'total, n = accelerator.reduce((total, n), reduction="sum")'),
        ("total += HITS", "total / (len(loader) * 8)", 'total = accelerator.reduce(total, reduction="mean")'),
        ("n += 1; total += loss.item()", "total / n", 'total = accelerator.reduce(total, reduction="mean")'),
        ("total += loss.item()", "total / size", 'total = accelerator.reduce(total, reduction="sum")'),
        (
            "total += loss.item(); n += y.shape[0]",
            "total / n",
            'total, n = accelerator.reduce((total, n), reduction="sum")',
        ),
        (
            "total += loss.item()",
            "total / sizes['train']",
            'total = accelerator.reduce(total, reduction="sum")',
        ),
        ("total += accuracy(output, y)", "total / n", 'total = accelerator.reduce(total, reduction="mean")'),
        ("h, k = counts(output, y); total += h; n += k", "total / n", '(total, n), reduction="sum")'),
        ("total = (total * n + loss.item()) / (n + 1); n += 1", "total", 'total, reduction="mean")'),
    ],
)
def test_sums_over_numbers_of_batches(body: str, result: str, line: str) -> None:
    helpers = """
    size = len(data)
    sizes = {"train": len(data)}
    def accuracy(output, y):
        hits = (output.argmax(1) == y).sum().item()
        return hits / len(y)
    def counts(output, y):
        return (output.argmax(1) == y).sum().item(), y.size(0)
    """
    before, _ = script(body.replace("HITS", "(output.argmax(1) == y).sum().item()"), result)
    before = before.replace("total = 0", "total = n = 0")
    conversion = convert(ready=textwrap.dedent(helpers) + before, epoch="print(train_epoch())")
    assert line in conversion.new_text
    assert "ACC302" not in {f.code for f in conversion.remaining}


def test_what_a_loop_does_at_its_end() -> None:
    before = """
    def train_epoch():
        total = 0
        for x, y in loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            total += loss.item()
        else:
            return total / len(loader)
    """
    text = convert(ready=before, epoch="train_epoch()").new_text
    line = '        total = accelerator.reduce(total, reduction="mean")\n'
    assert f"    else:\n{line}        return total / len(loader)\n" in text


def test_a_sum_that_is_shown_beside_its_share() -> None:
    before, after = script(
        "total += (output.argmax(1) == y).sum().item()", "total, total / (len(loader) * 8)"
    )
    conversion = check_transformed("ready", before, after, epoch="print(train_epoch())")
    assert "ACC302" in {f.code for f in conversion.remaining}


def test_metrics_behind_names_and_figures_that_are_not_understood() -> None:
    before, after = script(
        "hit = (output.argmax(1) == y).float().mean(); total += hit.item()", "total", "mean"
    )
    check_transformed("ready", before, after, epoch="train_epoch()")
    before, after = script("total += measure(output, y)", "total")
    conversion = check_transformed(
        "ready", before, after, imports="from m import measure", epoch="train_epoch()"
    )
    assert "ACC302" in {f.code for f in conversion.remaining}


def test_the_number_of_samples_as_an_argument() -> None:
    before = """
    def train_epoch(count):
        total = 0
        for x, y in loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            total += loss.item()
        return total / count
    """
    text = convert(ready=before, epoch="print(train_epoch(count=len(data)))").new_text
    assert 'total = accelerator.reduce(total, reduction="sum")' in text


def test_sizes_unpacked_from_a_shape() -> None:
    loss = "n, width = x.shape\nloss = F.cross_entropy(model(x), y)\ntotal += loss.item() * n"
    conversion = convert(ready="total = 0", loss=loss, end="print(total / len(data))")
    assert 'total = accelerator.reduce(total, reduction="mean")' not in conversion.new_text


@pytest.mark.parametrize(
    ("end", "reduction"),
    [
        ("print('sum', total)", "sum"),
        ("print('sum {:.3f}'.format(total))", "sum"),
        ("print(total / len(loader))", "mean"),
        ("history.append(total)", "mean"),
    ],
)
def test_a_sum_of_means_that_is_shown_as_it_is(end: str, reduction: str) -> None:
    head = """
    history = []
    def train_epoch():
        total = 0
        for x, y in loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            total += loss.item()
    """
    text = convert(ready=textwrap.dedent(head).rstrip() + f"\n    {end}", epoch="train_epoch()").new_text
    assert f'total = accelerator.reduce(total, reduction="{reduction}")' in text


@pytest.mark.parametrize(
    ("shown", "said"),
    [
        ("print(total)", True),
        ("log_value('loss', total, 1)", True),
        ("print(total / len(loader.dataset))", False),
    ],
)
def test_a_sum_of_means_that_is_shown_as_it_is_says_what_a_cut_round_does_to_it(
    shown: str, said: bool
) -> None:
    end = f"""
    total = 0
    for x, y in loader:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        total += loss.item()
    {shown}
    """
    conversion = convert(end=end)
    assert 'total = accelerator.reduce(total, reduction="sum")' in conversion.new_text
    assert ("counts once for each" in " ".join(f.message for f in conversion.remaining)) == said


@pytest.mark.parametrize(
    ("before", "window", "reduction"),
    [
        (
            "batches = iter(loader)\nfor step in range(len(loader) // 2):",
            "[next(batches) for _ in range(2)]",
            "mean",
        ),
        ("for epoch in range(2):\n    first = next(iter(loader))", "loader", "sum"),
        ("for epoch in range(2):", "list(loader)", "sum"),
    ],
)
def test_a_sum_over_a_window_of_batches_is_of_as_many_on_every_process(
    before: str, window: str, reduction: str
) -> None:
    end = f"""
{before}
    window = {window}
    total = 0.0
    for x, y in window:
        loss = F.cross_entropy(model(x), y) / 2
        loss.backward()
        total += loss.item()
    optimizer.step()
    optimizer.zero_grad()
    print(total)
"""
    assert f'total = accelerator.reduce(total, reduction="{reduction}")' in convert(end=end).new_text


def test_a_sum_over_batches_that_the_loop_around_it_collects() -> None:
    end = """
window = []
for x, y in loader:
    window.append((x, y))
    if len(window) == 2:
        total = 0.0
        for a, b in window:
            loss = F.cross_entropy(model(a), b) / 2
            loss.backward()
            total += loss.item()
        optimizer.step()
        optimizer.zero_grad()
        print(total)
        window = []
"""
    assert 'total = accelerator.reduce(total, reduction="mean")' in convert(end=end).new_text


@pytest.mark.parametrize(
    "batches",
    ["(len(data) + size - 1) // size", "(size - 1 + len(data)) // size", "(len(data) - 1) // size + 1"],
)
def test_the_number_of_all_batches_rounded_up(batches: str) -> None:
    before, after = script("total += loss.item()", "total / batches", "sum")
    start = f"size = 8\nbatches = {batches}\n"
    check_transformed("ready", start + before, start + after, epoch="train_epoch()")


PARTS = """\
total = 0
for part in range(2):
    for x, y in loader:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        {backward}(loss)
        optimizer.step()
        total += {added}
{inside}{behind}print(total / {divisor})
"""


@pytest.mark.parametrize(
    ("added", "divisor"),
    [("loss.item()", "(len(data) // 8)"), ("loss.item() * len(x)", "len(data)")],
)
def test_a_total_of_several_passes_is_summed_once_behind_them(added: str, divisor: str) -> None:
    line = 'total = accelerator.reduce(total, reduction="sum")\naccelerator.'
    before = PARTS.format(backward="backward", added=added, inside="", behind="", divisor=divisor)
    before = before.replace("backward(loss)", "loss.backward()")
    after = PARTS.format(
        backward="accelerator.backward", added=added, inside="", behind=line, divisor=divisor
    )
    conversion = check_transformed("end", before, after)
    assert "ACC302" not in {f.code for f in conversion.remaining}


def test_a_total_that_is_read_between_its_passes_is_said_to_be_too_small() -> None:
    before = PARTS.format(
        backward="backward", added="loss.item()", inside="    print(total)\n", behind="", divisor="len(data)"
    ).replace("backward(loss)", "loss.backward()")
    conversion = convert(end=before)
    said = " ".join(f.message for f in conversion.remaining if f.code == "ACC302")
    assert "multiply it there by accelerator.num_processes" in said


@pytest.mark.parametrize(
    "division",
    [
        "costs[epoch] /= seen",
        "costs[epoch] = costs[epoch] / float(seen)",
        "costs[epoch] /= max(seen, 1)",
    ],
)
def test_a_counter_of_what_stays_one_share_stays_one_too(division: str) -> None:
    before = f"""
    costs = np.zeros(3)
    for epoch in range(3):
        seen = 0
        for x, y in loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            costs[epoch] += loss.item() * len(x)
            seen += len(x)
        {division}
        print(costs[epoch])
    """
    conversion = convert(imports="import numpy as np", end=before)
    assert "reduce(seen" not in conversion.new_text
    assert names_figures(conversion)


def test_a_counter_that_divides_sums_in_place_is_put_together_with_them() -> None:
    before, _ = script("total += loss.item() * len(x); n += len(x)", "total")
    before = before.replace("total = 0", "total = n = 0").replace("return", "total /= n\n    return")
    text = convert(ready=before, epoch="print(train_epoch())").new_text
    assert '    total, n = accelerator.reduce((total, n), reduction="sum")\n    total /= n' in text


def test_a_sum_that_is_trained_on_keeps_its_gradient() -> None:
    before = """
    smooth = 0
    for x, y in loader:
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
        smooth += model(x).pow(2).mean()
    smooth.backward()
    optimizer.step()
    """
    text = convert(end=before).new_text
    assert "smooth += model(x).pow(2).mean()\naccelerator.backward(smooth)" in text


@pytest.mark.parametrize(
    ("update", "reduction"),
    [
        ("mean += (loss.item() - mean) / (i + 1)", "mean"),
        ("mean = (mean * i + loss.item()) / (i + 1)", "mean"),
        ("mean = 0.9 * mean + 0.1 * loss.item()", "mean"),
        ("mean += loss.item()", "sum"),
        ("mean = mean + loss.item()", "sum"),
    ],
)
def test_what_keeps_a_mean_is_no_sum(update: str, reduction: str) -> None:
    text = convert(ready=RUN.format(update=update)).new_text
    assert f'mean = accelerator.reduce(mean, reduction="{reduction}")' in text


RUN = """
for run in range(2):
    mean = 0
    for i, (x, y) in enumerate(loader):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        {update}
    print(mean)
"""


UNKNOWN = """
def train(steps):
    total = 0
    for x, y in loader:
        optimizer.zero_grad()
        parts = measure(model(x), y)
        parts[-1].backward()
        optimizer.step()
        total += parts[-1].item()
    return total / steps

train({steps})
"""


@pytest.mark.parametrize(
    ("steps", "told"),
    [
        ("len(lines) // 4", True),
        ("len(lines) // size", True),
        ("len(lines) // (8 if size else 4)", True),
        ("len(lines) // given", False),
        ("len(loader)", False),
    ],
)
def test_what_divides_a_total_of_unknown_parts_is_told(steps: str, told: bool) -> None:
    setup = "lines = open('a').readlines()\nsize = 8 if os.environ else 4"
    conversion = convert(
        imports="from m import given, measure", setup=setup, ready=UNKNOWN.format(steps=steps)
    )
    (said,) = [f.message for f in conversion.remaining if f.code == "ACC302"]
    assert said.startswith("`total` adds up something of one process's share of the data")
    assert ("`steps` counts that of all processes: sum it over them first" in said) == told


SEVERAL = """
nets = [{{"net": model, "sum": 0.0, "n": 0}}]
for x, y in loader:
    {round}
        optimizer.zero_grad()
        loss = F.cross_entropy(one["net"](x), y)
        loss.backward()
        optimizer.step()
        one["sum"] += loss.item() * x.size(0)
        one["n"] += x.size(0)
for one in nets:
    print(one["sum"] / one["n"])
"""


@pytest.mark.parametrize(
    ("round", "each"),
    [
        ("for one in nets:", "nets"),
        ("for i, one in enumerate(nets):", "enumerate(nets)"),
        ("if True:", None),
    ],
)
def test_entries_of_each_object_of_a_list(round: str, each: str | None) -> None:
    """A line after the loop would reduce those of the last one alone."""
    first = "one = nets[0]\n" if each is None else ""
    text = SEVERAL.format(round=round).replace("for x, y", f"{first}for x, y", 1)
    conversion = convert(epoch=text)
    said = [f.message for f in conversion.remaining if f.code == "ACC302"]
    assert ('one["sum"], one["n"] = accelerator.reduce(' in conversion.new_text) is (each is None)
    assert [f"for each of `{each}`" in message for message in said] == ([] if each is None else [True, True])
