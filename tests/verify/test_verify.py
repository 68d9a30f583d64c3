"""Verdicts on real runs: right copies are found right, wrong ones different, and each for its reason."""

from __future__ import annotations

import os
import re
import textwrap
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from accelify.convert import convert_source
from accelify.source import Source
from accelify.verify.compare.verdict import Verdict
from accelify.verify.converted import convert_copy
from accelify.verify.nursery import Nursery
from accelify.verify.runs import Job, execute
from accelify.verify.session import Report, VerifyError
from accelify.verify.show import demands, explain, explanations

from . import scripts

pytestmark = pytest.mark.distributed
VerifyPair = Callable[..., Report]
SAME = (Verdict.EQUAL, Verdict.ROUNDING)
SCRIPTED = f"torch.jit.script({scripts.BATCH_NORM})"


@pytest.mark.parametrize(
    ("model", "optimizer", "loop"),
    [
        (scripts.MLP, scripts.SGD, scripts.LOOP),
        (scripts.MLP, "torch.optim.Adam(model.parameters(), lr=0.01)", scripts.LOOP),
        (scripts.MLP, scripts.LBFGS, scripts.CLOSURE_LOOP),
        (scripts.MLP, scripts.SCHEDULE, scripts.SCHEDULE_LOOP),
    ],
    ids=["sgd", "adam", "closure", "schedule"],
)
def test_a_right_copy_is_identical_on_one_and_equal_on_two(
    verify_pair: VerifyPair, model: str, optimizer: str, loop: str
) -> None:
    report = verify_pair(*scripts.pair(model, optimizer, loop), steps=6)
    one, two = report.comparisons
    assert one.verdict is Verdict.EQUAL
    assert two.verdict is Verdict.ROUNDING, two.reason
    assert 0 < two.largest <= two.tolerance < 0.01
    assert two.update is not None
    assert two.update < 1e-3
    assert two.same_rates
    assert report.exit_code == 0
    assert report.unseen is None


def test_a_run_cut_short_in_its_first_epoch_says_so(verify_pair: VerifyPair) -> None:
    found = verify_pair(scripts.plain(), RIGHT, steps=2, processes=1).unseen
    assert found is not None
    assert found.steps == 5


def test_a_summed_loss_needs_its_reduction(verify_pair: VerifyPair) -> None:
    right = scripts.converted(scripts.MLP, scripts.SMALL_SGD, scripts.SUM_LOOP)
    right = right.replace("backward(loss)", 'backward(loss, reduction="sum")')
    original = scripts.plain(scripts.MLP, scripts.SMALL_SGD, scripts.SUM_LOOP)
    assert verify_pair(original, right, steps=4).comparisons[1].verdict is Verdict.ROUNDING
    wrong = scripts.converted(scripts.MLP, scripts.SMALL_SGD, scripts.SUM_LOOP)
    report = verify_pair(original, wrong, steps=4)
    assert report.comparisons[1].verdict is Verdict.DIFFERENT
    assert report.comparisons[1].first is not None
    assert report.comparisons[1].first.number == 1
    assert report.exit_code == 1


@pytest.mark.parametrize(
    ("model", "loop", "reason"),
    [
        (scripts.DROPOUT, scripts.LOOP, "dropout is active in training"),
        (scripts.BATCH_NORM, scripts.LOOP, "statistics are taken over each process's own share"),
        (SCRIPTED, scripts.LOOP, "statistics are taken over each process's own share"),
        (scripts.MLP, scripts.NOISE_LOOP, "random numbers are drawn in the training step"),
    ],
    ids=["dropout", "batch-norm", "batch-norm-in-torchscript", "noise"],
)
def test_chance_is_named_and_taken_out(verify_pair: VerifyPair, model: str, loop: str, reason: str) -> None:
    report = verify_pair(*scripts.pair(model, loop=loop), steps=5)
    one, two = report.comparisons
    assert one.verdict is Verdict.EQUAL
    assert two.verdict is Verdict.NOT_COMPARABLE
    unlike = [check.sentence for check in two.checks if check.verdict is Verdict.NOT_COMPARABLE]
    assert len(unlike) > 1
    assert all(reason in sentence for sentence in unlike)
    assert two.quiet is not None
    assert two.quiet.verdict is Verdict.ROUNDING
    assert report.exit_code == 0


def test_a_run_without_chance_is_disturbed_too(
    nursery: Nursery, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """What rounding may do is asked of a disturbed run, also where chance (and so its noise) is taken out."""
    script, weights = (
        tmp_path_factory.mktemp("run") / "train.py",
        tmp_path_factory.mktemp("kept") / "weights.pt",
    )
    script.write_text(scripts.pair()[0])
    job = Job(script, (), steps=3, threads=1, limit=60, save_weights=weights, quiet=True)
    nursery.ready()
    assert not execute(job, nursery).failure
    disturbed = replace(job, save_weights=None, reference=job.save_weights, perturb=True)
    deviation = execute(disturbed, nursery).ranks[0].deviation
    assert deviation is not None
    assert 0 < deviation["update"] < 1e-4


NOISE_IN_EVALUATION = """\
import torch
from torch.utils.data import DataLoader, TensorDataset

class Net(torch.nn.Linear):
    def forward(self, x):
        out = super().forward(x)
        return out if self.training else out + torch.randn_like(out)

data = TensorDataset(torch.linspace(0, 1, 128).view(32, 4))
train = DataLoader(data, batch_size=4, shuffle=True)
test = DataLoader(data, batch_size=4)
model = Net(4, 4)
opt = torch.optim.SGD(model.parameters(), lr=0.05)
for epoch in range(3):
    model.train()
    for (x,) in train:
        opt.zero_grad()
        loss = (model(x) - x).pow(2).mean()
        loss.backward()
        opt.step()
    model.eval()
    total = 0.0
    with torch.no_grad():
        for (x,) in test:
            out = model(x)
            total += (out - x).pow(2).mean(dim=1).sum().item()
    print(total / 32)
"""


def test_draws_in_evaluation_that_move_the_order_are_taken_out(verify_pair: VerifyPair) -> None:
    report = verify_pair(NOISE_IN_EVALUATION, None, steps=10, processes=2)
    one, two = report.comparisons
    assert one.overall is Verdict.EQUAL
    assert two.overall is Verdict.NOT_COMPARABLE, two.to_json()
    assert "outside of training" in two.reason
    assert two.quiet is not None
    assert two.quiet.overall in SAME, two.quiet.to_json()


def test_draws_in_evaluation_do_not_hide_a_wrong_copy(verify_pair: VerifyPair, tmp_path: Path) -> None:
    converted = convert_copy(_written(tmp_path, NOISE_IN_EVALUATION), "accelify", "per-process")
    (text,) = (after for _, after in converted.texts().values())
    wrong = text.replace(".backward(loss)", ".backward(loss * 0.9)")
    assert wrong != text
    two = verify_pair(NOISE_IN_EVALUATION, wrong, steps=10, processes=2).comparisons[1]
    assert two.verdict is Verdict.DIFFERENT


def _written(folder: Path, text: str) -> Path:
    script = folder / "train.py"
    script.write_text(text)
    return script


def test_random_samples_are_named(verify_pair: VerifyPair) -> None:
    dataset = (
        "class Noisy(torch.utils.data.Dataset):\n"
        "    def __len__(self): return 44\n"
        "    def __getitem__(self, i): return X[i] + torch.randn(5), Y[i]\n"
    )
    texts = [
        text.replace("loader =", dataset + "loader =", 1).replace(
            "torch.utils.data.TensorDataset(X, Y)", "Noisy()"
        )
        for text in scripts.pair()
    ]
    two = verify_pair(*texts, steps=5).comparisons[1]
    assert two.verdict is Verdict.NOT_COMPARABLE
    assert "drawn for each sample (Noisy draws from torch)" in two.reason
    assert two.quiet is not None
    assert two.quiet.verdict is Verdict.ROUNDING


def test_chance_does_not_hide_a_wrong_copy(verify_pair: VerifyPair) -> None:
    loop = scripts.SUM_LOOP
    original = scripts.plain(scripts.DROPOUT, scripts.SMALL_SGD, loop)
    copy = scripts.converted(scripts.DROPOUT, scripts.SMALL_SGD, loop)
    report = verify_pair(original, copy, steps=5)
    assert report.comparisons[0].verdict is Verdict.EQUAL
    assert report.comparisons[1].verdict is Verdict.DIFFERENT
    assert "also with chance taken out" in report.comparisons[1].reason


def test_the_runtime_averages_what_a_prepared_optimizer_trains(verify_pair: VerifyPair) -> None:
    copy = scripts.converted(prepare="opt, loader = accelerator.prepare(opt, loader)\n")
    report = verify_pair(scripts.plain(), copy, steps=4)
    assert [c.verdict for c in report.comparisons] == [Verdict.EQUAL, Verdict.ROUNDING]


RIGHT = scripts.converted()


@pytest.mark.parametrize(
    ("wrong", "on_one", "words"),
    [
        (
            RIGHT.replace(scripts.PREPARE, "loader = accelerator.prepare(loader)\n"),
            SAME,
            "different weights",
        ),
        (RIGHT.replace("accelerator.backward(loss)", "(loss * 1).backward()"), SAME, "loss 1"),
        (RIGHT.replace("lr=0.05", "lr=0.0501"), [Verdict.DIFFERENT], "learning rate of step 1"),
        (
            RIGHT.replace("opt.step()", "opt.step(); accelerator.backward(model(x).sum())"),
            [Verdict.DIFFERENT],
            "times",
        ),
    ],
    ids=[
        "only-the-loader-prepared",
        "plain-backward",
        "other-rate",
        "backward-too-many",
    ],
)
def test_wrong_copies_are_different(
    verify_pair: VerifyPair, wrong: str, on_one: list[Verdict], words: str
) -> None:
    report = verify_pair(scripts.plain(), wrong, steps=4)
    assert report.comparisons[0].verdict in on_one
    assert report.comparisons[1].verdict is Verdict.DIFFERENT
    assert words in report.comparisons[1].reason
    assert report.exit_code == 1


def test_a_batch_for_each_process_is_compared_with_larger_batches(verify_pair: VerifyPair) -> None:
    copy = RIGHT.replace("split_batches=True", "")
    report = verify_pair(scripts.plain(), copy, steps=100, processes=(2, 3))
    one, two, three = report.comparisons
    assert one.overall is Verdict.EQUAL
    assert report.original is not None
    for comparison in (two, three):
        assert comparison.overall is Verdict.ROUNDING, comparison.checks
        assert comparison.reference is not None
        # Four batches an epoch are two rounds of two processes, and of three.
        assert comparison.run.steps == comparison.reference.steps == report.original.steps // 2


FOLDS = """\
import torch
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
data = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))


def made(part):
    return DataLoader(part, batch_size=8)


for fold in range(3):
    loader, held_out = made(data), made(data)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(2):
        for x, y in loader:
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(x), y).backward()
            optimizer.step()
"""


def test_loaders_of_later_folds_are_compared_in_larger_batches_too(verify_pair: VerifyPair) -> None:
    # On one process the runs end in the first fold, on two with larger batches in a later one.
    _, two = verify_pair(FOLDS, None, steps=12).comparisons
    assert two.overall is Verdict.ROUNDING, two.checks


SHOWN_AFTER_EVALUATION = """\
import torch
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
data = TensorDataset(torch.randn(96, 4), torch.randn(96, 1))
train = DataLoader(data, batch_size=8, shuffle=True)
held_out = DataLoader(TensorDataset(torch.randn(32, 4), torch.randn(32, 1)), batch_size=8)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


@torch.no_grad()
def evaluate():
    losses = []
    for x, y in held_out:
        losses.append(torch.nn.functional.mse_loss(model(x), y).item())
    return sum(losses) / len(losses)


running = 0.0
for step, (x, y) in enumerate(train):
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
    running += loss.item()
    if step % 2 == 1:
        value = evaluate()
        print(f"step {step}: train {running / 2:.4f} held out {value:.4f}")
        running = 0.0
"""


@pytest.mark.parametrize("announced", [True, False])
def test_a_figure_of_a_share_is_not_comparable_only_where_convert_announces_it(
    verify_pair: VerifyPair, announced: bool
) -> None:
    """An evaluation inside the training loop changes nothing; what it leaves of one process is not announced."""
    source = Source.from_text(SHOWN_AFTER_EVALUATION, Path("train.py"))
    copy = convert_source(source).new_text
    if not announced:
        gathered = "output, y = accelerator.gather_for_metrics((model(x), y))"
        assert gathered in copy
        copy = copy.replace(gathered, "output = model(x)")
    report = verify_pair(SHOWN_AFTER_EVALUATION, copy, batch_size="per-process")
    (printed,) = [one for one in report.comparisons[1].checks if one.aspect == "printed"]
    assert printed.verdict is (Verdict.NOT_COMPARABLE if announced else Verdict.DIFFERENT)
    assert report.exit_code == (0 if announced else 1)


SHOWN_AT_EACH_STEP = """
import csv
import torch
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
loader = DataLoader(TensorDataset(torch.randn(64, 4), torch.randn(64, 1)), batch_size=8)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
table = open("log.csv", "w")
rows = csv.writer(table)
for step, (x, y) in enumerate(loader):
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
    {shown}
table.close()
"""


@pytest.mark.parametrize("shown", ["print(step, loss.item())", "rows.writerow([step, loss.item()])"])
def test_a_figure_of_a_share_does_not_count_wherever_it_is_shown(verify_pair: VerifyPair, shown: str) -> None:
    report = verify_pair(SHOWN_AT_EACH_STEP.format(shown=shown), None)
    two = report.comparisons[1]
    assert Verdict.NOT_COMPARABLE in two.aspects().values()
    assert two.overall is Verdict.ROUNDING
    # The copy stands nowhere: lines are those of the script on disk.
    line = SHOWN_AT_EACH_STEP.format(shown=shown).splitlines().index(f"    {shown}") + 1
    where = re.compile(rf"not comparable \(train\.py lines? (\d+, )*{line}\): ")
    assert any(map(where.search, explanations(report)))


def test_the_loss_of_a_batch_in_any_measure_beside_a_count_is_a_share(verify_pair: VerifyPair) -> None:
    shown = "print(f'step {step} loss {2 * loss.item():.6f}')"
    text = SHOWN_AT_EACH_STEP.replace("    {shown}", shown)
    report = verify_pair(text, None)
    two = report.comparisons[1]
    assert two.aspects()["printed"] is Verdict.NOT_COMPARABLE
    assert report.exit_code == 0


def test_a_schedule_as_long_as_the_loader_was_before_prepare_is_different(verify_pair: VerifyPair) -> None:
    cosine = scripts.SGD + "\nschedule = torch.optim.lr_scheduler.CosineAnnealingLR(opt, len(loader) * 10)"
    loop = scripts.LOOP + "        schedule.step()\n"
    copy = scripts.converted(scripts.MLP, cosine, loop).replace("split_batches=True", "")
    report = verify_pair(scripts.plain(scripts.MLP, cosine, loop), copy, steps=100)
    one, two = report.comparisons
    assert one.overall is Verdict.EQUAL
    assert two.aspects()["rates"] is Verdict.DIFFERENT
    (check,) = [check for check in two.checks if check.aspect == "rates"]
    assert check.line is not None
    assert "opt.step()" in copy.splitlines()[check.line[1] - 1]


EACH_BATCH = scripts.LOOP + "        schedule.step()\n    print(schedule.get_last_lr())\n"
ACCUMULATED = """\
for epoch in range(10):
    for number, (x, y) in enumerate(loader):
        loss = F.mse_loss(model(x), y)
        loss.backward()
        if (number + 1) % 2 == 0:
            opt.step()
            opt.zero_grad()
            schedule.step()
    print(schedule.get_last_lr())
"""


@pytest.mark.parametrize(
    ("schedule", "loop", "processes"),
    [
        ("StepLR(opt, 3, 0.5)", EACH_BATCH, 2),
        ("StepLR(opt, 3, 0.5)", EACH_BATCH, 3),
        ("OneCycleLR(opt, 0.1, total_steps=40)", EACH_BATCH, 2),
        ("StepLR(opt, 3, 0.5)", ACCUMULATED, 2),
    ],
    ids=["steps", "uneven", "one-cycle", "accumulated"],
)
def test_a_schedule_by_the_batch_follows_the_originals_samples(
    verify_pair: VerifyPair, schedule: str, loop: str, processes: int
) -> None:
    """Cut short: the original has made fewer steps by then than the processes have taken batches."""
    optimizer = f"{scripts.SGD}\nschedule = torch.optim.lr_scheduler.{schedule}"
    report = verify_pair(scripts.plain(optimizer=optimizer, loop=loop), None, steps=6, processes=processes)
    two = report.comparisons[1]
    assert len(set(two.run.rates)) > 1
    assert two.overall is Verdict.ROUNDING, two.checks
    assert {two.aspects()[row] for row in ("losses", "rates", "weights", "printed")} <= set(SAME)


@pytest.mark.parametrize(
    ("prepare", "loop", "steps"),
    [
        (scripts.PREPARE, EACH_BATCH, 100),
        (scripts.PREPARE, EACH_BATCH.replace("        schedule", "        for _ in range(4): schedule"), 6),
        (
            "model, opt, loader, schedule = accelerator.prepare(model, opt, loader, schedule)\n",
            EACH_BATCH.replace("        schedule", "        for _ in range(2): schedule"),
            6,
        ),
    ],
    ids=["by-the-round", "too-often", "twice"],
)
def test_a_schedule_that_does_not_follow_the_samples_is_different(
    verify_pair: VerifyPair, prepare: str, loop: str, steps: int
) -> None:
    optimizer = scripts.SGD + "\nschedule = torch.optim.lr_scheduler.StepLR(opt, 3, 0.5)"
    copy = scripts.converted(scripts.MLP, optimizer, loop, prepare).replace("split_batches=True", "")
    report = verify_pair(scripts.plain(scripts.MLP, optimizer, EACH_BATCH), copy, steps=steps)
    (check,) = [check for check in report.comparisons[1].checks if check.aspect == "rates"]
    assert check.verdict is Verdict.DIFFERENT
    assert "in the original after as many samples" in check.sentence
    assert report.exit_code == 1


def test_work_that_every_process_does_whole_does_not_make_up_for_missing_steps(
    verify_pair: VerifyPair,
) -> None:
    """The batches only count the rounds; the loss is of all the data."""
    loop = scripts.LOOP.replace("model(x), y", "model(X), Y")
    copy = scripts.converted(loop=loop).replace("split_batches=True", "")
    two = verify_pair(scripts.plain(loop=loop), copy, steps=100).comparisons[1]
    (steps,) = [check for check in two.checks if check.aspect == "steps"]
    assert steps.verdict is Verdict.DIFFERENT
    assert "every process does the same work" in steps.sentence


@pytest.mark.parametrize(
    ("model", "copy", "words"),
    [
        (
            scripts.MLP,
            RIGHT.replace(scripts.PREPARE, "loader = accelerator.prepare(loader)\n"),
            "is not the same on every process: it is not reduced over them",
        ),
        (
            scripts.MLP,
            RIGHT.replace("mse_loss(model(x), y)", "mse_loss(model(x), y, reduction='sum')"),
            "11 times the original's",
        ),
        (
            "nn.Sequential(nn.Linear(5, 8), nn.Softmax(0), nn.Linear(8, 1))",
            scripts.converted("nn.Sequential(nn.Linear(5, 8), nn.Softmax(0), nn.Linear(8, 1))"),
            "the output of `1` (Softmax) is the first that differs: it mixes the rows of a batch",
        ),
    ],
    ids=["not-reduced", "sum-for-mean", "softmax-over-rows"],
)
def test_the_first_part_of_a_step_that_differs_is_named(
    verify_pair: VerifyPair, model: str, copy: str, words: str
) -> None:
    report = verify_pair(scripts.plain(model), copy, steps=4)
    sentences = [check.sentence for comparison in report.comparisons for check in comparison.checks]
    assert any(
        "It parts here: at call 1 of backward" in sentence and words in sentence for sentence in sentences
    ), sentences


def test_a_script_that_shares_nothing_out_is_comparable(verify_pair: VerifyPair) -> None:
    original = scripts.plain(scripts.DROPOUT).replace("for x, y in loader:", "for x, y in [(X, Y)]:")
    copy = scripts.converted(scripts.DROPOUT, prepare="model, opt = accelerator.prepare(model, opt)\n")
    report = verify_pair(original, copy.replace("for x, y in loader:", "for x, y in [(X, Y)]:"), steps=4)
    two = report.comparisons[1]
    assert two.verdict in SAME
    assert (two.overall, report.exit_code) == (Verdict.NOT_DIVIDED, 1)


def test_a_loader_that_was_not_prepared_is_in_the_verdict(verify_pair: VerifyPair) -> None:
    copy = scripts.converted(prepare="model, opt = accelerator.prepare(model, opt)\n")
    report = verify_pair(scripts.plain(), copy, steps=4)
    two = report.comparisons[1]
    assert two.verdict in SAME
    assert (two.overall, report.exit_code) == (Verdict.NOT_DIVIDED, 1)
    assert any("prepare the loader" in line for line in explain(two))
    (unsettled,) = [line for line in demands(report) if "not settled" in line and line.startswith("  ")]
    assert "a loader that is not prepared" in unsettled
    assert "`verify --gpu` shows" in unsettled


def test_without_an_optimizer_the_parameters_are_found(verify_pair: VerifyPair) -> None:
    by_hand = "for p in model.parameters(): p.data.add_(p.grad, alpha=-0.05); p.grad = None"
    loop = scripts.LOOP.replace("opt.step()", by_hand).replace("opt.zero_grad()", "pass")
    report = verify_pair(*scripts.pair(optimizer="None", loop=loop), steps=4)
    assert report.original is not None
    assert report.original.ranks[0].parameters == 4
    assert len(report.original.losses) == 4
    assert [c.verdict for c in report.comparisons] == [Verdict.EQUAL, Verdict.ROUNDING]


def test_a_parameter_counts_once_whether_its_optimizers_are_gone_or_not(verify_pair: VerifyPair) -> None:
    original = textwrap.dedent(
        """\
        import torch

        def fit(model, batches):
            whole = torch.optim.Adam(model.parameters(), lr=0.01)
            head = torch.optim.Adam(model[2].parameters(), lr=0.01)
            for batch in batches:
                whole.zero_grad()
                head.zero_grad()
                model(batch).pow(2).mean().backward()
                whole.step()
                head.step()

        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.BatchNorm1d(3), torch.nn.Linear(3, 3))
        fit(model, torch.randn(2, 8, 3))
        """
    )
    # As an Accelerator does.
    converted = original.replace("    for batch", "    globals().update(alive=[whole, head])\n    for batch")
    assert converted != original
    report = verify_pair(original, converted, steps=6, processes=1)
    assert report.comparisons[0].overall is Verdict.EQUAL, report.comparisons[0].to_json()
    assert report.original is not None
    assert report.original.ranks[0].parameters == 6


def test_several_losses_and_a_loss_of_many_numbers_are_recorded(verify_pair: VerifyPair) -> None:
    loop = scripts.LOOP.replace("loss.backward()", "(loss / 2).backward(retain_graph=True); y.numel(); F.mse_loss("
                                "model(x), y, reduction='none').backward(torch.ones_like(y) / len(y))")  # fmt: skip
    report = verify_pair(scripts.plain(loop=loop), scripts.plain(loop=loop), steps=3, processes=1)
    assert report.original is not None
    losses = report.original.losses
    assert len(losses) == 6
    assert losses[1] == pytest.approx(2 * losses[0])


def test_a_failing_rank_ends_the_run(verify_pair: VerifyPair) -> None:
    broken = RIGHT.replace(
        "        opt.step()\n", "        opt.step()\n        assert accelerator.process_index == 0\n"
    )
    report = verify_pair(scripts.plain(), broken, steps=4, limit=60.0)
    assert report.comparisons[1].verdict is Verdict.FAILED
    assert "AssertionError (on rank 1)" in report.comparisons[1].reason
    assert report.exit_code == 1


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("raise ValueError('on  purpose')", r"line 1: ValueError: on purpose"),
        ("import sys; sys.exit('no data')", "exits by itself: no data"),
        ("from . import helper", "run it as a module, with -m"),
        ("import no_such_module_anywhere", "does not find it"),
        (
            "import sys; print('last words'); sys.exit(3)",
            "status 3; the last line that it printed: last words",
        ),
        (
            "import argparse; p = argparse.ArgumentParser(); p.add_argument('data'); p.parse_args()",
            "arguments are required: data.*arguments go after --",
        ),
        ("input()", "EOFError"),
        ("import os; os.abort()", "SIGABRT"),
        ("print('nothing')", "never calls backward"),
    ],
)
def test_an_original_that_does_not_run_is_told_in_one_sentence(
    verify_pair: VerifyPair, text: str, words: str
) -> None:
    with pytest.raises(VerifyError, match=words):
        verify_pair(text, text)


def test_nothing_is_written_beside_the_script(verify_pair: VerifyPair, tmp_path: Path) -> None:
    (tmp_path / "existing.pt").write_bytes(b"precious")
    (tmp_path / "model_file.py").write_text(f"from torch import nn\ndef make(): return {scripts.MLP}\n")
    texts = [f"import model_file\n{t}" for t in scripts.pair("model_file.make()", loop=scripts.WRITES_LOOP)]
    report = verify_pair(*texts, steps=9)
    assert [c.verdict for c in report.comparisons] == [Verdict.EQUAL, Verdict.ROUNDING]
    assert (tmp_path / "existing.pt").read_bytes() == b"precious"
    assert sorted(os.listdir(tmp_path)) == ["existing.pt", "model_file.py", "train.py"]


def test_the_script_sees_what_python_would_show_it(verify_pair: VerifyPair, tmp_path: Path) -> None:
    (tmp_path / "data.txt").write_text("0.05")
    text = (
        "import os, sys, random\nimport numpy as np\nimport torch\n"
        "assert __name__ == '__main__' and sys.argv == ['train.py', '--lr', 'x'], sys.argv\n"
        "here = os.path.dirname(os.path.abspath(__file__))\n"
        "assert os.getcwd() == here == sys.path[0]\n"
        "lr = float(open(os.path.join(here, 'data.txt')).read())\n"
        "seed = random.randint(0, 99999) + np.random.randint(99999) + np.random.default_rng().integers(9999)\n"
    ) + scripts.plain().replace("torch.manual_seed(1)", "torch.manual_seed(int(seed))")
    report = verify_pair(text, text, steps=3, processes=1, arguments=("--lr", "x"))
    assert report.comparisons[0].verdict is Verdict.EQUAL


def test_a_script_that_catches_everything_still_ends(verify_pair: VerifyPair) -> None:
    loop = scripts.LOOP.replace("range(10)", "range(100000)")
    loop = loop.replace(
        "        opt.step()", "        try:\n            opt.step()\n        except:\n            pass"
    )
    report = verify_pair(*scripts.pair(loop=loop), steps=3)
    assert report.exit_code == 0


def test_a_script_that_depends_on_the_clock_is_not_comparable(verify_pair: VerifyPair) -> None:
    texts = [
        text.replace("torch.manual_seed(1)", "import time; torch.manual_seed(time.time_ns())")
        for text in scripts.pair()
    ]
    report = verify_pair(*texts, steps=3)
    assert [c.verdict for c in report.comparisons] == [Verdict.NOT_COMPARABLE] * 2
    assert "two runs of the original itself differ" in report.comparisons[0].reason


def test_terms_that_nearly_cancel_are_disturbed_each(
    nursery: Nursery, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The rounding of a sum is that of its terms, which may be far larger than the sum."""
    script, weights = (
        tmp_path_factory.mktemp("run") / "train.py",
        tmp_path_factory.mktemp("kept") / "weights.pt",
    )
    script.write_text(
        f"{scripts.HEAD}x = torch.randn(64, 5) * 1000\nx = torch.cat([x, -x])\nmodel = nn.Linear(5, 1)\n"
        "opt = torch.optim.SGD(model.parameters(), lr=0.1)\nfor _ in range(4):\n    opt.zero_grad()\n"
        "    (model(x).mean() + 0.01 * model.weight.square().sum()).backward()\n    opt.step()\n"
    )
    job = Job(script, (), steps=4, threads=1, limit=60, save_weights=weights)
    nursery.ready()
    assert not execute(job, nursery).failure
    disturbed = replace(job, save_weights=None, reference=job.save_weights, perturb=True)
    deviation = execute(disturbed, nursery).ranks[0].deviation
    assert deviation
    assert 1e-5 < deviation["update"] < 0.3


def test_a_script_that_asks_for_cuda_outright_runs_on_the_cpu(verify_pair: VerifyPair) -> None:
    loop = (
        "model.cuda(); torch.zeros(1, device='cuda:0'); torch.cuda.FloatTensor(2).to(torch.device('cuda'))\n"
        + scripts.LOOP.replace("        opt.zero_grad()", "        x, y = x.cuda(), y.to('cuda', non_blocking=True)\n"
                                                         "        opt.zero_grad()")
    )  # fmt: skip
    report = verify_pair(scripts.plain(loop=loop), scripts.converted(), steps=3)
    assert report.cuda_as_cpu
    assert [c.verdict for c in report.comparisons] == [Verdict.EQUAL, Verdict.ROUNDING]


def test_a_script_that_names_its_gpu_by_number_runs_on_the_cpu(verify_pair: VerifyPair) -> None:
    loop = "model = model.to(0)\n" + scripts.LOOP.replace(
        "        opt.zero_grad()", "        x, y = x.to(0), y.to(device=0)\n        opt.zero_grad()"
    )
    report = verify_pair(scripts.plain(loop=loop), scripts.converted(), steps=3)
    assert report.cuda_as_cpu
    assert [c.verdict for c in report.comparisons] == [Verdict.EQUAL, Verdict.ROUNDING]


def test_a_run_that_hangs_is_given_up(verify_pair: VerifyPair) -> None:
    with pytest.raises(VerifyError, match="did not end within 1 s"):
        verify_pair("import time; time.sleep(60)", "", limit=1.0)


def test_ranks_that_wait_for_each_other_are_each_placed(verify_pair: VerifyPair) -> None:
    function = "def total(x):\n    return {}.sum()\n"
    copy = scripts.converted() + function.format("accelerator.gather(x)")
    copy += "if accelerator.is_main_process:\n    total(torch.ones(1))\nelse:\n    accelerator.wait_for_everyone()\n"
    original = scripts.plain() + function.format("x") + "total(torch.ones(1))\n"
    one, two = verify_pair(original, copy, steps=1000).comparisons
    assert one.overall is Verdict.EQUAL
    assert two.overall is Verdict.FAILED
    lines = copy.splitlines()
    places = [
        check.line and lines[check.line[1] - 1].strip() for check in two.checks if check.aspect == "exit"
    ]
    assert sorted(map(str, places)) == ["accelerator.wait_for_everyone()", "total(torch.ones(1))"]


def test_an_original_that_wants_batches_of_one_size_is_compared_on_one_process(
    verify_pair: VerifyPair,
) -> None:
    loop = scripts.LOOP.replace("model(x)", "model(x).view(11, 1)")
    copy = scripts.converted(loop=loop).replace("Accelerator(split_batches=True)", "Accelerator()")
    report = verify_pair(scripts.plain(loop=loop), copy, steps=4)
    one, two = report.comparisons
    assert one.overall is Verdict.EQUAL
    assert two.overall is Verdict.NOT_COMPARABLE
    assert "does not run with batches 2 times as large" in two.reason
    assert "give --batch-size total" in two.reason
    assert report.exit_code == 0


def test_loader_workers_are_gone_afterwards(verify_pair: VerifyPair, nursery: Nursery) -> None:
    texts = [text.replace("shuffle=True", "shuffle=True, num_workers=1") for text in scripts.pair()]
    report = verify_pair(*texts, steps=3)
    assert [c.verdict for c in report.comparisons] == [Verdict.EQUAL, Verdict.ROUNDING]
    # Killed is not yet gone; by themselves they would notice only after five seconds.
    deadline = time.monotonic() + 3
    while (left := _descendants(nursery.process.pid)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not left


def _descendants(pid: int) -> list[int]:
    """Every living process that descends from one; those in a process namespace are seen from outside too."""
    parents: dict[int, list[int]] = {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            state, parent = (process / "stat").read_text().rsplit(")", 1)[1].split()[:2]
        except OSError:
            continue
        if state != "Z":
            parents.setdefault(int(parent), []).append(int(process.name))
    found, waiting = [], [pid]
    while waiting:
        children = parents.get(waiting.pop(), [])
        found += children
        waiting += children
    return found


def test_what_the_runtime_completes_is_no_backward_of_the_script(verify_pair: VerifyPair) -> None:
    unused = "model.register_parameter('unused', nn.Parameter(torch.ones(3)))\n"
    one, other = (text.replace("opt = ", f"{unused}opt = ") for text in scripts.pair())
    two = verify_pair(one, other, steps=4).comparisons[1]
    assert two.verdict is Verdict.ROUNDING, two.reason
