"""Processes that a rank spawns run the script's own lines anew, and with them its Accelerator."""

import subprocess
import sys

import pytest

SCRIPT = """
import multiprocessing
import os

from accelify.runtime import Accelerator

if __name__ == "__main__":
    # What a launcher tells the second of two ranks.
    told = dict(RANK="1", LOCAL_RANK="1", WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT="1")
    os.environ.update(told)
else:
    accelerator = Accelerator({given})


def work(queue):
    accelerator.wait_for_everyone()
    again = Accelerator()
    queue.put((accelerator.num_processes, accelerator.is_main_process, again.is_main_process))


if __name__ == "__main__":
    context = multiprocessing.get_context({method!r})
    queue = context.Queue()
    worker = context.Process(target=work, args=(queue,))
    worker.start()
    print(*queue.get(timeout=60))
    worker.join()
"""


@pytest.mark.parametrize(
    ("method", "given"),
    [("spawn", ""), ("spawn", "fsdp_plugin=FullyShardedDataParallelPlugin()"), ("forkserver", "")],
)
def test_they_join_no_group(method, given, tmp_path):
    script = SCRIPT.format(method=method, given=given)
    if given:
        script = script.replace(
            "import Accelerator\n", "import Accelerator, FullyShardedDataParallelPlugin\n"
        )
    (tmp_path / "train.py").write_text(script)
    done = subprocess.run(
        [sys.executable, "train.py"], cwd=tmp_path, capture_output=True, text=True, timeout=100
    )
    assert done.stdout.strip() == "1 False False", done.stderr
