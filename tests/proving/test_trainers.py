"""Trainers of transformers and TRL, which know that there are several processes: they write on one by themselves."""

from __future__ import annotations

import pytest

from tests.proving.several_programs import named

TEXT = """
from accelerate import PartialState
from transformers import Trainer, TrainingArguments
from trl import SFTTrainer
class Mine(SFTTrainer):
    def rows(self):
        return 1
state = PartialState()
trainer = {made}(args=TrainingArguments("out"))
trainer.train()
trainer.save_model("out/last")
trainer.push_to_hub()
"""


@pytest.mark.parametrize("made", ["Trainer", "SFTTrainer", "Mine"])
def test_what_they_write_is_written_once(made, tmp_path):
    assert named(TEXT.format(made=made), tmp_path, "accelerate") == []


def test_they_are_known_by_their_modules_too(tmp_path):
    text = TEXT.format(made="SFTTrainer").replace("from trl import", "from trl.trainer.sft_trainer import")
    assert named(text, tmp_path, "accelerate") == []


def test_what_the_script_writes_of_their_model_is_written_by_all(tmp_path):
    line = 'trainer.model.save_pretrained("out/model")'
    text = TEXT.format(made="Trainer") + line + "\n"
    assert named(text, tmp_path, "accelerate") == [("ACC702", line)]
