"""Loaders that each process goes through as a whole, in scripts whose other values are no help to see it."""

from __future__ import annotations

import pytest

from tests.proving.several_programs import NET, named

NOISY = """
from accelerate.utils import set_seed
accelerator = Accelerator()
{seed}
net = torch.nn.Linear(4, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
loader = DataLoader(data, batch_size=4, shuffle={shuffle})
{prepared} = accelerator.prepare({prepared})
for x, y in loader:
    x = x.to(accelerator.device)
    noise = torch.randn_like(x)
    accelerator.backward(net(x + noise).mean())
    opt.step()
    opt.zero_grad()
"""
LINE = "accelerator.backward(net(x + noise).mean())"


@pytest.mark.parametrize("seed", ["", "set_seed(0)", "set_seed(0, device_specific=True)"])
@pytest.mark.parametrize("shuffle", [True, False])
def test_noise_that_each_process_draws_makes_no_other_samples(seed, shuffle, tmp_path):
    text = NOISY.format(seed=seed, shuffle=shuffle, prepared="net, opt")
    assert ("ACC705", LINE) in named(text, tmp_path, "accelerate")


@pytest.mark.parametrize("seed", ["", "set_seed(0, device_specific=True)"])
def test_noise_in_a_prepared_loader_is_of_each_process(seed, tmp_path):
    text = NOISY.format(seed=seed, shuffle=True, prepared="net, opt, loader")
    assert named(text, tmp_path, "accelerate") == []


SCHEDULED = """
from mmcv.runner import build_optimizer
accelerator = Accelerator()
net = torch.nn.Linear(4, 1)
opt = build_optimizer(net, {{"lr": 0.1}})
scheduler = torch.optim.lr_scheduler.StepLR(torch.optim.SGD(net.parameters(), lr=0.1), 10)
loader = DataLoader(data, batch_size=4, shuffle=True)
net, opt, scheduler = accelerator.prepare(net, opt, scheduler)
for epoch in range(3):
    for x, y in loader:
        accelerator.backward(F.mse_loss(net(x), y))
        opt.step()
        opt.zero_grad()
        {in_batch}
    {in_epoch}
"""


@pytest.mark.parametrize("place", ["in_batch", "in_epoch"])
def test_a_scheduler_beside_a_backward_is_not_stepped_once_an_epoch(place, tmp_path):
    """Whatever is known of the optimizer; the loader is what is wrong."""
    steps = {"in_batch": "pass", "in_epoch": "pass", place: "scheduler.step()"}
    found = named(SCHEDULED.format(**steps), tmp_path, "accelerate")
    assert ("ACC705", "accelerator.backward(F.mse_loss(net(x), y))") in found
    assert (("ACC706", "scheduler.step()") in found) == (place == "in_epoch")


DUMMY = """
from accelerate.utils import set_seed
class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 100
    def __getitem__(self, number):
        return {{"x": {item}, "name": "row"}}
accelerator = Accelerator()
{seed}
net = torch.nn.Linear(4, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
loader = DataLoader(Rows(), batch_size=4, shuffle=True)
net, opt = accelerator.prepare(net, opt)
while True:
    for batch in loader:
        accelerator.backward(net(batch["x"].to(accelerator.device)).mean())
        opt.step()
        opt.zero_grad()
"""


@pytest.mark.parametrize(
    ("item", "seed", "is_right"),
    [
        ("torch.randn(4)", "", True),
        ("torch.randn(4)", "set_seed(0, device_specific=True)", True),
        ("torch.randn(4)", "set_seed(0)", False),
        ("torch.ones(4)", "", False),
        ("torch.randn(4) + number", "", False),
    ],
)
def test_items_that_each_process_draws_are_no_samples_to_divide(item, seed, is_right, tmp_path):
    found = dict(named(DUMMY.format(item=item, seed=seed), tmp_path, "accelerate"))
    assert ("ACC705" in found) != is_right


@pytest.mark.parametrize(("sampler", "is_right"), [("", False), (", sampler=DistributedSampler(rows)", True)])
def test_what_a_criterion_has_of_another_loader_divides_no_samples(sampler, is_right, tmp_path):
    text = f"""
    import losses
    from elsewhere import net
    rank = int(os.environ["LOCAL_RANK"])
    dist.init_process_group("gloo")
    rows = TensorDataset(torch.ones(60, 4), torch.ones(60, 1))
    train = DataLoader(rows, batch_size=8{sampler})
    val = DataLoader(data, batch_size=8, sampler=DistributedSampler(data, shuffle=False))
    model = DDP(net().to(rank), device_ids=[rank])
    criterion = losses.__dict__["X"]().to(rank)
    opt = torch.optim.SGD(model.parameters(), 0.1)
    for epoch in range(3):
        for x, y in train:
            opt.zero_grad()
            criterion(model(x.to(rank)), y.to(rank)).backward()
            opt.step()
        with torch.no_grad():
            for x, y in val:
                criterion(model(x.to(rank)), y.to(rank))
    """
    assert ("ACC705" in dict(named(text, tmp_path))) != is_right


LISTED = """
def ready(model, loader=None, opt=None):
    parts = [model]
    training = all(part is not None for part in {asked})
    if training:
        parts.extend({more})
    made = accelerator.prepare(*parts)
    at = 0
    model = made[at]
    if training:
        at += 1
        opt = made[at]
    {last}
    return model, loader, opt

accelerator = Accelerator()
model = torch.nn.Linear(4, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
model, loader, opt = ready(model, DataLoader(data, batch_size=4), opt)
for x, y in loader:
    opt.zero_grad()
    accelerator.backward(F.mse_loss(model(x), y))
    opt.step()
"""


@pytest.mark.parametrize(
    ("change", "codes"),
    [
        ({}, []),
        ({"more": "(opt,)", "last": ""}, ["ACC705", "ACC710"]),
    ],
)
def test_what_a_list_is_extended_by_has_its_place_in_what_prepare_gives(change, codes, tmp_path):
    parts = {"asked": "(loader, opt)", "more": "[opt, loader]", "last": "loader = made[at + 1]"}
    found = named(LISTED.format(**(parts | change)), tmp_path, head="accelerate")
    assert [code for code, _ in found] == codes


DRAWN = """
accelerator = Accelerator()
net = torch.nn.Linear(4, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
make = lambda: DataLoader(data, batch_size=4, shuffle=True)
train, other = make(), make()
{prepared} = accelerator.prepare({prepared})
class Rounds:
    def begin(self):
        self.train, self.other = iter(train), iter(other)
    def draw(self):
        try:
            return next(self.train)
        except StopIteration:
            self.begin()
            return next(self.train)
rounds = Rounds()
rounds.begin()
def step():
    x, y = rounds.draw()
    more, _ = next(rounds.other)
    accelerator.backward(F.mse_loss(net(x.to(accelerator.device)), y.to(accelerator.device)){added})
    opt.step()
    opt.zero_grad()
for _ in range(100):
    step()
"""


@pytest.mark.parametrize(
    ("prepared", "added", "is_named"),
    [
        ("net, opt", "", True),
        ("net, opt, train", "", False),
        ("net, opt, train, other", " + net(more).mean()", False),
        # The other processes have other batches beside these.
        ("net, opt, train", " + net(more.to(accelerator.device)).mean()", False),
    ],
)
def test_a_loader_of_which_batches_are_drawn(prepared, added, is_named, tmp_path):
    text = DRAWN.format(prepared=prepared, added=added)
    found = named(text, tmp_path, "accelerate")
    line = next(line.strip() for line in text.splitlines() if "accelerator.backward" in line)
    assert found == [("ACC705", line)] * is_named


THROUGH_GENERATORS = """
def endless(loader):
    while True:
        {gives}

class Trainer:
    def __init__(self, model, loader):
        self.model, self.batches = model, endless(loader)
        self.opt = torch.optim.SGD(model.parameters(), lr=0.1)
    def train(self, steps):
        for _ in range(steps):
            x, y = next(self.batches)
            self.opt.zero_grad()
            F.mse_loss(self.model(x), y).backward()
            self.opt.step()

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
loader = DataLoader(data, batch_size=4{sampler})
Trainer(DDP(torch.nn.Linear(4, 1)), loader).train(100)
"""
YIELDS = "for batch in loader:\n            yield batch"


@pytest.mark.parametrize(
    ("gives", "sampler", "is_right"),
    [
        (YIELDS, ", shuffle=True", False),
        ("yield from loader", ", shuffle=True", False),
        (YIELDS, ", sampler=DistributedSampler(data, shuffle=False)", True),
        ("yield from loader", ", sampler=DistributedSampler(data, shuffle=False)", True),
        (
            "for n, batch in enumerate(loader):\n            if n % size == rank:\n                yield batch",
            "",
            True,
        ),
    ],
)
def test_a_generator_that_gives_batches_of_a_loader(gives, sampler, is_right, tmp_path):
    found = named(THROUGH_GENERATORS.format(gives=gives, sampler=sampler), tmp_path)
    assert (("ACC705", "F.mse_loss(self.model(x), y).backward()") in found) != is_right


@pytest.mark.parametrize(
    ("x", "is_right"), [('batch["x"]', False), ('batch["x"].to(accelerator.device)', True)]
)
def test_items_that_each_process_draws_lie_on_the_host(x, is_right, tmp_path):
    moved = 'net(batch["x"].to(accelerator.device)).mean()'
    loss = f'F.mse_loss(net({x})[:, 0], batch["x"].to(accelerator.device)[:, 0])'
    text = DUMMY.format(item="torch.randn(4)", seed="").replace(moved, loss)
    assert ("ACC710" in dict(named(text, tmp_path, "accelerate"))) != is_right


OPTIONAL = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--train", action="store_true")
args = parser.parse_args()
accelerator = Accelerator()
model = torch.nn.Linear(4, 1)
loader = opt = None
if args.train:
    loader = DataLoader(data, batch_size=4, shuffle=True)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
model = accelerator.prepare(model)
if {asked}:
    {prepares}
if args.train:
    for x, y in loader:
        opt.zero_grad()
        accelerator.backward(F.mse_loss(model(x), y))
        opt.step()
"""


@pytest.mark.parametrize(
    "asked", ["all(one is not None for one in (loader, opt))", "loader is not None", "args.train"]
)
@pytest.mark.parametrize(
    ("prepares", "codes"),
    [
        ("loader, opt = accelerator.prepare(loader, opt)", set()),
        ("other = accelerator.prepare(DataLoader(data, batch_size=4))", {"ACC705"}),
        ("opt = accelerator.prepare(opt)", {"ACC705"}),
    ],
)
def test_what_is_prepared_where_it_is_there(asked, prepares, codes, tmp_path):
    found = named(OPTIONAL.format(asked=asked, prepares=prepares), tmp_path, "accelerate")
    assert {code for code, _ in found} - {"ACC710"} == codes  # it lies on the host, too


SHARED_FILES = """
dist.init_process_group("gloo")
files = ["a", "b", "c", "d"]
for name in files{share}:
    for x, y in DataLoader(data, batch_size=4, shuffle=True):
        opt.zero_grad()
        F.mse_loss(model(x), y).backward()
        opt.step()
"""


@pytest.mark.parametrize(("share", "all_the_same"), [("[dist.get_rank()::2]", False), ("", True)])
def test_loaders_of_each_process_s_own_files(share, all_the_same, tmp_path):
    found = named(NET + SHARED_FILES.format(share=share), tmp_path)
    assert ("ACC705" in [code for code, _ in found]) == all_the_same
