"""Prints and logging."""

from __future__ import annotations

import pytest

from accelify.convert import convert_source
from accelify.source import Source
from tests.transforms.support import PATH, check_noop, check_transformed, convert, named, place_of


@pytest.mark.parametrize(
    "snippet",
    [
        "r = [print(k) for k in range(2)]",
        "show = print",
        "import io\nprint('a', file=io.StringIO())",
        "import sys\nout = sys.stdout if i else open(os.devnull)\nprint('a', file=out)",
        "text = 'print(1)'  # print(2)",
    ],
)
def test_other_prints_stay(snippet: str) -> None:
    check_noop("epoch", snippet, "ACC201")


def test_a_print_of_the_scripts_own_stays() -> None:
    check_noop("epoch", "print(3)", "ACC201", setup="def print(*a):\n    pass")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("print(loss.item())", "accelerator.print(loss.item())"),
        ("print()", "accelerator.print()"),
        ("print('a', file=sys.stderr)", "accelerator.print('a', file=sys.stderr)"),
        ("print('a', file=stderr, flush=True)", "accelerator.print('a', file=stderr, flush=True)"),
        ("print('a', file=None)", "accelerator.print('a', file=None)"),
        ("print('a', file=log)", "accelerator.print('a', file=log)"),
        (
            "pprint('a', stream=sys.stdout)",
            "if accelerator.is_main_process:\n    pprint('a', stream=sys.stdout)",
        ),
        ("print('é', i, sep='')  # é", "accelerator.print('é', i, sep='')  # é"),
        ("print(\n    'a',\n    'b',\n)", "accelerator.print(\n    'a',\n    'b',\n)"),
        ("if i: print('a'); print('b')", "if i: accelerator.print('a'); accelerator.print('b')"),
        ("print(f'{loss.item()} {print}')", "accelerator.print(f'{loss.item()} {print}')"),
    ],
)
def test_prints(before: str, after: str) -> None:
    imports = "import sys\nfrom pprint import pprint\nfrom sys import stderr\nlog = sys.stderr"
    check_transformed("epoch", before, after, imports=imports)


@pytest.mark.parametrize("line", ["tqdm.write(f'{i}')", "bar.write('a')", "tqdm.tqdm.write('a')"])
def test_what_is_written_past_a_bar(line: str) -> None:
    imports = "import tqdm" if "tqdm.tqdm" in line else "from tqdm import tqdm"
    conversion = convert(
        imports=imports,
        batch="",
        epoch=f"bar = {'tqdm.tqdm' if 'tqdm.tqdm' in line else 'tqdm'}([1])\n{line}",
    )
    assert f"if accelerator.is_main_process:\n        {line}" in conversion.new_text
    check_noop("epoch", "bar = open('x')\nbar.write('a')", "ACC201", imports="from tqdm import tqdm")


@pytest.mark.parametrize(
    ("shown", "after"),
    [
        ("bar.write(text)", "bar.write(text) if accelerator.is_main_process else None"),
        ("print(text)", "accelerator.print(text)"),
    ],
)
def test_what_shows_a_text_is_handed_on(shown: str, after: str) -> None:
    epoch = "bar = tqdm([1])\nshow(lambda text: {})"
    setup = "def show(say):\n    say('a')"
    text = convert(imports="from tqdm import tqdm", setup=setup, epoch=epoch.format(shown)).new_text
    assert epoch.format(after).partition("\n")[2] in text


def test_prints_of_helpers() -> None:
    check_transformed(
        "setup",
        "def show(n):\n    print(n)",
        "def show(n):\n    accelerator.print(n)",
        epoch="show(3)",
    )


def test_logging_is_quiet_on_the_other_processes() -> None:
    logger = "logger = logging.getLogger(__name__)"
    for call in ("logger.info('x')", "logging.info('x')"):
        conversion = convert(imports="import logging", setup=logger, epoch=call)
        assert "if not accelerator.is_main_process:\n    logging.disable(logging.INFO)" in conversion.new_text
        assert place_of(conversion.new_text, "epoch") == call


@pytest.mark.parametrize("line", ["import imp", "import importlib as imp", "from importlib import reload"])
def test_logging_that_is_loaded_anew_is_made_quiet_behind_that(line: str) -> None:
    reload = "reload(logging)" if line.endswith("reload") else "imp.reload(logging)"
    quiet = "if not accelerator.is_main_process:\n    logging.disable(logging.INFO)"
    check_transformed(
        "ready",
        f"{reload}\nlogging.basicConfig(level=logging.INFO)",
        f"{reload}\n{quiet}\nlogging.basicConfig(level=logging.INFO)",
        imports=f"import logging\n{line}",
        epoch="logging.info('x')",
    )


@pytest.mark.parametrize(
    ("line", "quiet"),
    [("import glog as log", "logging"), ("from absl import logging as log", "logging")],
)
def test_loggers_that_hand_their_lines_to_python_s_are_quiet_too(line: str, quiet: str) -> None:
    check_noop("epoch", "log.error('x')", "ACC209", imports=line)
    text = convert(imports=line, epoch="log.info('x')").new_text
    assert f"import {quiet}\n" in text
    assert f"if not accelerator.is_main_process:\n    {quiet}.disable({quiet}.INFO)" in text


@pytest.mark.parametrize("call", ["info", "success"])
def test_a_logger_that_writes_by_itself_is_named(call: str) -> None:
    line = f"logger.{call}('x')"
    conversion = check_transformed("epoch", line, line, imports="from loguru import logger")
    assert "disable(" not in conversion.new_text
    assert len(named(conversion)) == 1


def test_a_comment_stays_with_the_line_below_it_where_logging_is_made_quiet() -> None:
    setup = "logger = logging.getLogger(__name__)\nargs = parse_args()\n\n# seeds\nseed = start(args)"
    conversion = convert(
        imports="import logging\nfrom options import parse_args, start", setup=setup, epoch="logger.info('x')"
    )
    text = conversion.new_text
    assert "accelerator = Accelerator(" in text
    assert "    logging.disable(logging.INFO)\n" in text
    assert "\n# seeds\nseed = start(args)\n" in text


@pytest.mark.parametrize("name", ["print", "app.say"])
def test_a_logger_s_method_under_another_name_is_quiet_too(name: str) -> None:
    setup = f"class App:\n    pass\napp = App()\nlogger = logging.getLogger()\n{name} = logger.info"
    conversion = check_transformed(
        "epoch", f"{name}('x')", f"{name}('x')", imports="import logging", setup=setup
    )
    assert "if not accelerator.is_main_process:\n    logging.disable(logging.INFO)" in conversion.new_text
    for method in ("logger.warning", "report.info"):
        other = f"from reports import report\nlogger = logging.getLogger()\nsay = {method}"
        check_noop("epoch", "say('x')", "ACC209", imports="import logging", setup=other)


def test_warnings_are_for_every_process() -> None:
    logger = "logger = logging.getLogger(__name__)"
    check_noop("epoch", "logger.warning('x')", "ACC209", imports="import logging", setup=logger)


@pytest.mark.parametrize("line", ["pprint.pprint(vars(args))", "echo('started')"])
def test_what_libraries_print(line: str) -> None:
    imports = "import pprint\nfrom click import echo\nfrom start import args"
    after = f"if accelerator.is_main_process:\n    {line}"
    check_transformed("ready", line, after, imports=imports)


def test_a_bar_that_an_object_keeps() -> None:
    script = """
    class Solver:
        def __init__(self, model, optimizer):
            self.model, self.optimizer = model, optimizer
        def train(self, loader):
            self.pbar = tqdm(total=8)
            for x, y in loader:
                loss = F.cross_entropy(self.model(x), y)
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                self.pbar.write(f'{loss.item()}')
    Solver(model, optimizer).train(loader)
    """
    text = convert(end=script, imports="from tqdm import tqdm").new_text
    guard = "if self.accelerator.is_main_process:\n                self.pbar.write("
    assert guard in text or guard.replace("self.accelerator", "accelerator") in text


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            "logging.basicConfig(filename='a.log', filemode='w')",
            "logging.basicConfig(filename='a.log', filemode='w' if accelerator.is_main_process else \"a\")",
        ),
        (
            "handler = logging.FileHandler('a.log', 'w')",
            "handler = logging.FileHandler('a.log', 'w' if accelerator.is_main_process else \"a\")",
        ),
    ],
)
def test_a_log_file_is_begun_anew_by_one_process(before: str, after: str) -> None:
    assert after in convert(imports="import logging", setup="RATE = 1\n", ready=before).new_text


@pytest.mark.parametrize(
    "call", ["logging.basicConfig(filename='a.log')", "handler = logging.FileHandler('a.log')"]
)
def test_a_log_file_that_is_gone_on_with_stays(call: str) -> None:
    check_noop("epoch", call, "ACC209", imports="import logging")


NESTED = """
import argparse
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main():
    def say(text):
        print(text)

    {early}
    args = argparse.ArgumentParser().parse_args()
    say("begins")
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for (x,) in DataLoader(TensorDataset(torch.randn(32, 4)), batch_size=8):
        loss = model(x).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


main()
"""


@pytest.mark.parametrize(
    ("early", "line"), [("n = 1", "accelerator.print(text)"), ("say('a')", "print(text)")]
)
def test_a_function_inside_that_is_called_behind_the_accelerator_only(early: str, line: str) -> None:
    """It reads the name when it runs."""
    conversion = convert_source(Source.from_text(NESTED.format(early=early), PATH))
    assert f"    def say(text):\n        {line}\n" in conversion.new_text


AGENT = """\
import torch
from torch import nn


class Agent:
    def __init__(self):
        self.net = nn.Linear(4, 2)
        self.optimizer = torch.optim.Adam(self.net.parameters())

    def learn(self, x):
        loss = self.net(x).pow(2).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()


"""


def of_an_agent(*lines: str) -> str:
    conversion = convert_source(Source.from_text(AGENT + "\n".join(lines) + "\n", PATH))
    assert conversion.status == "converted", conversion.reason
    assert "self.accelerator = Accelerator(" in conversion.new_text
    return conversion.new_text.rpartition("optimizer.step()\n\n\n")[2]


def test_prints_beside_an_object_that_keeps_the_accelerator() -> None:
    learns = ("for i in range(3):", "    agent.learn(torch.randn(1, 4))", "    print('round', i)")
    text = of_an_agent("print('starts')", "agent = Agent()", *learns)
    assert text.startswith("print('starts')\nagent = Agent()\n")
    assert "    agent.accelerator.print('round', i)\n" in text
    main = [f"    {line}" for line in ("agent = Agent()", *learns)]
    assert "        agent.accelerator.print('round', i)\n" in of_an_agent("def main():", *main, "main()")


def test_prints_where_such_an_object_may_not_be_there() -> None:
    text = of_an_agent(
        "if True:", "    agent = Agent()", "    agent.learn(torch.randn(1, 4))", "print('done')"
    )
    assert "accelerator.print" not in text
    text = of_an_agent("agent = Agent()", "agent.learn(torch.randn(1, 4))", "agent = None", "print('done')")
    assert "accelerator.print" not in text


@pytest.mark.parametrize("line", ["console.print(rows)", "console.rule('done')"])
@pytest.mark.parametrize(("made", "library"), [("Console()", True), ("Sheet()", False)])
def test_the_console_of_rich(line: str, made: str, library: bool) -> None:
    setup = f"class Sheet:\n    def print(self, x): pass\n    rule = print\nrows, console = [], {made}"
    imports = "from rich.console import Console"
    if library:
        after = f"if accelerator.is_main_process:\n    {line}"
        check_transformed("epoch", line, after, imports=imports, setup=setup)
    else:
        check_noop("epoch", line, "ACC201", imports=imports, setup=setup)
