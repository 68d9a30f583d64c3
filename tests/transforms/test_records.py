"""What training loops record: lists, entries of dictionaries, meters."""

from __future__ import annotations

from pathlib import Path

import pytest

from accelify.convert import convert_project
from accelify.source import Source
from tests.transforms.support import check_noop, check_transformed, codes, convert, frame, names_figures

LOOP = """\
def train_epoch():
    {fresh}
    for x, y in loader:
        optimizer.zero_grad()
        output = model(x)
        loss = F.cross_entropy(output, y)
        {backward}
        optimizer.step()
        {body}
{lines}    return {result}
"""
METER = """\
class Average:
    def __init__(self):
        self.reset()

    def reset(self):
        self.total, self.count, self.mean = 0, 0, 0

    def add(self, value, n=1):
        self.total += value * n
        self.count += n
        self.mean = self.total / self.count
"""
MEAN = 'kept = accelerator.reduce(kept, reduction="mean")'
SUM = 'kept = accelerator.reduce(kept, reduction="sum")'
OBJECTS = "kept = gather_object(kept)"


def script(body: str, result: str, line: str = "", fresh: str = "kept = []") -> tuple[str, str]:
    lines = "".join(f"    {one}\n" for one in line.split("\n") if one)
    before = LOOP.format(fresh=fresh, backward="loss.backward()", body=body, lines="", result=result)
    after = LOOP.format(
        fresh=fresh, backward="accelerator.backward(loss)", body=body, lines=lines, result=result
    )
    return before, after


@pytest.mark.parametrize(
    ("body", "result"),
    [
        ("kept.append(time())", "kept"),  # not of the batch
        ("kept.append(loss.item())", "None"),  # read by nobody
        ("x = kept.append", "kept"),
    ],
)
def test_what_stays(body: str, result: str) -> None:
    before, after = script(body, result)
    conversion = check_transformed(
        "ready", before, after, imports="from time import time", epoch="train_epoch()"
    )
    assert "ACC304" not in codes(conversion)


ALL = "((len(loader.dataset) - 1) // 4 + 1)"


@pytest.mark.parametrize(
    ("result", "line", "left"),
    [
        (f"sum(kept) / {ALL}", SUM, 0),
        ("100 * sum(one for one in kept) / len(loader.dataset)", SUM, 0),
        (f"print(len(kept), sum(kept)), np.array(kept).sum() / {ALL}", SUM, 0),
        (f"float(np.sum(kept)) / {ALL}", SUM, 0),
        ("sum(kept) / len(loader)", MEAN, 0),
        (f"sum(kept) / len(kept) if kept else {ALL}", MEAN, 0),
        (f"1 / {ALL}, sum(kept) / len(kept)", MEAN, 0),
        (f"max(kept), sum(kept) / {ALL}", MEAN, 1),
        (f"sum(kept) / {ALL}, sum(kept) / len(kept)", MEAN, 1),
    ],
)
def test_means_that_are_divided_by_the_batches_of_all_are_summed(result: str, line: str, left: int) -> None:
    before, _ = script("kept.append(loss.item())", result)
    conversion = convert(imports="import numpy as np", ready=before, epoch="train_epoch()")
    assert f"    {line}\n" in conversion.new_text
    found = [f.message for f in conversion.remaining if f.code == "ACC304"]
    assert len(found) == left
    assert all("`sum(kept)` is divided by those of all" in message for message in found)


@pytest.mark.parametrize(
    ("result", "line"),
    [
        ("total = sum(kept['a'])\n    return total / steps", "sum"),
        ("total = sum(kept['a'])\n    total /= steps\n    return total", "sum"),
        ("return {k: sum(one) / steps for k, one in kept.items()}", "sum"),
        ("for one in kept.values():\n        print(sum(one) / steps)", "sum"),
        ("print(kept)\n    return sum(kept['a']) / steps", "mean"),
        ("print(kept['b'])\n    return sum(kept['a']) / steps", "sum"),
    ],
)
def test_means_in_dictionaries_that_are_divided_by_all(result: str, line: str) -> None:
    before, _ = script("kept['a'].append(loss.item())", "None", fresh="kept = {'a': [], 'b': []}")
    before = before.replace("return None", result)
    conversion = convert(ready=f"steps = len(loader.dataset) // 4\n{before}", epoch="train_epoch()")
    assert f"""kept['a'] = accelerator.reduce(kept['a'], reduction="{line}")""" in conversion.new_text
    assert ("ACC304" in {f.code for f in conversion.remaining}) is (line == "mean")


@pytest.mark.parametrize(
    ("body", "ready", "fresh"),
    [
        ("kept.append(loss.item() / len(loader))", "", "kept = []"),  # parts of a mean
        ("kept.append(loss.item())", "kept = []", "n = 0"),  # goes on from call to call
    ],
)
def test_means_that_are_not_to_be_summed(body: str, ready: str, fresh: str) -> None:
    before, _ = script(body, f"sum(kept) / {ALL}", fresh=fresh)
    conversion = convert(ready=f"{ready}\n{before}", epoch="train_epoch()")
    assert 'reduction="mean")' in conversion.new_text
    assert ("ACC304" in {f.code for f in conversion.remaining}) is bool(ready)


@pytest.mark.parametrize(
    ("body", "result", "line"),
    [
        ("kept.append(loss.item())", "sum(kept) / len(kept)", MEAN),
        ("kept.append(loss.detach())", "torch.stack(kept).mean()", MEAN),
        ("kept.append((loss.item(), output.mean().item()))", "kept", MEAN),
        ("loss = F.mse_loss(output.cpu(), output.cpu()); kept.append(loss)", "sum(kept)", MEAN),
        ("kept.append((output.argmax(1) == y).float().mean().item())", "kept", MEAN),
        ("kept.append(loss.item() * x.size(0))", "sum(kept) / len(loader.dataset)", SUM),
        ("kept.append(output.argmax(1).cpu().numpy())", "np.concatenate(kept)", OBJECTS),
        ("kept.extend(output.argmax(1).tolist())", "kept", OBJECTS),
        ("kept += output.argmax(1).tolist()", "kept", OBJECTS),
    ],
)
def test_lists(body: str, result: str, line: str) -> None:
    conversion = check_transformed(
        "ready", *script(body, result, line), imports="import numpy as np", epoch="n = train_epoch()"
    )
    imported = "from accelify.runtime import Accelerator, gather_object\n" in conversion.new_text
    assert imported == (line == OBJECTS)


@pytest.mark.parametrize(
    ("value", "line"),
    [
        ("accuracy_score(y.numpy(), output.argmax(1).numpy())", MEAN),
        ("100 * f1_score(y.numpy(), output.argmax(1).numpy(), average='macro')", MEAN),
        ("f1_score(y.numpy(), output.argmax(1).numpy(), average=None)", OBJECTS),
        ("accuracy_score(y.numpy(), output.argmax(1).numpy(), normalize=False)", OBJECTS),
        ("shuffle(y.numpy())", OBJECTS),
    ],
)
@pytest.mark.parametrize("named", [False, True])
def test_scores_of_sklearn_are_one_number_a_batch(value: str, line: str, named: bool) -> None:
    body = f"share = {value}; kept.append(share)" if named else f"kept.append({value})"
    imports = "from sklearn.metrics import accuracy_score, f1_score\nfrom sklearn.utils import shuffle"
    before, after = script(body, "kept", line)
    after = after.replace(".numpy()", ".cpu().numpy()")
    check_transformed("ready", before, after, imports=imports, epoch="n = train_epoch()")


@pytest.mark.parametrize(
    ("value", "per_process", "total"),
    [
        ("1 - wrong.sum().item() / size", MEAN, ""),
        ("(1 - torch.sum(wrong) / size).item()", MEAN, ""),
        ("100 * (wrong.sum().item() / size)", MEAN, SUM),
        ("wrong.sum().item() / size", OBJECTS, SUM),
        ("1 - wrong.sum().item() / len(x)", MEAN, MEAN),
        ("(1 - 2 * torch.sum(wrong) / (wrong.sum() + y.sum())).item()", MEAN, MEAN),
        ("size - wrong.sum().item()", SUM, SUM),
    ],
)
@pytest.mark.parametrize("named", [False, True])
def test_shares_of_a_size_that_is_set(value: str, per_process: str, total: str, named: bool) -> None:
    body = f"share = {value}; kept.append(share)" if named else f"kept.append({value})"
    body = "wrong = output.argmax(1) != y; " + body
    for batch_size, line in (("per-process", per_process), ("total", total)):
        conversion = check_transformed(
            "ready",
            *script(body, "sum(kept) / len(kept)", line),
            imports="size = 8",
            epoch="n = train_epoch()",
            batch_size=batch_size,
        )
        assert "ACC304" in codes(conversion)


def test_samples_on_the_device_are_left_to_a_person() -> None:
    conversion = check_transformed(
        "ready", *script("kept.append(output)", "torch.cat(kept)"), epoch="train_epoch()"
    )
    assert "ACC304" in {f.code for f in conversion.remaining}


def test_entries_of_dictionaries() -> None:
    fresh = "kept = {'loss': [], 'sum': 0.0}"
    body = "kept['loss'].append(loss.item()); kept['sum'] += loss.item()"
    lines = "kept['sum'] = accelerator.reduce(kept['sum'], reduction=\"mean\")\n"
    lines += "kept['loss'] = accelerator.reduce(kept['loss'], reduction=\"mean\")"
    check_transformed("ready", *script(body, "kept", lines, fresh), epoch="n = train_epoch()")


def test_a_list_of_the_module_is_filled_anew() -> None:
    before, after = script(
        "curve.append(loss.item())", "1", 'curve[:] = accelerator.reduce(curve, reduction="mean")'
    )
    check_transformed(
        "ready", "curve = []\n" + before, "curve = []\n" + after, epoch="train_epoch()", end="print(curve)"
    )


def test_a_moving_average() -> None:
    line = 'kept = accelerator.reduce(kept, reduction="mean")'
    check_transformed(
        "ready",
        *script("kept = 0.9 * kept + 0.1 * loss.item()", "kept", line, "kept = 0.0"),
        epoch="train_epoch()",
    )


def test_a_meter() -> None:
    lines = 'kept.total, kept.count = accelerator.reduce((kept.total, kept.count), reduction="sum")\n'
    lines += "kept.mean = kept.total / max(kept.count, 1)"
    before, after = script("kept.add(loss.item(), x.size(0))", "kept.mean", lines, "kept = Average()")
    check_transformed("ready", METER + before, METER + after, epoch="n = train_epoch()")


@pytest.mark.parametrize(
    ("kept", "written"),
    [
        ("self.total / self.count if self.count else 0", "kept.total / max(kept.count, 1)"),
        ("0 if self.count == 0 else self.total / self.count", "kept.total / max(kept.count, 1)"),
        ("self.total / (self.count + 1e-6)", "kept.total / max(kept.count, 1)"),
    ],
)
def test_a_meter_that_works_its_average_out_in_its_own_way(kept: str, written: str) -> None:
    lines = 'kept.total, kept.count = accelerator.reduce((kept.total, kept.count), reduction="sum")\n'
    before, after = script(
        "kept.add(loss.item(), x.size(0))", "kept.mean", f"{lines}kept.mean = {written}", "kept = Average()"
    )
    meter = METER.replace("self.total / self.count", kept)
    assert meter != METER
    check_transformed("ready", meter + before, meter + after, epoch="n = train_epoch()")


def test_a_meter_whose_numbers_are_private_is_put_together_by_the_names_that_they_have_outside() -> None:
    meter = METER.replace("self.total", "self.__total").replace("self.count", "self.__count")
    assert "self.__total, self.__count, self.mean = 0, 0, 0" in meter
    lines = "kept._Average__total, kept._Average__count = accelerator.reduce("
    lines += '(kept._Average__total, kept._Average__count), reduction="sum")\n'
    lines += "kept.mean = kept._Average__total / max(kept._Average__count, 1)"
    before, after = script("kept.add(loss.item(), x.size(0))", "kept.mean", lines, "kept = Average()")
    conversion = check_transformed("ready", meter + before, meter + after, epoch="print(train_epoch())")
    assert not names_figures(conversion)


def test_a_meter_whose_average_takes_more_than_its_numbers_is_left_to_a_person() -> None:
    before, after = script("kept.add(loss.item(), x.size(0))", "kept.mean", fresh="kept = Average()")
    meter = METER.replace("self.total / self.count", "np.round(self.total / self.count, 4)")
    conversion = check_transformed(
        "ready", meter + before, meter + after, imports="import numpy as np", epoch="print(train_epoch())"
    )
    assert names_figures(conversion)


def test_several_meters() -> None:
    conversion = convert(
        ready=METER
        + script(
            "kept.add(loss.item(), x.size(0)); hits.add((output.argmax(1) == y).float().mean()); clock.add(0.1)",
            "kept.mean, hits.mean, clock.mean",
            fresh="kept, hits, clock = Average(), Average(), Average()",
        )[0],
        epoch="n = train_epoch()",
    )
    assert (
        "    for meter in (kept, hits):\n        meter.total, meter.count = accelerator.reduce("
        in conversion.new_text
    )


def test_a_meter_that_never_starts_over_is_left_to_a_person() -> None:
    before, after = script("kept.add(loss.item(), x.size(0))", "kept.mean", fresh="pass")
    made = METER + "kept = Average()\n"
    conversion = check_transformed("ready", made + before, made + after, epoch="n = train_epoch()")
    assert "ACC304" in {f.code for f in conversion.remaining}


def test_evaluation_records_what_is_gathered() -> None:
    snippet = """
    kept = []
    for a, b in test_loader:
        output = model(a)
        kept.append(F.cross_entropy(output, b).item())
    n = sum(kept)
    """
    assert "ACC304" not in codes(convert(epoch=snippet))


def test_no_loop_over_shared_data() -> None:
    check_noop("epoch", "kept = []\nfor k in range(3):\n    kept.append(k)\nn = kept", "ACC304")


def test_a_tensor_that_grows() -> None:
    body = "kept = torch.cat((kept, loss.data.view(1)))"
    check_transformed(
        "ready", *script(body, "kept.mean()", MEAN, "kept = torch.zeros(0)"), epoch="n = train_epoch()"
    )


def test_a_loop_over_steps() -> None:
    before = """
    def train_epoch():
        kept = []
        batches = iter(loader)
        for step in range(len(loader)):
            x, y = next(batches)
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            kept.append(loss.item())
        return sum(kept)
    """
    text = convert(ready=before, epoch="n = train_epoch()").new_text
    assert f"        kept.append(loss.item())\n    {MEAN}\n" in text


def test_figures_of_an_evaluation_that_cannot_be_gathered_agree() -> None:
    """What stops the training early is the same number everywhere; the samples are left to a person."""
    evaluation = """
    def evaluate(batches):
        losses, hits, kept = [], 0, []
        for a, b in batches:
            for part in range(1):
                output = model(a)
            losses.append(F.cross_entropy(output, b).item())
            hits += (output.argmax(1) == b).sum().item()
            kept.append(output.detach().cpu().numpy())
        return sum(losses) / len(losses), hits, kept
    """
    conversion = convert(ready=evaluation, epoch="best = evaluate(loader)")
    assert '    hits = accelerator.reduce(hits, reduction="sum")\n' in conversion.new_text
    assert '    losses = accelerator.reduce(losses, reduction="mean")\n' in conversion.new_text
    assert "gather_object" not in conversion.new_text
    assert "ACC301" in {f.code for f in conversion.remaining}


def test_a_loss_of_samples_that_are_made_of_noise() -> None:
    """What is drawn in the pass differs between processes, as the batches do."""
    update = (
        "made = model(torch.randn(8, 4)).mean()\nmade.backward()\noptimizer.step()\ncosts.append(made.item())"
    )
    text = convert(setup="costs = []", update=update, end="print(costs)").new_text
    assert 'costs = accelerator.reduce(costs, reduction="mean")' in text


@pytest.mark.parametrize("given", ["loss.item()", "loss.data.item()", "loss.data[0]", "loss.detach().item()"])
@pytest.mark.parametrize("criterion", ["nn.MSELoss()", "nn.MSELoss(reduction='sum')"])
def test_what_a_function_that_trains_gives_back(given: str, criterion: str) -> None:
    step = f"""
    criterion = {criterion}
    def step(a, b):
        optimizer.zero_grad()
        loss = criterion(model(a)[:, 0], b.float())
        loss.backward()
        optimizer.step()
        return {given}
    """
    kept = "kept = []\nfor a, b in loader:\n    kept.append(step(a, b))\nprint(sum(kept))"
    text = convert(ready=step, end=kept).new_text
    assert (MEAN in text) == ("sum" not in criterion)


CRITERION = """
class TokenLoss(nn.Module):
    def __init__(self):
        super().__init__()
        self.entropy = nn.CrossEntropyLoss(reduction="sum")
    def forward(self, output, y):
        return self.entropy(output, y), {count}
"""
QUOTIENT = """
def train_epoch():
    sums, counts = [], []
    for x, y in loader:
        optimizer.zero_grad()
        loss, count = criterion(model(x), y)
        loss.backward()
        optimizer.step()
        sums.append(loss.item())
        counts.append(count)
    {result}
"""


@pytest.mark.parametrize(
    ("count", "result", "line"),
    [
        ("(y != 0).sum().item()", "return sum(sums) / sum(counts)", '(sums, counts), reduction="sum"'),
        ("odd(y)", "return sum(sums) / sum(counts)", 'sums, reduction="mean"'),
        ("odd(y)", "n = sum(counts)\n    return sum(sums) / n", 'sums, reduction="mean"'),
        ("odd(y)", "print(counts)\n    return sum(sums) / len(data)", 'sums, reduction="sum"'),
    ],
)
def test_lists_that_are_divided_by_one_another_go_together(
    tmp_path: Path, count: str, result: str, line: str
) -> None:
    criterion = "from torch import nn\nfrom other import odd\n" + CRITERION.format(count=count)
    (tmp_path / "criteria.py").write_text(criterion)
    script = frame(
        imports="from criteria import TokenLoss",
        ready="criterion = TokenLoss()\n" + QUOTIENT.format(result=result),
        epoch="print(train_epoch())",
    )
    (tmp_path / "train.py").write_text(script)
    (conversion,) = convert_project(Source.read(tmp_path / "train.py"))
    assert f"accelerator.reduce({line})" in conversion.new_text
    assert ("ACC304" in {f.code for f in conversion.remaining}) is (count == "odd(y)")


@pytest.mark.parametrize(
    ("body", "reduction"),
    [
        ("kept.append(weights['style'] * loss.item())", "mean"),
        ("weights['n'] = len(x)\n        kept.append(weights['n'] * loss.item())", "sum"),
        ("weights = given.sizes(x)\n        kept.append(weights['n'] * loss.item())", "sum"),
    ],
)
def test_a_loss_with_a_weight_that_was_there_before_is_a_mean_still(body: str, reduction: str) -> None:
    before, _ = script(body, "kept", fresh="weights = yaml.safe_load(open('a'))['losses']\n    kept = []")
    text = convert(imports="import given, yaml", ready=before, epoch="print(train_epoch())").new_text
    assert f'kept = accelerator.reduce(kept, reduction="{reduction}")' in text
