"""Host tensors that meet a batch, which is on the device from the head of the loop on."""

from __future__ import annotations

import textwrap
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from accelify.convert import convert_project
from accelify.source import Source
from tests.transforms.support import check_noop, check_transformed, codes, convert, frame, settled_source

MOVED = "x, y = x.cuda(), y.cuda()"
LOSS = "loss = F.cross_entropy(model(x), y)"
BUILT = "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)"
CHOSEN = "device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')"
GATHER = "output, b = accelerator.gather_for_metrics((output, b))"


def check(before: str, after: str, **others: str) -> None:
    conversion = check_transformed("batch", f"{before}\n{MOVED}", after, **others)
    assert "ACC120" in codes(conversion)
    with pytest.raises(RuntimeError, match="two devices"):
        run_on_a_device(before)
    run_on_a_device(after)


def run_on_a_device(code: str) -> None:
    """Run lines on a batch that lies on a GPU, as torch's tensors without data do that know their devices."""
    with FakeTensorMode():
        names = {"torch": torch, "accelerator": SimpleNamespace(device=torch.device("cuda:0"))}
        names |= {
            "x": torch.empty(8, 4, device="cuda:0"),
            "y": torch.empty(8, device="cuda:0", dtype=torch.long),
        }
        exec(textwrap.dedent(code), names)


@pytest.mark.parametrize(
    "batch",
    [
        f"{MOVED}\nmask = torch.ones(8, 4, device='cuda')\nx = x * mask",
        f"n = torch.zeros(x.size(0))\n{MOVED}\nn = n.cuda()",
        f"scale = torch.tensor(0.5)\nx = x * scale\n{MOVED}",
        f"order = torch.randperm(x.size(0))\nx = x[order]\n{MOVED}",
        f"mask = torch.ones_like(x)\nx = x * mask\n{MOVED}",
        f"Float = torch.cuda.FloatTensor if cuda else torch.FloatTensor\n{MOVED}\nx = x * Float([1.0])",
        f"Float = torch.cuda.FloatTensor if cuda else torch.FloatTensor\nx = x * Float([1.0])\n{MOVED}",
        f"shape = torch.ones(3).size(0) + x.size(0)\n{MOVED}",
        f"more = x.get('more', torch.empty(8, 0)).cuda()\n{MOVED}",
    ],
)
def test_what_goes_together_stays(batch: str) -> None:
    assert "ACC120" not in codes(convert(batch=batch, setup="cuda = torch.cuda.is_available()"))


def test_a_script_for_the_cpu_stays() -> None:
    assert "ACC120" not in codes(convert(batch="x = x * torch.ones(8, 4)"))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            "y = torch.zeros(8, 2).scatter_(1, y.view(-1, 1), 1)",
            "y = torch.zeros(8, 2, device=y.device).scatter_(1, y.view(-1, 1), 1)\ny = y.to(accelerator.device)",
        ),
        ("x = x + torch.randn(8, 4)", "x = x + torch.randn(8, 4).to(x.device)"),
        (
            "x = torch.cat([x, torch.zeros(1, 4)], 0)",
            "x = torch.cat([x, torch.zeros(1, 4, device=x.device)], 0)",
        ),
        (
            "x = torch.where(x > 0, x, torch.zeros(1))",
            "x = torch.where(x > 0, x, torch.zeros(1, device=x.device))",
        ),
        (
            "mask = torch.ones(8, 4)\nx = x * mask",
            "mask = torch.ones(8, 4, device=accelerator.device)\nx = x * mask",
        ),
    ],
)
def test_what_is_made_on_the_host_is_made_on_the_device(before: str, after: str) -> None:
    left = "x = x.to(accelerator.device)" if after.startswith("x") or "mask" in after else ""
    check(before, f"{after}\n{left}", loss=LOSS)


def test_a_table_on_the_host_is_indexed_from_there() -> None:
    conversion = check_transformed(
        "batch",
        f"w = table[y]\nseen[y.numpy()] += 1\n{MOVED}\nw = w.cuda()",
        "w = table[y.cpu()]\nseen[y.cpu().numpy()] += 1\nw = w.to(accelerator.device)",
        setup="import numpy as np\ntable = torch.arange(2.0)\nseen = np.zeros(2)",
    )
    assert {"ACC114", "ACC120"} <= codes(conversion)


def test_arguments_of_numpy() -> None:
    check_transformed(
        "batch",
        f"seen = seen + np.bincount(y, minlength=2)\n{MOVED}",
        "seen = seen + np.bincount(y.cpu(), minlength=2)",
        setup="import numpy as np\nseen = np.zeros(2)",
    )


def test_a_list_of_figures_has_no_copy_on_the_host() -> None:
    """What NumPy is given is the list, which lies where its elements do and has no `cpu()`."""
    epoch = """
    spreads = []
    for a, b in loader:
        if cuda:
            a = a.cuda()
        output = model(a)
        spread = F.mse_loss(a[1:], a[:-1])
        spreads.append(spread.data)
    print(np.mean(spreads))
    """
    conversion = convert(setup="import numpy as np\ncuda = torch.cuda.is_available()", epoch=epoch)
    assert "np.mean(spreads))" in conversion.new_text


def test_an_output_that_was_brought_back() -> None:
    check_transformed(
        "epoch",
        """
        hits = 0
        for a, b in test_loader:
            output = model(a.cuda()).cpu()
            hits += (output.argmax(1) == b).sum()
        """,
        f"""
        hits = 0
        for a, b in test_loader:
            output = model(a).cpu()
            {GATHER}
            hits += (output.argmax(1) == b.cpu()).sum()
        """,
        batch=MOVED,
    )


def test_through_a_function_and_a_try() -> None:
    helper = "def onehot(t):\n    return torch.eye(2)[t] + torch.zeros(t.size(0), 2).scatter_(1, t.view(-1, 1), 1)\n"
    steps = """
    it = iter(loader)
    for step in range(3):
        try:
            x, y = next(it)
        except StopIteration:
            it = iter(loader)
            x, y = next(it)
        t = onehot(y).cuda()
        loss = F.cross_entropy(model(x.cuda()), t)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    """
    text = convert(setup=helper, end=steps).new_text
    assert "torch.eye(2, device=t.device)[t] + torch.zeros(t.size(0), 2, device=t.device).scatter_(" in text


def test_a_part_of_the_batch_that_never_moved_is_fetched_for_numpy() -> None:
    batch = "order, where = torch.sort(y, descending=True)\norder = order.long().numpy()"
    chosen = "device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')"
    conversion = convert(batch=batch, setup=chosen)
    assert "order = order.long().cpu().numpy()" in conversion.new_text


def test_batches_of_another_library_may_lie_anywhere() -> None:
    loop = """
    batches = Batches("texts", batch_size=8, device=device)
    for part in batches:
        answer = model(part.words)
        hits = (answer.argmax(1) == part.label).sum().item()
        loss = F.cross_entropy(answer, part.label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    """
    kept = loop.replace("loss.backward()", "accelerator.backward(loss)")
    check_transformed("end", loop, kept, imports="from texts import Batches", setup=CHOSEN)


def test_what_a_model_on_the_device_is_given_on_the_host_stays() -> None:
    ends = "answer = model(torch.zeros(1, 4).to(device), torch.LongTensor([3]))"
    check_noop("end", ends, "ACC120", setup=CHOSEN, batch=MOVED)


def test_what_a_model_on_the_cpu_is_given_stays_there() -> None:
    setup = f"""
    {CHOSEN}
    def sample(model):
        return model(torch.randn(1, 4))
    """
    check_noop("end", "model.to('cpu')\nseen = sample(model)", setup=setup, batch=MOVED)
    text = convert(setup=setup, batch=MOVED, end="model.to('cpu')\nseen = sample(model)").new_text
    assert "return model(torch.randn(1, 4))" in text


@pytest.mark.parametrize(
    ("test", "given"),
    [
        ("use_gpu", "x"),
        ("not use_gpu", "x.to(accelerator.device)"),
        ("sys.argv[2:]", "x.to(accelerator.device)"),
    ],
)
def test_what_a_model_is_given_without_the_wish_for_a_gpu_stays(test: str, given: str) -> None:
    setup = """
    import sys
    use_gpu = "gpu" in sys.argv
    device = torch.device("cuda" if use_gpu else "cpu")
    """
    end = f"x = torch.randn(1, 4)\nif {test}:\n    pass\nelse:\n    seen = model(x)"
    text = convert(setup=setup, build="model = nn.Linear(4, 2).to(device)\n" + BUILT, end=end).new_text
    assert f"seen = model({given})" in text


def test_what_is_moved_under_a_test_for_none_is_not_moved_again() -> None:
    end = "a = mystery()\nif a is None:\n    a = torch.zeros(1, 4)\nseen = model(a)"
    check_noop("end", end, "ACC120", batch=MOVED, imports="from start import mystery")
    end = "a = torch.zeros(1, 4)\nif a is not None:\n    a = a.to(device)\nseen = model.forward(a)"
    check_noop("end", end, "ACC120", batch=MOVED, setup=CHOSEN)


def test_what_moves_itself_lies_nobody_knows_where() -> None:
    batch = "x.to(device)\nseen = torch.zeros(8, 4) + x\n" + MOVED
    assert "ACC120" in codes(convert(batch=batch.split("\n", 1)[1], setup=CHOSEN))
    assert "ACC120" not in codes(convert(batch=batch, setup=CHOSEN))


def test_a_model_is_tried_on_the_host_before_it_is_prepared() -> None:
    ready = "first = next(iter(loader))\nseen = model(torch.zeros(1, 4))\nmodel = model.to(device)"
    conversion = convert(ready=ready, setup=CHOSEN)
    assert "seen = model(torch.zeros(1, 4))\n" in conversion.new_text


HELPERS = """
def one_hot(labels):
    rows = torch.zeros(labels.size(0), 2)
    rows[torch.arange(labels.size(0)), labels.long()] = 1
    return rows

def padded(z):
    pad = torch.zeros(z.size(0), 1)
    return torch.cat([z[:, :3], pad], 1), torch.cat([z * 2, torch.ones(z.size(0), 1)], 1), pad * (z + 1)
"""


def test_a_function_is_given_tensors_of_both_sides() -> None:
    batch = f"wanted = one_hot(y)\nwide = padded(x)[0]\n{MOVED}\nwanted, wide = wanted.cuda(), wide.cuda()"
    ends = "seen = one_hot(torch.zeros(2)), padded(torch.zeros(2, 4))"
    text = convert(setup=HELPERS, batch=batch, end=ends).new_text
    assert "rows[torch.arange(labels.size(0)), labels.long().cpu()] = 1\n" in text
    assert "return torch.cat([z[:, :3], pad.to(z.device)], 1), torch.cat([(z * 2).cpu(), torch.ones(" in text
    assert "pad * (z + 1).cpu()\n" in text


NUMBERED = """
def numbered(labels):
    rows = []
    for label in labels:
        rows.append({one})
    return {joined}
"""


@pytest.mark.parametrize(
    ("one", "joined"),
    [
        ("[float(label)] * 4", "torch.tensor(rows)"),
        ("torch.tensor([float(label)] * 4)", "torch.stack(rows)"),
        ("torch.zeros(1, 4)", "torch.cat(rows, 0)"),
    ],
)
def test_what_a_function_joins_of_a_list_that_it_fills(one: str, joined: str) -> None:
    setup = NUMBERED.format(one=one, joined=joined)
    loss = "loss = F.cross_entropy(model(numbered(y.tolist())), y)\n"
    text = convert(setup=setup, batch=MOVED, loss=loss).new_text
    assert "model(numbered(y.tolist()).to(accelerator.device))" in text


def test_what_a_function_makes_of_one_number_goes_with_all() -> None:
    setup = "def scale(n):\n    rows = n\n    return torch.tensor(rows)"
    loss = "loss = F.cross_entropy(model(x), y) * scale(2.0)\n"
    check_noop("loss", loss, "ACC120", setup=setup, batch=MOVED)


def test_a_function_is_given_tensors_of_the_host_alone() -> None:
    ends = "seen = one_hot(torch.zeros(2)), padded(torch.zeros(2, 4))"
    check_noop("setup", HELPERS, "ACC120", batch=MOVED, end=ends)


def test_what_the_round_before_has_moved_was_on_the_host_again() -> None:
    steps = """
    it = iter(loader)
    for step in range(3):
        try:
            x, y = next(it)
        except StopIteration:
            if step:
                it = iter(loader)
                x, y = next(it)
        both = torch.cat([y, torch.zeros(1)])
        x, y = x.cuda(), y.cuda()
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    """
    text = convert(end=steps, batch=MOVED).new_text
    assert "both = torch.cat([y, torch.zeros(1, device=y.device)])\n" in text


def test_a_name_out_of_the_batch_is_the_file_s() -> None:
    batch = f"for name in y:\n    np.savetxt(name, x)\n{MOVED}"
    text = convert(setup="import numpy as np", batch=batch).new_text
    assert "np.savetxt(name, x.cpu())\n" in text


@pytest.mark.parametrize(
    ("body", "copied"),
    [
        ("    for part in x:\n        part.mul_(2)\n    return x\n", True),
        ("    if len(x) > 1:\n        return x.cpu()\n    return x\n", False),
        ("    x = x.cpu()\n    return x\n", False),
    ],
)
def test_a_function_of_another_module_that_gives_its_tensor_back(
    tmp_path: Path, body: str, copied: bool
) -> None:
    (tmp_path / "tools.py").write_text(f"def scaled(x):\n{body}")
    script = frame(
        imports="import numpy as np\nfrom tools import scaled", batch=f"seen = np.sum(scaled(x))\n{MOVED}"
    )
    (tmp_path / "train.py").write_text(script)
    text = convert_project(Source.read(tmp_path / "train.py"))[0].new_text
    assert ("np.sum(scaled(x).cpu())" in text) is copied


COLLECTED = """
kept = []
for a, b in {loader}:
    output = model(a.cuda()).argmax(1).cpu()
    kept.append({value})
print({read})
"""


@pytest.mark.parametrize("loader", ["loader", "test_loader"])
@pytest.mark.parametrize(
    ("value", "read", "after"),
    [
        ("b", "torch.cat(kept).numpy()", "b.cpu()"),
        ("b.float()", "kept[0].numpy()", "b.float().cpu()"),
        ("b == 1", "ax.scatter(c=torch.cat(kept))", "(b == 1).cpu()"),
        ("(b.long(), output)", "[one.numpy() for one, _ in kept]", "(b.long().cpu(), output)"),
        # It may be a text for each sample, of which NumPy makes an array as well.
        ("b", "np.concatenate(kept, axis=0)", "b.cpu() if torch.is_tensor(b) else b"),
        ("np.asarray(b)", "np.concatenate(kept)", "np.asarray(b.cpu() if torch.is_tensor(b) else b)"),
        ("np.asarray(b)", "b.size(0)", "np.asarray(b.cpu())"),
    ],
)
def test_what_was_collected_on_the_host_stays_there(loader: str, value: str, read: str, after: str) -> None:
    text = convert(
        batch=MOVED,
        imports="import numpy as np\nfrom m import ax",
        end=COLLECTED.format(loader=loader, value=value, read=read),
    ).new_text
    assert f"kept.append({after})" in text
    assert read in text


@pytest.mark.parametrize(
    ("value", "read"),
    [
        ("b", "kept"),  # it may be a text for each sample
        ("b.cuda()", "torch.cat(kept).cpu().numpy()"),
        ("output", "torch.cat(kept).numpy()"),
    ],
)
def test_what_was_collected_elsewhere_stays(value: str, read: str) -> None:
    loss = "loss = F.cross_entropy(model(inputs.cuda()), targets.cuda())"
    batch = "inputs, targets = x, y"
    conversion = convert(
        batch=batch, loss=loss, end=COLLECTED.format(loader="loader", value=value, read=read)
    )
    assert "ACC120" not in codes(conversion)


def test_what_was_collected_is_moved_by_the_script_again() -> None:
    end = COLLECTED.format(loader="loader", value="a", read="model(torch.cat(kept).cuda())").replace(
        "output = model(a.cuda()).argmax(1).cpu()", "output = model(a.cuda())"
    )
    text = convert(batch=MOVED, end=f"{end}for one in kept:\n    print(model(one.cuda()))").new_text
    assert "kept.append(a.cpu())" in text
    assert text.count(".to(accelerator.device)") + text.count(".cuda()") == 2


def test_what_an_object_around_a_loader_gives_may_be_on_the_device_already() -> None:
    """It can fetch batches ahead and move them: outputs are not brought to the host for its labels."""
    imports = """\
class Ahead:
    def __init__(self, loader, device):
        self.loader, self.device = loader, device

    def __iter__(self):
        for x, y in self.loader:
            yield x.to(self.device), y.to(self.device)
"""
    ready = "if torch.cuda.is_available():\n    model.cuda()\n    test_loader = Ahead(test_loader, 'cuda')\n"
    epoch = """\
with torch.no_grad():
    for x, y in test_loader:
        print(F.cross_entropy(model(x), y).item())
        break
"""
    build = (
        "model = nn.DataParallel(nn.Linear(4, 2))\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
    )
    text = convert(imports=imports, build=build, ready=ready, epoch=epoch).new_text
    assert ".cpu()" not in text


@pytest.mark.parametrize(
    ("lengths", "moved"),
    [("[len(r) for r in rows]", False), ("torch.tensor([len(r) for r in rows])", True)],
)
def test_a_list_of_numbers_of_a_collate_function_is_not_moved(lengths: str, moved: bool) -> None:
    code = f"""
    import torch
    from torch import nn
    from torch.nn.utils.rnn import pad_sequence
    from torch.utils.data import DataLoader
    def one(rows):
        return pad_sequence(rows, batch_first=True), {lengths}
    def collate(samples):
        return {{key: one([s[key] for s in samples]) for key in samples[0]}}
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Linear(4, 2)
        def forward(self, x, lengths):
            return self.body(x)
    def evaluate(dev, model, use_gpu):
        lines = []
        for batch in dev:
            rows, lengths = batch["a"]
            if use_gpu:
                rows = rows.cuda()
            found = model(rows, lengths)
            for line in found:
                lines.append(" ".join(str(one.item()) for one in line))
        return len(lines)
    use_gpu = torch.cuda.is_available()
    train = DataLoader([{{"a": torch.randn(3, 4)}}] * 8, batch_size=2, collate_fn=collate)
    dev = DataLoader([{{"a": torch.randn(3, 4)}}] * 8, batch_size=2, collate_fn=collate)
    model = Net()
    if use_gpu:
        model = model.cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for batch in train:
        x, sizes = batch["a"]
        if use_gpu:
            x = x.cuda()
        loss = model(x, sizes).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(evaluate(dev, model, use_gpu))
    """
    text = settled_source(textwrap.dedent(code)).new_text
    assert ("lengths.to(" in text) is moved
