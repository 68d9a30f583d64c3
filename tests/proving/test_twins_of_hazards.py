"""What is right on several processes is quiet, and its hazardous twin, which differs in a few words, is named."""

from __future__ import annotations

import pytest

from tests.proving.several_programs import findings, named

PREPARED = """
accelerator = Accelerator({options})
net = torch.nn.Linear(4, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
loader = DataLoader(data, batch_size=4)
{before}
net, opt, loader = accelerator.prepare(net, opt, loader)
for x, y in loader:
    accelerator.backward(F.mse_loss(net(x), y))
    opt.step()
    opt.zero_grad()
{after}
"""
WRAPPED = """
{imports}
dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
{before}
sampler = DistributedSampler(data, shuffle=False)
loader = DataLoader(data, batch_size=4, sampler=sampler)
model = DDP(torch.nn.Linear(4, 1))
opt = torch.optim.SGD(model.parameters(), lr=0.1)
total, seen = 0.0, 0
for x, y in loader:
    opt.zero_grad()
    loss = F.mse_loss(model(x), y)
    loss.backward()
    opt.step()
    total += loss.item()
    seen += len(x)
{after}
"""


def beside(tmp_path, before="", after="", options=""):
    text = PREPARED.format(before=before, after=after, options=options)
    return named(text, tmp_path, "accelerate")


def wrapped(tmp_path, before="", after="", imports=""):
    return named(WRAPPED.format(before=before, after=after, imports=imports), tmp_path)


FOLDS = """
from sklearn.model_selection import {name}

for fit, _ in {name}({options}).split([0, 1] * 32):
    accelerator = Accelerator()
    rows = DataLoader(TensorDataset(torch.ones(64, 4)[fit]), batch_size=4)
    net = torch.nn.Linear(4, 1)
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    net, opt, rows = accelerator.prepare(net, opt, rows)
    for (x,) in rows:
        accelerator.backward(net(x).mean())
        opt.step()
        opt.zero_grad()
    net, opt, rows = accelerator.free_memory(net, opt, rows)
"""


@pytest.mark.parametrize(
    ("name", "options", "is_right"),
    [
        ("KFold", "4", True),
        ("KFold", "4, shuffle=True, random_state=3", True),
        ("KFold", "4, shuffle=True", False),
        ("TimeSeriesSplit", "4", True),
        ("ShuffleSplit", "4, random_state=0", True),
        ("ShuffleSplit", "4", False),
        ("RepeatedKFold", "n_splits=4", False),
    ],
)
def test_folds_differ_where_they_are_drawn_without_a_seed(name, options, is_right, tmp_path):
    found = named(FOLDS.format(name=name, options=options), tmp_path, "accelerate")
    assert found == [] if is_right else "ACC705" in dict(found)


@pytest.mark.parametrize(("word", "is_right"), [("debug", True), ("info", False)])
def test_what_a_logger_of_a_library_leaves_out(word, is_right, tmp_path):
    before = (
        "import logging\nfrom diffusers.utils import logging as others\nlog = others.get_logger(__name__)\n"
    )
    before += f"logging.basicConfig(level=logging.INFO)\nlog.{word}('ready')"
    assert beside(tmp_path, before) == ([] if is_right else [("ACC702", f"log.{word}('ready')")])


@pytest.mark.parametrize(("others", "is_right"), [("1", True), ("-1", True), ("0", False)])
def test_a_number_that_stands_for_the_main_process(others, is_right, tmp_path):
    before = "def show(rank=0):\n    if rank == 0:\n        print('ready')\n"
    before += f"show(0 if accelerator.is_main_process else {others})"
    assert (beside(tmp_path, before) == []) == is_right


@pytest.mark.parametrize(
    ("test", "is_right"), [("accelerator.is_main_process", True), ("len(data) > 1", False)]
)
def test_trackers_that_the_main_process_alone_has(test, is_right, tmp_path):
    after = f"if {test}:\n    accelerator.init_trackers('run')\n"
    after += "for tracker in accelerator.trackers:\n    tracker.writer.add_images('samples', x, 0)"
    assert ("ACC702" not in dict(beside(tmp_path, after=after))) == is_right


SKIPPED = """
rest = {rest}
for epoch in range(3):
    for x, y in tqdm(rest if epoch == 0 else loader, disable=not accelerator.is_main_process):
        accelerator.backward(F.mse_loss(net(x), y))
        opt.step()
        opt.zero_grad()
"""


@pytest.mark.parametrize(
    ("rest", "is_right"),
    [
        ("accelerator.skip_first_batches(loader, 2)", True),
        ("skip_first_batches(loader, num_batches=2)", True),
        ("DataLoader(data, batch_size=4)", False),
    ],
)
def test_the_rest_of_a_prepared_loader_is_prepared(rest, is_right, tmp_path):
    before = "from accelerate import skip_first_batches\nfrom tqdm import tqdm"
    found = beside(tmp_path, before, SKIPPED.format(rest=rest))
    assert found == [] if is_right else "ACC705" in dict(found)


@pytest.mark.parametrize(("given", "is_right"), [("loader", True), ("loader, held", False)])
def test_a_sampler_of_a_loader_that_is_not_prepared(given, is_right, tmp_path):
    before = "from torch.utils.data import DistributedSampler\n"
    before += "held = DataLoader(data, batch_size=4, sampler=DistributedSampler(data, shuffle=False))"
    text = PREPARED.format(before=before, after="", options="").replace("opt, loader = ", f"opt, {given} = ")
    text = text.replace("prepare(net, opt, loader)", f"prepare(net, opt, {given})")
    found = named(text, tmp_path, "accelerate")
    assert found == [] if is_right else [code for code, _ in found] == ["ACC712"]


MODEL = """
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Linear(4, 1)

    def loss(self, x, y):
        return F.mse_loss(self.body(x), y)


accelerator = Accelerator({options})
net = Net()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
net, opt, loader = accelerator.prepare(net, opt, DataLoader(data, batch_size=4))
for x, y in loader:
    accelerator.backward(net.loss(x, y))
    opt.step()
    opt.zero_grad()
"""


@pytest.mark.parametrize(
    ("options", "codes"), [("deepspeed_plugin=DeepSpeedPlugin(zero_stage=2)", []), ("", ["ACC705"])]
)
def test_a_method_that_is_called_past_the_wrapper_is_named_once(options, codes, tmp_path):
    text = "from accelerate import DeepSpeedPlugin\n" + MODEL.format(options=options)
    assert [code for code, _ in named(text, tmp_path, "accelerate")] == codes


FOLDED = """
import torch_xla
for fold in range(2):
    accelerator = Accelerator()
    net = torch.nn.Linear(4, 1)
    {first}
    {then}
    net, opt, loader = accelerator.prepare(net, opt, DataLoader(data, batch_size=4))
    for x, y in loader:
        accelerator.backward(F.mse_loss(net(x), y))
        opt.step()
        opt.zero_grad()
"""
MOVE, MAKE = "net.to(accelerator.device)", "opt = torch.optim.SGD(net.parameters(), lr=0.1)"


@pytest.mark.parametrize(("first", "then", "is_right"), [(MOVE, MAKE, True), (MAKE, MOVE, False)])
def test_a_model_that_each_round_makes_anew(first, then, is_right, tmp_path):
    """What the optimizer of the round before had is no model of this one."""
    text = FOLDED.format(first=first, then=then)
    assert ("ACC717" not in dict(named(text, tmp_path, "accelerate"))) == is_right


GUARDED = """
{reduced}
mean = total / seen if seen > 0 else 0
if rank == 0:
    print(mean)
"""
PUT_TOGETHER = "both = torch.tensor([total, float(seen)])\ndist.all_reduce(both)\ntotal, seen = both.tolist()"


def test_a_mean_where_there_may_be_nothing(tmp_path):
    """Of a share it is one process's, and not what they are to agree on."""
    assert wrapped(tmp_path, after=GUARDED.format(reduced=PUT_TOGETHER)) == []
    text = WRAPPED.format(imports="", before="", after=GUARDED.format(reduced=""))
    (found,) = findings(text, tmp_path)
    assert "what one process has of its share" in found.message
    assert "gather" in found.message


TRIED = """
try:
    {asks}:
        torch.save(model.module.state_dict(), "last.pt")
except OSError:
    print("could not be written")
"""


@pytest.mark.parametrize(
    ("asks", "is_right"),
    [("if rank == 0", True), ("if int(os.environ['RANK']) % 4 == 0", True), ("if len(data) > 3", False)],
)
def test_a_handler_of_what_the_main_process_tries(asks, is_right, tmp_path):
    found = wrapped(tmp_path, after=TRIED.format(asks=asks))
    assert (("ACC702", 'print("could not be written")') not in found) == is_right


MADE = """
def load(folder, path):
    if not os.path.exists(path):
        print("making it")
        np.savez(path, x=np.ones(4))
    return np.load(path)["x"]


def main_first(folder):
    if rank == 0:
        load(folder, {path})
    {wait}
    return load(folder, {other})


rows = main_first(os.environ["DATA"])
"""


@pytest.mark.parametrize(
    ("path", "other", "wait", "is_right"),
    [
        ('"a.npz"', '"a.npz"', "dist.barrier()", True),
        ('os.path.join(folder, "a.npz")', 'os.path.join(folder, "a.npz")', "dist.barrier()", True),
        ('"a.npz"', '"b.npz"', "dist.barrier()", False),
        ('"a.npz"', '"a.npz"', "pass", False),
    ],
)
def test_a_file_that_the_main_process_has_made_is_there(path, other, wait, is_right, tmp_path):
    text = MADE.format(path=path, other=other, wait=wait)
    found = wrapped(tmp_path, imports="import numpy as np", before=text)
    assert (("ACC702", 'print("making it")') not in found) == is_right


@pytest.mark.parametrize(("rows", "codes"), [("torch.ones(64, 4)", []), ("torch.randn(64, 4)", ["ACC705"])])
def test_data_that_differ_are_not_named_where_their_length_is_asked(rows, codes, tmp_path):
    text = WRAPPED.format(imports="", before=f"data = TensorDataset({rows}, torch.ones(64, 1))", after="")
    text = text.replace("torch.manual_seed(0)\n", "") + "if rank == 0:\n    print(len(loader))\n"
    found = named(text, tmp_path)
    assert [code for code, _ in found] == codes
    assert ("ACC704", "print(len(loader))") not in found


ADDED_UP = """
dist.init_process_group("gloo")
parts = 40 // dist.get_world_size()
model = DDP(torch.nn.Linear(4, 1))
opt = torch.optim.SGD(model.parameters(), lr=0.1)
x, y = torch.randn(4, 4), torch.randn(4, 1)
total = 0.0
for step in range(100):
    for part in range(parts):
        loss = F.mse_loss(model(x), y) / parts
        loss.backward()
        x, y = torch.randn(4, 4), torch.randn(4, 1)
    opt.step()
    opt.zero_grad()
    total += loss.item()
    {inside}
{after}
"""


@pytest.mark.parametrize(
    ("inside", "after", "is_right"),
    [
        ("if dist.get_rank() == 0: print(loss.item() * parts)", "", True),
        ("", "if dist.get_rank() == 0: print(total)", False),
    ],
)
def test_figures_of_a_step_that_adds_up_batches(inside, after, is_right, tmp_path):
    found = dict(named(ADDED_UP.format(inside=inside, after=after), tmp_path))
    assert ("ACC701" not in found) == is_right


SENT = """
dist.init_process_group("gloo")
rank = dist.get_rank()
model = DDP(torch.nn.Linear(4, 1))
opt = torch.optim.SGD(model.parameters(), lr=0.1)
stop, best = False, 9.0
for epoch in range(9):
    opt.zero_grad()
    F.mse_loss(model(torch.ones(4, 4)), torch.ones(4, 1)).backward()
    opt.step()
    if rank == 0:
        figure = model.module(torch.ones(4, 4)).mean().item()
        stop, best = figure > best, min(figure, best)
    box = [stop if rank == 0 else None]
    dist.broadcast_object_list(box, src=0)
    if rank != 0:
        stop = {taken}
    if stop:
        break
"""


@pytest.mark.parametrize(("taken", "is_right"), [("box[0]", True), ("best > 8", False)])
def test_what_the_others_take_from_the_main_process(taken, is_right, tmp_path):
    assert (named(SENT.format(taken=taken), tmp_path) == []) == is_right


DEVICE = """
rank = int(os.getenv("LOCAL_RANK", -1))
device = torch.device("cuda:0")
if rank != -1:
    torch.cuda.set_device(rank)
    {device}
    dist.init_process_group("nccl")
model = DDP(torch.nn.Linear(4, 1).to(device))
"""


@pytest.mark.parametrize(
    ("device", "is_right"), [("device = torch.device('cuda', rank)", True), ("pass", False)]
)
def test_a_device_that_stands_for_one_process_alone(device, is_right, tmp_path):
    assert (named(DEVICE.format(device=device), tmp_path) == []) == is_right


CLOCK = """
import datetime
folder = os.path.join("runs", {name})
os.makedirs(folder, exist_ok=True)
accelerator = Accelerator()
net, opt, loader = accelerator.prepare(net, opt, loader)
if os.path.exists(os.path.join(folder, "state")):
    accelerator.load_state(folder)
for x, y in loader:
    accelerator.backward(F.mse_loss(net(x), y))
    opt.step()
    opt.zero_grad()
    {inside}
"""


@pytest.mark.parametrize(
    ("name", "inside", "codes"),
    [
        ('"one"', "", []),
        ('datetime.datetime.now().strftime("%H%M")', "", ["ACC703"]),
        ('"one"', "if datetime.datetime.now().hour > 3: break", ["ACC704"]),
    ],
)
def test_what_a_folder_by_the_clock_leads_to_is_no_finding_of_its_own(name, inside, codes, tmp_path):
    text = "import os\n" + PREPARED.partition("accelerator = ")[0] + CLOCK.format(name=name, inside=inside)
    text = text.replace("accelerator = Accelerator()\n", "accelerator = Accelerator()\n" + MADE_BEFORE)
    assert [code for code, _ in named(text, tmp_path, "accelerate")] == codes


MADE_BEFORE = """\
net = torch.nn.Linear(4, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
loader = DataLoader(data, batch_size=4)
"""
MOVED = """
def moved(x):
    if isinstance(x, dict):
        return {{name: moved(one) for name, one in x.items()}}
    return x


if rank == 0:
    torch.save(moved({{"rounds": {rounds}, "weights": model.module.state_dict()}}), "last.pt")
"""


@pytest.mark.parametrize(("rounds", "is_right"), [("len(loader)", True), ("total", False)])
def test_what_a_function_makes_of_each_part_is_as_the_part(rounds, is_right, tmp_path):
    found = wrapped(tmp_path, after=MOVED.format(rounds=rounds))
    assert ("ACC701" not in dict(found)) == is_right


BACKEND = """
dist.init_process_group({name})
model = DDP(torch.nn.Linear(4, 1))
device = "cpu" if dist.get_backend() == "gloo" else "cuda"
counts = torch.ones(2, device=device)
dist.all_reduce(counts)
"""


@pytest.mark.parametrize(("name", "is_right"), [('"gloo"', True), ('"nccl"', False)])
def test_the_device_of_a_backend(name, is_right, tmp_path):
    assert ("ACC714" not in dict(named(BACKEND.format(name=name), tmp_path))) == is_right


JUDGED = """
judge = torch.nn.Linear(4, 1)
judge.requires_grad_(False)
{then}
judge = accelerator.prepare(judge)
for x, y in loader:
    accelerator.backward(F.mse_loss(net(x), judge(x)))
    opt.step()
    opt.zero_grad()
    if accelerator.is_main_process:
        with torch.no_grad():
            judge(torch.ones(1, 4))
"""


@pytest.mark.parametrize(
    ("then", "is_right"),
    [
        ("", True),
        ("judge.requires_grad_(True)", False),
        ("from other import inject; inject(judge)", False),
        ("adam = torch.optim.Adam(judge.parameters())", False),
    ],
)
def test_a_frozen_model_gets_no_wrapper(then, is_right, tmp_path):
    found = beside(tmp_path, after=JUDGED.format(then=then))
    assert (("ACC704", "judge(torch.ones(1, 4))") not in found) == is_right


@pytest.mark.parametrize(
    ("body", "is_right"),
    [
        ("one.requires_grad = False", True),
        ("one.requires_grad = True", False),
        ("if one.ndim == 1: continue\n    one.requires_grad = False", False),
    ],
)
def test_parameters_that_are_frozen_one_after_the_other(body, is_right, tmp_path):
    loop = f"for one in judge.parameters():\n    {body}\n"
    text = JUDGED.replace("judge.requires_grad_(False)\n", loop)
    found = beside(tmp_path, after=text.format(then=""))
    assert (("ACC704", "judge(torch.ones(1, 4))") not in found) == is_right


PARTS = """
from torch_geometric.loader import NeighborLoader

graph = torch.load("graph.pt", map_location="cpu")
nodes = torch.arange(64)
nodes = {part}
loader = NeighborLoader(graph, input_nodes=nodes, num_neighbors=[4, 4], batch_size=4)
dist.init_process_group("gloo")
model = DDP(torch.nn.Linear(4, 1))
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for batch in loader:
    opt.zero_grad()
    model(batch.x).mean().backward()
    opt.step()
"""


@pytest.mark.parametrize(
    ("part", "is_right"),
    [("nodes.split(len(nodes) // dist.get_world_size())[dist.get_rank()]", True), ("nodes[:32]", False)],
)
def test_nodes_of_a_graph_that_the_processes_share_out(part, is_right, tmp_path):
    assert ("ACC705" not in dict(named(PARTS.format(part=part), tmp_path))) == is_right


@pytest.mark.parametrize(
    ("call", "is_of_loss"),
    [("x, y = x, net.moved(x)", True), ("net.moved(x)", False), ("n = net.moved()", False)],
)
def test_what_to_do_about_a_method_of_a_wrapped_model(call, is_of_loss, tmp_path):
    text = MODEL.format(options="").replace(
        "    def loss", "    def moved(self, x=0):\n        return x\n\n    def loss"
    )
    text = text.replace("net.loss(x, y))", f"F.mse_loss(net(x), y))\n    {call}").replace(
        "def loss", "def forward"
    )
    (found,) = (one.message for one in findings(text, tmp_path, "accelerate") if one.code == "ACC715")
    assert ("let the model's forward call it" in found) == is_of_loss


@pytest.mark.parametrize(
    ("write", "read"),
    [
        ("save_pretrained('out')", "UNet2DConditionModel.from_pretrained('out')"),
        ("save_attn_procs('out')", "made.load_attn_procs('out')"),
        ("save_lora_adapter('out')", "made.load_lora_weights('out')"),
    ],
)
@pytest.mark.parametrize("waits", [True, False])
def test_what_the_main_process_has_written_of_a_model(waits, write, read, tmp_path):
    text = f"""
    from diffusers import DiffusionPipeline, UNet2DConditionModel

    accelerator = Accelerator()
    model = UNet2DConditionModel.from_pretrained("some/model")
    model = accelerator.prepare(model)
    if accelerator.is_main_process:
        accelerator.unwrap_model(model).{write}
    {"accelerator.wait_for_everyone()" if waits else ""}
    made = DiffusionPipeline.from_pretrained("some/model")
    {read}
    """
    assert ("ACC709" not in dict(named(text, tmp_path, "accelerate"))) == waits


EPOCHS = """
{spoken}
accelerator = Accelerator()
net = torch.nn.Linear(4, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
net, opt, loader = accelerator.prepare(net, opt, DataLoader(data, batch_size=4))
for epoch in range(3):
    for x, y in loader:
        loss = F.mse_loss(net(x), y)
        accelerator.backward(loss)
        opt.step()
        opt.zero_grad()
{taken}
"""
ONCE, EACH = (
    f"{indent}last = accelerator.reduce(loss.detach(), 'mean').item()" for indent in ("    ", "        ")
)


@pytest.mark.parametrize(
    ("spoken", "taken", "is_right"),
    [
        ("import torch_xla", ONCE, True),
        ("import torch_xla", EACH, False),
        ("# not with torch_xla", EACH, True),
    ],
)
def test_a_number_that_waits_for_the_tpu_once_an_epoch(spoken, taken, is_right, tmp_path):
    text = EPOCHS.format(spoken=spoken, taken=taken)
    assert ("ACC717" not in dict(named(text, tmp_path, "accelerate"))) == is_right
