"""Experiment writers."""

from __future__ import annotations

import pytest

from accelify.conversion import Conversion, ConvertOptions
from accelify.convert import convert_source
from accelify.proving import prove
from accelify.source import Source
from tests.transforms.support import PATH, check_noop, check_transformed, codes, convert, place_of

BOARD = "from torch.utils.tensorboard import SummaryWriter\nimport csv, sys\nimport wandb"
DEVICE = "device = torch.device('cuda')"
MADE = f"{DEVICE}\nwriter = SummaryWriter('runs')"


def test_other_writers_stay() -> None:
    check_noop(
        "end", "writer = csv.writer(sys.stdout)\nwriter.writerow([1])", "ACC204", imports=BOARD, setup=DEVICE
    )


@pytest.mark.parametrize("library", ["torch.utils.tensorboard", "tensorboard", "tensorboardX"])
def test_the_main_process_has_the_writer(library: str) -> None:
    check_transformed(
        "setup",
        MADE,
        """
        accelerator = Accelerator()
        device = accelerator.device
        writer = SummaryWriter('runs') if accelerator.is_main_process else None
        """,
        imports=f"from {library} import SummaryWriter",
    )


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("SummaryWriter() if board else None", "SummaryWriter() if {main} and board else None"),
        ("SummaryWriter() if board or 1 else None", "SummaryWriter() if {main} and (board or 1) else None"),
        (
            "None if not board else SummaryWriter()",
            "None if not board else SummaryWriter() if {main} else None",
        ),
    ],
)
def test_a_writer_that_an_option_may_leave_out(before: str, after: str) -> None:
    after = after.format(main="accelerator.is_main_process")
    check_transformed(
        "setup",
        f"{DEVICE}\nboard = len(sys.argv) > 1\nwriter = {before}",
        f"accelerator = Accelerator()\ndevice = accelerator.device\nboard = len(sys.argv) > 1\nwriter = {after}",
        imports=BOARD,
    )


@pytest.mark.parametrize("library", ["tensorboard", "tensorboardX"])
def test_so_it_has_the_writer_of_summaries(library: str) -> None:
    conversion = convert(
        imports=f"from {library} import FileWriter, summary",
        setup=f"{DEVICE}\nwriter = FileWriter('runs')",
        epoch="writer.add_summary(summary.scalar('loss', loss.item()), epoch)",
    )
    assert "writer = FileWriter('runs') if accelerator.is_main_process else None" in conversion.new_text
    assert place_of(conversion.new_text, "epoch").startswith(
        "if accelerator.is_main_process:\n    writer.add_summary("
    )


def test_its_uses_are_guarded_together() -> None:
    check_transformed(
        "epoch",
        "writer.add_scalar('loss', loss.item(), epoch)\nwriter.add_scalar('n', i)\nn = 1\nwriter.flush()",
        """
        if accelerator.is_main_process:
            writer.add_scalar('loss', loss.item(), epoch)
            writer.add_scalar('n', i)
        n = 1
        if accelerator.is_main_process:
            writer.flush()
        """,
        imports=BOARD,
        setup=MADE,
    )


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("if i: n = 1; writer.flush()", "if i: n = 1; {main} and writer.flush()"),
        ("if i:\n    pass\nelif x: writer.flush()", "if i:\n    pass\nelif x: {main} and writer.flush()"),
        ("n = 1; writer.flush()", "n = 1; {main} and writer.flush()"),
    ],
)
def test_uses_that_no_line_can_stand_above(before: str, after: str) -> None:
    """The writer is None on the other processes: none of its uses can stay as it is."""
    conversion = check_transformed(
        "epoch", before, after.format(main="accelerator.is_main_process"), imports=BOARD, setup=MADE
    )
    assert not [f for f in conversion.remaining if f.code == "ACC204"]


def test_weights_and_biases() -> None:
    check_transformed(
        "epoch",
        "wandb.log({'loss': loss.item()})",
        "if accelerator.is_main_process:\n    wandb.log({'loss': loss.item()})",
        imports=BOARD,
        setup=f"{DEVICE}\nwandb.init(project='p')",
    )


def test_writers_read_by_a_computed_name_stay() -> None:
    setup = """
class App:
    def open(self):
        self.test_writer = SummaryWriter()

    def log(self, mode):
        writer = getattr(self, mode + "_writer")
        writer.add_scalar("loss", 1, 1)
"""
    imports = "from torch.utils.tensorboard import SummaryWriter"
    conversion = convert(imports=imports, setup=setup, epoch="app = App()\napp.open()\napp.log('test')")
    assert "SummaryWriter() if" not in conversion.new_text
    prove([conversion], conversion)
    assert "ACC702" in codes(conversion)


def test_a_writer_that_a_function_unknown_is_given_stays() -> None:
    setup = """\
        from torch.utils.tensorboard import SummaryWriter

        def fit(model, optimizer, show):
            writer = SummaryWriter('runs')
            for x, y in DataLoader(data, batch_size=8):
                loss = F.cross_entropy(model(x), y)
                writer.add_scalar('loss', 1.0)
                show(model, writer)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        """
    text = convert(setup=setup, end="fit(model, optimizer, made_elsewhere)").new_text
    assert "SummaryWriter('runs')\n" in text
    text = convert(
        setup=setup.replace("show(model, writer)", "show(model)"), end="fit(model, optimizer, given)"
    ).new_text
    assert "SummaryWriter('runs') if accelerator.is_main_process else None\n" in text


@pytest.mark.parametrize(
    ("test", "inside", "after", "everywhere"),
    [
        ("writer", "score = total / 2", "return score", True),
        ("writer is not None and step > 0", "total += 1", "return total", True),
        ("writer", "return total", "return 0", True),
        ("writer", "score = total / 2", "return total", False),
        ("writer", "score = total / 2", "score = 1\n    return score", False),
        ("not writer", "score = 0\n    else:\n        score = 1", "return score", False),
    ],
)
def test_a_writer_that_decides_about_what_all_read_is_there_on_all(
    test: str, inside: str, after: str, everywhere: bool
) -> None:
    setup = f"def show(writer, total, step):\n    if {test}:\n        {inside}\n        writer.add_scalar('s', total)\n"
    if "else" in inside:
        setup = setup.replace("\n        writer.add", "\n    writer.add")
    setup += f"    {after}\n"
    end = "writer = SummaryWriter('runs')\nfor step in range(2):\n    print(show(writer, 1.0, step))"
    text = convert(imports=BOARD, setup=setup, end=end).new_text
    assert ("SummaryWriter('runs')\n" in text) is everywhere


def test_a_run_that_is_started_before_the_accelerator_is_marked() -> None:
    conversion = convert(
        imports=f"import argparse\n{BOARD}",
        setup="wandb.init(project='p')\nargs = argparse.ArgumentParser().parse_args()",
    )
    prove([conversion], conversion)
    assert "ACC702" in codes(conversion)


def test_a_module_that_is_imported_by_name_has_tensorboards_writer() -> None:
    conversion = convert(
        imports="import importlib",
        ready="writer = importlib.import_module(name).SummaryWriter('runs')",
        update="writer.add_scalar('loss', loss.item())",
        setup="name = 'tensorboardX'",
    )
    assert "SummaryWriter('runs') if accelerator.is_main_process else None" in conversion.new_text


def test_writers_of_a_list() -> None:
    made = "writers = []\nfor n in 'ab':\n    writers.append(SummaryWriter(n)"
    conversion = check_transformed(
        "ready",
        f"{made})",
        f"{made} if accelerator.is_main_process else None)",
        imports=BOARD,
        epoch="writers[0].add_scalar('loss', 1, epoch)",
    )
    assert place_of(conversion.new_text, "epoch").startswith("if accelerator.is_main_process:")


OPENING = "logging.getLogger().addHandler(logging.FileHandler({}))"


@pytest.mark.parametrize(
    ("folder", "path", "waits"),
    [
        ("os.path.join('runs', 'tb')", "'runs/exp.log'", True),
        ("log_dir='runs/tb'", "os.path.join('runs', 'tb', '{}.log'.format(NAME))", True),
        ("os.path.join('runs', 'tb')", "'exp.log'", False),
        ("os.path.join('runs', 'tb')", "'other/exp.log'", False),
        ("comment='runs/tb'", "'runs/exp.log'", False),
    ],
)
@pytest.mark.parametrize("opening", [OPENING, "to_file({})"])
def test_all_wait_for_the_folder_that_the_writer_makes(
    folder: str, path: str, waits: bool, opening: str
) -> None:
    made = f"writer = SummaryWriter({folder})"
    wait = "\naccelerator.wait_for_everyone()" if waits else ""
    check_transformed(
        "ready",
        f"{made}\n{opening.format(path)}",
        f"{made} if accelerator.is_main_process else None{wait}\n{opening.format(path)}",
        imports=f"{BOARD}\nimport logging\ndef to_file(path):\n    {OPENING.format('path')}",
        setup="NAME = 'a'",
    )


def test_nobody_waits_for_the_writer_in_a_folder_that_is_made_by_all() -> None:
    made = "os.makedirs('runs/tb', exist_ok=True)\nwriter = SummaryWriter('runs/tb')"
    opening = OPENING.format("'runs/exp.log'")
    text = convert(ready=f"{made}\n{opening}", imports=f"{BOARD}\nimport logging").new_text
    assert f"{made} if accelerator.is_main_process else None\n{opening}" in text


def test_logs_in_an_expression_of_several_calls() -> None:
    check_transformed(
        "update",
        "wandb.log({'a': 1}), wandb.log({'b': 2})",
        "if accelerator.is_main_process:\n    wandb.log({'a': 1}), wandb.log({'b': 2})",
        imports=BOARD,
    )


def test_a_writer_that_is_made_where_its_library_is_there() -> None:
    made = "try:\n    import tensorboardX as tb\nexcept ImportError:\n    tb = None\n"
    text = convert(imports=made, ready="writer = tb and tb.SummaryWriter('runs')").new_text
    assert "writer = tb and tb.SummaryWriter('runs') if accelerator.is_main_process else None\n" in text


@pytest.mark.parametrize(
    "setting",
    [
        "wandb.config.update({'a': 1})",
        "wandb.config.lr = 0.1",
        "wandb.run.summary['best'] = 1",
        "wandb.run.save()",
    ],
)
def test_what_is_only_set_in_a_run_is_not_read_back(setting: str) -> None:
    check_transformed(
        "ready",
        f"wandb.init()\n{setting}",
        f"if accelerator.is_main_process:\n    wandb.init()\n    {setting}",
        imports=BOARD,
    )


@pytest.mark.parametrize("read", ["rate = wandb.config.lr", "name = wandb.run.id", "wandb.config.lr += 1"])
def test_what_is_read_of_a_run_is_said(read: str) -> None:
    conversion = convert(imports=BOARD, ready=f"wandb.init()\n{read}")
    assert "wandb.init()" in place_of(conversion.new_text, "ready").splitlines()
    prove([conversion], conversion)
    assert "ACC702" in codes(conversion)


@pytest.mark.parametrize("word", ["update", "setdefaults"])
@pytest.mark.parametrize("run", ["wandb.config", "wandb.run.config"])
def test_what_all_read_of_a_run_is_set_by_all(run: str, word: str) -> None:
    ready = f"wandb.init()\nif {run}.lr is None:\n    {run}.{word}({{'lr': 1}})\nrate = {run}.lr"
    conversion = convert(imports=BOARD, ready=ready)
    assert place_of(conversion.new_text, "ready") == ready
    prove([conversion], conversion)
    assert [f.message for f in conversion.remaining if f.code == "ACC702" and "config" in f.message] == []


EARLY = """\
import torch
from torch import nn
from torch.utils.data import DataLoader
from torch.utils.tensorboard import SummaryWriter
from data import pictures

writer = SummaryWriter()


def train(rate):
    device = torch.device("cuda")
    model = nn.Linear(3, 1).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    for step, (x, y) in enumerate(DataLoader(pictures, batch_size=4)):
        loss = (model(x.to(device)) - y.to(device)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        {use}


train(0.1)
"""


def early(use: str) -> Conversion:
    return convert_source(Source.from_text(EARLY.format(use=use), PATH), ConvertOptions())


def test_a_writer_that_is_made_too_early_and_whose_uses_are_not_all_seen_is_left_alone() -> None:
    conversion = early("rows = [writer.add_scalar('loss', v, step) for v in (1, 2)]")
    assert "is_main_process" not in conversion.new_text
    prove([conversion], conversion)
    assert "ACC702" in codes(conversion)


def test_a_writer_that_is_made_too_early_is_written_by_the_main_process_alone() -> None:
    conversion = early("writer.add_scalar('loss', loss.item(), step)")
    guarded = (
        "        if accelerator.is_main_process:\n            writer.add_scalar('loss', loss.item(), step)\n"
    )
    assert guarded in conversion.new_text
    assert "\nwriter = SummaryWriter()\n" in conversion.new_text
    (said,) = [f for f in conversion.remaining if f.code == "ACC204"]
    assert said.message == "every process opens a log of its own, and only the main process writes to it"
