"""What is left where moves went: no comment about them, no hole, no `x = x`, no branches that say the same."""

from __future__ import annotations

import pytest

from tests.transforms.support import check_transformed, convert, place_of

CUDA = "if torch.cuda.is_available():\n    {}\nelse:\n    {}"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("# to the GPU\nx = x.cuda()\n\nz = 1", "z = 1"),
        (
            "# move tensors to GPU if CUDA is available\nx, y = x.cuda(), y.cuda()\n# sizes\nz = 1",
            "# sizes\nz = 1",
        ),
        ("# Variables\n# on the GPU\nx = x.cuda()\ny = y.cuda()\n\nz = 1", "z = 1"),
        ("z = 1\n# on the device\nx = x.cuda()", "z = 1"),
        # It tells of more than what went, or is more than a word about it.
        ("# to the GPU\nx = x.cuda()\nz = 1", "# to the GPU\nz = 1"),
        ("# the batch\nx = x.cuda()\n\nz = 1", "# the batch\n\nz = 1"),
        ("# x = x.cuda(0)\nx = x.cuda()\n\nz = 1", "# x = x.cuda(0)\n\nz = 1"),
        ("#### GPU ####\nx = x.cuda()\n\nz = 1", "#### GPU ####\n\nz = 1"),
        ("# one\n# two\n# three on a GPU\nx = x.cuda()\n\nz = 1", "# one\n# two\n# three on a GPU\n\nz = 1"),
    ],
)
def test_comments_of_moves_go_with_them(before: str, after: str) -> None:
    check_transformed("batch", f"w = 0\n\n{before}", f"w = 0\n\n{after}")


def test_an_annotated_move_goes_as_a_plain_one() -> None:
    check_transformed(
        "batch", "w = 0\nx: torch.Tensor = x.cuda()\nz: torch.Tensor = y.cuda()", "w = 0\nz: torch.Tensor = y"
    )


def test_no_hole_is_left_where_several_statements_went() -> None:
    before = "z = 1\n\nx = x.cuda()\ny = y.cuda()\n\nw = 2"
    check_transformed("batch", before, "z = 1\n\nw = 2")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("x, z, w = x.cuda(), z.view(-1), w.view(-1)", "z, w = z.view(-1), w.view(-1)"),
        ("z, x, w = z.view(-1), x.cuda(), w.view(-1)", "z, w = z.view(-1), w.view(-1)"),
        ("z, w, x, y = z.view(-1), w.view(-1), x.cuda(), y.cuda()", "z, w = z.view(-1), w.view(-1)"),
        ("x, z, w = (x).cuda(), z.view(-1), w.view(-1)", "z, w = z.view(-1), w.view(-1)"),
        ("x, z = x.cuda(), z.view(-1)", "z = z.view(-1)"),
    ],
)
def test_pairs_that_say_nothing_go(before: str, after: str) -> None:
    made = "z = w = torch.rand(4, 2, device=x.device)\n"
    check_transformed("batch", made + before, made + after)


@pytest.mark.parametrize("name", ["torch.autograd.Variable", "autograd.Variable", "Variable"])
def test_a_move_within_a_variable_goes_with_it(name: str) -> None:
    imports = "from torch import autograd\nfrom torch.autograd import Variable"
    before = f"held = [x, y]\na = {name}(held[0].cuda())\nb = {name}(held[1].cuda(non_blocking=True))"
    after = "held = [x, y]\na = held[0]\nb = held[1]"
    check_transformed("batch", before, after, imports=imports)
    kept = f"z = {name}(torch.ones(2)"
    check_transformed("batch", f"{kept}.cuda())", f"{kept}.to(accelerator.device))", imports=imports)


def test_branches_that_became_the_same_are_one() -> None:
    imports = "from torch.autograd import Variable"
    one = "a, b = Variable(x.cuda(), requires_grad=False), Variable(y.cuda(),\n        requires_grad=False)"
    other = "a, b = Variable(x, requires_grad=False), Variable(y, requires_grad=False)"
    check_transformed("batch", CUDA.format(one, other), "a, b = x, y", imports=imports)


def test_a_tensor_type_of_the_host_takes_a_batch_back_there() -> None:
    before = "x = x.type(torch.FloatTensor)\nx = x.cuda()"
    check_transformed("batch", before, before.replace("cuda()", "to(accelerator.device)"))
    check_transformed("batch", "x = x.type(torch.float32)\nx = x.cuda()", "x = x.type(torch.float32)")


def test_a_copy_for_numpy_makes_both_branches_the_same() -> None:
    setup = "cuda = torch.cuda.is_available()"
    before = "if cuda:\n    x = x.cuda()\na = x.numpy() if not cuda else x.cpu().numpy()"
    check_transformed("batch", before, "a = x.cpu().numpy()", setup=setup)


def test_the_import_stands_with_the_others_behind_constants() -> None:
    after = convert(imports='__author__ = "me"\nSEED = 1\nimport json').new_text
    assert place_of(after, "imports") == (
        '__author__ = "me"\nSEED = 1\nimport json\nfrom accelify.runtime import Accelerator'
    )


def test_what_is_none_is_moved_by_nobody() -> None:
    batch = "x = x.cuda() if x is not None else None\ny = y.cuda()"
    check_transformed("batch", batch, "")


def test_one_model_whether_it_is_wrapped_or_not() -> None:
    build = """
    use_cuda = torch.cuda.is_available()
    model = nn.Linear(4, 2)
    if use_cuda:
        model = nn.DataParallel(model.cuda())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    """
    end = """
    state = {'net': model.module if use_cuda else model}
    raw = model.module if hasattr(model, 'module') else model
    weights = model.state_dict() if not use_cuda else model.module.state_dict()
    """
    after = """
    state = {'net': accelerator.unwrap_model(model)}
    raw = accelerator.unwrap_model(model)
    weights = accelerator.unwrap_model(model).state_dict()
    """
    check_transformed("end", end, after, build=build)


def test_a_list_of_the_collate_function_stays_on_the_host() -> None:
    setup = """
    from torch.nn.utils.rnn import pack_padded_sequence
    def collate(samples):
        lengths = [len(s) for s in samples]
        return torch.stack(samples), lengths
    words = DataLoader(torch.randn(16, 5, 4), batch_size=8, collate_fn=collate)
    """
    end = """
    for part, lengths in words:
        packed = pack_padded_sequence(part.cuda(), lengths, batch_first=True)
        loss = model(packed.data).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    """
    text = convert(setup=setup, end=end).new_text
    assert "pack_padded_sequence(part, lengths, batch_first=True)" in text


def test_a_list_of_parts_is_no_model_of_its_own() -> None:
    build = """
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.head = nn.Linear(4, 4), nn.Linear(4, 2)
        def forward(self, x):
            return self.head(self.body(x))
    model = Net()
    quick = nn.ModuleList([model.head])
    groups = [{"params": quick.parameters(), "lr": 0.1}, {"params": model.body.parameters()}]
    optimizer = torch.optim.SGD(groups, lr=0.01)
    """
    assert "model, optimizer, loader = accelerator.prepare(" in convert(build=build).new_text


def test_branches_by_the_number_of_gpus_go_as_a_whole() -> None:
    build = """
    model = nn.Linear(4, 2)
    if args.num_gpu == 1:
        model.cuda()
    elif args.num_gpu > 1:
        model = nn.DataParallel(model.cuda(), device_ids=range(args.num_gpu))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    """
    after = """
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    """
    check_transformed("build", build, after, imports="from start import args")
