"""Files and directories."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from accelify.convert import convert_source
from accelify.proving import prove
from accelify.source import Source
from tests.transforms.support import check_noop, check_transformed, convert, named

MORE = "import json, pathlib, shutil\nimport numpy as np\nimport matplotlib.pyplot as plt\nimport plotly, given, yaml"


@pytest.mark.parametrize(
    "snippet",
    [
        "with open('log.txt') as f:\n    text = f.read()",
        "with open('log.txt', mode='rb') as f:\n    text = f.read()",
        "path = os.path.join('out', 'x')",
        "exists = os.path.exists('out')",
        "a = np.load('a.npy')",
        "plt.plot([1])",
        "table = given.Table()\ntable.dump(epoch)",
        "text = yaml.dump({}, sort_keys=False)",
        "options = json.loads(json.dumps(yaml.safe_dump({})))",
        "text = given.Table().to_csv()",
        "os.makedirs('out', exist_ok=True)",
        "pathlib.Path('out').mkdir(parents=True, exist_ok=True)",
    ],
)
def test_what_does_not_write_stays(snippet: str) -> None:
    check_noop("end", snippet, "ACC203", imports=MORE)


@pytest.mark.parametrize(
    "snippet",
    [
        "os.makedirs('out')",
        "os.mkdir('out')  # é",
        "shutil.copy('a', 'b')",
        "np.save('a.npy', np.zeros(3))",
        "np.zeros(3).dump(f'{epoch}.dat')",
        "plotly.offline.plot({}, filename='a.html')",
        "plt.savefig('a.png')",
        "with open('log.txt', 'a') as f:\n    f.write('x')",
        "with open('log.txt', mode='w') as f:\n    json.dump(1, f)",
    ],
)
def test_the_main_process_writes(snippet: str) -> None:
    inner = snippet.replace("\n", "\n    ")
    check_transformed("end", snippet, f"if accelerator.is_main_process:\n    {inner}", imports=MORE)


@pytest.mark.parametrize("body", ["\n    os.makedirs('out')", " os.makedirs('out')"])
def test_a_test_of_its_own_is_extended(body: str) -> None:
    check_transformed(
        "end",
        f"if not os.path.exists('out'):{body}",
        f"if accelerator.is_main_process and not os.path.exists('out'):{body}",
    )


def test_what_the_other_processes_need_is_not_guarded() -> None:
    snippet = "with open('log.txt', 'w') as f:\n    n = f.write('x')\nm = n + 1"
    nothing = "'log.txt' if accelerator.is_main_process else os.devnull"
    check_transformed("end", snippet, snippet.replace("'log.txt'", nothing))


def test_names_that_another_block_binds_anew_are_its_own() -> None:
    one = "with open('a.csv', 'w') as f:\n    f.write('x')"
    other = "with open('a.csv') as f:\n    print(f.read())"
    conversion = check_transformed(
        "end",
        f"{one}\nif i:\n    pass\n{other}",
        "if accelerator.is_main_process:\n    with open('a.csv', 'w') as f:\n        f.write('x')\n"
        "accelerator.wait_for_everyone()\nif i:\n    pass\n"
        "with open('a.csv') as f:\n    accelerator.print(f.read())",
    )
    assert "TODO" not in conversion.new_text


LOGGED = """\
from collections import Counter
log = open("log.txt", "w")
import torch
from torch import nn
{late}
from torch.utils.data import DataLoader
model = nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x in DataLoader(list(torch.randn(8, 3)), batch_size=2):
    optimizer.zero_grad()
    model(x).mean().backward()
    optimizer.step()
    log.write("one")
"""


@pytest.mark.parametrize("late", ["import os", "import sys"])
def test_what_a_line_needs_is_imported_in_front_of_it(late: str) -> None:
    lines = convert_source(Source.from_text(LOGGED.format(late=late), Path("train.py"))).new_text.splitlines()
    use = next(i for i, line in enumerate(lines) if "os.devnull" in line)
    assert "import os" in lines[:use]


OPENED = "import bz2, gzip, io, lzma, codecs\nfrom pathlib import Path"


@pytest.mark.parametrize("opening", ["open", "io.open", "gzip.open", "bz2.open", "lzma.open", "codecs.open"])
def test_a_file_that_stays_open(opening: str) -> None:
    check_transformed(
        "ready",
        f"log = {opening}('log.txt', 'w')",
        f"log = {opening}('log.txt' if accelerator.is_main_process else os.devnull, 'w')",
        imports=OPENED,
        epoch="log.write('x')",
    )


@pytest.mark.parametrize(
    "use", ["log.flush()", "log.seek(0)", "text = log.read()", "keep(log)", "print(log)"]
)
def test_a_file_that_is_read_too(use: str) -> None:
    ready = "def keep(one):\n    print(one)\nlog = open('log.txt', 'w+')"
    found = convert(ready=ready, epoch=f"log.write('x')\n{use}")
    assert "devnull" not in found.new_text
    assert "ACC203" in {f.code for f in found.remaining}


def test_a_file_around_the_training() -> None:
    """What trains cannot go under a guard: the others write to nothing."""
    imports = "def fit(model, log):\n    F.mse_loss(model(data[0][0]), data[0][0][:2]).backward()\n    log.write('x')"
    check_transformed(
        "end",
        "with gzip.open(os.path.join('out', 'log'), mode='wt') as log:\n    fit(model, log)",
        "with gzip.open(os.path.join('out', 'log') if accelerator.is_main_process else os.devnull, mode='wt') as log:"
        "\n    fit(model, log)",
        imports=f"{OPENED}\n{imports}",
    )


@pytest.mark.parametrize(
    "snippet",
    [
        "Path('a').write_text('x')",
        "with Path('a').open('w') as f:\n    f.write('x')",
        "with bz2.open('a', 'w') as f:\n    f.write(b'x')",
        "open('a', 'w').write('x')",
        "with gzip.open('a', 'wt') as f:\n    json.dump(1, f)",
    ],
)
def test_other_ways_to_write(snippet: str) -> None:
    inner = snippet.replace("\n", "\n    ")
    check_transformed(
        "end", snippet, f"if accelerator.is_main_process:\n    {inner}", imports=f"{OPENED}\n{MORE}"
    )


@pytest.mark.parametrize(
    "snippet",
    [
        "f = gzip.open(io.BytesIO(), 'w')\nf.close()",
        "page = BytesIO()\nplt.savefig(page, format='png')",
        "page = io.BytesIO()\nnp.save(page, np.zeros(3))",
        "text = io.StringIO()\njson.dump(1, text)",
        "page = io.BytesIO()\ndef draw(fig, where):\n    fig.savefig(where)\ndraw(plt.figure(), page)",
    ],
)
def test_what_is_in_memory_stays(snippet: str) -> None:
    check_noop("ready", snippet, "ACC203", imports=f"{MORE}\nimport gzip, io\nfrom io import BytesIO")


def test_an_evaluation_inside_a_file() -> None:
    """All processes have to meet in the gathering, and the main process writes what they found."""
    loop = "    for x, y in test_loader:\n        out = model(x)\n"
    rest = "        f.write(str(F.cross_entropy(out, y)))"
    conversion = check_transformed(
        "end",
        f"model.eval()\nwith open('a', 'w') as f, torch.no_grad():\n{loop}{rest}",
        "model.eval()\nwith open('a' if accelerator.is_main_process else os.devnull, 'w') as f, torch.no_grad():\n"
        f"{loop}        out, y = accelerator.gather_for_metrics((out, y))\n{rest}",
    )
    assert "is_main_process:" not in conversion.new_text


def test_results_that_are_collected_beside_the_file() -> None:
    loop = "    for n in range(3):\n        rows.append(n)\n        f.write('x')"
    snippet = f"rows = []\nwith open('a', 'w') as f:\n{loop}"
    nothing = snippet.replace("'a'", "'a' if accelerator.is_main_process else os.devnull")
    check_transformed("end", f"{snippet}\nprint(rows)", f"{nothing}\naccelerator.print(rows)")


def test_an_argument_that_needs_all_processes() -> None:
    score = """
    def score(model, loader):
        total = 0
        with torch.no_grad():
            for x, y in loader:
                out = model(x)
                total += (out.argmax(1) == y).sum().item()
        return total
    """
    snippet = "np.save('a', score(model, test_loader))"
    mark = "# TODO(accelify ACC702): compute this on every process, and let the main process write it\n"
    check_transformed("end", snippet, mark + snippet, imports=MORE, setup=score)


def test_questions() -> None:
    mark = "# TODO(accelify ACC702): ask on the main process, and hand the answer to the others\n"
    snippet = "answer = input('again?')"
    check_transformed("end", snippet, mark + snippet)


def test_questions_under_the_name_of_python_2() -> None:
    names = "try:\n    raw_input\nexcept NameError:\n    raw_input = input"
    mark = "# TODO(accelify ACC702): ask on the main process, and hand the answer to the others\n"
    snippet = "answer = raw_input('again?')"
    check_transformed("end", snippet, mark + snippet, setup=names)
    own = "def raw_input(text):\n    return text"
    check_noop("end", snippet, "ACC203", setup=own)


@pytest.mark.parametrize("made", ["Image.fromarray(x.numpy())", "animation.FuncAnimation(None, None)"])
def test_pictures_that_save_themselves(made: str) -> None:
    check_transformed(
        "epoch",
        f"picture = {made}\npicture.save('a.gif')",
        f"picture = {made.replace('.numpy', '.cpu().numpy')}\n"
        "if accelerator.is_main_process:\n    picture.save('a.gif')",
        imports="from PIL import Image\nfrom matplotlib import animation",
    )


@pytest.mark.parametrize("path", ["os.path.join('out', 'a.png')", "f'{epoch}.JPG'", "path"])
def test_pictures_that_a_transform_gives_back(path: str) -> None:
    before = f"picture = restore(x)\npath = '%d.gif' % epoch\npicture.save({path})"
    check_transformed(
        "epoch",
        before,
        before.replace("picture.save", "if accelerator.is_main_process:\n    picture.save"),
        imports="import torchvision.transforms as T",
        setup="restore = T.Compose([T.ToPILImage()])",
    )
    check_noop("epoch", "state = gather(x)\nstate.save('a.dat')", "ACC203", setup="gather = print")


@pytest.mark.parametrize(
    "reading",
    [
        "rows = json.load(open(path))",
        "rows = read(path)",
        "with open(path) as g:\n    g.read()",
    ],
)
def test_what_is_read_at_once_is_waited_for(reading: str) -> None:
    writing = "with open(path, 'w') as f:\n    json.dump(1, f)"
    check_transformed(
        "end",
        f"path = 'a.json'\n{writing}\n{reading}",
        "path = 'a.json'\nif accelerator.is_main_process:\n    with open(path, 'w') as f:\n        json.dump(1, f)\n"
        f"accelerator.wait_for_everyone()\n{reading}",
        imports=f"{MORE}\ndef read(path):\n    with open(path) as f:\n        return json.load(f)",
    )


@pytest.mark.parametrize("listing", ["next(os.walk(folder))[2]", "os.listdir(folder)"])
def test_a_new_folder_that_all_look_into_is_waited_for(listing: str) -> None:
    check_transformed(
        "end",
        f"folder = 'logs'\nif not os.path.exists(folder):\n    os.makedirs(folder)\nruns = len({listing})",
        "folder = 'logs'\nif accelerator.is_main_process and not os.path.exists(folder):\n    os.makedirs(folder)\n"
        f"accelerator.wait_for_everyone()\nruns = len({listing})",
    )


def test_options_that_name_the_file() -> None:
    imports = (
        "import argparse, json\ndef read(args):\n    with open(args.out) as f:\n        return json.load(f)"
    )
    writing = "with open(args.out, 'w') as f:\n    json.dump(1, f)"
    conversion = check_transformed(
        "end",
        f"{writing}\nrows = read(args)\nother = read(None)",
        "if accelerator.is_main_process:\n    with open(args.out, 'w') as f:\n        json.dump(1, f)\n"
        "accelerator.wait_for_everyone()\nrows = read(args)\nother = read(None)",
        imports=imports,
        setup="parser = argparse.ArgumentParser()\nparser.add_argument('--out')\nargs = parser.parse_args()",
    )
    assert conversion.new_text.count("wait_for_everyone") == 1


def test_a_file_that_is_written_under_a_test_and_read_behind_it() -> None:
    writing = "with open(path, 'w') as f:\n        json.dump(1, f)"
    check_transformed(
        "end",
        f"path = 'a.json'\nif not os.path.exists(path):\n    {writing}\nrows = json.load(open(path))",
        f"path = 'a.json'\nif accelerator.is_main_process and not os.path.exists(path):\n    {writing}\n"
        "accelerator.wait_for_everyone()\nrows = json.load(open(path))",
        imports=MORE,
    )


def test_a_file_that_stays_open_and_is_read_again() -> None:
    snippet = "f = open('a', 'w')\nf.write('x')\nf.close()\nrows = open('a').read()"
    mark = "# TODO(accelify ACC702): let one process write this file, and the others wait for it\n"
    check_transformed("end", snippet, mark + snippet)


def test_folders_that_may_exist_are_made_by_all() -> None:
    check_noop("ready", "os.makedirs('out', exist_ok=True)", "ACC203")


def test_all_wait_for_the_folder_of_their_logs() -> None:
    check_transformed(
        "ready",
        """
        os.makedirs('out')
        logging.basicConfig(filename='out/log.txt')
        """,
        """
        if accelerator.is_main_process:
            os.makedirs('out')
        accelerator.wait_for_everyone()
        logging.basicConfig(filename='out/log.txt')
        """,
        imports="import logging",
    )


@pytest.mark.parametrize("command", ["'sort in.txt > out.txt'", "'mkdir out; cp a out/'", "command"])
def test_commands_that_write_are_run_once(command: str) -> None:
    check_transformed(
        "ready",
        f"os.system({command})\nlines = open('out.txt').read()",
        f"""
        if accelerator.is_main_process:
            os.system({command})
        accelerator.wait_for_everyone()
        lines = open('out.txt').read()
        """,
        setup="command = input()",
    )


@pytest.mark.parametrize("command", ["'./plot.py {} {} &'.format(epoch, 'out')", "'score a.txt'"])
def test_commands_whose_results_are_not_asked_for_are_run_once(command: str) -> None:
    check_transformed(
        "epoch",
        f"os.system({command})",
        f"if accelerator.is_main_process:\n    os.system({command})",
    )


def test_what_a_command_leaves_is_there_for_the_training() -> None:
    command = "os.system('./get_data.sh')"
    expected = f"if accelerator.is_main_process:\n    {command}\naccelerator.wait_for_everyone()"
    check_transformed("ready", command, expected)
    check_transformed("end", command, expected.partition("\naccel")[0])


@pytest.mark.parametrize("given", ["run.split()", "shlex.split(run)", "run.format(1).split()"])
def test_a_command_that_is_cut_up_is_run_by_one(given: str) -> None:
    check_transformed(
        "end",
        f"run = 'montage test* all{{}}.png'\nsubprocess.call({given})",
        f"run = 'montage test* all{{}}.png'\nif accelerator.is_main_process:\n    subprocess.call({given})",
        imports="import shlex, subprocess",
    )


def test_commands_that_tell_something_stay() -> None:
    check_noop("ready", "os.system('nvidia-smi')", "ACC203")
    check_noop("ready", "os.system('taskset -p 0xff %d' % os.getpid())", "ACC203")
    check_noop("ready", "import subprocess\nsubprocess.run(['git', 'log'], capture_output=True)", "ACC203")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("os.makedirs('out')", "os.makedirs('out', exist_ok=True)"),
        ("os.mkdir('out')", "os.makedirs('out', exist_ok=True)"),
        ("pathlib.Path('out').mkdir()", "pathlib.Path('out').mkdir(exist_ok=True)"),
    ],
)
def test_a_folder_made_before_the_accelerator_may_be_there(before: str, after: str) -> None:
    end = "args = argparse.ArgumentParser().parse_args()"
    check_transformed(
        "setup", f"{before}\n{end}", f"{after}\n{end}", imports="import argparse\nimport pathlib"
    )


def test_a_file_before_the_accelerator_is_said_once() -> None:
    lines = "with open('a.json', 'w') as file:\n    json.dump({}, file)\n    file.flush()"
    end = f"{lines}\nargs = argparse.ArgumentParser().parse_args()"
    found = check_transformed("setup", end, end, imports="import argparse\nimport json")
    assert len(named(found)) == 1


@pytest.mark.parametrize("call", ["absent.mkdir('out')", "absent.makedirs('out')", "makedirs('out')"])
def test_what_a_function_of_others_takes_is_not_known(call: str) -> None:
    made = "def makedirs(path):\n    return path"
    end = f"{made}\n{call}\nargs = argparse.ArgumentParser().parse_args()"
    check_transformed("setup", end, end, imports="import argparse\nimport absent")


def test_other_writes_before_the_accelerator_are_said() -> None:
    end = "args = argparse.ArgumentParser().parse_args()"
    conversion = check_transformed(
        "setup",
        f"shutil.rmtree('out')\n{end}",
        f"shutil.rmtree('out')\n{end}",
        imports=f"import argparse\n{MORE}",
    )
    (said,) = named(conversion)
    assert said.startswith("every process deletes this folder: `shutil.rmtree`")


def test_all_wait_until_files_are_moved() -> None:
    check_transformed(
        "setup",
        """
        for name in os.listdir('all'):
            if name.endswith('9'):
                os.rename(name, 'valid/' + name)
        """,
        """
        accelerator = Accelerator()
        for name in os.listdir('all'):
            if accelerator.is_main_process and name.endswith('9'):
                os.rename(name, 'valid/' + name)
        accelerator.wait_for_everyone()
        """,
    )


def test_all_wait_until_commands_of_a_loop_have_run() -> None:
    check_transformed(
        "setup",
        """
        for name in os.listdir('all'):
            if not os.path.exists('one/' + name):
                os.system(f"cp 'all/{name}' 'one/{name}'")
        """,
        """
        accelerator = Accelerator()
        for name in os.listdir('all'):
            if accelerator.is_main_process and not os.path.exists('one/' + name):
                os.system(f"cp 'all/{name}' 'one/{name}'")
        accelerator.wait_for_everyone()
        """,
    )


def test_what_all_have_read_is_removed_when_they_have() -> None:
    check_transformed(
        "ready",
        "lines = open('a.txt').read()\nos.remove('a.txt')\nos.remove('b.txt')",
        """
        lines = open('a.txt').read()
        accelerator.wait_for_everyone()
        if accelerator.is_main_process:
            os.remove('a.txt')
            os.remove('b.txt')
        accelerator.wait_for_everyone()
        """,
    )


def test_what_all_have_read_by_a_function_that_is_told_its_name_is_removed_when_they_have() -> None:
    reading = "def read(folder):\n    return open(folder + '/a.txt').read()\n\nlines = read(folder='a')\n"
    text = convert(imports="import shutil", end=f"{reading}shutil.rmtree('a')").new_text
    guarded = "if accelerator.is_main_process:\n    shutil.rmtree('a')"
    assert f"lines = read(folder='a')\naccelerator.wait_for_everyone()\n{guarded}" in text


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            "if os.path.exists('out'):\n    raise FileExistsError('out')\nos.makedirs('out', exist_ok=True)",
            "if os.path.exists('out'):\n    raise FileExistsError('out')\n"
            "accelerator.wait_for_everyone()\nos.makedirs('out', exist_ok=True)",
        ),
        (
            "if os.path.exists('out'):\n    exit()\nelse:\n    os.mkdir('out')",
            "if os.path.exists('out'):\n    exit()\nelse:\n    accelerator.wait_for_everyone()\n"
            "    if accelerator.is_main_process:\n        os.mkdir('out')",
        ),
    ],
)
def test_a_folder_that_must_not_be_there_is_made_when_all_have_asked(before: str, after: str) -> None:
    assert after in convert(setup="RATE = 1", ready=before).new_text


@pytest.mark.parametrize(
    ("asked", "made"),
    [
        ("'runs/' + name", "f'runs/{name}'"),
        ("'runs/%s' % name", "os.path.join('runs', name)"),
        ("pathlib.Path('runs') / name", "'runs/{}'.format(name)"),
        ("'runs'", "f'runs/{name}'"),
        ("folder", "f'runs/{name}'"),
    ],
)
def test_a_folder_that_is_told_in_two_ways(asked: str, made: str) -> None:
    before = "name = 'one'\nfolder = 'runs/' + name\nif os.path.exists({}):\n    raise FileExistsError\n{}"
    making = f"os.makedirs({made}, exist_ok=True)"
    after = before.format(asked, f"accelerator.wait_for_everyone()\n{making}")
    text = convert(setup=MORE, ready=before.format(asked, making)).new_text
    assert after in text
    assert text.count("wait_for_everyone") == 1


ASKED = {
    "until a name is free": "n = 0\nwhile os.path.exists(f'run{n}'):\n    n += 1\n",
    "for another name": "path = 'run'\nif os.path.exists(path):\n    path += '-again'\n",
    "by a function": "new('run')\n",
}


@pytest.mark.parametrize(
    ("asked", "made"),
    [
        ("until a name is free", "os.makedirs(f'run{n}', exist_ok=True)"),
        ("for another name", "os.makedirs(path, exist_ok=True)"),
        ("by a function", "os.makedirs('run', exist_ok=True)"),
        ("by a function", "make('run')"),
    ],
)
def test_what_is_there_decides_in_another_way(asked: str, made: str) -> None:
    setup = (
        "def new(path):\n    if os.path.isdir(path):\n        raise FileExistsError(path)\n\n"
        "def make(path):\n    os.makedirs(path, exist_ok=True)\n"
    )
    text = convert(setup=setup, ready=ASKED[asked] + made).new_text
    assert f"{ASKED[asked]}accelerator.wait_for_everyone()\n{made}" in text
    assert text.count("wait_for_everyone") == 1


@pytest.mark.parametrize(
    ("asked", "made"),
    [
        ("os.path.exists(path)", "os.makedirs(path, exist_ok=True)"),
        ("path.exists()", "path.mkdir(parents=True, exist_ok=True)"),
        ("path.exists()", "path.mkdir()"),
    ],
)
def test_a_search_that_names_the_folder_anew(asked: str, made: str) -> None:
    search = "path = pathlib.Path('run')\nwhile {}:\n    path = pathlib.Path(f'run{{path}}')\n"
    text = convert(setup=MORE, ready=search.format(asked) + made).new_text
    waits = search.format(asked) + "accelerator.wait_for_everyone()\n"
    guard = "" if "exist_ok" in made else "if accelerator.is_main_process:\n    "
    assert f"{waits}{guard}{made}" in text
    other = search.format(asked) + made.replace("path", "pathlib.Path('other')", 1)
    assert "wait_for_everyone" not in convert(setup=MORE, ready=other).new_text


@pytest.mark.parametrize(
    "before",
    [
        "if os.path.exists('other'):\n    exit()\nos.makedirs('out', exist_ok=True)",
        "if os.path.exists('out/a'):\n    exit()\nos.makedirs('out', exist_ok=True)",
        "if os.path.exists('out'):\n    print('again')\nos.makedirs('out', exist_ok=True)",
    ],
)
def test_a_folder_that_is_asked_for_in_another_way_waits_for_nobody(before: str) -> None:
    assert "wait_for_everyone" not in convert(ready=before).new_text


@pytest.mark.parametrize(("drawn", "code"), [("", "ACC214"), ("plt.savefig('a.png')\n", "ACC203")])
def test_a_picture_that_is_shown_is_no_file(drawn: str, code: str) -> None:
    conversion = convert(end=f"plt.plot([1, 2])\n{drawn}plt.show()", imports=MORE)
    assert "if accelerator.is_main_process:" in conversion.new_text
    assert {f.code for f in conversion.applied} & {"ACC203", "ACC214"} == {code}


def test_a_helper_that_makes_what_is_not_there_waits_for_nobody() -> None:
    setup = "def make(path):\n    if os.path.exists(path):\n        return\n    os.makedirs(path)\n"
    assert "wait_for_everyone" not in convert(setup=setup, ready="make('out')").new_text


@pytest.mark.parametrize(
    "line",
    [
        "transforms.ToPILImage()(x).save('x.png')",
        "to_pil_image(x).save('x.png')",
        "tensorboard_logger.log_value('loss', 1.0, 3)",
    ],
)
def test_pictures_of_transforms_and_lines_of_loggers(line: str) -> None:
    imports = """
    from tensorboard_logger import tensorboard_logger
    from torchvision import transforms
    from torchvision.transforms.functional import to_pil_image
    """
    check_transformed("epoch", line, f"if accelerator.is_main_process:\n    {line}", imports=imports)


def test_a_picture_under_a_name() -> None:
    end = "image = transforms.ToPILImage()(x)\nimage.save('x.png')"
    after = "image = transforms.ToPILImage()(x)\nif accelerator.is_main_process:\n    image.save('x.png')"
    check_transformed("epoch", end, after, imports="from torchvision import transforms")


def test_what_is_opened_above_the_imports_finds_its_module() -> None:
    script = """
    log = open("log.txt", "w")
    import torch
    from torch import nn
    from torch.utils.data import DataLoader
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in DataLoader([(torch.ones(4), torch.ones(2))] * 8, batch_size=2):
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        log.write("x")
    """
    text = convert_source(Source.from_text(textwrap.dedent(script))).new_text
    assert 0 <= text.find("import os\n") < text.index("os.devnull")


@pytest.mark.parametrize(
    "snippet",
    [
        "os.path.exists('out') or os.makedirs('out')",
        "not os.path.exists('out') and os.makedirs('out')",
        "os.makedirs('out') if not os.path.exists('out') else None",
        "plt.plot([1]), plt.savefig('a.png'), plt.close()",
        "[shutil.copy(f, 'out') for f in ('a', 'b')]",
        "pathlib.Path('out').is_dir() or pathlib.Path('out').mkdir()",
    ],
)
def test_what_is_written_in_an_expression_of_several_calls(snippet: str) -> None:
    check_transformed("end", snippet, f"if accelerator.is_main_process:\n    {snippet}", imports=MORE)


@pytest.mark.parametrize(
    "snippet",
    [
        "os.path.exists('out') or os.listdir('.')",
        "plt.plot([1]), plt.close()",
        "os.path.exists('out') or os.makedirs('out', exist_ok=True)",
        "[os.path.exists(f) for f in 'ab']",
    ],
)
def test_an_expression_of_several_calls_that_writes_nothing_stays(snippet: str) -> None:
    check_noop("end", snippet, "ACC203", imports=MORE)


def test_what_all_processes_need_beside_a_picture_is_said() -> None:
    conversion = convert(end="model.eval(), plt.savefig('a.png')", imports=MORE)
    assert [f.message for f in conversion.remaining if f.code == "ACC203"] == [
        "every process would write this: it changes the model"
    ]


def test_what_all_have_drawn_is_closed_by_all() -> None:
    lines = "plt.savefig('a.png'), plt.close()"
    after = f"plt.plot([1])\nif accelerator.is_main_process:\n    {lines}\nelse:\n    plt.close()"
    check_transformed("end", f"plt.plot([1])\n{lines}", after, imports=MORE)
    inside = f"if epoch:\n    {lines}"
    after = f"if epoch:\n    if accelerator.is_main_process:\n        {lines}\n    else:\n        plt.close()"
    check_transformed("epoch", inside, after, imports=MORE)


def test_a_folder_that_is_made_for_a_value_may_be_there() -> None:
    check_transformed(
        "end",
        "made = os.path.isdir('out') or os.mkdir('out')",
        "made = os.path.isdir('out') or os.makedirs('out', exist_ok=True)",
    )


def test_prints_in_an_expression_of_several_calls() -> None:
    check_transformed(
        "batch", "print(i), print(epoch)", "accelerator.print(i), accelerator.print(epoch)", imports=MORE
    )


@pytest.mark.parametrize(
    ("imports", "asks"),
    [
        ("", "input('go on?')"),
        ("import click", "click.confirm('go on?')"),
        ("from getpass import getpass", "getpass()"),
    ],
)
def test_what_asks_the_person_is_named(imports: str, asks: str) -> None:
    conversion = convert(imports=imports, ready=f"answer = {asks}\nprint(answer)")
    assert any("every process would ask this" in f.message for f in conversion.remaining)


@pytest.mark.parametrize("dumped", ["yaml.dump({}, open('a.yml', 'w'))", "yaml.safe_dump({}, stream=given)"])
def test_a_text_that_is_told_a_file_is_written(dumped: str) -> None:
    check_transformed("end", dumped, f"if accelerator.is_main_process:\n    {dumped}", imports=MORE)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            "first = True\nif os.path.isdir('run'):\n    first = False\nelse:\n    os.makedirs('run')\nprint(first)",
            "first = True\nif broadcast_object_list([os.path.isdir('run')])[0]:\n"
            "    first = False\nelse:\n    os.makedirs('run', exist_ok=True)\naccelerator.print(first)",
        ),
        (
            "start = None\nif not os.path.exists('run'):\n    os.mkdir('run')\nelif torch.rand(1) > 2:\n"
            "    start = max(os.listdir('run'))\nprint(start)",
            "start = None\nif broadcast_object_list([not os.path.exists('run')])[0]:\n"
            "    os.makedirs('run', exist_ok=True)\n"
            "elif torch.rand(1) > 2:\n    start = max(os.listdir('run'))\naccelerator.print(start)",
        ),
    ],
)
def test_an_answer_that_more_depends_on_is_the_main_processs(before: str, after: str) -> None:
    found = convert(setup=before)
    assert after in found.new_text
    assert not found.remaining


def test_all_come_to_an_answer_that_one_writes_by() -> None:
    written = "    with open('b.txt', 'w') as f:\n        f.write('b')"
    setup = f"f = None\nif not os.path.exists('b.txt'):\n{written}\nprint(f)"
    found = convert(setup=setup).new_text
    assert (
        "if broadcast_object_list([not os.path.exists('b.txt')])[0]:\n"
        f"    if accelerator.is_main_process:\n{textwrap.indent(written, '    ')}" in found
    )


@pytest.mark.parametrize("made", ["tempfile.mkdtemp()", "Path(tempfile.mkdtemp()) / 'x'", "'runs'"])
def test_what_each_process_writes_to_a_temporary_folder_stays(made: str) -> None:
    setup = (
        f"import os, tempfile\nfrom pathlib import Path\nfolder = {made}\nbest = os.path.join(folder, 'a.pt')"
    )
    end = "torch.save(model.state_dict(), best)\nmodel.load_state_dict(torch.load(best))"
    conversion = convert(setup=setup, end=end)
    prove([conversion], conversion)
    own = "tempfile" in made
    assert ("torch.save(accelerator.unwrap_model(model).state_dict(), best)" in conversion.new_text) is own
    assert not [one.message for one in conversion.remaining if one.code.startswith("ACC7")]
