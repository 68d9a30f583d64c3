"""Names of modules in added lines: the module itself, whatever the function calls by its name."""

from __future__ import annotations

import pytest

from accelify.conversion import Conversion
from accelify.convert import convert_source
from accelify.source import Source
from tests.transforms.support import PATH

SCRIPT = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from helpers import start_log
{imports}

def train(folder):
    device = torch.device("cpu")
    {first}
    log = open(folder, "w")
    model = nn.Linear(4, 2).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(TensorDataset(torch.randn(8, 4)), batch_size=4)
    for (x,) in loader:
        loss = model(x).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        {shown}


train("log.txt")
"""


def converted(first: str = "pass", shown: str = "log.write('x')", imports: str = "") -> Conversion:
    text = SCRIPT.format(first=first, shown=shown, imports=imports)
    conversion = convert_source(Source.from_text(text, PATH))
    assert conversion.status == "converted", conversion.reason
    assert convert_source(Source.from_text(conversion.new_text, PATH)).new_text == conversion.new_text
    return conversion


@pytest.mark.parametrize(
    "first",
    [
        "logging = start_log(folder)",
        "import logging",  # behind the place
        "from helpers import logging",
        "with start_log() as logging: pass",
    ],
)
def test_logging_is_another_name_in_the_function(first: str) -> None:
    imports = "from logging import getLogger\nlogger = getLogger()"
    text = converted(first, "logger.info('x')", imports).new_text
    quiet = "    if not accelerator.is_main_process:\n        std_logging.disable(std_logging.INFO)\n"
    assert quiet in text
    assert "import logging as std_logging\n" in text


def test_a_module_is_written_by_the_name_that_the_file_has_for_it() -> None:
    other = "import logging as log_lines\nlogger = log_lines.getLogger()"
    assert "log_lines.disable(log_lines.INFO)" in converted("logging = 3", "logger.info('x')", other).new_text
    text = converted("pass", "logging.info('x')", "import logging").new_text
    assert "        logging.disable(logging.INFO)" in text
    assert text.count("import logging") == 1


@pytest.mark.parametrize(
    ("first", "imports", "written", "lines"),
    [
        ("pass", "", "os", ["import os"]),
        ("pass", "import os", "os", ["import os"]),
        ("import os", "", "os", ["    import os"]),
        ("if folder: import os", "", "std_os", ["import os as std_os"]),
        ("os = 'linux'", "import os", "std_os", ["import os as std_os", "import os"]),
        ("pass", "os = 'linux'", "std_os", ["import os as std_os"]),
        ("os = std_os = 1", "", "std_os_", ["import os as std_os_"]),
    ],
)
def test_files_are_opened_on_nothing(first: str, imports: str, written: str, lines: list[str]) -> None:
    text = converted(first, imports=imports).new_text
    assert f'open(folder if accelerator.is_main_process else {written}.devnull, "w")' in text
    assert [line for line in text.splitlines() if line.lstrip().startswith("import os")] == lines
