"""Saves."""

from __future__ import annotations

import pytest

from tests.transforms.support import check_noop, check_transformed, convert


@pytest.mark.parametrize(
    "snippet",
    ["saver.save(optimizer.state_dict(), 'm.pt')", "path = 'torch.save'", "save = torch.save"],
)
def test_what_does_not_save_stays(snippet: str) -> None:
    check_noop("end", snippet, "ACC206", setup="saver = object()")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("model.state_dict(), 'm.pt'", "accelerator.unwrap_model(model).state_dict(), 'm.pt'"),
        ("model, 'm.pt'", "accelerator.unwrap_model(model), 'm.pt'"),
        ("obj=model, f='m.pt'", "obj=accelerator.unwrap_model(model), f='m.pt'"),
        ("torch.zeros(3), 'é.pt'", "torch.zeros(3), 'é.pt'"),
        (
            "{'model': model.state_dict(), 'optimizer': optimizer.state_dict()}, 'm.pt'",
            "{'model': accelerator.unwrap_model(model).state_dict(), 'optimizer': optimizer.state_dict()}, 'm.pt'",
        ),
        (
            "{\n    'model': model.state_dict(),  # é\n}, 'm.pt'",
            "{\n    'model': accelerator.unwrap_model(model).state_dict(),  # é\n}, 'm.pt'",
        ),
    ],
)
def test_saves(before: str, after: str) -> None:
    check_transformed(
        "end", f"torch.save({before})", f"accelerator.wait_for_everyone()\naccelerator.save({after})"
    )


def test_two_saves_wait_once() -> None:
    check_transformed(
        "epoch",
        """
        if epoch % 2 == 0:
            torch.save(model.state_dict(), 'm.pt')
            torch.save(optimizer.state_dict(), 'o.pt')
        """,
        """
        if epoch % 2 == 0:
            accelerator.wait_for_everyone()
            accelerator.save(accelerator.unwrap_model(model).state_dict(), 'm.pt')
            accelerator.save(optimizer.state_dict(), 'o.pt')
        """,
    )


def test_a_save_that_is_tried_again_waits_before_the_first_time() -> None:
    check_transformed(
        "epoch",
        """\
        tries = 3
        while tries:
            try:
                torch.save(model.state_dict(), 'm.pt')
            except OSError:
                tries -= 1
            else:
                break
        """,
        """\
        tries = 3
        accelerator.wait_for_everyone()
        while tries:
            try:
                accelerator.save(accelerator.unwrap_model(model).state_dict(), 'm.pt')
            except OSError:
                tries -= 1
            else:
                break
        """,
    )


def test_a_save_that_may_fail_in_each_epoch_waits_there() -> None:
    text = "try:\n    {}torch.save([epoch], 'm.pt')\nexcept OSError:\n    pass"
    saved = text.format("accelerator.wait_for_everyone()\n    ").replace("torch.save", "accelerator.save")
    check_transformed("epoch", text.format(""), saved)


def test_no_waiting_where_not_every_process_may_come() -> None:
    check_transformed(
        "update",
        "optimizer.step()\nif loss.item() < 0.1:\n    torch.save(model.state_dict(), 'm.pt')",
        """
        optimizer.step()
        if loss.item() < 0.1:
            accelerator.save(accelerator.unwrap_model(model).state_dict(), 'm.pt')
        """,
    )


SCORE = """
best = 0
def score():
    hits = 0
    with torch.no_grad():
        for a, b in test_loader:
            {figure}
    return hits / len(data)
"""
SUMMED = "hits += (model(a).argmax(1) == b).sum().item()"
# No call of the model that takes a whole batch, so that every process evaluates all of the data.
IN_PARTS = "for part in a.split(2):\n                hits += model(part).argmax(1).sum().item()"


@pytest.mark.parametrize(("figure", "waits"), [(SUMMED, True), (IN_PARTS, False)])
@pytest.mark.parametrize("save", ["torch.save(model.state_dict(), 'best.pt')", "keep()"])
def test_nobody_waits_by_a_figure_that_each_computes_for_itself(figure: str, waits: bool, save: str) -> None:
    """Another kernel can round it otherwise on one process, which then came to the wait alone."""
    epoch = f"now = score()\nbetter = now > best\nif better:\n    best = now\n    {save}"
    ready = SCORE.format(figure=figure)
    ready += "def keep():\n    torch.save(model.state_dict(), 'best.pt')\n" if save == "keep()" else ""
    text = convert(ready=ready, epoch=epoch).new_text
    assert ("wait_for_everyone" in text) == waits
    always = convert(ready=ready, epoch=f"now = score()\n{save}").new_text
    assert "wait_for_everyone" in always


def test_an_open_file_is_written_by_the_main_process() -> None:
    check_transformed(
        "end",
        "with open('m.pt', 'wb') as f:\n    torch.save(model.state_dict(), f)",
        """
        if accelerator.is_main_process:
            with open('m.pt', 'wb') as f:
                torch.save(accelerator.unwrap_model(model).state_dict(), f)
        """,
    )


def test_a_function_that_calls_itself() -> None:
    snippet = "def store(n):\n    torch.save(n, f'{n}.pt')\n    if n:\n        store(n - 1)"
    check_transformed("ready", snippet, snippet.replace("torch.save", "accelerator.save"), end="store(2)")


@pytest.mark.parametrize("name", ["load_checkpoint", "restore_from_checkpoint", "read_checkpoint"])
def test_what_loads_is_for_every_process(name: str) -> None:
    check_noop("end", f"{name}('m.pt', model)", "ACC206", imports=f"from tools import {name}")


def test_a_save_that_a_process_draws_lots_for_is_not_waited_for() -> None:
    test = "if torch.rand(1).item() > 0.5:\n    "
    check_transformed(
        "epoch",
        f"{test}torch.save(model.state_dict(), 'a')",
        f"{test}accelerator.save(accelerator.unwrap_model(model).state_dict(), 'a')",
    )


def test_a_model_in_a_container_is_saved_without_its_wrapper() -> None:
    end = """
    best = nn.Sequential(model)
    torch.save(best, "best.pt")
    torch.save(nn.Sequential(model), "last.pt")
    """
    text = convert(end=end).new_text
    assert "best = nn.Sequential(accelerator.unwrap_model(model))\n" in text
    assert 'accelerator.save(nn.Sequential(accelerator.unwrap_model(model)), "last.pt")' in text


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            "torch.save([1, model.cpu()], 'a')",
            "accelerator.save([1, accelerator.unwrap_model(model).cpu()], 'a')",
        ),
        (
            "torch.save(dict(net=model), 'a')",
            "accelerator.save(dict(net=accelerator.unwrap_model(model)), 'a')",
        ),
        ("kept = {'net': model}\ntorch.save(kept, 'a')", "kept = {'net': accelerator.unwrap_model(model)}\n"),
    ],
)
def test_models_among_other_things_are_saved_without_their_wrapper(before: str, after: str) -> None:
    assert after in convert(ready="kept = torch.load('b')\nprint(kept)", end=before).new_text


@pytest.mark.parametrize(
    ("target", "after"),
    [
        ('(folder / "a.pt").open("wb")', '(folder / "a.pt")'),
        ('folder.joinpath("a.pt").open(mode="wb+")', 'folder.joinpath("a.pt")'),
        ('f=folder.open("xb")', "f=folder"),
        ('folder.open("wb", buffering=0)', "folder"),
        ('folder.open("ab")', 'open(folder if accelerator.is_main_process else os.devnull, "ab")'),
        ('gzip.open("wb")', 'gzip.open("wb")'),  # the name of a file
        ('archive.open("a.pt", "w")', 'archive.open("a.pt", "w")'),
    ],
)
def test_a_path_that_is_opened_where_it_is_saved(target: str, after: str) -> None:
    build = "model = nn.Linear(4, 2)\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)\nfolder = Path('o')\n"
    text = f"torch.save([3], {target})"
    done = f"accelerator.wait_for_everyone()\naccelerator.save([3], {after})"
    imports = "import gzip\nfrom pathlib import Path"
    check_transformed("end", text, done, build=build, imports=imports)
