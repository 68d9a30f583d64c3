"""What differs on a GPU only is found on machines that have none: precision, scaling of losses, a device's text."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from accelify.verify.compare.verdict import Check, Verdict
from accelify.verify.session import Report
from accelify.verify.show import as_data, explanations

pytestmark = pytest.mark.distributed

BEFORE = """\
import contextlib
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = nn.Linear(4, 1).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(torch.randn(32, 4), torch.randn(32, 1)), batch_size=8)
scaler = torch.amp.GradScaler("cuda", enabled={scaled})
for x, y in loader:
    x, y = x.to(device), y.to(device)
    with {precision}:
        loss = nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
{end}
"""
AFTER = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from accelify.runtime import Accelerator, GradScalerKwargs

accelerator = Accelerator({options})
device = accelerator.device
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(torch.randn(32, 4), torch.randn(32, 1)), batch_size=8)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
for x, y in loader:
    with accelerator.autocast():
        loss = nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    accelerator.backward(loss)
    optimizer.step()
{end}
"""
PLAIN, FP16 = "contextlib.nullcontext()", "torch.autocast(device.type, torch.float16, device.type == 'cuda')"
ON_GPU = "mixed_precision='fp16' if torch.cuda.is_available() else 'no'"


def compared(
    verify_pair: Callable[..., Report], before: dict[str, object], after: dict[str, str]
) -> tuple[Report, list[Check]]:
    """The report, and what is different on the GPU."""
    original = BEFORE.format(**{"scaled": False, "precision": PLAIN, "end": "", **before})
    report = verify_pair(original, AFTER.format(**{"options": "", "end": "", **after}), processes=())
    assert report.comparisons[0].overall is Verdict.EQUAL
    assert report.on_gpu.comparison is not None
    wrong = [c for c in report.on_gpu.comparison.checks if c.verdict in (Verdict.DIFFERENT, Verdict.FAILED)]
    return report, wrong


def test_the_same_precision_is_equal(verify_pair: Callable[..., Report]) -> None:
    report, wrong = compared(verify_pair, {"scaled": True, "precision": FP16}, {"options": ON_GPU})
    assert not wrong
    assert report.exit_code == 0
    assert report.on_gpu.comparison is not None
    assert report.on_gpu.comparison.overall is Verdict.EQUAL
    assert report.on_gpu.comparison.run.steps == 4


def test_a_precision_that_the_original_has_not(verify_pair: Callable[..., Report]) -> None:
    report, wrong = compared(verify_pair, {}, {"options": ON_GPU})
    assert [(check.key, check.line and check.line[1]) for check in wrong] == [
        ("precision", 13),
        ("scaling", 16),
    ]
    assert report.exit_code == 1


def test_scaling_that_is_lost(verify_pair: Callable[..., Report]) -> None:
    unscaled = f"{ON_GPU}, kwargs_handlers=[GradScalerKwargs(enabled=False)]"
    report, wrong = compared(verify_pair, {"scaled": True, "precision": FP16}, {"options": unscaled})
    (check,) = wrong
    assert (check.key, check.original and check.original[1]) == ("scaling", 16)
    (line,) = explanations(report)
    assert line.startswith("1 simulated GPU: losses different, train.py line 16: its losses are not scaled")


def test_scaling_in_bfloat16_changes_nothing(verify_pair: Callable[..., Report]) -> None:
    precision = "torch.autocast(device.type, torch.bfloat16)"
    report = verify_pair(
        BEFORE.format(scaled="device.type == 'cuda'", precision=precision, end=""),
        AFTER.format(options="mixed_precision='bf16'", end=""),
        processes=(),
    )
    assert report.on_gpu.comparison is not None
    assert report.on_gpu.comparison.overall is Verdict.EQUAL
    assert report.exit_code == 0


def test_a_device_as_text(verify_pair: Callable[..., Report]) -> None:
    end = "{'cpu': 0, 'cuda': 1}[str(%s)]"
    _, wrong = compared(verify_pair, {"end": end % "device"}, {"end": end % "device"})
    assert not wrong  # one process has no number
    report, wrong = compared(verify_pair, {"end": end % "device"}, {"end": end % "x.device"})
    (check,) = wrong
    assert check.verdict is Verdict.FAILED
    assert check.line is not None
    assert check.line[1] == 18
    assert "KeyError: 'cuda:0'" in check.sentence
    plain = as_data(report)
    assert plain["exit_code"] == 1
    assert plain["on_simulated_gpu"]["verdict"] == "failed"
    assert plain["columns"] == ["1 process", "1 simulated GPU"]


def test_tensors_are_moved_and_cast_in_one_call(verify_pair: Callable[..., Report]) -> None:
    end = (
        "moved = x.to(device, dtype=torch.float64), x.to(device=device, dtype=torch.float64), x.to(device, None)\n"
        "assert [m.dtype for m in moved] == [torch.float64, torch.float64, torch.float32], moved\n"
        "assert x.to('cpu', dtype=torch.int).device.type == 'cpu' and moved[0].device.type == device.type"
    )
    _, wrong = compared(verify_pair, {"end": end}, {"end": end})
    assert not wrong


def test_what_is_different_on_the_cpu_too_is_said_once(verify_pair: Callable[..., Report]) -> None:
    original = BEFORE.format(scaled=False, precision=PLAIN, end="print(1)")
    report = verify_pair(original, AFTER.format(options="", end="print(2)"), processes=())
    assert report.on_gpu.comparison is not None
    assert report.on_gpu.comparison.overall is Verdict.DIFFERENT
    assert [line.partition(":")[0] for line in explanations(report)] == ["1 process"]


def test_an_original_that_does_not_run_there_is_no_difference(verify_pair: Callable[..., Report]) -> None:
    end = "assert not torch.cuda.is_available(), 'for CPUs only'"
    original = BEFORE.format(scaled=False, precision=PLAIN, end=end)
    report = verify_pair(original, AFTER.format(options="", end=""), processes=())
    assert report.on_gpu.comparison is None
    assert report.exit_code == 0
    (note,) = report.notes
    assert note.startswith(
        "What happens on a GPU was not compared: on a simulated one the original does not run"
    )
    assert "for CPUs only" in note


def test_a_script_for_cpus_is_not_run_there(verify_pair: Callable[..., Report]) -> None:
    original = BEFORE.format(scaled=False, precision=PLAIN, end="")
    original = original.replace('"cuda" if torch.cuda.is_available() else "cpu"', '"cpu"').replace(
        "cuda", "cpu"
    )
    report = verify_pair(original, AFTER.format(options="cpu=True", end=""), processes=())
    assert report.on_gpu.comparison is None
    assert not report.notes
