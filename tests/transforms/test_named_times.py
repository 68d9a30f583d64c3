"""ACC211: files and folders that are named by a time which has a name of its own."""

from __future__ import annotations

import pytest

from tests.transforms.support import check_noop, check_transformed

IMPORTS = "import os\nimport time\nfrom datetime import datetime\n"
SAVED = 'torch.save(model.state_dict(), os.path.join(folder, "best.pt"))\n'


@pytest.mark.parametrize(
    ("taken", "made"),
    [
        ("now = datetime.now()", 'os.path.join("runs", "{}{:%Y%m%dT%H%M}".format("net", now))'),
        ("now = datetime.now()", 'f"runs/{now:%H%M}"'),
        ("now = datetime.now()", '"runs/%d-%d" % (now.hour, now.minute)'),
        ("now = time.localtime()", '"runs/%d-%d" % (now.tm_hour, now.tm_min)'),
        ("now = time.time()", '"runs/" + str(int(now))'),
        ("now = datetime.now()\nnow = now.replace(microsecond=0)", '"runs/%s" % now'),
    ],
)
def test_a_time_that_was_taken_is_filled_in(taken: str, made: str) -> None:
    check_transformed(
        "ready",
        f"{taken}\nfolder = {made}\n",
        f"{taken}\nfolder = broadcast_object_list([{made}])[0]",
        imports=IMPORTS,
        end=SAVED,
    )


def test_a_time_of_the_module_that_a_function_fills_in() -> None:
    made = 'now = datetime.now()\ndef run_name():\n    return f"runs/{now:%H%M}"\n'
    check_transformed(
        "ready",
        f"{made}folder = run_name()\n",
        f"{made}folder = broadcast_object_list([run_name()])[0]",
        imports=IMPORTS,
        end=SAVED,
    )


@pytest.mark.parametrize(
    "lines",
    [
        'start = time.time()\ntook = time.time() - start\nfolder = f"runs/{took}"\n',
        'now = time.time()\nfor now in range(3):\n    pass\nfolder = f"runs/{now}"\n',
        'now = time.time()\nnow = len("net")\nfolder = f"runs/{now}"\n',
        'day = datetime(2020, 1, 1)\nfolder = f"runs/{day:%H%M}"\n',
        'now = datetime.now()\nfolder = f"runs/{now - now}"\n',
    ],
)
def test_what_is_no_time_stays(lines: str) -> None:
    check_noop("ready", lines, "ACC211", imports=IMPORTS, end=SAVED)


@pytest.mark.parametrize(
    "lines",
    [
        'start = time.time()\nnote = "%.1f min" % ((time.time() - start) / 60)\n',
        "start = time.time()\nminutes = start / 60\n",
    ],
)
def test_a_time_that_is_divided_by_a_number_is_no_path(lines: str) -> None:
    check_noop("ready", lines, "ACC211", imports=IMPORTS, end='folder = "a"\n' + SAVED)
