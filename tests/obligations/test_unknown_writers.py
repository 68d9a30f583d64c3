"""Effects of libraries that are not read: by their rows, and of unknown ones by what their functions are told to do."""

from __future__ import annotations

import pytest

from accelify.knowledge import Knowledge
from accelify.obligations import Status, validate

KNOWLEDGE = Knowledge()
FRAME = """\
import absent
import gspread
import hydra
import pkbar
import pymongo
import slack_sdk
import timm
from absent.files import save_table
from evidently.ui.workspace import Workspace
from sacred import Experiment
from accelify.runtime import Accelerator
import argparse
import os
args = argparse.ArgumentParser().parse_args()
accelerator = Accelerator()
experiment = Experiment("a")
book = gspread.service_account("k").open("a")
folder, page = args.folder, absent.Page()
chat = slack_sdk.WebClient("t")
rows = pymongo.MongoClient().get_database("a").get_collection("b")
"""


def by_all(body: str) -> list[str]:
    checked = validate(FRAME + body, None, KNOWLEDGE)
    assert "absent" in checked.unknown_modules
    return [one.found for one in checked.of(Status.NAMED) if one.demand == "once"]


@pytest.mark.parametrize(
    ("call", "name"),
    [
        ('absent.save_all("out/x.txt", 3)', "absent.save_all"),
        ('save_table([1], "x.csv")', "absent.files.save_table"),
        ('absent.upload("x.csv")', "absent.upload"),
        ('absent.download_weights("resnet")', "absent.download_weights"),
        ('absent.draw([1], out_file="x.html")', "absent.draw"),
        ('absent.draw([1], save_path=f"{folder}/x")', "absent.draw"),
        ('page.save_html("x.html")', "page.save_html"),
        ("bar = pkbar.Kbar(target=3)", "pkbar.Kbar"),
        ('store = Workspace.create("reports")', "evidently.ui.workspace.Workspace.create"),
        ("experiment.run_commandline()", "experiment.run_commandline"),
        ("book.sheet1.append_row([1])", "book.sheet1.append_row"),
        ('book.worksheet("b").clear()', "book.worksheet('b').clear"),
        ('chat.chat_postMessage(text="x")', "chat.chat_postMessage"),
        ("rows.insert_one({})", "rows.insert_one"),
        ('folder = timm.utils.summary.get_outdir("out", "a")', "timm.utils.summary.get_outdir"),
        ('timm.utils.setup_default_logging(log_path="a.log")', "timm.utils.setup_default_logging"),
    ],
)
def test_every_process_does_it(call: str, name: str) -> None:
    assert by_all(call) == [f"`{name}` is done by every process"]
    assert by_all(f"if accelerator.is_main_process:\n    {call}") == []


@pytest.mark.parametrize(
    "call",
    ['absent.draw(3, "pages/a.html")', "page.put(os.path.join(folder, 'a.html'))", "page.put(f'{folder}/a')"],
)
def test_a_path_below_a_folder_that_the_script_makes(call: str) -> None:
    made = 'os.makedirs("pages", exist_ok=True)\nos.makedirs(folder, exist_ok=True)\n'
    assert len(by_all(made + call)) == 1
    assert by_all(f"{made}if accelerator.is_main_process:\n    {call}") == []
    # What it gives may be what it reads there.
    assert by_all(f"{made}found = {call}") == []
    assert by_all(call) == []


def test_the_folder_of_a_run_is_made_by_every_process() -> None:
    body = '@hydra.main(config_path="conf")\ndef main(cfg):\n    accelerator.print(cfg.rate)\n\n\nmain()\n'
    assert by_all(body) == ["`hydra.main` is done by every process"]


@pytest.mark.parametrize(
    "call",
    ['absent.parse("x.txt")', "absent.saved(3)", "absent.fit(3, out=3)", "absent.save()", "absent.Save(3)"],
)
def test_what_is_not_told_to_write(call: str) -> None:
    assert by_all(call) == []


def test_a_renamed_column_is_no_file() -> None:
    table = 'table = absent.table("a")\n'
    assert by_all(f'{table}table.rename(columns={{"a": "b"}})') == []
    assert by_all(f'{table}table.rename({{"a": "b"}}, axis=1)') == []
    assert by_all(f'{table}table.rename("b.csv")') == ["`table.rename` is done by every process"]
