"""GPUs that a script shows to its processes: one for all, where each takes the one of its rank."""

from __future__ import annotations

import pytest

from tests.proving.several_programs import named

SET = 'os.environ["CUDA_VISIBLE_DEVICES"] = '
ACCELERATED = """
import os
{}
accelerator = Accelerator({})
"""
GROUPED = """
{}
dist.init_process_group("nccl")
torch.cuda.set_device({})
"""
BY_RANK = 'int(os.environ["LOCAL_RANK"])'


@pytest.mark.parametrize("number", ['"0"', '"1"'])
def test_one_gpu_for_all(number, tmp_path):
    line = SET + number
    for text, head in (
        (ACCELERATED.format(line, ""), "accelerate"),
        (GROUPED.format(line, BY_RANK), "torch"),
    ):
        assert named(text, tmp_path, head) == [("ACC714", line)]


@pytest.mark.parametrize(
    ("line", "options"),
    [
        (SET + '"0,1"', ""),
        (SET + '""', ""),
        (SET + '"0"', "cpu=True"),
        (f'if not os.environ.get("WORLD_SIZE"):\n    {SET}"0"', ""),
    ],
)
def test_several_gpus_or_one_process(line, options, tmp_path):
    assert named(ACCELERATED.format(line, options), tmp_path, "accelerate") == []


def test_one_gpu_by_the_rank(tmp_path):
    line = SET + 'os.environ["LOCAL_RANK"]'
    assert named(GROUPED.format(line, "0").replace("torch.cuda.set_device(0)", ""), tmp_path) == []


ON_ONE = """
dist.init_process_group("nccl")
{device}
if device == "cpu":
    print("slow")
"""
NUMBERED = "device = f\"cuda:{os.environ['LOCAL_RANK']}\""
ON_GPU = 'device = "cuda" if torch.cuda.is_available() else "cpu"'
SEVERAL = f'if "RANK" in os.environ:\n    {NUMBERED}\nelse:\n    {ON_GPU}'
EITHER = 'device = os.environ["DEVICE"]'


@pytest.mark.parametrize(("device", "lines"), [(NUMBERED, 0), (SEVERAL, 0), (EITHER, 1)])
def test_what_is_said_on_a_cpu_alone_is_not_said_on_a_numbered_gpu(device, lines, tmp_path):
    assert [code for code, _ in named(ON_ONE.format(device=device), tmp_path)] == ["ACC702"] * lines
