"""What Accelerate does by itself: with batches that it divides, schedules, its state, and what is prepared already."""

from __future__ import annotations

import pytest

from tests.proving.several_programs import named

TRAINED = """
import logging
from accelerate import DataLoaderConfiguration
logging.basicConfig(level=logging.INFO)
logger = logging.getLogger(__name__)
accelerator = Accelerator({options})
model = torch.nn.Linear(4, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
{made}
model, opt, loader = accelerator.prepare(model, opt, DataLoader(data, batch_size=4))
for epoch in range(3):
    for x, y in loader:
        accelerator.backward(F.mse_loss(model(x), y))
        opt.step()
        opt.zero_grad()
    {after}
"""
STEP = "schedule = torch.optim.lr_scheduler.StepLR(opt, 1)\nschedule = accelerator.prepare(schedule)"
WARM = (
    "from {} import get_cosine_schedule_with_warmup\n"
    "schedule = get_cosine_schedule_with_warmup(opt, num_warmup_steps=1, num_training_steps=3)\n"
    "schedule = accelerator.prepare(schedule)"
)
CONFIGURED = "dataloader_config=DataLoaderConfiguration(split_batches={})"


@pytest.mark.parametrize(
    ("options", "made", "is_right"),
    [
        (CONFIGURED.format(True), STEP, True),
        ("split_batches=True", STEP, True),
        (CONFIGURED.format(False), STEP, False),
        ("", WARM.format("diffusers.optimization"), False),
        ("", WARM.format("diffusers"), False),
    ],
)
def test_a_schedule_of_epochs_goes_one_step_where_batches_are_divided(options, made, is_right, tmp_path):
    text = TRAINED.format(options=options, made=made, after="schedule.step()")
    assert ([code for code, _ in named(text, tmp_path, "accelerate")] == []) == is_right
    assert ("ACC706" in dict(named(text, tmp_path, "accelerate"))) != is_right


@pytest.mark.parametrize(
    ("shown", "is_right"), [("accelerator.state", True), ("accelerator.num_processes", False)]
)
def test_its_state_says_which_process_it_is(shown, is_right, tmp_path):
    text = TRAINED.format(options="", made=f"logger.info({shown})", after="pass")
    assert named(text, tmp_path, "accelerate") == [("ACC702", f"logger.info({shown})")] * (not is_right)


def test_what_is_prepared_stays_as_it_is(tmp_path):
    again = "model, opt, loader = accelerator.prepare(model, opt, loader)"
    text = TRAINED.format(options="", made="", after=again)
    assert named(text, tmp_path, "accelerate") == []
    anew = "accelerator.prepare(torch.nn.Linear(4, 1))"
    text = TRAINED.format(options="", made="", after=anew)
    assert named(text, tmp_path, "accelerate") == [("ACC708", anew)]


@pytest.mark.parametrize(("asked", "waits"), [("parameters", True), ("rows", False)])
def test_all_meet_where_a_model_of_an_unknown_class_is_prepared(asked, waits, tmp_path):
    text = f"""
    import glob
    import others

    accelerator = Accelerator()
    found = glob.glob("models/*.pt")
    part = others.made()
    part.{asked}()
    part = accelerator.prepare(part)
    if accelerator.is_main_process:
        torch.save([1], f"models/{{len(found)}}.pt")
    """
    assert ("ACC709" in dict(named(text, tmp_path, "accelerate"))) != waits
