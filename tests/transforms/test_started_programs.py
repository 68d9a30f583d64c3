"""Programs that a script starts, and the GPUs that it hides from them."""

from __future__ import annotations

import pytest

from accelify.proving import prove
from tests.transforms.support import check_noop, codes, convert

IMPORTS = "import subprocess\nfrom subprocess import Popen"
SERVER = 'Popen(["tensorboard", "--logdir", "runs"])'
DEVICE = """
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = nn.Linear(4, 2).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""
HIDDEN = 'os.environ["CUDA_VISIBLE_DEVICES"] = ""\n'


@pytest.mark.parametrize(
    "made",
    [f"board = {SERVER}", f"board = {SERVER}\nprint(board.pid)", f"with {SERVER} as board:\n    n = 1"],
)
def test_a_program_whose_process_has_a_name_is_named(made: str) -> None:
    found = convert(imports=IMPORTS, ready=made)
    prove([found], found)
    assert "ACC702" in codes(found)
    assert made.partition("\n")[0] in found.new_text


@pytest.mark.parametrize(
    "made",
    [
        "commit = subprocess.check_output(['git', 'rev-parse', 'HEAD'])",
        "shown = subprocess.run(['tool', '-v'], capture_output=True)",
        "gpus = subprocess.call(['nvidia-smi'])",
        "reader = Popen(['ffmpeg', '-i', 'a.mp4'], stdout=subprocess.PIPE)",
    ],
)
def test_what_a_program_answers_is_for_all(made: str) -> None:
    check_noop("ready", made, "ACC203", imports=IMPORTS)


@pytest.mark.parametrize("none", ['""', '"-1"'])
def test_gpus_that_are_hidden_from_a_program_alone(none: str) -> None:
    hidden = HIDDEN.replace('""', none)
    found = convert(imports=IMPORTS, build=DEVICE, ready=f"{hidden}{SERVER}")
    assert "ACC113" not in codes(found)
    assert "device = accelerator.device\n" in found.new_text
    assert "TODO" not in found.new_text


def test_gpus_that_are_hidden_from_the_script_itself() -> None:
    """None is shared, but the choice still has to stand before the Accelerator."""
    found = convert(setup=HIDDEN, build=DEVICE)
    assert "ACC113" not in codes(found)
    assert found.new_text.index(HIDDEN) < found.new_text.index("accelerator = Accelerator(")


def test_gpus_that_are_chosen_are_named() -> None:
    for place in ("setup", "ready"):
        chosen = {place: HIDDEN.replace('""', '"0,1"')}
        assert "ACC113" in codes(convert(build=DEVICE, **chosen))
