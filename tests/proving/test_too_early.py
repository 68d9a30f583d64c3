"""What goes to the GPU before the Accelerator selects the one of each process."""

from __future__ import annotations

import pytest

from tests.proving.several_programs import named

MODELS = """
first = torch.nn.Linear(2, 2).to("cuda")
second = torch.nn.Linear(2, 2).cuda()
"""
FACTORY = """
def create(steps):
    return Accelerator(gradient_accumulation_steps=steps)
"""
PLAIN = """
def main():
    first = torch.nn.Linear(4, 1).to("cuda")
    optimizer = torch.optim.SGD(first.parameters(), lr=0.1)
    for x, y in DataLoader(data):
        loss = first(x.to("cuda")).mean()
        loss.backward()
        optimizer.step()
main()
"""


def test_all_that_comes_before_it_is_one_finding(tmp_path):
    line = 'first = torch.nn.Linear(2, 2).to("cuda")'
    assert named(MODELS + "accelerator = Accelerator()\n", tmp_path, "accelerate") == [("ACC714", line)]


def test_what_comes_after_it_is_quiet(tmp_path):
    assert named("accelerator = Accelerator()\n" + MODELS, tmp_path, "accelerate") == []


def test_one_that_nobody_makes_selects_no_gpu(tmp_path):
    assert named(FACTORY + PLAIN, tmp_path, "accelerate") == []


@pytest.mark.parametrize(
    ("chosen", "codes"),
    [("torch.cuda.set_device(0)", ["ACC714"]), ('torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))', [])],
)
def test_one_gpu_for_all_before_the_processes_join(chosen, codes, tmp_path):
    text = f'{chosen}\ndist.init_process_group("nccl")\n'
    assert [code for code, _ in named(text, tmp_path, "torch")] == codes


def test_one_gpu_where_there_is_one_process(tmp_path):
    alone = "if torch.cuda.device_count() == 1:\n    torch.cuda.set_device(0)\n"
    text = f"{alone}else:\n    dist.init_process_group('nccl')\n"
    assert named(text, tmp_path, "torch") == []
