"""Conversion for Hugging Face Accelerate: what is written otherwise, and what is said to differ."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

from accelify.conversion import Conversion, ConvertOptions
from accelify.convert import convert_source
from accelify.findings import Severity
from accelify.rules import all_rules
from accelify.source import Source
from accelify.verify.compare.verdict import Verdict
from tests.transforms.support import PATH, clean, codes, frame, place_of

FIXTURES = Path(__file__).resolve().parent.parent.parent / "fixtures"
# Scripts that distribute themselves need --replace-ddp.
KINDS = sorted(p.parent.name for p in FIXTURES.glob("*/before.py") if not p.parent.name.startswith("ddp_"))
MODES = ["per-process", "total"]
DIFFERS = "ACC6"
TOTALS = """\
total = seen = 0
right = 0
for x, y in loader:
    optimizer.zero_grad()
    output = model(x)
    loss = F.cross_entropy(output, y)
    {backward}
    optimizer.step()
    total += loss.item()
    seen += x.size(0)
    right += (output.argmax(1) == y).sum()
"""
BY_HAND = "(loss / 4).backward()"
CARRIED = "if (i + 1) % 4 == 0:\n    optimizer.step()\n    optimizer.zero_grad()\n"
FLUSHED = CARRIED.replace("== 0:", "== 0 or i + 1 == len(loader):")
STEP = "scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)"
FLOW = """\
class Flow(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 4)

    def forward(self, x):
        return self.inner(x)

    def nll(self, x):
        return self.inner(x).pow(2).mean()

model = Flow()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""


def source(text: str) -> Source:
    compile(text, "before.py", "exec", dont_inherit=True)
    return Source.from_text(text, PATH)


def options(batch_size: str = "per-process") -> ConvertOptions:
    return ConvertOptions(batch_size, "accelerate")


def convert(batch_size: str = "per-process", **snippets: str) -> Conversion:
    conversion = convert_source(source(frame(**snippets)), options(batch_size))
    assert conversion.status == "converted", conversion.reason
    compile(conversion.new_text, "after.py", "exec", dont_inherit=True)
    return conversion


def place(place: str, batch_size: str = "per-process", **snippets: str) -> str:
    return place_of(convert(batch_size, **snippets).new_text, place)


def said(conversion: Conversion) -> set[str]:
    return {code for code in codes(conversion) if code.startswith(DIFFERS)}


def findings_of(conversion: Conversion, code: str) -> list[str]:
    found = [f for f in [*conversion.applied, *conversion.remaining] if f.code == code]
    return [conversion.source.text.splitlines()[f.line - 1].strip() for f in found]


def line_of(conversion: Conversion, code: str) -> str:
    (line,) = findings_of(conversion, code)
    return line


@pytest.mark.parametrize("batch_size", MODES)
@pytest.mark.parametrize("kind", KINDS)
def test_fixtures(kind: str, batch_size: str) -> None:
    """Every fixture becomes a script of Accelerate's alone, in which nothing is left to convert or to mend."""
    before = Source.read(FIXTURES / kind / "before.py")
    conversion = convert_source(before, options(batch_size))
    assert conversion.status == "converted", conversion.reason
    compile(conversion.new_text, kind, "exec", dont_inherit=True)
    assert "from accelerate import Accelerator" in conversion.new_text
    assert "accelify" not in conversion.new_text.replace("TODO(accelify", "")
    for name in ('reduction="sum")', "scale_last_window", "reset_each_epoch", "Accelerator(split_batches"):
        lines = [
            line
            for line in conversion.new_text.splitlines()
            if name in line and "accelerator.reduce" not in line
        ]
        assert [line for line in lines if "accelerator" in line] == []
    again = convert_source(Source.from_text(conversion.new_text, before.path), options(batch_size))
    assert again.status == "unchanged"
    assert again.new_text == conversion.new_text
    assert again.remaining == again.applied == []
    checked = convert_source(Source.from_text(conversion.new_text, before.path), ConvertOptions())
    assert not checked.changed
    assert {f.code for f in checked.remaining} <= {"ACC001"}
    assert checked.applied == []


@pytest.mark.parametrize(
    "kind", ["image_classification", "accumulation_by_hand", "sum_loss_uneven", "scheduler_per_batch"]
)
def test_golden(kind: str, file_regression: Any) -> None:
    conversion = convert_source(Source.read(FIXTURES / kind / "before.py"), options())
    after = FIXTURES / kind / "after_accelerate.py"
    file_regression.check(conversion.new_text, fullpath=after, encoding="utf-8", newline="")


def test_the_own_runtime_says_nothing_of_it() -> None:
    for snippets in ({}, {"ready": STEP, "update": "optimizer.step()\nscheduler.step()"}):
        conversion = convert_source(source(frame(**snippets)), ConvertOptions())
        assert said(conversion) == set()


def test_every_difference_has_a_page_and_does_not_fail_a_run() -> None:
    pages = {code: entry for code, entry in all_rules().items() if code.startswith(DIFFERS)}
    assert len(pages) == 2
    for entry in pages.values():
        assert entry.rule.name.startswith("accelerate-")
        assert len(entry.text) > 150
    assert not any(f.severity is not Severity.INFO for f in convert().remaining)


def test_a_plain_script() -> None:
    conversion = convert()
    assert "from accelerate import Accelerator\n" in conversion.new_text
    assert "import gather_object" not in conversion.new_text
    assert said(conversion) == {"ACC601", "ACC602", "ACC613"}
    assert line_of(conversion, "ACC601") == "loader = DataLoader(data, batch_size=8, shuffle=True)"
    assert "ACC613" not in said(convert(setup="device = torch.device('cpu')")), "this one asks for no GPU"


def test_a_loader_that_agrees_gets_no_word() -> None:
    agreed = "DataLoader(data, batch_size=8, shuffle=True, drop_last=True, generator=torch.Generator())"
    text = frame().replace("DataLoader(data, batch_size=8, shuffle=True)", agreed)
    assert said(convert_source(source(text), options())) == {"ACC613"}


@pytest.mark.parametrize(
    ("loss", "expected"),
    [
        ("loss = F.cross_entropy(model(x), y, reduction='sum')", "loss * accelerator.num_processes"),
        ("loss = F.cross_entropy(model(x), y)", "loss"),
    ],
)
def test_summed_losses_are_multiplied(loss: str, expected: str) -> None:
    conversion = convert(loss=loss)
    assert place_of(conversion.new_text, "backward") == f"accelerator.backward({expected})"
    assert ("ACC603" in said(conversion)) == ("*" in expected)


def test_a_summed_expression_keeps_its_meaning() -> None:
    one = "F.cross_entropy(model(x), y, reduction='sum')"
    more = place("backward", loss="", backward=f"({one} + {one}).backward(retain_graph=True)")
    assert more == f"accelerator.backward(({one} + {one}) * accelerator.num_processes, retain_graph=True)"
    scaled = place("backward", loss="", backward=f"({one} * 2).backward()")
    assert scaled == f"accelerator.backward({one} * 2 * accelerator.num_processes)"


def test_totals_of_numbers_are_gathered_and_of_tensors_reduced() -> None:
    conversion = convert(ready=TOTALS.format(backward="loss.backward()"), epoch="print(total, seen, right)")
    assert (
        "from accelerate import Accelerator\nfrom accelerate.utils import gather_object\n"
        in conversion.new_text
    )
    after = TOTALS.format(backward="accelerator.backward(loss)") + clean(
        """
        total = sum(gather_object([total]))
        seen = sum(gather_object([seen]))
        right = accelerator.reduce(right, reduction="sum")
        """
    )
    assert place_of(conversion.new_text, "ready").endswith(after)


def test_a_window_that_ends_with_the_epoch_is_accelerates() -> None:
    text = frame(backward=BY_HAND, update=FLUSHED).replace("        optimizer.zero_grad()\n", "", 1)
    conversion = convert_source(source(text), options())
    assert "gradient_accumulation_steps=4)" in conversion.new_text
    assert "with accelerator.accumulate(model):" in conversion.new_text
    assert "ACC605" not in said(conversion)


@pytest.mark.parametrize("step", ["", "scheduler.step()\n"])
def test_other_windows_stay_counted_by_hand(step: str) -> None:
    window = (FLUSHED if step else CARRIED) + step
    text = frame(ready=STEP, backward=BY_HAND, update=window).replace(
        "        optimizer.zero_grad()\n", "", 1
    )
    conversion = convert_source(source(text), options())
    assert place_of(conversion.new_text, "update") == clean(window)
    assert place_of(conversion.new_text, "backward") == "accelerator.backward(loss / 4)"
    assert "accumul" not in conversion.new_text
    assert line_of(conversion, "ACC605").startswith("if (i + 1) % 4 == 0")


def test_schedules() -> None:
    once_a_batch = convert(ready=STEP, update="optimizer.step()\nscheduler.step()")
    assert "loader, scheduler = accelerator.prepare(" in once_a_batch.new_text
    assert line_of(once_a_batch, "ACC604") == "scheduler.step()"
    once_an_epoch = convert(ready=STEP, epoch="scheduler.step()")
    assert (
        "model, optimizer, loader = accelerator.prepare(model, optimizer, loader)" in once_an_epoch.new_text
    )
    assert "ACC604" not in said(once_an_epoch)
    split = convert("total", ready=STEP, update="optimizer.step()\nscheduler.step()")
    assert "ACC604" not in said(split), "split batches are as many as before"


def test_what_the_wrappers_hide() -> None:
    update = "optimizer.step()\nscheduler.step()\n{}\nlr = scheduler.get_last_lr(), optimizer.param_groups"
    after = place(
        "update", ready=STEP, update=update.format("n = scheduler.last_epoch, optimizer._step_count")
    )
    assert after == update.format("n = scheduler.scheduler.last_epoch, optimizer.optimizer._step_count")
    closure = (
        "def closure():\n    loss = F.cross_entropy(model(x), y)\n    loss.backward()\n    return loss\n"
    )
    after = place("update", loss="", backward=closure, update="value = optimizer.step(closure)")
    assert after == "value = optimizer.optimizer.step(closure)"
    assert (
        place("update", loss="", backward=closure, update="optimizer.step(closure)")
        == "optimizer.step(closure)"
    )


def test_a_model_trained_by_a_method() -> None:
    conversion = convert(build=FLOW, loss="loss = model.nll(x)")
    assert place_of(conversion.new_text, "loss") == "loss = accelerator.unwrap_model(model).nll(x)"
    assert place_of(conversion.new_text, "backward") == clean(
        """
        accelerator.backward(loss)
        for parameter in model.parameters():
            if parameter.grad is not None:
                parameter.grad = accelerator.reduce(parameter.grad, reduction="mean")
        """
    )
    assert line_of(conversion, "ACC606") == "loss.backward()"


def test_a_method_beside_forward_needs_no_reduction() -> None:
    conversion = convert(build=FLOW, loss="loss = model(x).mean() + model.nll(x)")
    assert "accelerator.unwrap_model(model).nll(x)" in conversion.new_text
    assert place_of(conversion.new_text, "backward") == "accelerator.backward(loss)"
    assert "ACC606" not in said(conversion)
    written_out = convert(build=FLOW, loss="loss = model.forward(x).mean() + model.nll(x)")
    assert "ACC606" not in said(written_out)
    behind = convert(build=FLOW.replace("def nll", "def log"), update="optimizer.step()\nmodel.log(x)")
    assert "accelerator.unwrap_model(model).log(x)" in behind.new_text
    assert "ACC606" not in said(behind)


def test_mixed_precision() -> None:
    amp = {
        "setup": "scaler = torch.amp.GradScaler()",
        "loss": "with torch.autocast('cuda'):\n    loss = F.cross_entropy(model(x), y)",
        "backward": "scaler.scale(loss).backward()",
        "update": "scaler.step(optimizer)\nscaler.update()",
    }
    assert "scaler" not in convert(**amp).new_text.replace("# ", "")
    kept = convert(**amp, end="torch.save(scaler.state_dict(), 'scaler.pt')")
    assert "scaler = accelerator.scaler or torch.amp.GradScaler(enabled=False)" in kept.new_text
    assert "ACC612" in said(kept)


def test_clipping_with_arguments_that_accelerate_lacks() -> None:
    clip = "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0{})\noptimizer.step()"
    plain = place("update", update=clip.format(""))
    assert plain.startswith("accelerator.clip_grad_norm_(model.parameters(), 1.0)")
    further = clip.format(", foreach=False")
    assert place("update", update=further) == further
    autocast = "with torch.autocast('cuda', dtype=torch.bfloat16):\n    loss = F.cross_entropy(model(x), y)"
    assert place("update", loss=autocast, update=further) == f"accelerator.unscale_gradients()\n{further}"


def test_split_batches() -> None:
    conversion = convert("total")
    assert "from accelerate import Accelerator, DataLoaderConfiguration\n" in conversion.new_text
    assert "Accelerator(dataloader_config=DataLoaderConfiguration(split_batches=True)" in conversion.new_text
    assert findings_of(conversion, "ACC609") == ["loader = DataLoader(data, batch_size=8, shuffle=True)"]


def test_loaders_that_are_made_anew() -> None:
    own = "class Own(DataLoader):\n    def __iter__(self):\n        return super().__iter__()\n"
    text = frame(imports=own).replace(
        "loader = DataLoader(data, batch_size=8, sh", "loader = Own(data, batch_size=8, sh"
    )
    assert line_of(convert_source(source(text), options()), "ACC610").startswith("loader = Own(")
    text = frame().replace("batch_size=8, shuffle=True", "batch_sampler=batches")
    assert "ACC610" in said(convert_source(source("batches = [[0, 1], [2, 3]]\n" + text), options()))


def test_evaluation_of_padded_batches() -> None:
    evaluate = """
    right = 0
    with torch.no_grad():
        for a, b in test_loader:
            output = model(a)
            right += (output.argmax(1) == b).sum().item()
    print(right)
    """
    assert "ACC611" not in said(convert(end=clean(evaluate)))
    text = frame(imports="from torch.nn.utils.rnn import pad_sequence", end=clean(evaluate))
    text = text.replace(
        "test_loader = DataLoader(data, batch_size=8", "test_loader = DataLoader(data, 8, collate_fn=pad"
    )
    assert line_of(convert_source(source(text), options()), "ACC611") == "for a, b in test_loader:"


def test_a_notebook_is_launched_by_accelerate() -> None:
    cells = [{"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": None, "source": frame()}]
    text = json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5})
    conversion = convert_source(Source.from_bytes(text.encode(), Path("/nowhere/train.ipynb")), options())
    (hint,) = [f for f in conversion.remaining if f.code == "ACC501"]
    assert "from accelerate import notebook_launcher" in hint.message


needs_accelerate = pytest.mark.skipif(
    importlib.util.find_spec("accelerate") is None, reason="accelerate is not installed"
)
EVEN = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
data = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
loader = DataLoader(data, batch_size=8, shuffle=True, drop_last=True, generator=torch.Generator().manual_seed(1))
{more}
for epoch in range(2):
    total = 0.0
    for x, y in loader:
        optimizer.zero_grad()
        {loss}
        loss.backward()
        optimizer.step()
        {step}
        total += loss.item()
    print(epoch, total / len(loader))
"""
MODEL = "model = nn.Linear(4, 1)\noptimizer = torch.optim.SGD(model.parameters(), lr=0.01)"
RUNS = {
    "plain": (MODEL, "loss = (model(x) - y).pow(2).mean()", ""),
    "summed": (MODEL, "loss = (model(x) - y).pow(2).sum()", ""),
    "schedule": (
        f"{MODEL}\nschedule = torch.optim.lr_scheduler.LinearLR(optimizer, total_iters=12)",
        "loss = (model(x) - y).pow(2).mean()",
        "schedule.step()",
    ),
    "method": (FLOW.replace("lr=0.1", "lr=0.01"), "loss = model.nll(x)", ""),
}


@needs_accelerate
@pytest.mark.distributed
@pytest.mark.parametrize("kind", RUNS)
def test_runs_give_the_originals_losses(kind: str, tmp_path: Path) -> None:
    """For real: the same losses to the bit on one process, to rounding on two, wherever no finding says otherwise."""
    from accelify.verify.session import verify

    more, loss, step = RUNS[kind]
    script = tmp_path / "train.py"
    script.write_text(EVEN.format(more=more, loss=loss, step=step))
    report = verify(script, runtime="accelerate", batch_size="total", steps=100, processes=2)
    one, two = report.comparisons
    assert one.verdict is Verdict.EQUAL, one.reason
    assert one.same_weights
    assert two.verdict is Verdict.ROUNDING, two.reason
    assert two.same_rates


@needs_accelerate
@pytest.mark.distributed
def test_another_order_is_said_and_not_called_wrong(tmp_path: Path) -> None:
    from accelify.verify.session import verify

    script = tmp_path / "train.py"
    more, loss, step = RUNS["plain"]
    script.write_text(
        EVEN.format(more=more, loss=loss, step=step).replace(
            ", generator=torch.Generator().manual_seed(1)", ""
        )
    )
    report = verify(script, runtime="accelerate", batch_size="total", steps=16, processes=2)
    one, two = report.comparisons
    assert one.verdict is Verdict.EQUAL
    assert two.verdict is Verdict.NOT_COMPARABLE
    assert "ACC601" in two.reason
    assert report.exit_code == 0


@pytest.mark.parametrize(
    "held",
    [
        "kept = {}\nkept['net'] = model",
        "kept = []\nkept.append(model)",
        "import copy\nkept = copy.deepcopy(model)",
        "kept = {'parts': {'net': model}}",
    ],
)
def test_wrappers_in_what_is_saved_are_named(held):
    text = frame(end=f"{held}\ntorch.save(kept, 'kept.pt')")
    found = convert_source(source(text), ConvertOptions(runtime="accelerate"))
    said = [f.message for f in found.remaining if f.code == "ACC206"]
    assert len(said) == 1
    assert "a wrapped model" in said[0]
    # The other runtime's wrappers are written as the model that they hold.
    assert "ACC206" not in {f.code for f in convert_source(source(text), ConvertOptions()).remaining}


@pytest.mark.parametrize(
    "held",
    [
        "kept = {'net': model}",
        "kept = {'net': model.state_dict()}",
        "kept = {}\nkept['net'] = model.state_dict()",
        "kept = [model]",
        "import copy\nkept = copy.deepcopy(model.state_dict())",
        "kept = model",
    ],
)
def test_models_that_are_unwrapped_in_what_is_saved_are_not_named(held):
    text = frame(end=f"{held}\ntorch.save(kept, 'kept.pt')")
    found = convert_source(source(text), ConvertOptions(runtime="accelerate"))
    assert "ACC206" not in {f.code for f in found.remaining}
