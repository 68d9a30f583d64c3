"""What of the budget a copy of a library in the project may use up: the script that imports it is read all the same."""

from __future__ import annotations

from textwrap import dedent

import pytest

from accelify.heap.modules import text_of
from accelify.knowledge import Knowledge
from accelify.obligations import Status, validate

SCRIPT = """
import torch
import torch.distributed as dist
from {name} import create

dist.init_process_group("nccl")
create("first")
for number in range(3):
    print("a round")
"""
COPY = "\n".join(
    [
        "def create(name):",
        *(f"    _{number}(name)" for number in range(20)),
        *(f"\n\ndef _{number}(name):" + "\n    print(name)" * 30 for number in range(20)),
    ]
)


@pytest.mark.parametrize(("name", "is_read"), [("timm", True), ("models", False)])
def test_a_copy_of_a_library_leaves_the_script_its_part(name, is_read, tmp_path):
    (tmp_path / f"{name}.py").write_text(COPY)
    script = tmp_path / "train.py"
    script.write_text(dedent(SCRIPT.format(name=name)))
    found = validate(script.read_text(), script, Knowledge(), text_of, 500, checks=True)
    named = [one for one in found.obligations if one.status is Status.NAMED and one.path == "train.py"]
    assert ([one.line for one in named] == [9]) == is_read
