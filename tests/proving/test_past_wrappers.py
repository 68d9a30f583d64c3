"""Methods of a wrapped model that train it past the wrapper, which averages gradients only after its forward."""

from __future__ import annotations

import pytest

from tests.proving.several_programs import named

TEXT = """
class Coder(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Linear(4, 4)

    def hidden(self, x):
        return self.body(x)

    def encode(self, x):
        return torch.tanh(self.hidden(x))

    def forward(self, x):
        return self.encode(x)


accelerator = Accelerator()
coder, head = Coder(), torch.nn.Linear(4, 1)
opt = torch.optim.SGD([*coder.parameters(), *head.parameters()], lr=0.1)
coder, head, opt, loader = accelerator.prepare(coder, head, opt, DataLoader(data, batch_size=4))
for x, y in loader:
    opt.zero_grad()
    code = CODE
    accelerator.backward(F.mse_loss(head(code), y))
    opt.step()
"""


@pytest.mark.parametrize(
    "code", ["accelerator.unwrap_model(coder).encode(x)", "accelerator.unwrap_model(coder).body(x)"]
)
def test_what_trains_past_the_wrapper(code, tmp_path):
    """That another wrapped model is called beside it helps nothing: each wrapper waits for its own forward."""
    assert named(TEXT.replace("CODE", code), tmp_path, "accelerate") == [("ACC705", f"code = {code}")]


@pytest.mark.parametrize(
    "code",
    [
        "coder(x)",
        "coder(x) + accelerator.unwrap_model(coder).encode(x)",
        "x\n    with torch.no_grad():\n        code = accelerator.unwrap_model(coder).encode(x)",
    ],
)
def test_through_the_wrapper_or_without_gradients(code, tmp_path):
    assert named(TEXT.replace("CODE", code), tmp_path, "accelerate") == []


SHOWN = """
    if accelerator.is_main_process:
        with torch.no_grad():
            print(coder(x).mean().item())
"""


def test_a_look_through_the_wrapper_on_one_process_averages_nothing(tmp_path):
    code = "accelerator.unwrap_model(coder).encode(x)"
    found = named(TEXT.replace("CODE", code) + SHOWN, tmp_path, "accelerate")
    assert ("ACC705", f"code = {code}") in found


OF_LIBRARY = """
from diffusers import AutoencoderKL
accelerator = Accelerator()
coder = AutoencoderKL.from_pretrained("vae")
opt = torch.optim.SGD(coder.parameters(), lr=0.1)
coder, opt, loader = accelerator.prepare(coder, opt, DataLoader(data, batch_size=4))
for x, y in loader:
    opt.zero_grad()
    CODE
    accelerator.backward(F.mse_loss(code, y))
    opt.step()
"""


@pytest.mark.parametrize(
    ("code", "is_right"),
    [
        ("code = accelerator.unwrap_model(coder).encode(x)", False),
        ("code = accelerator.unwrap_model(coder).decode(coder(x))", True),
        ("code = coder(x)", True),
        ("with torch.no_grad():\n        code = accelerator.unwrap_model(coder).encode(x)", True),
    ],
)
def test_methods_of_a_library_s_model(code, is_right, tmp_path):
    found = named(OF_LIBRARY.replace("CODE", code), tmp_path, "accelerate")
    assert found == ([] if is_right else [("ACC705", code)])


BOTH = """
import argparse
p = argparse.ArgumentParser()
p.add_argument("--both", action="store_true")
args = p.parse_args()
accelerator = Accelerator()
body, head = torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)
if not args.both:
    body.requires_grad_(False)
opt = torch.optim.SGD([*body.parameters(), *head.parameters()], lr=0.1)
loader = DataLoader(data, batch_size=4)
if args.both:
    body, head, opt, loader = accelerator.prepare(body, head, opt, loader)
else:
    head, opt, loader = accelerator.prepare(head, opt, loader)
for x, y in loader:
    opt.zero_grad()
    code = CODE
    accelerator.backward(F.mse_loss(head(code), y))
    opt.step()
"""


@pytest.mark.parametrize("code", ["body(x)", "accelerator.unwrap_model(body)(x)"])
def test_a_model_that_is_prepared_where_it_is_trained(code, tmp_path):
    found = named(BOTH.replace("CODE", code), tmp_path, "accelerate")
    assert found == ([] if code == "body(x)" else [("ACC705", f"code = {code}")])


PARTS = """
accelerator = Accelerator()
coder, net = torch.nn.Linear(4, 4), torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 1))
coder.requires_grad_(False)
net.requires_grad_(False)
head = HEAD
head.requires_grad_(True)
opt = torch.optim.SGD(head.parameters(), lr=0.1)
head, opt, loader = accelerator.prepare(head, opt, DataLoader(data, batch_size=4))
for x, y in loader:
    out = net(coder(x))
    accelerator.backward(F.mse_loss(CALL, y))
    opt.step()
    opt.zero_grad()
"""


@pytest.mark.parametrize(
    ("head", "call", "is_right"),
    [("torch.nn.Linear(1, 1)", "head(out)", True), ("net[1]", "out", False)],
)
def test_a_model_none_of_whose_parts_is_trained_needs_no_wrapper(head, call, is_right, tmp_path):
    found = named(PARTS.replace("HEAD", head).replace("CALL", call), tmp_path, "accelerate")
    assert found == ([] if is_right else [("ACC705", "out = net(coder(x))")])


BESIDE = """
accelerator = Accelerator()
body, head = torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)
opt = torch.optim.SGD(PARAMETERS, lr=0.1)
head, opt, loader = accelerator.prepare(head, opt, DataLoader(data, batch_size=4))
for x, y in loader:
    opt.zero_grad()
    code = body(x)
    loss = F.mse_loss(head(code), y)
    accelerator.backward(loss)
    losses = accelerator.gather(loss.detach())
    opt.step()
"""
BY_HAND = "    for one in body.parameters():\n        one.grad = accelerator.reduce(one.grad, 'mean')\n    opt.step()"


@pytest.mark.parametrize(
    ("parameters", "is_trained"),
    [
        ("[*head.parameters(), *body.parameters()]", True),
        ("list(head.parameters()) + list(body.parameters())", True),
        ("[{'params': head.parameters()}, {'params': body.parameters(), 'lr': 0.2}]", True),
        ("[one for part in (head, body) for one in part.parameters()]", True),
        ("head.parameters()", False),
    ],
)
def test_a_trained_model_beside_a_prepared_one(parameters, is_trained, tmp_path):
    text = BESIDE.replace("PARAMETERS", parameters)
    assert named(text, tmp_path, "accelerate") == [("ACC705", "code = body(x)")] * is_trained
    assert named(text.replace("    opt.step()", BY_HAND), tmp_path, "accelerate") == []


@pytest.mark.parametrize(("of", "found"), [("coder", ["ACC705"]), ("head", [])])
def test_what_no_optimizer_trains_has_no_gradients_to_average(of, found, tmp_path):
    text = TEXT.replace("[*coder.parameters(), *head.parameters()]", f"{of}.parameters()")
    text = text.replace("CODE", "accelerator.unwrap_model(coder).encode(x)")
    assert [code for code, _ in named(text, tmp_path, "accelerate")] == found


OF_INPUTS = """
dist.init_process_group("gloo")
model = DDP(torch.nn.Linear(4, 1))
opt = torch.optim.SGD(model.parameters(), lr=0.1)


def weighted(x):
    x = x.clone().requires_grad_()
    {called}(x).sum().backward()
    return x.detach() * {taken}


for x, y in DataLoader(data, batch_size=4, sampler=DistributedSampler(data, shuffle=False)):
    {before}
    try:
        x = weighted(x)
    except RuntimeError:
        pass
    {after}
    F.mse_loss(model(x), y).backward()
    opt.step()
"""
ZERO, OF_X = "opt.zero_grad()", "x.grad.abs()"


@pytest.mark.parametrize(
    ("called", "taken", "before", "after", "is_right"),
    [
        ("model.module", OF_X, "pass", ZERO, True),
        ("model.module", OF_X, ZERO, "pass", False),
        ("model", OF_X, "pass", ZERO, False),
        ("model.module", "2", "pass", ZERO, False),
    ],
)
def test_gradients_of_an_input(called, taken, before, after, is_right, tmp_path):
    """What they leave in the weights is set to zero, and without the wrapper no process waits for another one."""
    text = OF_INPUTS.format(called=called, taken=taken, before=before, after=after)
    codes = {code for code, _ in named(text, tmp_path)}
    assert bool(codes & {"ACC704", "ACC705"}) != is_right
