"""What a process does that fails by its own batch, beside the others: it is no effect of all."""

from __future__ import annotations

import pytest

from tests.proving.several_programs import GROUP, NET, named

FAILING = f"""{GROUP}{NET}
import sys, time


def save(path):
    torch.save(model.module.state_dict(), path)


for step in range(3):
    sampler.set_epoch(step)
    for x, y in loader:
        try:
            opt.zero_grad()
            F.mse_loss(model(x), y).backward()
            opt.step()
        except {{error}}:
            {{does}}
            {{ends}}
"""
DONE = ['print("the batch was", len(x))', 'save("error.pt")', 'save(f"error_{time.asctime()}.pt")']


@pytest.mark.parametrize("does", DONE)
@pytest.mark.parametrize("ends", ["sys.exit(1)", "raise"])
def test_one_that_ends_by_its_own_error_does_it_alone(does, ends, tmp_path):
    found = named(FAILING.format(error="RuntimeError as error", does=does, ends=ends), tmp_path)
    assert {code for code, _ in found} <= {"ACC704"}


@pytest.mark.parametrize(
    ("error", "ends"),
    [("KeyboardInterrupt", "sys.exit(1)"), ("KeyboardInterrupt", "raise"), ("RuntimeError", "pass")],
)
def test_what_all_get_or_go_on_after_is_done_by_all(error, ends, tmp_path):
    found = named(FAILING.format(error=error, does='save("error.pt")', ends=ends), tmp_path)
    assert ("ACC702", "torch.save(model.module.state_dict(), path)") in found


@pytest.mark.parametrize(
    ("says", "is_of_one"),
    [
        ('logging.error("no batch")', True),
        ('print("=" * 9)\n            print("a batch failed")\n            print(error)', True),
        ('logging.warning("as usual")', False),
        ('print("as usual")', False),
    ],
)
def test_a_handler_that_reports_an_error_says_so_on_each_process(says, is_of_one, tmp_path):
    """All lines of one report belong to it; what does not speak of the error is said by all as often."""
    text = FAILING.format(error="RuntimeError as error", does=says, ends="continue")
    found = named(text.replace("import sys, time", "import logging, sys, time"), tmp_path)
    assert ("ACC702" in {code for code, _ in found}) is not is_of_one


def test_an_installation_without_a_package_is_that_of_all(tmp_path):
    text = f"""{GROUP}{NET}
import sys


def check():
    for name in ("a", "b"):
        try:
            __import__(name)
        except ImportError:
            print("install it")
            sys.exit(1)


check()
"""
    assert named(text, tmp_path) == [("ACC702", 'print("install it")')]


RUN = """
import hydra


@hydra.main(config_path={path}, config_name={name}, version_base="1.1")
def main(cfg):
    dist.init_process_group("gloo")
    model = DDP(torch.nn.Linear(4, 1))
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(3):
        opt.zero_grad()
        model(torch.ones(2, 4)).mean().backward()
        opt.step()


main()
"""
FOLDER = "hydra:\n  run:\n    dir: {}\n  job:\n    chdir: true\nrate: 0.1\n"


@pytest.mark.parametrize(("path", "name"), [("None", "None"), ('"conf"', '"run"')])
@pytest.mark.parametrize(
    ("files", "is_shared"),
    [
        ({"conf/run.yaml": FOLDER.format("runs/${rate}")}, True),
        ({"conf/hydra/default.yaml": "run:\n  dir: runs\n"}, True),
        ({"conf/run.yaml": FOLDER.format("runs/${now:%H-%M-%S}")}, False),
        ({"conf/run.yaml": FOLDER.format("runs"), "conf/b.yaml": FOLDER.format("'${now:%H}'")}, False),
        ({"conf/run.yaml": "rate: 0.1\n"}, False),
        ({}, False),
    ],
)
def test_the_folder_of_a_run_without_the_time_is_one_for_all(path, name, files, is_shared, tmp_path):
    for file, text in files.items():
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(text)
    found = named(RUN.format(path=path, name=name), tmp_path)
    assert [code for code, _ in found] == ([] if is_shared else ["ACC702"])


@pytest.mark.parametrize(
    ("shown", "codes"), [("done", []), ("failed", ["ACC701"]), ("done + float(loss)", ["ACC701"])]
)
def test_how_far_a_process_came_before_an_error_is_no_figure_of_its_share(shown, codes, tmp_path):
    """That one stops is named where it does; how many batches fail is what all count together."""
    text = f"""{GROUP}{NET}
val = DataLoader(data, batch_size=4, sampler=DistributedSampler(data, shuffle=False))
done = failed = loss = 0
batches = iter(loader)
while done < 9:
    try:
        x, y = next(batches)
    except Exception:
        break
    opt.zero_grad()
    F.mse_loss(model(x), y).backward()
    opt.step()
    done += 1
for x, y in val:
    try:
        loss += F.mse_loss(model.module(x), y)
    except Exception:
        failed += 1
if dist.get_rank() == 0:
    print({shown})
"""
    found = [code for code, _ in named(text, tmp_path)]
    assert "ACC704" in found
    assert [code for code in found if code == "ACC701"] == codes
