"""ACC211: files and folders that are named by the clock."""

from __future__ import annotations

from tests.transforms.support import check_noop, check_transformed, codes, convert

IMPORTS = "import glob\nimport time\nfrom datetime import datetime\n"
SAVED = 'torch.save(model.state_dict(), os.path.join(folder, "best.pt"))\n'
CLOCK = 'folder = datetime.now().strftime("%H-%M-%S")\n'


def test_a_folder_is_named_by_one_clock() -> None:
    found = check_transformed(
        "ready",
        CLOCK,
        'folder = broadcast_object_list([datetime.now().strftime("%H-%M-%S")])[0]',
        imports=IMPORTS,
        end=SAVED,
    )
    assert "from accelify.runtime import broadcast_object_list\n" in found.new_text


def test_a_time_that_is_put_into_a_path() -> None:
    check_transformed(
        "ready",
        'name = "run-" + str(int(time.time()))\n',
        'name = broadcast_object_list(["run-" + str(int(time.time()))])[0]',
        imports=IMPORTS,
        end="torch.save(model.state_dict(), name)\n",
    )


def test_times_that_are_measured_or_printed_stay() -> None:
    check_noop(
        "ready", "start = time.time()\n", "ACC211", imports=IMPORTS, end="print(time.time() - start)\n"
    )
    check_noop("ready", CLOCK, "ACC211", imports=IMPORTS, end="print(folder)\n")


def test_in_a_loop_it_stays() -> None:
    check_noop("epoch", CLOCK + "path = os.path.join(folder, 'x')\n", "ACC211", imports=IMPORTS)


def test_before_the_accelerator_it_is_said_where_something_is_read_again() -> None:
    early = "import argparse\n" + CLOCK + "args = argparse.ArgumentParser().parse_args()\n"
    silent = convert(imports=IMPORTS, setup=early, end=SAVED)
    assert "ACC211" not in codes(silent)
    found = convert(
        imports=IMPORTS, setup=early, end=SAVED + "files = glob.glob(os.path.join(folder, '*'))\n"
    )
    assert "ACC211" in {f.code for f in found.remaining}


def test_a_folder_is_looked_into_when_all_is_written() -> None:
    check_transformed(
        "end",
        "torch.save(model.state_dict(), 'out/best.pt')\nfor path in os.listdir('out'):\n    print(path)\n",
        """
        accelerator.wait_for_everyone()
        accelerator.save(accelerator.unwrap_model(model).state_dict(), 'out/best.pt')
        accelerator.wait_for_everyone()
        for path in os.listdir('out'):
            accelerator.print(path)
        """,
    )
