"""Which process does what: what no process does, and what one alone does, is told from what all of them do."""

from __future__ import annotations

from textwrap import dedent

import pytest

from accelify.conversion import ConvertOptions
from accelify.convert import convert_project
from accelify.project import Imports
from accelify.proving import checked
from accelify.source import Source

HEAD = """\
import logging, os, sys
from functools import wraps
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel as DDP

"""


def found(text, tmp_path):
    """The lines that are named, each with its rule."""
    path = tmp_path / "train.py"
    path.write_text(HEAD + dedent(text))
    lines = path.read_text().splitlines()
    findings = checked(convert_project(Source.read(path), ConvertOptions(), Imports())[0])
    return [(one.code, lines[one.line - 1].strip()) for one in findings]


CALLED_ON_BOTH = """\
def epoch(rank, logger):
    {ask}
        logger.info("done")

dist.init_process_group("gloo")
rank = dist.get_rank()
net = DDP(torch.nn.Linear(4, 1))
if rank == 0:
    epoch(rank, logging.getLogger("train"))
else:
    {other}
"""


def test_a_function_that_both_branches_call_asks_which_it_is_in(tmp_path):
    text = CALLED_ON_BOTH.format(ask="if rank == 0:", other="epoch(rank, None)")
    assert found(text, tmp_path) == []


def test_what_a_function_does_that_both_branches_call_is_done_by_each(tmp_path):
    text = CALLED_ON_BOTH.format(ask="print('begun')\n    if rank == 0:", other="epoch(rank, None)")
    assert found(text, tmp_path) == [("ACC702", "print('begun')")]


def test_what_the_main_process_never_comes_to_is_done_by_no_process(tmp_path):
    text = CALLED_ON_BOTH.format(ask="if rank != 0:", other="pass")
    assert found(text, tmp_path) == [("ACC702", 'logger.info("done")')]


LEAVES = """\
dist.init_process_group("gloo")
net = DDP(torch.nn.Linear(4, 1))

def main(mode):
    {ask}
        if dist.get_rank() == 0:
            print("evaluated")
            return
    if dist.get_rank() == 0:
        print("trained")

main(sys.argv[1])
"""


def test_the_main_process_that_leaves_in_one_mode_does_the_rest_in_others(tmp_path):
    assert found(LEAVES.format(ask='if mode == "eval":'), tmp_path) == []


def test_what_the_main_process_has_always_left_before_is_done_by_no_process(tmp_path):
    assert found(LEAVES.format(ask="with torch.no_grad():"), tmp_path) == [("ACC702", 'print("trained")')]


STARTED = """\
def work(number, size, extra):
    dist.init_process_group("gloo", rank=number, world_size=size)
    net = DDP(torch.nn.Linear(4, 1))
    {shown}

if __name__ == "__main__":
    os.makedirs("runs")
    for i in range(4):
        one = {start}
        one.start()
"""


@pytest.mark.parametrize(
    "start",
    [
        "mp.Process(target=work, args=(i, 4, len(sys.argv)))",
        'mp.get_context("spawn").Process(target=work, args=(i, 4, len(sys.argv)))',
        "mp.Process(target=work, kwargs=dict(number=i, size=4, extra=len(sys.argv)))",
        'mp.Process(target=work, kwargs={"number": i, "size": 4, "extra": len(sys.argv)})',
    ],
)
def test_processes_that_a_loop_starts_get_their_rank(start, tmp_path):
    text = STARTED.format(shown="if number == 0:\n        print('ready')", start=start)
    assert found(text, tmp_path) == []


def test_other_arguments_of_such_processes_are_no_rank(tmp_path):
    start = "mp.Process(target=work, args=(i, 4, len(sys.argv)))"
    text = STARTED.format(shown="if extra == 0:\n        print('ready')", start=start)
    assert found(text, tmp_path) == [("ACC702", "print('ready')")]


def test_a_process_that_joins_none_is_started_by_every_rank(tmp_path):
    text = """\
    def watch(i):
        open("watch.txt", "w").write("seen")

    dist.init_process_group("gloo")
    net = DDP(torch.nn.Linear(4, 1))
    for i in range(2):
        mp.Process(target=watch, args=(i,)).start()
    print("started")
    """
    assert ("ACC702", 'print("started")') in found(text, tmp_path)


@pytest.mark.parametrize(("function", "codes"), [("target=work", []), ("", ["ACC702"])])
def test_a_worker_process_of_each_rank_is_no_command(function, codes, tmp_path):
    text = f"""\
    def work():
        pass

    dist.init_process_group("gloo")
    net = DDP(torch.nn.Linear(4, 1))
    worker = mp.Process({function})
    worker.start()
    """
    assert [code for code, _ in found(text, tmp_path)] == codes


SEARCHED = """\
import optuna

def work(rank, size, rate):
    dist.init_process_group("gloo", rank=rank, world_size=size)
    net = DDP(torch.nn.Linear(4, 1))
    print("begun")

class Trial:
    def __init__(self, size):
        self.size = size

    def __call__(self, trial):
        {begin}
        return 0.0

if __name__ == "__main__":
    os.makedirs("runs")
    study = optuna.create_study()
    study.optimize(Trial(2), n_trials=3)
    print(study.best_params)
"""


def test_what_the_process_does_that_starts_the_others_from_an_object_is_done_once(tmp_path):
    text = SEARCHED.format(begin="mp.spawn(work, args=(self.size, 0.1), nprocs=self.size)")
    assert found(text, tmp_path) == [("ACC702", 'print("begun")')]


def test_a_search_that_every_process_makes_is_done_by_each(tmp_path):
    text = SEARCHED.format(begin="work(int(os.environ['RANK']), self.size, 0.1)")
    assert ("ACC702", "print(study.best_params)") in found(text, tmp_path)


ON_MAIN = """\
def on_main(function):
    @wraps(function)
    def wrapper(*args):
        try:
            {ask}:
                return function(*args)
        except RuntimeError:
            return function(*args)
    return wrapper

@on_main
def show(text):
    print(text)

dist.init_process_group("gloo")
net = DDP(torch.nn.Linear(4, 1))
show("ready")
"""


def test_a_handler_without_a_group_does_what_the_main_process_does(tmp_path):
    assert found(ON_MAIN.format(ask="if dist.get_rank() == 0"), tmp_path) == []


def test_a_handler_of_what_every_process_does_is_done_by_each(tmp_path):
    assert found(ON_MAIN.format(ask="if len(sys.argv) > 1"), tmp_path) == [("ACC702", "print(text)")]


@pytest.mark.parametrize(
    "shown", ["torch.cuda.current_device()", "torch.device('cuda', rank)", "torch.device(f'cuda:{rank}')"]
)
def test_a_text_that_names_the_device_of_its_process_is_for_each(shown, tmp_path):
    text = f"""\
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    torch.cuda.set_device(rank)
    net = DDP(torch.nn.Linear(4, 1).cuda())
    device = {shown}
    print(f"device {{device}}")
    """
    assert found(text, tmp_path) == []


def test_a_text_that_names_a_device_of_all_is_shown_by_each(tmp_path):
    text = """\
    dist.init_process_group("nccl")
    torch.cuda.set_device(dist.get_rank())
    net = DDP(torch.nn.Linear(4, 1).cuda())
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    print(f"device {device}")
    """
    assert found(text, tmp_path) == [("ACC702", 'print(f"device {device}")')]


LOGS = """\
def logger_of(folder):
    if {asked}:
        logging.basicConfig(level=logging.INFO, handlers=[logging.StreamHandler()])
    return logging.getLogger("train")

dist.init_process_group("gloo")
net = DDP(torch.nn.Linear(4, 1))
{before}
if dist.get_rank() == 0:
    logger = logger_of("runs")
else:
    logger = logger_of(None)
logger.info("training")
"""


def test_loggers_that_the_main_process_alone_sets_up_are_silent_on_the_others(tmp_path):
    text = LOGS.format(asked="dist.get_rank() == 0", before="")
    assert found(text, tmp_path) == []


@pytest.mark.parametrize(
    ("asked", "before"),
    [("folder is None or folder", ""), ("dist.get_rank() == 0", "logging.basicConfig(level=logging.INFO)")],
)
def test_loggers_that_every_process_sets_up_write_on_each(asked, before, tmp_path):
    assert ("ACC702", 'logger.info("training")') in found(LOGS.format(asked=asked, before=before), tmp_path)


@pytest.mark.parametrize(
    ("level", "lines"), [("WARNING", []), ("INFO", [("ACC702", 'logging.info("training")')])]
)
def test_loggers_of_the_others_write_what_their_level_lets_through(level, lines, tmp_path):
    text = f"""\
    dist.init_process_group("gloo")
    net = DDP(torch.nn.Linear(4, 1))
    if dist.get_rank() == 0:
        logging.basicConfig(level=logging.INFO)
    else:
        logging.basicConfig(level=logging.{level})
    logging.info("training")
    """
    assert found(text, tmp_path) == lines


SHOWS = """\
from contextlib import redirect_stdout
import yaml

dist.init_process_group("gloo")
net = DDP(torch.nn.Linear(4, 1))
with open(f"{dist.get_rank()}.yaml", "w") as file:
    with redirect_stdout(INTO):
        print(yaml.dump({"rate": 0.1}))
"""


def test_what_is_printed_into_a_file_of_each_process_is_written_there(tmp_path):
    assert found(SHOWS.replace("INTO", "file"), tmp_path) == []


def test_what_is_printed_to_the_error_stream_is_shown_by_each(tmp_path):
    text = SHOWS.replace("INTO", "sys.stderr")
    assert found(text, tmp_path) == [("ACC702", 'print(yaml.dump({"rate": 0.1}))')]


FAILS = """\
def of(path):
    if not os.path.exists(path):
        print("no data")
        {then}

dist.init_process_group("gloo")
net = DDP(torch.nn.Linear(4, 1))
of("data")
"""


@pytest.mark.parametrize(
    ("then", "lines"),
    [("raise FileNotFoundError(path)", []), ("return None", [("ACC702", 'print("no data")')])],
)
def test_a_message_of_an_error_is_of_each_process_that_has_it(then, lines, tmp_path):
    assert found(FAILS.format(then=then), tmp_path) == lines


@pytest.mark.parametrize(
    ("done", "lines"), [('print("begun")', []), ('os.makedirs("runs")', [("ACC702", 'os.makedirs("runs")')])]
)
def test_a_message_of_the_others_alone_is_meant_for_them(done, lines, tmp_path):
    text = f"""\
    def rank_here():
        if "RANK" not in os.environ:
            return 0
        return int(os.environ["RANK"])

    dist.init_process_group("gloo")
    net = DDP(torch.nn.Linear(4, 1))
    if rank_here() != 0:
        {done}
    """
    assert found(text, tmp_path) == lines


@pytest.mark.parametrize(
    ("asked", "lines"), [("local_rank", []), ("seed", [("ACC702", 'print("set", key)')])]
)
def test_the_rank_among_options_stays_where_others_are_read_from_a_file(asked, lines, tmp_path):
    text = f"""\
    import argparse, yaml

    parser = argparse.ArgumentParser()
    parser.add_argument("--local_rank", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    for key, value in yaml.safe_load(open("options.yaml")).items():
        if args.{asked} == 0:
            print("set", key)
        setattr(args, key, value)
    dist.init_process_group("gloo")
    net = DDP(torch.nn.Linear(4, 1))
    """
    assert found(text, tmp_path) == lines


@pytest.mark.parametrize(
    ("test", "waiting", "lines"),
    [
        ("rank == 0", "rank != 0", []),
        ("len(sys.argv) > 1", "rank != 0", []),  # the others find it
        ("len(sys.argv) > 1", "rank < 0", [("ACC702", "digits = MNIST"), ("ACC704", "dist.barrier")]),
    ],
)
def test_a_download_that_the_main_process_alone_asks_for(test, waiting, lines, tmp_path):
    text = f"""\
    from torchvision.datasets import MNIST

    dist.init_process_group("gloo")
    net = DDP(torch.nn.Linear(4, 1))
    rank = dist.get_rank()
    asked = {test}
    if {waiting}:
        dist.barrier()
    digits = MNIST("data", download=asked)
    if rank == 0:
        dist.barrier()
    """
    assert [(code, line.partition("(")[0]) for code, line in found(text, tmp_path)] == lines


INFO = """\
import random
from {module} import get_dist_info
dist.init_process_group("gloo")
net = DDP(torch.nn.Linear(4, 1))

def seed():
    rank, size = get_dist_info()
    chosen = random.randint(0, 9)
    if size == 1:
        return chosen
    number = torch.tensor(chosen if rank == 0 else 0)
    {sent}
    return number.item()

drawn = seed()
rank, _ = get_dist_info()
{show}
"""
ALONE = 'if rank == 0:\n    print("seed", drawn)'


@pytest.mark.parametrize("module", ["mmcv.runner", "mmengine.dist"])
@pytest.mark.parametrize(
    ("sent", "show", "codes"),
    [
        ("dist.broadcast(number, 0)", ALONE, []),
        ("pass", ALONE, ["ACC701"]),
        ("dist.broadcast(number, 0)", 'print("seed", drawn)', ["ACC702"]),
    ],
)
def test_the_rank_and_the_number_of_processes_in_one(module, sent, show, codes, tmp_path):
    text = INFO.format(module=module, sent=sent, show=show)
    assert found(text, tmp_path) == [(code, 'print("seed", drawn)') for code in codes]


OPTIONS_OF_A_FILE = """\
import yaml
def epoch(config):
    if config{keys}["rank"] == {number}:
        print("done")

def main(file):
    config = yaml.safe_load(file)
    dist.init_process_group("gloo")
    config["device"] = "cuda"
    config{keys}["rank"] = {rank}
    net = DDP(torch.nn.Linear(4, 1))
    epoch(config)

main(sys.stdin)
"""


@pytest.mark.parametrize("keys", ["", '["train"]', '["train"]["processes"]'])
@pytest.mark.parametrize(
    ("rank", "number", "lines"), [("dist.get_rank()", 0, 0), ("dist.get_world_size()", 2, 1)]
)
def test_the_rank_in_a_table_of_which_nothing_else_is_known(keys, rank, number, lines, tmp_path):
    text = OPTIONS_OF_A_FILE.format(keys=keys, rank=rank, number=number)
    assert len(found(text, tmp_path)) == lines


@pytest.mark.parametrize(
    ("asks", "lines"),
    [
        ("if not self.several: return True\n        if self.rank == 0: return True\n        return False", 0),
        ("if not self.several: return True\n        return self.rank == 0", 0),
        ("if not self.several: return True\n        return self.rank >= 0", 1),
        ("return True", 1),
    ],
)
def test_a_guard_that_is_true_of_a_process_alone(asks, lines, tmp_path):
    text = f"""\
import argparse
class Trainer:
    def __init__(self, args):
        self.several, self.rank = args.several, int(os.environ["LOCAL_RANK"])
        self.model = DDP(torch.nn.Linear(4, 1))

    def is_main(self):
        {asks}

    def log(self):
        if self.is_main():
            print("done")

parser = argparse.ArgumentParser()
parser.add_argument("--several", action="store_true")
dist.init_process_group("gloo")
Trainer(parser.parse_args()).log()
"""
    assert found(text, tmp_path) == [("ACC702", 'print("done")')] * lines


@pytest.mark.parametrize(
    ("asks", "lines"),
    [
        ("world.rank == 0", 0),
        ("world.Get_rank() == 0", 0),
        ("world.size > 1", 1),
        ("world.Get_size() > 1", 1),
    ],
)
def test_the_rank_that_mpi_has(asks, lines, tmp_path):
    text = f"""\
from mpi4py import MPI
world = MPI.COMM_WORLD
dist.init_process_group("gloo", rank=world.rank, world_size=world.size)
model = DDP(torch.nn.Linear(4, 1))
if {asks}:
    print("done")
"""
    assert found(text, tmp_path) == [("ACC702", 'print("done")')] * lines
