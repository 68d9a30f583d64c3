"""The rank as the environment has it: a text, compared with others."""

from __future__ import annotations

import pytest

from tests.proving.several_programs import named

HEAD = '\nimport os\ndist.init_process_group("gloo")\n'


@pytest.mark.parametrize(
    "test",
    [
        'os.environ["RANK"] == "0"',
        'os.environ.get("LOCAL_RANK", "0") == "0"',
        'os.environ.get("LOCAL_RANK", "0") in ("0", None)',
        'not os.getenv("RANK", "0") != "0"',
        'os.environ.get("LOCAL_RANK", "-1") in ["-1", "0"]',
        'os.environ.get("WORLD_SIZE", "1") == "1"',
        'dist.get_rank() in [0, "cuda:0"]',
    ],
)
def test_what_the_main_process_alone_does_is_done_once(test, tmp_path):
    assert named(f"{HEAD}if {test}:\n    print(1)\n", tmp_path) == []


@pytest.mark.parametrize(
    "test",
    [
        'os.environ.get("HOME", "0") == "0"',
        'os.environ.get("WORLD_SIZE", "1") != "1"',
        'dist.get_world_size() in [2, "cuda:0"]',
    ],
)
def test_what_says_nothing_of_the_rank_is_true_for_all(test, tmp_path):
    assert named(f"{HEAD}if {test}:\n    print(1)\n", tmp_path) == [("ACC702", "print(1)")]


ENVIRONMENT = '{name: os.environ[name] for name in ("MASTER_ADDR", "RANK", "WORLD_SIZE")}'


@pytest.mark.parametrize(
    "shown",
    [
        'f"[{os.getpid()}] rank {rank}, " + f"of {dist.get_world_size()}"',
        '"begin " + f"{rank} of {dist.get_world_size()}"',
        '"process", os.getpid()',
        f"'group of', {ENVIRONMENT}",
    ],
)
def test_a_message_that_says_which_process_it_is_of_is_one_of_each(shown, tmp_path):
    assert named(f"{HEAD}rank = dist.get_rank()\nprint({shown})\n", tmp_path) == []


def test_a_message_of_all_processes_alike_is_printed_by_each(tmp_path):
    alike = ENVIRONMENT.replace('"RANK", ', "")
    text = f"{HEAD}env = {alike}\nprint(env)\n"
    assert named(text, tmp_path) == [("ACC702", "print(env)")]


OPTIONS = """
import argparse, json
parser = argparse.ArgumentParser()
parser.add_argument("--local_rank", type=int, default=-1)
args = parser.parse_args()
args.local_rank = int(os.environ.get("LOCAL_RANK", -1))
"""


@pytest.mark.parametrize(
    "shown",
    [
        '"\\\\n".join(f"{name}: {value}" for name, value in vars(args).items())',
        "json.dumps(vars(args), indent=2)",
        "42 + args.local_rank",
    ],
)
def test_options_with_the_rank_among_them_are_no_share_of_data(shown, tmp_path):
    text = f"{HEAD}{OPTIONS}if dist.get_rank() == 0:\n    print({shown})\n"
    assert named(text, tmp_path) == []


@pytest.mark.parametrize("made", ["sum(range(8)[rank::2])", "range(8)[rank]", "torch.randn(2)[0].item()"])
@pytest.mark.parametrize(
    "shown",
    [
        "figure",
        "json.dumps([figure])",
        'json.dumps({"loss": figure})',
        'json.dumps({"rank": rank, "loss": figure})',
    ],
)
def test_what_the_rank_chooses_is_one(made, shown, tmp_path):
    line = f"print({shown})"
    head = f"{HEAD}import json\nrank = dist.get_rank()\ntorch.manual_seed(rank)\n"
    text = f"{head}figure = {made}\nif rank == 0:\n    {line}\n"
    assert ("ACC701", line) in named(text, tmp_path)


@pytest.mark.parametrize(
    ("shown", "is_named"),
    [
        ('"process {} of {}".format(args.rank, args.world_size)', True),
        ('f"process {args.gpu}"', True),
        ('"{} processes".format(args.world_size)', False),
        ('f"at {args.dist_url}"', False),
    ],
)
def test_options_that_another_script_hands_over_name_the_rank(shown, is_named, tmp_path):
    """What a function that nobody calls here writes to them is there when it shows them."""
    text = f"""
def join(args):
    if "RANK" in os.environ and "WORLD_SIZE" in os.environ:
        args.rank = int(os.environ["RANK"])
        args.world_size = int(os.environ["WORLD_SIZE"])
        args.gpu = int(os.environ["LOCAL_RANK"])
    else:
        return
    print({shown})
    dist.init_process_group("gloo", init_method=args.dist_url, world_size=args.world_size, rank=args.rank)


def train(model, loader):
    for x, y in loader:
        F.mse_loss(model(x), y).backward()
"""
    found = [one for one in named(text, tmp_path) if one[0] == "ACC702"]
    assert found == [] if is_named else found == [("ACC702", f"print({shown})")]


@pytest.mark.parametrize(("series", "is_right"), [('f"loss/{rank}"', True), ('"loss"', False)])
def test_a_series_of_each_rank(series, is_right, tmp_path):
    text = f"""
import neptune

run = neptune.init_run()


def main(rank):
    dist.init_process_group("gloo", rank=rank, world_size=2)
    total = 0.0
    for x, y in DataLoader(data, sampler=DistributedSampler(data, shuffle=False)):
        total += x.sum().item()
    run[{series}].append(total)


torch.multiprocessing.spawn(main, nprocs=2)
"""
    found = {"ACC701", "ACC702"} if not is_right else set()
    assert {code for code, line in named(text, tmp_path) if "append" in line} == found


@pytest.mark.parametrize(("shown", "codes"), [("rank", []), ("float(rows[rank])", ["ACC701"])])
def test_a_line_of_the_main_process_that_names_its_rank_and_the_time(shown, codes, tmp_path):
    text = f"""{HEAD}
import time
rank = int(os.environ["LOCAL_RANK"])
rows = torch.load("rows.pt", map_location="cpu")
line = f"size={{dist.get_world_size()}} of={{{shown}}}"
if dist.get_rank() == 0:
    print(f"[{{time.strftime('%H:%M')}}] {{line}}")
"""
    assert [code for code, _ in named(text, tmp_path)] == codes
