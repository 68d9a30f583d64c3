"""The wall clock of later ranks, as the user's own text reads it."""

from __future__ import annotations

import ast
import builtins
import datetime
import pickle
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from accelify.verify.compare import effects
from accelify.verify.nursery import Nursery
from accelify.verify.observe import later_clocks

from .effect_scripts import MAIN, differences, pair, run_pair


@pytest.fixture
def _second_rank() -> Iterator[None]:
    later_clocks.install(1)
    yield
    delattr(builtins, later_clocks.CLOCK)


def run(source: str) -> dict[str, Any]:
    tree = ast.parse(source)
    later_clocks.shift_calls(tree)
    names: dict[str, Any] = {}
    exec(compile(tree, "script.py", "exec"), names)
    return names


@pytest.mark.usefixtures("_second_rank")
@pytest.mark.parametrize(
    "text",
    [
        "import time\nx = time.time()",
        "from time import time_ns as time\nx = time() / 1e9",
        "import time\nx = time.mktime(time.localtime())",
        "import time, calendar\nx = calendar.timegm(time.gmtime())",
        "import time\nx = time.mktime(time.strptime(time.strftime('%Y-%m-%d %H:%M:%S'), '%Y-%m-%d %H:%M:%S'))",
        "import time\nx = time.mktime(time.strptime(time.ctime()))",
        "import time\nx = time.mktime(time.strptime(time.asctime()))",
        "import datetime\nx = datetime.datetime.now().timestamp()",
        "from datetime import datetime as d, timezone\nx = d.now(timezone.utc).timestamp()",
        "from datetime import datetime\nx = datetime.today().timestamp()",
    ],
)
def test_what_reads_the_clock_is_later(text: str) -> None:
    assert 59 <= run(text)["x"] - time.time() <= 62


@pytest.mark.usefixtures("_second_rank")
def test_everything_else_stays() -> None:
    found = run(
        "import time, datetime\n"
        "class Mine(datetime.datetime):\n    pass\n"
        "class Other:\n    def now(self): return 5\n    def time(self, n): return n\n"
        "a = time.gmtime(0).tm_year, time.strftime('%Y', time.gmtime(0)), time.ctime(0)\n"
        "b = Other().now(), Other().time(7)\n"
        "c = datetime.datetime.now()\n"
        "d = Mine.now()\n"
        "e = datetime.date.today()\n"
        "start = time.time()\n"
        "f = time.time() - start, time.monotonic()\n"
        "today = {1: 2}.get\n"
        "g = today(1)\n"
    )
    assert found["a"] == (1970, "1970", time.ctime(0))
    assert found["b"] == (5, 7)
    assert type(found["c"]) is datetime.datetime
    assert pickle.loads(pickle.dumps(found["c"])) == found["c"]
    assert type(found["d"]) is found["Mine"]
    assert type(found["e"]) is datetime.date
    assert 0 <= found["f"][0] < 5
    assert abs(found["f"][1] - time.monotonic()) < 5
    assert found["g"] == 2


@pytest.mark.distributed
def test_a_folder_named_by_the_clock_is_another_on_each_rank(nursery: Nursery, tmp_path: Path) -> None:
    named = "from datetime import datetime\nplace = datetime.now().strftime('run-%Y%m%d-%H%M%S')\n"
    make = "os.makedirs(place, exist_ok=True)\n"
    original, other, lines = run_pair(nursery, tmp_path, pair(named + make, named + make))
    (sentence,) = differences(effects.compare(original, other, lines, exact=False))
    assert "are made by ranks 0 and 1 (line 11), once in the original" in sentence
    original, other, lines = run_pair(nursery, tmp_path, pair(named + make, named + MAIN + make))
    assert not differences(effects.compare(original, other, lines, exact=False))
