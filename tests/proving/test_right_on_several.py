"""What is right on several processes is quiet, and what is wrong in the same words is named."""

from __future__ import annotations

from textwrap import dedent

import pytest

from tests.proving.several_programs import GROUP, LOOP, NET, findings, named

DRAWN = """
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Linear(4, 1)
        torch.nn.init.xavier_uniform_(self.body.weight)

    def forward(self, x):
        return self.body(x)


def train(model, loader):
    model = DDP(model)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in loader:
        opt.zero_grad()
        F.mse_loss(model(x), y).backward()
        opt.step()


def main(rank, world_size, loader):
    dist.init_process_group("gloo", rank=rank, world_size=world_size)
    train(Net(), loader)
"""


def test_weights_drawn_before_the_wrapper_of_another_function(tmp_path):
    """The wrapper sends the main process's: what a function does that nobody calls is no part of another one's run."""
    assert not named(DRAWN, tmp_path)
    late = DRAWN.replace(
        "    opt = torch", "    torch.nn.init.xavier_uniform_(model.module.body.weight)\n    opt = torch"
    )
    assert named(late, tmp_path)[0] == ("ACC704", "torch.nn.init.xavier_uniform_(model.module.body.weight)")


@pytest.mark.parametrize(
    ("other", "is_right"),
    [
        ("model = DDP(Net())", True),
        ("model = DDP(Net())\n        torch.nn.init.normal_(model.module.weight)", False),
    ],
)
def test_weights_drawn_where_the_other_way_has_a_wrapper(other, is_right, tmp_path):
    """Of two ways the script takes one: the wrapper of the other way is not there yet."""
    text = f"""
    class Net(torch.nn.Linear):
        def __init__(self):
            super().__init__(4, 1)
            torch.nn.init.normal_(self.weight)


    dist.init_process_group("gloo")
    if os.path.exists("model.pt"):
        model = DDP(Net())
    else:
        {other}
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in DataLoader(data, batch_size=4, sampler=DistributedSampler(data)):
        opt.zero_grad()
        F.mse_loss(model(x), y).backward()
        opt.step()
    """
    found = named(dedent(text), tmp_path)
    late = ("ACC704", "torch.nn.init.normal_(model.module.weight)")
    assert found == ([] if is_right else [late])


def test_forward_of_a_wrapper(tmp_path):
    """`model.forward` of a wrapped model is the wrapper's; that of the model in it is not."""
    assert not named(GROUP + NET + LOOP.replace("model(x)", "model.forward(x)"), tmp_path)
    past = GROUP + NET + LOOP.replace("model(x)", "model.module.forward(x)")
    assert "ACC705" in dict(named(past, tmp_path))


@pytest.mark.parametrize(("device", "is_right"), [("cuda:0", True), ("cuda:1", False)])
def test_the_first_device_on_the_main_process(device, is_right, tmp_path):
    text = f"""
    dist.init_process_group("nccl")
    torch.cuda.set_device(dist.get_rank())
    model = DDP(torch.nn.Linear(4, 1).cuda())


    def evaluate(model):
        for x, y in DataLoader(data):
            model.module(x.to("{device}"))


    if dist.get_rank() == 0:
        evaluate(model)
    """
    assert (named(text, tmp_path) == []) == is_right
    assert "ACC714" in dict(
        named(text.replace("if dist.get_rank() == 0:\n        ev", "if data:\n        ev"), tmp_path)
    )


def test_where_a_process_loads_to_is_no_part_of_what_it_loads(tmp_path):
    text = """
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    model = DDP(torch.nn.Linear(4, 1).to(rank), device_ids=[rank])
    state = torch.load("m.pt", map_location={"cuda:0": f"cuda:{rank}"})
    model.module.load_state_dict(state)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    F.mse_loss(model(torch.ones(2, 4).to(rank)), torch.ones(2, 1).to(rank)).backward()
    opt.step()
    """
    assert not named(text, tmp_path)
    assert "ACC704" in dict(named(text.replace('"m.pt"', 'f"m{rank}.pt"'), tmp_path))


@pytest.mark.parametrize(
    ("part", "is_right"),
    [
        ("torch.nn.Softmax(1)", True),
        ("0.5", True),
        ("torch.nn.Linear(1, 1)", False),
        ("unknown.make().net", False),
    ],
)
def test_a_model_without_parameters(part, is_right, tmp_path):
    """There is nothing in it that could be averaged."""
    text = f"""
    import unknown


    class Loss(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.part = {part}

        def forward(self, out):
            return self.part(out).pow(2) if callable(self.part) else out.pow(2)


    accelerator = Accelerator()
    criterion = Loss()
    model = torch.nn.Linear(4, 1)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    model, opt, loader = accelerator.prepare(model, opt, DataLoader(data, batch_size=4))
    for x, y in loader:
        opt.zero_grad()
        accelerator.backward(criterion(x).mean())
        opt.step()
    """
    assert ("ACC705" in dict(named(text, tmp_path, "accelerate"))) != is_right


@pytest.mark.parametrize(("part", "is_right"), [("nets['head']", True), ("torch.nn.Linear(4, 1)", False)])
def test_an_optimizer_of_models_that_are_prepared_one_by_one(part, is_right, tmp_path):
    text = f"""
    accelerator = Accelerator()
    nets = torch.nn.ModuleDict({{"head": torch.nn.Linear(4, 1)}})
    opt = torch.optim.SGD(nets.parameters(), lr=0.1)
    model = accelerator.prepare_model({part})
    opt, loader = accelerator.prepare(opt, DataLoader(data, batch_size=4))
    for x, y in loader:
        opt.zero_grad()
        accelerator.backward(F.mse_loss(model(x), y))
        opt.step()
    """
    assert ("ACC705" in dict(named(text, tmp_path, "accelerate"))) != is_right


STREAM = """
dist.init_process_group("gloo")


class Rows(IterableDataset):
    def __init__(self, files, rank, size):
        self.files, self.rank, self.size = files, rank, size

    def __iter__(self):
        for file in PART:
            yield torch.load(file)


loader = DataLoader(Rows(["a", "b", "c", "d"], dist.get_rank(), 2), batch_size=4)
model = DDP(torch.nn.Linear(4, 1))
opt = torch.optim.SGD(model.parameters(), lr=0.1)
"""


@pytest.mark.parametrize(
    ("part", "is_right"),
    [
        ("[f for n, f in enumerate(self.files) if n % self.size == self.rank]", True),
        ("self.files[dist.get_rank() :: 2]", True),
        ("self.files", False),
        ("(f'rank {self.rank}', self.files)[1]", False),
    ],
)
def test_a_stream_that_takes_its_part_by_the_rank(part, is_right, tmp_path):
    text = STREAM.replace("PART", part) + LOOP.replace("x, y in loader", "x in loader").replace(
        "), y)", "), x)"
    )
    assert ("ACC705" in dict(named(text, tmp_path))) != is_right


@pytest.mark.parametrize(
    ("seed", "is_right"),
    [("pass", True), ("torch.manual_seed(0)", False), ("torch.manual_seed(dist.get_rank())", True)],
)
def test_a_stream_of_random_rows(seed, is_right, tmp_path):
    """Each process draws its own, where no seed is the same for all."""
    text = STREAM.replace("in PART", "in range(60)").replace(
        "torch.load(file)", "data[torch.randint(60, (1,))]"
    )
    text = text.replace('"gloo")\n', f'"gloo")\n{seed}\n') + LOOP
    assert ("ACC705" in dict(named(text, tmp_path))) != is_right


@pytest.mark.parametrize(("part", "is_right"), [("batches[rank::2]", True), ("batches[::2]", False)])
def test_a_sampler_of_batches_that_takes_its_part_by_the_rank(part, is_right, tmp_path):
    text = f"""
    dist.init_process_group("gloo")


    class Batches(Sampler):
        def __init__(self, size):
            self.batches = [list(range(n, n + size)) for n in range(0, 60, size)]

        def __iter__(self):
            return iter(self.batches)


    class Shared(Batches):
        def __init__(self, size, rank):
            super().__init__(size)
            self.batches = self.{part}


    loader = DataLoader(data, batch_sampler=Shared(4, dist.get_rank()))
    model = DDP(torch.nn.Linear(4, 1))
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    """
    assert ("ACC705" in dict(named(dedent(text) + LOOP, tmp_path))) != is_right


@pytest.mark.parametrize(("others", "is_right"), [("train(model, None)", True), ("pass", False)])
def test_a_function_that_is_called_on_both_ways(others, is_right, tmp_path):
    text = f"""
    def train(model, log):
        F.mse_loss(model(torch.ones(4, 4)), torch.ones(4, 1)).backward()
        dist.barrier()
        opt.step()


    dist.init_process_group("gloo")
    model = DDP(torch.nn.Linear(4, 1))
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    if dist.get_rank() == 0:
        train(model, "log")
    else:
        {others}
    """
    assert ("ACC704" in dict(named(text, tmp_path))) != is_right


SCHEDULE = """
accelerator = Accelerator(gradient_accumulation_steps=4, step_scheduler_with_optimizer=False)
model = torch.nn.Linear(4, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(data, batch_size=4)
sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=len(loader) // accelerator.num_processes // 4)
model, opt, loader, sched = accelerator.prepare(model, opt, loader, sched)
for number, (x, y) in enumerate(loader):
    accelerator.backward(F.mse_loss(model(x), y))
    if number % 4 == 3:
        opt.step()
        sched.step()
        opt.zero_grad()
"""


def test_a_schedule_that_the_accelerator_leaves_alone(tmp_path):
    assert not named(SCHEDULE, tmp_path, "accelerate")
    with_all = SCHEDULE.replace(", step_scheduler_with_optimizer=False", "")
    assert dict(named(with_all, tmp_path, "accelerate")) == {"ACC706": "sched.step()"}


def test_steps_that_the_script_takes_after_so_many_batches(tmp_path):
    """The Accelerator divides the loss, and each step is of so many batches; without the condition each batch steps."""
    each = SCHEDULE.replace("if number % 4 == 3:", "if x is not None:")
    assert "ACC705" in dict(named(each, tmp_path, "accelerate"))


@pytest.mark.parametrize(
    ("bound", "is_right"),
    [("0, len(x), 2", True), ("x.shape[0]", True), ("int(y.sum())", False), ("len(x[y > 0])", False)],
)
def test_a_model_that_is_called_on_parts_of_a_batch(bound, is_right, tmp_path):
    """A sampler gives all ranks as many rows; how many of them fit a condition is another number on each."""
    loop = LOOP.replace(
        "    F.mse_loss(model(x), y).back",
        f"    out = [model(x[n : n + 2]) for n in range({bound})]\n    torch.cat(out).mean().back",
    )
    assert ("ACC704" in dict(named(GROUP + NET + loop, tmp_path))) != is_right


@pytest.mark.parametrize(("listed", "is_right"), [("G_*.pth", True), ("lo*", False)])
def test_files_that_are_listed_beside_a_folder_of_the_main_process(listed, is_right, tmp_path):
    text = f"""
    import glob

    dist.init_process_group("gloo")
    if dist.get_rank() == 0:
        os.makedirs("run/logs", exist_ok=True)
    found = glob.glob("run/{listed}")
    model = DDP(torch.nn.Linear(4, 1))
    """
    assert ("ACC709" in dict(named(text, tmp_path))) != is_right


def test_what_stands_in_for_an_accelerator_and_what_makes_one_for_other_scripts(tmp_path):
    text = """
    class Alone:
        def prepare(self, *objects):
            return objects

        def backward(self, loss):
            loss.backward()


    def make(steps, found=True):
        return Accelerator(gradient_accumulation_steps=steps) if found else Alone()
    """
    assert not named(text, tmp_path, "accelerate")
    train = """
    def train(model, loader, steps):
        accelerator, opt = make(steps), torch.optim.SGD(model.parameters(), lr=0.1)
        model, opt, loader = accelerator.prepare(model, opt, loader)
        for x, y in loader:
            F.mse_loss(model(x), y).backward()
            opt.step()
    """
    assert set(dict(named(dedent(text) + dedent(train), tmp_path, "accelerate"))) == {"ACC705", "ACC712"}


@pytest.mark.parametrize(
    ("limit", "drawn", "is_right"), [("0.5", "torch.rand(1)", True), ("torch.rand(1)", "0.5", False)]
)
def test_rows_that_are_changed_at_random(limit, drawn, is_right, tmp_path):
    """Each process has rows of its own anyway; what is drawn as the data set is made makes another one on each."""
    text = f"""
    from accelerate.utils import set_seed


    class Rows(torch.utils.data.Dataset):
        def __init__(self):
            self.limit = {limit}

        def __len__(self):
            return 60

        def __getitem__(self, index):
            x, y = data[index]
            return (x.flip(0) if {drawn} < self.limit else x), y


    accelerator = Accelerator()
    set_seed(3, device_specific=True)
    model = torch.nn.Linear(4, 1)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    model, opt, loader = accelerator.prepare(model, opt, DataLoader(Rows(), batch_size=4))
    for x, y in loader:
        opt.zero_grad()
        accelerator.backward(F.mse_loss(model(x), y))
        opt.step()
    """
    assert ("ACC705" in dict(named(text, tmp_path, "accelerate"))) != is_right


EMA = """
class Average:
    def __init__(self, model):
        self.model, self.taken = model, []

    def take(self):
        self.taken = [p.clone() for p in self.model.parameters()]

    def give_back(self):
        for one, p in zip(self.taken, self.model.parameters()):
            p.data.copy_(one.data)


accelerator = Accelerator()
model = torch.nn.Linear(4, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
model, opt, loader = accelerator.prepare(model, opt, DataLoader(data, batch_size=4))
average = Average(accelerator.unwrap_model(model))
for epoch in range(3):
    for x, y in loader:
        opt.zero_grad()
        accelerator.backward(F.mse_loss(model(x), y))
        opt.step()
    if accelerator.is_main_process:
        average.take()
        torch.save(accelerator.unwrap_model(model).state_dict(), "model.pt")
        average.give_back()
"""


def test_weights_that_the_main_process_takes_back(tmp_path):
    assert not named(EMA, tmp_path, "accelerate")
    later = EMA.replace(
        "        average.give_back()\n", "    if accelerator.is_main_process:\n        average.give_back()\n"
    )
    assert "ACC704" in dict(named(later, tmp_path, "accelerate"))


@pytest.mark.parametrize(
    ("added", "is_right"),
    [
        ("x.size(0) * dist.get_world_size()", True),
        ("len(x) * int(os.environ['WORLD_SIZE'])", True),
        ("x.size(0)", False),
        ("x.sum().item() * dist.get_world_size()", False),
        ("x.size(0) / dist.get_world_size()", False),
    ],
)
def test_a_count_times_the_number_of_processes(added, is_right, tmp_path):
    """That is how many samples all of them have gone through."""
    text = f"{GROUP}seen = 0\nfor x, y in loader:\n    seen += {added}\nif dist.get_rank() == 0:\n    print(seen)\n"
    assert named(text, tmp_path) == ([] if is_right else [("ACC701", "print(seen)")])


PARTS = """
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        {part}
        self.fc = torch.nn.Linear(4, 1)

    def forward(self, x):
        return self.fc(x + self.scale)


whole = DataLoader(data, batch_size=4)
model = DDP(Net())
opt = torch.optim.SGD(model.parameters(), lr=0.1)
total = 0.0
with torch.no_grad():
    for x, y in whole:
        total += model(x).sum().item()
if dist.get_rank() == 0:
    print(total)
"""


@pytest.mark.parametrize(
    ("part", "is_right"),
    [
        ("self.scale = torch.nn.Parameter(torch.rand(4))", True),
        ('self.register_buffer("scale", torch.rand(4))', True),
        ("self.scale = torch.rand(4)", False),
    ],
)
def test_drawn_parts_of_a_wrapped_model(part, is_right, tmp_path):
    """The wrapper sends the main process's parameters and buffers, and nothing else."""
    text = GROUP + PARTS.format(part=part) + LOOP
    assert (("ACC701", "print(total)") in named(text, tmp_path)) != is_right


STARRED = """
train, val = DataLoader(data, batch_size=8, shuffle=True), DataLoader(data, batch_size=8)
model = torch.nn.Linear(4, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
accelerator = Accelerator()
{prepared} = accelerator.prepare(model, opt, train, val)
{taken}
for x, y in train:
    opt.zero_grad()
    accelerator.backward(((model(x) - y) ** 2).mean())
    opt.step()
"""


@pytest.mark.parametrize(
    ("prepared", "taken", "is_right"),
    [
        ("model, opt, *loaders", "train, val = loaders", True),
        ("*trained, train, val", "model, opt = trained", True),
        ("model, *others, val", "opt, train = others", True),
        ("model, opt, *loaders", "val, train = loaders[1], DataLoader(data, batch_size=8)", False),
    ],
)
def test_results_of_which_one_name_takes_the_rest(prepared, taken, is_right, tmp_path):
    codes = {
        code for code, _ in named(STARRED.format(prepared=prepared, taken=taken), tmp_path, "accelerate")
    }
    assert (not codes) if is_right else ("ACC705" in codes)


@pytest.mark.parametrize(
    ("leaves", "is_right"),
    [
        ("sys.exit()", False),
        ("exit(0)", False),
        ("sys.exit(1)", True),
        ("sys.exit('no data')", True),
        ("pass", True),
    ],
)
def test_processes_that_end_while_the_others_wait(leaves, is_right, tmp_path):
    """After one that ends with an error, the launcher ends all."""
    text = f"import sys\n{GROUP}if dist.get_rank() > 0:\n    {leaves}\ndist.barrier()\n"
    assert named(text, tmp_path) == ([] if is_right else [("ACC704", "dist.barrier()")])


@pytest.mark.parametrize(
    ("counted", "is_right"),
    [
        ("random.choices(range(99), k=64)", True),
        ("torch.utils.data.random_split(data, [50, 10])[0]", True),
        ("set(random.choices(range(99), k=64))", False),
        ("random.choice([data, data[:9]])", False),
        ("torch.ones(60)[torch.rand(60) < 0.5]", False),
        ("random.choices(range(99), k=random.randint(2, 9))", False),
        ("random.choices(range(99), k=64)[: random.randint(2, 9)]", False),
    ],
)
def test_how_many_are_drawn(counted, is_right, tmp_path):
    """Others on each process are as many."""
    text = f"import random\naccelerator = Accelerator()\naccelerator.print(len({counted}))\n"
    assert bool(named(text, tmp_path, "accelerate")) != is_right


@pytest.mark.parametrize(
    ("of", "met", "is_right"),
    [
        ("model", "accelerator.save_state('state')", True),
        ("copy.deepcopy(model)", "accelerator.save_state('state')", False),
        ("copy.deepcopy(model)", "accelerator.wait_for_everyone()", False),
    ],
)
def test_an_optimizer_of_a_copy_where_all_meet_in_each_step(of, met, is_right, tmp_path):
    text = f"""
    import copy

    accelerator = Accelerator()
    model = torch.nn.Linear(4, 1)
    opt = torch.optim.SGD({of}.parameters(), lr=0.1)
    model, opt, loader = accelerator.prepare(model, opt, DataLoader(data, batch_size=4))
    for x, y in loader:
        opt.zero_grad()
        accelerator.backward(F.mse_loss(model(x), y))
        opt.step()
        {met}
    """
    assert ("ACC705" in dict(named(text, tmp_path, "accelerate"))) != is_right


@pytest.mark.parametrize(("flags", "is_right"), [("[True, False]", True), ("[True, True]", False)])
@pytest.mark.parametrize("over", ["enumerate(zip(['train', 'dev'], FLAGS))", "enumerate(PAIRS)"])
def test_loaders_by_mode(over, flags, is_right, tmp_path):
    """A loader that each process goes through as a whole gives all of them the same figure."""
    text = f"""
    dist.init_process_group("gloo")
    loaders, samplers = {{}}, {{}}
    FLAGS = {flags}
    PAIRS = [("train", FLAGS[0]), ("dev", FLAGS[1])]
    for number, (mode, flag) in {over}:
        samplers[mode] = DistributedSampler(data, shuffle=False) if flag else None
        loaders[mode] = DataLoader(data, batch_size=8, sampler=samplers[mode])
    train, dev = loaders["train"], loaders["dev"]
    model = DDP(torch.nn.Linear(4, 1))
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(3):
        for x, y in train:
            opt.zero_grad()
            F.mse_loss(model(x), y).backward()
            opt.step()
        total = 0.0
        with torch.no_grad():
            for x, y in dev:
                total += F.mse_loss(model(x), y).item()
        if total < 0.1:
            break
    """
    assert ("ACC704" in dict(named(text, tmp_path))) != is_right


def test_the_reason_for_a_figure_is_its_share_and_not_of_what_kind_it_is(tmp_path):
    shown = """
total = 0.0
for x, y in loader:
    total += F.mse_loss(model(x), y).item()
figures = {"loss": total}
for key, value in list(figures.items()):
    if torch.is_tensor(value):
        figures[key] = float(value)
if dist.get_rank() == 0:
    print(figures)
"""
    (found,) = findings(GROUP + NET + LOOP + shown, tmp_path)
    assert found.code == "ACC701"
    assert "is_tensor" not in found.message


@pytest.mark.parametrize(("again", "found"), [("random.seed(0)", []), ("torch.manual_seed(0)", ["ACC705"])])
def test_a_seed_for_all_after_those_of_each_process(again, found, tmp_path):
    """One stream is seeded alike, and then goes on as it was."""
    text = f"""
    import random
    from accelerate.utils import set_seed

    accelerator = Accelerator()
    set_seed(1, device_specific=True)
    before = random.getstate()
    {again}
    rows = random.choices([torch.ones(4)] * 100, k=50)
    random.setstate(before)
    loader = DataLoader(rows, batch_size=4)
    model = torch.nn.Linear(4, 1)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    model, opt, loader = accelerator.prepare(model, opt, loader)
    for x in loader:
        opt.zero_grad()
        accelerator.backward(model(x).mean())
        opt.step()
    """
    assert [code for code, _ in named(text, tmp_path, "accelerate")] == found


@pytest.mark.parametrize(("asked", "is_right"), [("RANK", True), ("DEBUG", False)])
def test_what_stands_in_for_torch_where_it_is_not_installed(asked, is_right, tmp_path):
    text = f"""
    import types

    try:
        import torch.distributed as dist
    except Exception:
        dist = types.SimpleNamespace(is_initialized=lambda: False, get_rank=lambda: 0)


    def is_main():
        if dist.is_initialized() and {asked == "RANK"}:
            return dist.get_rank() == 0
        if os.environ.get("{asked}") is not None:
            return int(os.environ.get("{asked}")) == 0
        return True


    dist.init_process_group("gloo")
    model = DDP(torch.nn.Linear(4, 1))
    if is_main():
        print("ready")
    """
    assert (named(text, tmp_path) == []) == is_right


@pytest.mark.parametrize(
    ("drawn", "shown", "is_right"),
    [
        ("random.sample(range(60), 3)", "data[one]", True),
        ("[random.uniform(0, 1)]", "one", False),
    ],
)
def test_samples_that_the_main_process_shows_for_a_look(drawn, shown, is_right, tmp_path):
    """Which ones it has drawn is of no account; a number that each process has drawn is another one on each."""
    text = f"""
    import random

    accelerator = Accelerator()
    for one in {drawn}:
        if accelerator.is_main_process:
            print(f"sample {{{shown}}}")
    model, loader = accelerator.prepare(torch.nn.Linear(4, 1), DataLoader(data, batch_size=4))
    """
    assert (named(text, tmp_path, "accelerate") == []) == is_right


@pytest.mark.parametrize(("number", "is_right"), [(0, True), (1, False)])
def test_meters_that_a_loop_takes_by_their_places(number, is_right, tmp_path):
    text = f"""
    class Meter:
        def __init__(self):
            self.sum, self.count = 0.0, 0

        def all_reduce(self):
            both = torch.tensor([self.sum, self.count])
            dist.all_reduce(both)
            self.sum, self.count = both.tolist()

    meters = [Meter(), Meter()]
    for x, y in loader:
        for meter in meters:
            meter.sum += F.mse_loss(model(x), y).item()
            meter.count += 1
    for i in range(len(meters)):
        if i == 0:
            meters[i].all_reduce()
    if dist.get_rank() == 0:
        print(meters[{number}].sum / meters[{number}].count)
    """
    assert (named(GROUP + NET + LOOP + dedent(text), tmp_path) == []) == is_right


@pytest.mark.parametrize(
    ("shown", "codes"),
    [
        ("torch.save(accelerator.unwrap_model(model)(noise), 'o.pt')", []),
        ("print(accelerator.unwrap_model(model)(noise).sum().item())", ["ACC701"]),
    ],
)
def test_what_is_sampled_from_noise_of_each_process_s_seed(shown, codes, tmp_path):
    text = f"""
    from accelerate.utils import set_seed

    accelerator = Accelerator()
    set_seed(0, device_specific=True)
    noise = torch.randn(8, 4, device=accelerator.device)
    model = accelerator.prepare(torch.nn.Linear(4, 1))
    if accelerator.is_main_process:
        {shown}
    """
    assert [code for code, _ in named(text, tmp_path, "accelerate")] == codes


@pytest.mark.parametrize(
    ("change", "is_right"),
    [
        ("config.device = torch.device(f'cuda:{os.environ[\"LOCAL_RANK\"]}')", True),
        ("config.device = torch.device('cuda:0')", False),
        ("config.other = torch.device(f'cuda:{os.environ[\"LOCAL_RANK\"]}')", False),
    ],
)
@pytest.mark.parametrize("joins", [0, 1])
def test_a_device_that_an_object_gets_in_place_of_the_one_of_its_class(joins, change, is_right, tmp_path):
    begin = "dist.init_process_group('nccl')\ntorch.cuda.set_device(int(os.environ['LOCAL_RANK']))\n"
    text = f"""
class Config:
    def __init__(self):
        self.device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
        self.other = None


{begin * joins}config = Config()
{begin * (not joins)}{change}
model = DDP(torch.nn.Linear(4, 1).to(config.device))
"""
    found = named(text, tmp_path)
    assert any("torch.cuda.is_available()" in line for _, line in found) != is_right


@pytest.mark.parametrize(
    ("call", "condition", "is_right"),
    [
        ("work(0, args)", "if args.ddp", True),
        ("work(1, args)", "if args.ddp", False),
        ("work(0, args)", "for _ in [0]", False),
    ],
)
def test_a_run_in_one_process_of_what_others_start(call, condition, is_right, tmp_path):
    text = f"""
    import argparse


    def join(args):
        dist.init_process_group("nccl", rank=args.rank, world_size=args.size)


    def work(gpu, args):
        {condition}:
            join(args)
        torch.cuda.set_device(gpu)
        model = torch.nn.Linear(4, 1).cuda(gpu)
        if args.ddp:
            model = DDP(model, device_ids=[gpu])
        opt = torch.optim.SGD(model.parameters(), 0.1)
        opt.zero_grad()
        model(data[:4][0].cuda(gpu)).sum().backward()
        opt.step()


    def main(args):
        {call}


    if __name__ == "__main__":
        parser = argparse.ArgumentParser()
        parser.add_argument("--ddp", action="store_true")
        main(parser.parse_args())
    """
    assert ("ACC714" in dict(named(text, tmp_path))) != is_right


@pytest.mark.parametrize(("word", "is_right"), [("gpu_id", True), ("device", True), ("part", False)])
def test_where_an_object_that_is_not_known_is_to_lie(word, is_right, tmp_path):
    text = f"""
    import sys

    dist.init_process_group("nccl")
    model = DDP(torch.nn.Linear(4, 1).cuda())
    opt = torch.optim.SGD(model.parameters(), 0.1)
    rows = eval(sys.argv[1])(["a.pt", "b.pt"], {word}=int(os.environ["LOCAL_RANK"]))
    for x in DataLoader(rows, sampler=DistributedSampler(rows, shuffle=False)):
        out = model(x)
        dist.all_reduce(out.detach().sum())
        opt.zero_grad()
        out.sum().backward()
        opt.step()
    """
    assert ("ACC704" not in dict(named(text, tmp_path))) == is_right


@pytest.mark.parametrize(
    ("default", "change", "is_right"),
    [
        ("cuda:0", "pass", False),
        ("cuda", "pass", True),
        ("cuda:0", 'args.device = f"cuda:{gpu}"', True),
        ("cuda:0", "if args.ddp: args.device = torch.device('cuda', gpu)", True),
    ],
)
def test_a_device_that_an_option_names_by_default(default, change, is_right, tmp_path):
    text = f"""
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--device", default="{default}")
parser.add_argument("--ddp", action="store_true")
args = parser.parse_args()
gpu = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(gpu)
dist.init_process_group("nccl")
{change}
model = DDP(torch.nn.Linear(4, 1).to(torch.device(args.device)), device_ids=[gpu])
"""
    found = [line for code, line in named(text, tmp_path) if code == "ACC714"]
    assert found == [text.strip().splitlines()[-1]] * (not is_right)


@pytest.mark.parametrize(
    ("line", "is_right"),
    [
        ('os.environ["MASTER_ADDR"] = subprocess.getoutput("head -1 hosts")', True),
        ('host = subprocess.getoutput("head -1 hosts"); os.environ["MASTER_ADDR"] = host.strip()', True),
        ('host = subprocess.getoutput("head -1 hosts")', False),
        ('subprocess.run(["rm", os.environ["LIST"]])', False),
    ],
)
def test_a_command_for_the_environment_of_each_process(line, is_right, tmp_path):
    found = named(f"import subprocess\n{line}\ndist.init_process_group('gloo')\n", tmp_path)
    assert found == ([] if is_right else [("ACC702", line)])


@pytest.mark.parametrize(
    ("shown", "is_right"),
    [
        ("rank * per", True),
        ('which["rank"] % 4', True),
        ("names[rank]", False),
        ("score(rank * per)", False),
    ],
)
def test_the_number_of_a_share(shown, is_right, tmp_path):
    text = f"""
    import sys
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    per, which, names = len(data) // dist.get_world_size(), {{"rank": rank}}, sys.argv
    score = getattr(data, "score")
    if rank == 0:
        print("from", {shown})
    """
    assert (named(dedent(text), tmp_path) == []) == is_right
