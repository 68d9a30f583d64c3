"""Files and folders that samples give their names, and what is set or flushed beside a writing."""

from __future__ import annotations

from pathlib import Path

import pytest

from accelify.convert import convert_project
from accelify.source import Source
from tests.transforms.support import check_noop, check_transformed, convert, frame, place_of

MORE = "import json, pathlib, shutil\nimport numpy as np\nimport matplotlib.pyplot as plt\nimport plotly"


NAMED = {
    "a text": "for name in ids:\n    np.save('out/%s.npy' % name, x)",
    "an f-string": "for n, name in enumerate(ids):\n    torch.save(x[n], f'{name}.pt')",
    "a path": "for n in range(8):\n    path = os.path.join('out', ids[n].split('/')[-1])\n    save_image(x, path)",
    "a file": "for n, name in zip(range(8), ids):\n    with open(name + '.txt', 'w') as f:\n        f.write(name)",
    "a list": "names = [str(n.item()) for n in ids]\nfor n in range(8):\n    np.save('out/%s.npy' % names[n], x)",
    "an index": "torch.save(x, 'out/%d.pt' % y.item())",
}
CUDA = "model = nn.Linear(4, 2).cuda()\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)"
ON_CPU = "device = torch.device('cpu')"
ITEMS = "from torchvision.utils import save_image\nimport numpy as np"


@pytest.mark.parametrize("writing", NAMED.values(), ids=NAMED)
def test_each_process_writes_the_files_that_its_own_samples_name(writing: str) -> None:
    check_noop("batch", f"ids = y\n{writing}", "ACC203", "ACC206", imports=ITEMS, setup=ON_CPU)


@pytest.mark.parametrize(
    ("given", "own"), [("y", True), ("y, 3", True), ("model(x)", False), ("y, model", False)]
)
def test_names_that_a_function_takes_out_of_the_batch(given: str, own: bool) -> None:
    setup = "def names_in(batch, *others):\n    return batch, [str(n) for n in batch]\n"
    writing = f"labels, ids = names_in({given})\nfor n in range(8):\n    np.save('out/%s.npy' % ids[n], 3)"
    text = place_of(convert(batch=writing, imports=ITEMS, setup=setup).new_text, "batch")
    assert (text == writing) == own


@pytest.mark.parametrize(
    "path",
    [
        "'out/%d.npy' % i", "f'{loss.item()}.npy'", "'last.npy'", "['%d.npy' % n for n in range(8)][0]",
    ],
)  # fmt: skip
def test_files_that_no_sample_names_are_the_main_process_s(path: str) -> None:
    check_transformed(
        "update",
        f"np.save({path}, x)",
        f"if accelerator.is_main_process:\n    np.save({path}, x)",
        imports=ITEMS,
        setup=ON_CPU,
    )


def test_the_main_process_asks_the_bare_model_for_a_name() -> None:
    after = "np.save([f'{accelerator.unwrap_model(model)(one)}.npy' for one in x][0], x)"
    check_transformed(
        "update",
        "np.save([f'{model(one)}.npy' for one in x][0], x)",
        f"if accelerator.is_main_process:\n    {after}",
        imports=ITEMS,
        setup=ON_CPU,
    )


def test_a_name_made_of_a_sample_is_no_tensor() -> None:
    conversion = convert(batch="np.save('out/%s.npy' % y[0], x)", imports=ITEMS, build=CUDA)
    assert "np.save('out/%s.npy' % y[0], x.cpu())" in conversion.new_text


def test_folders_that_samples_name_may_be_there() -> None:
    check_transformed("batch", "os.mkdir('out/%d' % y[0])", "os.makedirs('out/%d' % y[0], exist_ok=True)")


def test_files_of_gathered_samples_are_the_main_process_s() -> None:
    loop = "for x, y in test_loader:\n    out = model(x)\n    total += (out.argmax(1) == y).sum().item()\n"
    writing = "    np.save('%d.npy' % y[0], out)\n"
    conversion = convert(end=f"total = 0\n{loop}{writing}print(total)", imports=ITEMS)
    assert "    if accelerator.is_main_process:\n        np.save(" in conversion.new_text


NOTES = """
class Notes:
    def __init__(self):
        self.scale = 1

    def next(self):
        self.scale += 1
        return self.scale

    def note(self, epoch):
        with open('x.txt', 'a') as f:
            self.scale = epoch
            f.write('x')

    def weight(self):
        return self.scale


notes = Notes()
"""


def test_what_is_set_beside_the_writing_is_set_on_all_processes() -> None:
    loss = "loss = F.cross_entropy(model(x), y) * notes.weight()"
    conversion = convert(setup=NOTES, loss=loss, epoch="notes.note(epoch)")
    assert (
        "with open('x.txt' if accelerator.is_main_process else os.devnull, 'a') as f:" in conversion.new_text
    )
    mark = "# TODO(accelify ACC702): compute this on every process, and let the main process write it\n"
    snippet = "np.save('a', notes.next())"
    check_transformed("epoch", snippet, mark + snippet, setup=NOTES, loss=loss, imports=ITEMS)


def test_a_flush_behind_a_print_is_left_as_it_is() -> None:
    check_noop("epoch", "sys.stdout.flush()", "ACC203", imports="import sys")
    check_transformed(
        "epoch",
        "print('.', end='')\nsys.stdout.flush()",
        "accelerator.print('.', end='')\nsys.stdout.flush()",
        imports="import sys",
    )
    check_transformed(
        "epoch",
        "sys.stdout.write('.')\nsys.stdout.flush()",
        "if accelerator.is_main_process:\n    sys.stdout.write('.')\n    sys.stdout.flush()",
        imports="import sys",
    )


def test_a_function_that_takes_the_name_of_a_librarys_writes_by_itself() -> None:
    """The guard stands in it, and at its calls none is needed."""
    own = "from torchvision import utils\ndef save_image(x, path='a.png'):\n    utils.save_image(x, path)\n"
    imports = f"from torchvision.utils import save_image\n{own}"
    check_transformed("end", "save_image(data[0][0])", "save_image(data[0][0])", imports=imports)
    guarded = "if accelerator.is_main_process:\n    save_image(data[0][0])"
    check_transformed(
        "end", "save_image(data[0][0])", guarded, imports="from torchvision.utils import save_image"
    )


PICTURES = """
import json
import numpy as np
from PIL import Image


def keep(images, path):
    np.save(path, images)


def through(images, *, to, times=2):
    for n in range(times):
        keep(images, to + "_%d.npy" % n)


def each(images, names, folder="out"):
    for n, (image, name) in enumerate(zip(images, names)):
        target = f"{folder}/{name}_{n}.png"
        Image.fromarray(image).save(target)


def sized(images, path):
    with open("%s_%d.json" % (path, images.shape[0]), "w") as f:
        json.dump([image.tolist() for image in images], f)


class Album:
    def add(self, image, name):
        np.save(f"{self.folder}/{name}", image)
"""
FOREIGN = {
    "by a number": ("keep(x, '%d.npy' % i)", False),
    "by a sample": ("keep(x, '%d.npy' % y[0])", True),
    "by a part of a sample": ("keep(x[0], y[0])", True),
    "by keyword": ("keep(images=x, path='a.npy')", False),
    "through another": ("through(x, to='out')", False),
    "by a sample through another": ("through(x, to=y[0])", True),
    "by a list of names": ("each(x, y)", True),
    "by its own numbers": ("each(x, ['a', 'b'])", False),
    "by a size": ("sized(x, 'out')", False),
    "of an object": ("Album().add(x, 'a')", False),
    "of an object by a sample": ("Album().add(3, y[0])", True),
}


@pytest.mark.parametrize(("call", "own"), FOREIGN.values(), ids=FOREIGN)
def test_which_argument_names_the_file_of_a_helper(tmp_path: Path, call: str, own: bool) -> None:
    (tmp_path / "pictures.py").write_text(PICTURES)
    (tmp_path / "train.py").write_text(frame(batch=call, imports="from pictures import *"))
    (conversion,) = convert_project(Source.read(tmp_path / "train.py"))
    guarded = f"if accelerator.is_main_process:\n    {call}"
    assert place_of(conversion.new_text, "batch") == (call if own else guarded)
    assert not [f for f in conversion.remaining if f.code == "ACC210"]


@pytest.mark.parametrize(
    "writing",
    [
        "pickle.dump(x, open('a.pkl', 'wb'))",
        "json.dump(y.tolist(), given)",
        "np.save(arr=x, file='a.npy')",
        "open('a.txt', 'w').write(f'{y[0]}')",
    ],
)
def test_a_sample_that_is_written_names_no_file(writing: str) -> None:
    guarded = f"if accelerator.is_main_process:\n    {writing}"
    check_transformed("batch", writing, guarded, imports=f"{MORE}\nimport pickle\nimport given", setup=ON_CPU)


HELPED = """
def put(names, x, folder, count):
    for n in range(len(x)):
        name = names[n] + '.npy'
        np.save({path}, x[n])
"""


@pytest.mark.parametrize(
    ("path", "own"),
    [
        ("folder + name", True),
        ("os.path.join(folder, names[n])", True),
        ("folder + '%d.npy' % n", False),
        ("folder + '%d.npy' % count", False),
    ],
)
def test_files_that_a_function_names_by_the_samples_it_is_given(path: str, own: bool) -> None:
    setup = f"{ON_CPU}\n{HELPED.format(path=path)}"
    writing = "ids = y\nput(ids, x, 'out/', epoch)"
    conversion = convert(batch=writing, imports="import os\nimport numpy as np", setup=setup)
    assert (f"        np.save({path}, x[n])" in conversion.new_text.splitlines()) is own
    assert ("if accelerator.is_main_process:" in conversion.new_text) is not own


def test_a_function_that_is_called_beyond_the_loop_too_writes_once() -> None:
    setup = HELPED.format(path="folder + name")
    writing = "ids = y\nput(ids, x, 'out/', epoch)"
    imports = "import os\nimport numpy as np"
    conversion = convert(batch=writing, imports=imports, setup=setup, end="put(['a'], [1], 'out/', 0)")
    assert "if accelerator.is_main_process:" in conversion.new_text


@pytest.mark.parametrize("writing", ["np.save(folder + ids[0], 1)", "put(ids, x, folder, epoch)"])
def test_the_folder_of_files_that_each_process_writes_may_be_there(writing: str) -> None:
    setup = HELPED.format(path="folder + name")
    made = "ids = y\nfolder = 'out%d/' % epoch\nif not os.path.isdir(folder):\n    {}\n" + writing
    check_transformed(
        "batch", made.format("os.makedirs(folder)"), made.format("os.makedirs(folder, exist_ok=True)"),
        imports="import os\nimport numpy as np", setup=setup,
    )  # fmt: skip


def test_the_folder_of_other_files_is_made_by_the_main_process() -> None:
    made = "ids = y\nfolder = 'out%d/' % epoch\nif not os.path.isdir(folder):\n    os.makedirs(folder)\n"
    conversion = convert(batch=made + "np.save(ids[0], 1)", imports="import os\nimport numpy as np")
    assert "if accelerator.is_main_process and not os.path.isdir(folder):" in conversion.new_text
