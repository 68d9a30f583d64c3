"""Mixed precision."""

from __future__ import annotations

import re

import pytest

from accelify.convert import convert_source
from accelify.source import Source
from tests.transforms.support import PATH, check_noop, check_transformed, convert

AMP = "from torch.cuda.amp import GradScaler, autocast"
DEVICE = "device = torch.device('cuda')"
LOSS = "loss = F.cross_entropy(model(x), y)"
UNDER = {"imports": AMP, "loss": f"with autocast():\n    {LOSS}"}
STEP = "scaler.step(optimizer)\nscaler.update()"
SCALED = "scaler.scale(loss).backward()"
MADE = f"{DEVICE}\nscaler = GradScaler()"


def test_a_dtype_from_a_variable_stays_the_scripts_own() -> None:
    check_noop(
        "loss",
        f"with torch.autocast(device_type='cuda', dtype=dtype):\n    {LOSS}",
        "ACC110",
        "ACC111",
        setup="dtype = torch.float16",
    )


@pytest.mark.parametrize(
    ("head", "scaled"),
    [
        ("autocast()", True),
        ("torch.autocast('cuda')", True),
        ("torch.autocast('cuda', dtype=torch.bfloat16)", False),
    ],
)
def test_autocast(head: str, scaled: bool) -> None:
    others = {"setup": MADE, "backward": SCALED, "update": STEP} if scaled else {}
    check_transformed(
        "loss",
        f"with {head}:\n    {LOSS}",
        f"with accelerator.autocast():\n    {LOSS}",
        imports=AMP,
        **others,
    )


@pytest.mark.parametrize(
    ("place", "before", "after"),
    [
        ("update", STEP, "optimizer.step()"),
        ("backward", SCALED, "accelerator.backward(loss)"),
        (
            "backward",
            f"{SCALED}\nscaler.unscale_(optimizer)\ntorch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)",
            "accelerator.backward(loss)\naccelerator.clip_grad_norm_(model.parameters(), 1.0)",
        ),
        (
            "backward",
            f"{SCALED}\nscaler.unscale_(optimizer)\nnorms = [p.grad.norm() for p in model.parameters()]",
            "accelerator.backward(loss)\naccelerator.unscale_gradients(optimizer)\n"
            "norms = [p.grad.norm() for p in model.parameters()]",
        ),
        (
            "setup",
            MADE,
            'accelerator = Accelerator(mixed_precision="fp16" if torch.cuda.is_available() else "no")\n'
            "device = accelerator.device",
        ),
    ],
)
def test_scaler(place: str, before: str, after: str) -> None:
    others = {"setup": MADE, "backward": SCALED, "update": STEP, **UNDER}
    others.pop(place)
    check_transformed(place, before, after, **others)


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        (f"{STEP}\nscheduler.step()", True),
        (f"{STEP}\nif step < 100:\n    scheduler.step()", True),
        (
            f"before = scaler.get_scale()\n{STEP}\nif scaler.get_scale() >= before:\n    scheduler.step()",
            False,
        ),
        (
            f"before = scaler.get_scale()\n{STEP}\nskipped = before > scaler.get_scale()\n"
            "if not skipped:\n    scheduler.step()",
            False,
        ),
        (STEP, False),
    ],
)
def test_a_schedule_that_went_on_where_a_step_was_left_out(steps: str, said: bool) -> None:
    made = "step = 0\nscheduler = torch.optim.lr_scheduler.StepLR(optimizer, 3)"
    conversion = convert(setup=MADE, ready=made, backward=SCALED, update=steps, **UNDER)
    assert any("this schedule waits" in f.message for f in conversion.remaining) is said


def test_without_fp16_no_step_is_left_out() -> None:
    text = IN_FLOAT16.replace("SCALER", "torch.amp.GradScaler()").replace(
        "for x, y in", "schedule = torch.optim.lr_scheduler.StepLR(optimizer, 3)\nfor x, y in"
    )
    text += "    schedule.step()\n"
    said = {
        word: any(
            "this schedule waits" in one.message
            for one in convert_source(Source.from_text(text.replace("float16", word), PATH)).remaining
        )
        for word in ("float16", "bfloat16")
    }
    assert said == {"float16": True, "bfloat16": False}


def test_a_scaler_that_is_saved_keeps_its_name() -> None:
    conversion = convert(
        setup=MADE, backward=SCALED, update=STEP, end="torch.save(scaler.state_dict(), 's.pt')", **UNDER
    )
    assert "scaler = accelerator.scaler\n" in conversion.new_text


def test_a_scaler_kept_for_its_methods_alone_goes() -> None:
    trainer = """
    class Trainer:
        def __init__(self, amp):
            self.model, self.optimizer = model, optimizer
            self.scaler = torch.amp.GradScaler("cuda", enabled=amp)
            self.region = torch.autocast("cuda") if amp else nullcontext()

        def fit(self):
            for x, y in loader:
                with self.region:
                    loss = F.cross_entropy(self.model(x), y)
                self.optimizer.zero_grad()
                self.scaler.scale(loss).backward()
                self.scaler.step(self.optimizer)
                self.scaler.update()

    Trainer(True).fit()
    """
    others = {"imports": f"{AMP}\nfrom contextlib import nullcontext", "setup": DEVICE}
    text = convert(end=trainer, loss=UNDER["loss"], **others).new_text
    assert "scaler" not in text
    assert "region" not in text
    assert "with accelerator.autocast():" in text


SWITCHED = """\
import argparse
import torch
from torch import nn
from torch.cuda.amp import GradScaler, autocast
from torch.utils.data import DataLoader, TensorDataset


class Trainer:
    def __init__(self, **given):
        self.args = given["args"]
        self.model, self.optimizer = given["model"], given["optimizer"]

    def fit(self, loader):
        scaler = GradScaler(enabled=self.args.half)
        for x, y in loader:
            with autocast(enabled=self.args.half):
                loss = nn.functional.cross_entropy(self.model(x.cuda()), y.cuda())
            self.optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(self.optimizer)
            scaler.update()


def main():
    args = argparse.ArgumentParser().parse_args()
    model = nn.Linear(4, 2).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(TensorDataset(torch.randn(8, 4), torch.ones(8).long()), batch_size=4)
    Trainer(model=model, optimizer=optimizer, args=args).fit(loader)


main()
"""


def test_a_switch_among_options_that_another_function_parses() -> None:
    conversion = convert_source(Source.from_text(SWITCHED, PATH))
    assert "mixed_precision" not in conversion.new_text
    assert any("precision" in one.message for one in conversion.remaining)


def test_what_stays_the_scripts_own_is_said() -> None:
    conversion = convert(
        loss=f"with torch.autocast(device_type='cuda', dtype=dtype):\n    {LOSS}",
        backward=SCALED,
        update=STEP,
        setup=f"{MADE}\ndtype = torch.float16",
        imports=AMP,
    )
    assert [f.message for f in conversion.remaining if f.code == "ACC110"] == [
        "the script keeps its own mixed precision, as its type is not written out: leave `mixed_precision` of the "
        "Accelerator, and of the launch, at `no`"
    ]


BY_SCALER = """\
import argparse
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--device", default="cuda")
parser.add_argument("--amp", action="store_true")
args = parser.parse_args()
device = torch.device(args.device)
model = nn.Linear(4, 2).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler() if {test} else None
for x, y in DataLoader(TensorDataset(torch.randn(8, 4), torch.ones(8).long()), batch_size=4):
    x, y = x.to(device), y.to(device)
    optimizer.zero_grad()
    with torch.amp.autocast(device_type=device.type, enabled=scaler is not None):
        loss = nn.functional.cross_entropy(model(x), y)
    if scaler is not None:
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    else:
        loss.backward()
        optimizer.step()
"""


@pytest.mark.parametrize(("test", "switch"), [('device.type == "cuda"', ""), ("args.amp", "args.amp and ")])
def test_where_the_script_asks_for_the_cpu_there_is_no_mixed_precision(test: str, switch: str) -> None:
    text = convert_source(Source.from_text(BY_SCALER.format(test=test), PATH)).new_text
    on_gpu = 'torch.cuda.is_available() and str(args.device) != "cpu"'
    assert f'mixed_precision="fp16" if {switch}{on_gpu} else "no"' in text


def test_the_line_that_keeps_the_casts_in_the_script_is_named() -> None:
    setup = f"{MADE}\nwith torch.no_grad():\n    print(model(torch.zeros(1, 4)))"
    conversion = convert(
        loss=f"with torch.autocast(device_type='cuda', dtype=torch.float16):\n    {LOSS}",
        backward=SCALED,
        update=STEP,
        setup=setup,
        imports=AMP,
    )
    lines = conversion.source.text.split("\n")
    (message,) = [one.message for one in conversion.remaining if one.code == "ACC110"]
    named = re.search(r"as a model is run outside of autocast \(line (\d+)\)", message)
    assert named is not None
    assert "model(torch.zeros(1, 4))" in lines[int(named[1]) - 1]


IN_FLOAT16 = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = nn.Linear(4, 4).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = SCALER
for x, y in DataLoader(TensorDataset(torch.randn(8, 4), torch.ones(8).long()), batch_size=4):
    x, y = x.to(device), y.to(device)
    optimizer.zero_grad()
    with torch.autocast(device_type=device.type, dtype=torch.float16):
        loss = nn.functional.cross_entropy(model(x), y)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
"""


@pytest.mark.parametrize(
    ("scaler", "dtype", "written"),
    [
        (
            "torch.cuda.amp.GradScaler()",
            "float16",
            '"fp16",\n    kwargs_handlers=[GradScalerKwargs(enabled=torch.cuda.is_available())],\n)',
        ),
        ("torch.amp.GradScaler(device.type)", "half", '"fp16")'),
        ("torch.amp.GradScaler()", "bfloat16", '"bf16")'),
        # That a CPU scales nothing does not keep it from casting.
        ('torch.amp.GradScaler(enabled=device.type == "cuda")', "bfloat16", '"bf16")'),
    ],
)
def test_autocast_of_any_device_stays_so_on_a_cpu(scaler: str, dtype: str, written: str) -> None:
    text = IN_FLOAT16.replace("SCALER", scaler).replace("float16", dtype)
    assert f"mixed_precision={written}" in (convert_source(Source.from_text(text, PATH)).new_text or "")


SWITCHED = """\
import json, sys
import torch
from torch import nn
from torch.utils.data import DataLoader


def epoch_of(model, loader, optimizer, amp):
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    HOW
    scaler = torch.amp.GradScaler("cuda", enabled=use_amp)
    for x, y in loader:
        optimizer.zero_grad()
        LOSS
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


def main():
    OPTION
    loader = DataLoader(torch.load("data.pt"), batch_size=4)
    model = nn.Linear(4, 1)
    epoch_of(model, loader, torch.optim.SGD(model.parameters(), lr=0.1), amp=GIVEN)


main()
"""


PARSED = """\
import argparse
    p = argparse.ArgumentParser()
    p.add_argument('--amp', action='store_true')
    args = p.parse_args()"""
CAST = "with torch.autocast(device.type, enabled=use_amp):"


@pytest.mark.parametrize("how", ["use_amp = amp and torch.cuda.is_available()", "use_amp = False"])
def test_a_scaler_without_a_cast_stays_as_what_it_scales_is_in_full_precision(how: str) -> None:
    text = SWITCHED.replace("HOW", how).replace("OPTION", PARSED).replace("GIVEN", "args.amp")
    text = text.replace("LOSS", "loss = nn.functional.mse_loss(model(x.to(device)), y.to(device))")
    found = convert_source(Source.from_text(text, PATH))
    assert "mixed_precision" not in found.new_text
    assert "accelerator.backward(scaler.scale(loss))" in found.new_text
    assert any("nothing is computed in half precision" in one.message for one in found.remaining)


def test_a_switch_of_which_nothing_is_known_where_the_accelerator_is_made() -> None:
    text = SWITCHED.replace("HOW", 'use_amp = amp and device.type == "cuda"')
    text = text.replace("OPTION", "config = json.load(open(sys.argv[1]))\n    amp = bool(config['amp'])")
    text = text.replace(
        "LOSS", f"{CAST}\n            loss = nn.functional.mse_loss(model(x.to(device)), y.to(device))"
    )
    found = convert_source(Source.from_text(text.replace("GIVEN", "amp"), PATH))
    assert "mixed_precision" not in found.new_text
    assert "accelerator.backward(scaler.scale(loss))" in found.new_text
    assert CAST in found.new_text
    assert any("keeps its own mixed precision" in one.message for one in found.remaining)
