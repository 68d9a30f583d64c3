"""NVIDIA apex's amp and its synchronised batch norm."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from accelify.conversion import Conversion
from accelify.convert import convert_source
from accelify.source import Source

SCRIPT = """\
import torch
import torch.nn as nn
import torch.nn.functional as F
from apex import amp
from torch.utils.data import DataLoader, TensorDataset

{setup}
data = TensorDataset(torch.randn(64, 4), torch.randint(0, 2, (64,)))
loader = DataLoader(data, batch_size=8)
model = nn.Linear(4, 2).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
{initialize}
for x, y in loader:
    loss = F.cross_entropy(model(x.cuda()), y.cuda())
    optimizer.zero_grad()
{backward}
    optimizer.step()
{end}
"""
INITIALIZE = 'model, optimizer = amp.initialize(model, optimizer, opt_level="O1")'
BACKWARD = """\
with amp.scale_loss(loss, optimizer) as scaled_loss:
    scaled_loss.backward()
"""


def convert(
    initialize: str = INITIALIZE, backward: str = BACKWARD, setup: str = "", end: str = ""
) -> Conversion:
    backward = textwrap.indent(textwrap.dedent(backward), "    ").rstrip()
    text = SCRIPT.format(initialize=initialize, backward=backward, setup=setup, end=end)
    conversion = convert_source(Source.from_text(text, Path("/nowhere/train.py")))
    compile(conversion.new_text, "after.py", "exec", dont_inherit=True)
    return conversion


def converted(**parts: str) -> str:
    conversion = convert(**parts)
    assert conversion.status == "converted", conversion.reason
    assert "apex" not in conversion.new_text
    assert "amp." not in conversion.new_text
    again = convert_source(Source.from_text(conversion.new_text, Path("/nowhere/train.py")))
    assert again.new_text == conversion.new_text
    return conversion.new_text


def test_the_accelerator_casts_and_scales() -> None:
    text = converted()
    assert 'accelerator = Accelerator(mixed_precision="fp16" if torch.cuda.is_available() else "no")' in text
    assert "    optimizer.zero_grad()\n    accelerator.backward(loss)\n    optimizer.step()" in text


@pytest.mark.parametrize(
    ("initialize", "argument"),
    [
        ('model, optimizer = amp.initialize(model, optimizer, opt_level="O0")', ""),
        (
            "model, optimizer = amp.initialize(model, optimizer, opt_level=args.level)",
            '"fp16" if args.level != "O0" and torch.cuda.is_available() else "no"',
        ),
        (
            "if args.fp16:\n    model, optimizer = amp.initialize(model, optimizer)",
            '"fp16" if args.fp16 and torch.cuda.is_available() else "no"',
        ),
        (
            "[model], [optimizer] = amp.initialize([model], [optimizer], opt_level='O2')",
            '"fp16" if torch.cuda.is_available() else "no"',
        ),
        ("told = dict(opt_level='O0')\nmodel, optimizer = amp.initialize(model, optimizer, **told)", ""),
        (
            "told = {'opt_level': args.level}\nmodel, optimizer = amp.initialize(model, optimizer, **told)",
            '"fp16" if args.level != "O0" and torch.cuda.is_available() else "no"',
        ),
    ],
)
def test_levels(initialize: str, argument: str) -> None:
    setup = "import argparse\nparser = argparse.ArgumentParser()\nargs = parser.parse_args()\n"
    text = converted(initialize=initialize, setup=setup)
    assert f"mixed_precision={argument}" in text if argument else "mixed_precision" not in text


def test_a_level_that_does_more_is_said() -> None:
    conversion = convert(initialize="model, optimizer = amp.initialize(model, optimizer, opt_level='O2')")
    assert any("whatever level `'O2'` asks for" in f.message for f in conversion.applied)


def test_both_branches_become_one() -> None:
    text = converted(
        backward="""\
            if fp16:
                with amp.scale_loss(loss, optimizer) as scaled_loss:
                    scaled_loss.backward()
            else:
                loss.backward()
            """,
        setup="fp16 = True",
    )
    assert "    optimizer.zero_grad()\n    accelerator.backward(loss)\n    optimizer.step()" in text


def test_master_parameters_are_the_models() -> None:
    text = converted(
        backward=BACKWARD + "torch.nn.utils.clip_grad_norm_(amp.master_params(optimizer), 1.0)\n",
    )
    assert "accelerator.clip_grad_norm_(model.parameters(), 1.0)" in text


def test_a_checkpoint_loses_amps_state() -> None:
    text = converted(
        end="state = {'model': model.state_dict(), 'amp': amp.state_dict()}\n"
        "torch.save(state, 'last.pt')\namp.load_state_dict(state['amp'])\n"
    )
    assert "state = {'model': accelerator.unwrap_model(model).state_dict()}" in text


@pytest.mark.parametrize(
    ("signature", "call", "after", "called"),
    [
        ("model, amp, path", 'model, amp, "a.pt"', "model, path", 'model, "a.pt"'),
        ("model, path, amp=None", 'model, "a.pt", amp=amp', "model, path", 'model, "a.pt"'),
    ],
)
def test_amp_is_no_argument_any_more(signature: str, call: str, after: str, called: str) -> None:
    body = 'torch.save({"model": model.state_dict(), "amp": amp.state_dict()}, path)'
    text = converted(setup=f"def keep({signature}):\n    {body}\n", end=f"keep({call})")
    assert f"def keep({after}):" in text
    assert f"keep({called})" in text


def test_amp_that_is_still_read_where_it_is_handed_on_is_left_alone() -> None:
    conversion = convert(setup="def show(amp):\n    return amp\n", end="show(amp)")
    assert conversion.status == "refused"
    assert "line 21 hands apex's amp on to `show`" in conversion.reason


@pytest.mark.parametrize("options", ["told = read()", "told = {}\ntold['opt_level'] = level"])
def test_a_level_that_cannot_be_read_is_none_that_is_taken(options: str) -> None:
    conversion = convert(initialize=f"{options}\nmodel, optimizer = amp.initialize(model, optimizer, **told)")
    assert conversion.status == "refused"
    assert "options that cannot be read" in conversion.reason


@pytest.mark.parametrize(
    ("backward", "why"),
    [
        ("scaled = amp.scale_loss(loss, optimizer)\n", "line 16 scales the loss other than by"),
        (
            BACKWARD + "    print(scaled_loss)\n",
            "the scaled loss of line 18 is used for more than backward",
        ),
        ("handle = amp.init()\nloss.backward()\n", "line 16 uses amp.init"),
    ],
)
def test_what_is_not_understood_is_left_alone(backward: str, why: str) -> None:
    conversion = convert(backward=backward)
    assert conversion.status == "refused"
    assert why in conversion.reason
    assert not conversion.changed


GUARDED = """\
try:
    import apex
    from apex import amp, optimizers
except ImportError:
    pass
"""


@pytest.mark.parametrize(
    "setup", [GUARDED, "import apex\n", "from apex.parallel import convert_syncbn_model\n"]
)
def test_torch_synchronises_batch_norm(setup: str) -> None:
    call = "convert_syncbn_model" if "from apex.parallel" in setup else "apex.parallel.convert_syncbn_model"
    sync = f"SYNC = True\nif SYNC:\n    model = {call}(model)\n"
    text = converted(initialize=sync, backward="loss.backward()\n", setup=setup)
    assert "if SYNC:\n    model = nn.SyncBatchNorm.convert_sync_batchnorm(model)\n" in text
    assert "try:" not in text
    assert text.index("convert_sync_batchnorm") < text.index("accelerator.prepare(")


@pytest.mark.parametrize(
    ("call", "why"),
    [
        ("apex.parallel.convert_syncbn_model(model, None, True)", "for a layout, which has no counterpart"),
        ("apex.parallel.SyncBatchNorm(4)", "NVIDIA apex"),
        ("apex.parallel.DistributedDataParallel(apex.parallel.convert_syncbn_model(model))", "NVIDIA apex"),
    ],
)
def test_batch_norm_with_more_of_apex_is_left_alone(call: str, why: str) -> None:
    conversion = convert(
        initialize=f"model = {call}",
        backward="loss.backward()\n",
        setup="import apex\nimport apex.parallel\n",
    )
    assert conversion.status == "refused"
    assert why in conversion.reason


def test_optimizers_of_apex_stay_with_apex() -> None:
    conversion = convert(setup="from apex.optimizers import FusedAdam\nother = FusedAdam([torch.zeros(1)])")
    assert conversion.status == "refused"
    assert "NVIDIA apex" in conversion.reason


def test_a_name_that_goes_with_apex_is_named_alone() -> None:
    reason = convert(initialize=f"if amp is not None:\n    {INITIALIZE}").reason
    assert not reason or reason == (
        "the Accelerator's arguments would read `amp`, which is taken out of the script"
    )


TRAINER = """\
import torch
import torch.nn as nn
import torch.nn.functional as F
from apex import amp
from torch.utils.data import DataLoader, TensorDataset

from settings import read

class Trainer:
    def __init__(self{parameter}):
        {first}
        self.model = nn.Linear(4, 2).cuda()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        if self.opt.half and self.opt.halves:
            self.model, self.optimizer = amp.initialize(self.model, self.optimizer, opt_level=f"O{{self.opt.level}}")

    def train(self):
        data = TensorDataset(torch.randn(64, 4), torch.randint(0, 2, (64,)))
        for x, y in DataLoader(data, batch_size=8):
            loss = F.cross_entropy(self.model(x.cuda()), y.cuda())
            self.optimizer.zero_grad()
            with amp.scale_loss(loss, self.optimizer) as scaled_loss:
                scaled_loss.backward()
            self.optimizer.step()

Trainer({given}).train()
"""


def _trainer(parameter: str, first: str, given: str) -> Conversion:
    text = TRAINER.format(parameter=parameter, first=first, given=given)
    return convert_source(Source.from_text(text, Path("/nowhere/train.py")))


def test_options_that_a_constructor_keeps_later_are_read_off_its_parameter() -> None:
    text = _trainer(", opt", "self.opt = opt", "read()").new_text
    asked = """opt.half and opt.halves and f"O{opt.level}" != "O0" and torch.cuda.is_available()"""
    assert f'mixed_precision="fp16" if {asked} else "no"' in text
    assert text.index("Accelerator(") < text.index("self.opt = opt")


def test_options_that_a_constructor_reads_behind_the_accelerator_are_a_reason() -> None:
    conversion = _trainer("", "self.opt = read()", "")
    assert conversion.status == "refused"
    assert "the Accelerator is made before all that `mixed_precision=" in (conversion.reason or "")


TRIED = """\
try:
    from apex import amp
except ImportError:
    amp = None
"""


@pytest.mark.parametrize(
    ("test", "wish"),
    [
        ("amp is not None", ""),
        ("amp", ""),
        ("torch.cuda.is_available()", ""),
        ("torch.cuda.is_available() and amp is not None", ""),
        ("fast and amp is not None", "fast and "),
        ("(fast or slow) and amp is not None", "(fast or slow) and "),
    ],
)
def test_an_apex_that_need_not_be_installed(test: str, wish: str) -> None:
    setup = "fast, slow, level = True, False, 'O1'"
    initialize = f"if {test}:\n    model, optimizer = amp.initialize(model, optimizer, opt_level=level)"
    source = SCRIPT.replace("from apex import amp\n", TRIED)
    text = source.format(setup=setup, initialize=initialize, backward="    loss.backward()", end="")
    found = convert_source(Source.from_text(text, Path("/nowhere/train.py")))
    assert found.status == "converted", found.reason
    assert "amp" not in found.new_text
    assert f'"fp16" if {wish}level != "O0" and torch.cuda.is_available() else "no"' in found.new_text


@pytest.mark.parametrize(
    "test", ["amp is None", "not torch.cuda.is_available()", "i > 2 and amp is not None"]
)
def test_other_tests_around_amp_still_decide(test: str) -> None:
    initialize = f"i = len(model(torch.ones(1, 4)))\nif {test}:\n    {INITIALIZE}"
    found = convert(initialize=initialize)
    assert found.status == "refused"


ASKED = """\
try:
    from apex import amp
    found = True
except ImportError:
    found = False
"""
ASKED_BEFORE = """\
found = True
try:
    from apex import amp
except ImportError:
    found = False
"""
ASKED_WITH_ELSE = """\
found = False
try:
    from apex import amp
except ImportError:
    print("no apex")
else:
    found = True
"""


@pytest.mark.parametrize("asked", [ASKED, ASKED_BEFORE, ASKED_WITH_ELSE])
@pytest.mark.parametrize("used", [True, False])
def test_an_import_that_decides_what_a_flag_is_stays(asked: str, used: bool) -> None:
    """Without apex `options["half"]` is never read."""
    initialize = f'if found and options["half"]:\n    {INITIALIZE}' if used else "print(found)"
    backward = (
        f'if found and options["half"]:\n{textwrap.indent(BACKWARD, "    ")}else:\n    loss.backward()\n'
    )
    source = SCRIPT.replace("from apex import amp\n", asked)
    text = source.format(
        setup="options = {}",
        initialize=initialize,
        backward=textwrap.indent(backward if used else "loss.backward()", "    "),
        end="",
    )
    found = convert_source(Source.from_text(text, Path("/nowhere/train.py")))
    assert found.status == "converted", found.reason
    assert asked in found.new_text
    assert found.new_text.count("amp") == 1
    wish = 'mixed_precision="fp16" if found and options["half"] and torch.cuda.is_available() else "no"'
    assert (wish in found.new_text) is used
    again = convert_source(Source.from_text(found.new_text, Path("/nowhere/train.py")))
    assert again.new_text == found.new_text


def test_an_import_whose_flag_nobody_reads_any_more_goes() -> None:
    source = SCRIPT.replace("from apex import amp\n", ASKED.replace("    found = True", "    known = 1"))
    text = source.format(setup="", initialize=INITIALIZE, backward=textwrap.indent(BACKWARD, "    "), end="")
    found = convert_source(Source.from_text(text, Path("/nowhere/train.py")))
    assert found.status == "converted", found.reason
    assert "apex" not in found.new_text
