"""What is said of a wrapped model goes by the engine that a script, or its project, trains with."""

from __future__ import annotations

import pytest

from accelify.findings import Severity
from tests.proving.several_programs import findings, named

TEXT = """
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Linear(4, 1)
        self.width = 4

    def forward(self, x):
        return self.body(x)


accelerator = Accelerator(ARGS)
model = Net()
opt = torch.optim.SGD(model.parameters(), lr=0.1)
model, opt, loader = accelerator.prepare(model, opt, DataLoader(data, batch_size=4))
for x, y in loader:
    opt.zero_grad()
    accelerator.backward(F.mse_loss(model(x), y))
    opt.step()
    USE
"""
ATTRIBUTE, STATE = "accelerator.print(model.width)", "accelerator.save_state('out')"
ON_MAIN = f"if accelerator.is_main_process:\n        {STATE}"
NAMED = [("ACC715", ATTRIBUTE)]


def program(args="", use=ATTRIBUTE):
    return TEXT.replace("ARGS", args).replace("USE", use)


@pytest.mark.parametrize(
    ("args", "files", "expected"),
    [
        ("", {}, NAMED),
        ("fsdp_plugin=accelerate.FullyShardedDataParallelPlugin()", {}, []),
        ("deepspeed_plugin=accelerate.DeepSpeedPlugin(zero_stage=2)", {}, []),
        ("deepspeed_plugin=accelerate.DeepSpeedPlugin() if torch.rand(1) else None", {}, NAMED),
        ("", {"zero.yaml": "distributed_type: DEEPSPEED"}, []),
        ("", {"README.md": "accelerate launch --use_fsdp train.py"}, []),
        (
            "",
            {"README.md": "accelerate launch --multi_gpu train.py", "z.yaml": "distributed_type: FSDP"},
            NAMED,
        ),
    ],
)
def test_attributes_that_the_wrapper_hands_on(args, files, expected, tmp_path):
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assert named("import accelerate" + program(args), tmp_path, "accelerate") == expected


def test_what_is_set_on_the_wrapper_of_an_engine_is_never_seen(tmp_path):
    (tmp_path / "zero.yaml").write_text("distributed_type: DEEPSPEED")
    use = "model.width = 5"
    text = program(use=use).replace("self.body(x)", "self.body(x) * self.width")
    assert named(text, tmp_path, "accelerate") == [("ACC715", use)]


def test_attributes_of_one_wrapper_are_one_finding(tmp_path):
    [one] = findings(
        program(use=f"{ATTRIBUTE}\n    accelerator.print(model.body.bias)"), tmp_path, "accelerate"
    )
    assert "`accelerator.prepare(" in one.message
    assert "(`.body`)" in one.message


@pytest.mark.parametrize(
    ("args", "files", "severity"),
    [
        ("", {}, Severity.INFO),
        ("", {"zero.yaml": "distributed_type: DEEPSPEED"}, Severity.WARNING),
        ("project_config=ProjectConfiguration(automatic_checkpoint_naming=True)", {}, Severity.WARNING),
    ],
)
def test_a_state_that_main_saves_alone(args, files, severity, tmp_path):
    """Whole models need no other process there, unless the folder is numbered: all wait in front of it."""
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    [one] = findings(
        "from accelerate.utils import ProjectConfiguration" + program(args, ON_MAIN), tmp_path, "accelerate"
    )
    assert (one.code, one.severity) == ("ACC704", severity)
