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


OWN_LOOP = """
from accelerate import PartialState
from cards import make_card
from transformers import Trainer
class Mine(Trainer):
    def __init__(self, args):
        self.args = args
    def train(self):
        self.log({{"loss": 1.0}})
        {asks}
        card = make_card()
        card.save("README.md")
state = PartialState()
Mine(None).train()
"""
LINE = 'card.save("README.md")'


@pytest.mark.parametrize(
    ("asks", "found"),
    [
        ("if not self.is_world_process_zero():\n            return", []),
        ("if not self.is_local_process_zero():\n            return", []),
        ("if not self.is_in_train():\n            return", [("ACC702", LINE)]),
        ("pass", [("ACC702", LINE)]),
    ],
)
def test_a_trainer_of_the_script_asks_for_the_main_process(asks, found, tmp_path):
    assert named(OWN_LOOP.format(asks=asks), tmp_path, "accelerate") == found
