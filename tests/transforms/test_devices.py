"""Device choices, moves and selections."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from accelify.conversion import ConvertOptions
from accelify.convert import convert_paths, convert_project, convert_source
from accelify.source import Source
from tests.transforms.support import PATH, check_noop, check_transformed, codes, convert, frame, prints_by_all

DEVICE = "device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')"
CHOSEN = "accelerator = Accelerator()\ndevice = accelerator.device"
SGD = "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)"


@pytest.mark.parametrize(
    "snippet",
    [
        "x = x.double()\ny = y.to(torch.int64)",
        "x = x.to(dtype=torch.float64)",
        "noise = torch.randn(x.size(0), 4, device=device)",
        "noise = torch.randn(x.size(0), 4).to(device)",
        "noise = x.new_zeros(3)",
        "a = x.cpu().numpy()",
        "where = x.device",
    ],
)
def test_what_is_right_already_stays(snippet: str) -> None:
    check_noop("batch", snippet, "ACC104", "ACC113", setup=DEVICE)


@pytest.mark.parametrize(
    "snippet",
    [
        DEVICE,
        "device = torch.device('cuda', 0)",
        "if torch.cuda.is_available():\n    device = torch.device('cuda')\nelse:\n    device = torch.device('cpu')",
    ],
)
def test_choices(snippet: str) -> None:
    check_transformed("setup", snippet, CHOSEN)


CHOSEN_TEXT = "'cuda' if torch.cuda.is_available() else 'cpu'"
HELPER = """def pick() -> str:
    if torch.cuda.is_available():
        return "cuda"
    return "cpu"


"""
ASKED = """parser = argparse.ArgumentParser()
parser.add_argument("--device"{})
args = parser.parse_args()
"""


@pytest.mark.parametrize(
    ("snippet", "device"),
    [
        (f"device = {CHOSEN_TEXT}", "accelerator.device.type"),
        (f"{HELPER}device = pick()", "accelerator.device.type"),
        (f"{HELPER}device = torch.device(pick())", "accelerator.device"),
        ("device = 'cuda:0'", "str(accelerator.device)"),
        (f"{ASKED.format(', choices=[chr(99), chr(100)]')}device = args.device", "accelerator.device.type"),
        (f"{ASKED.format(', default=str(1)')}device = args.device", "accelerator.device"),
        (ASKED.format(f", default={CHOSEN_TEXT}") + "device = args.device", "accelerator.device.type"),
        (f"{ASKED.format(', type=torch.device')}device = args.device", "accelerator.device"),
        (f"{ASKED.format('')}device = args.device\nkind = device.type", "accelerator.device"),
    ],
)
def test_in_the_place_of_a_text_comes_a_text(snippet: str, device: str) -> None:
    """Whoever compares it, looks it up or writes it out finds what was there."""
    use = "x, y = x.to(device), y.to(device)\nnoise = torch.randn(3, device=device)"
    text = convert(setup=snippet, imports="import argparse", batch=use).new_text
    assert f"device = {device}\n" in text


@pytest.mark.parametrize("gpu", ["0", "args.gpu", "gpu", "'cuda:1'", "args.gpu_ids[0]", "gpus[0]"])
def test_a_gpu_that_is_selected_for_a_block(gpu: str) -> None:
    setup = "import argparse\nargs = argparse.ArgumentParser().parse_args()\ngpu = args.gpu"
    check_transformed(
        "end",
        f"with torch.cuda.device({gpu}):\n    n = 1",
        "with torch.cuda.device(-1):\n    n = 1",
        setup=setup,
    )


@pytest.mark.parametrize("gpu", ["-1", "x.device", "x.get_device()", "device", "places[0]"])
def test_the_gpu_of_a_tensor_stays(gpu: str) -> None:
    check_noop("end", f"with torch.cuda.device({gpu}):\n    n = 1", "ACC113")


@pytest.mark.parametrize(
    ("text", "given"), [("cuda", "accelerator.device.type"), ("cuda:0", "str(accelerator.device)")]
)
def test_functions_of_other_libraries_are_given_text(text: str, given: str) -> None:
    imports = "from torchsummary import summary"
    ready = f"summary(model, (4,), device={text!r})\nnoise = torch.zeros(4, device={text!r})"
    after = convert(ready=ready, imports=imports).new_text
    assert f"summary(model, (4,), device={given})\n" in after
    assert "torch.zeros(4, device=accelerator.device)\n" in after


def test_an_option_that_names_the_device_may_say_the_cpu() -> None:
    told = "args = argparse.ArgumentParser().parse_args()"
    before = f"{told}\ndevice = torch.device(args.device if torch.cuda.is_available() else 'cpu')"
    after = f'{told}\naccelerator = Accelerator(cpu=str(args.device) == "cpu")\ndevice = accelerator.device'
    check_transformed("setup", before, after, imports="import argparse")


def test_the_name_of_a_gpu_that_is_used_beside_the_device_made_of_it() -> None:
    before = "GPU = 'cuda:0'\ndevice = torch.device(GPU)"
    kept = "GPU = 'cuda:0'\naccelerator = Accelerator(cpu=str(GPU) == \"cpu\")\ndevice = accelerator.device"
    check_transformed("setup", before, kept, batch="x, y = x.to(device), y.to(device)")
    after = "accelerator = Accelerator()\nGPU = str(accelerator.device)\ndevice = accelerator.device"
    check_transformed("setup", before, after, end="noise = torch.randn(4, device=GPU)")


def test_a_choice_among_other_values() -> None:
    chosen = "accelerator = Accelerator()\nrate, device, size = 0.1, accelerator.device, 8"
    check_transformed("setup", f"rate, device, size = 0.1, {DEVICE.removeprefix('device = ')}, 8", chosen)
    told = "args = argparse.ArgumentParser().parse_args()"
    before = f"{told}\nrate, device = 0.1, torch.device('cuda:0' if args.gpu else 'cpu')"
    after = f"{told}\naccelerator = Accelerator(cpu=not args.gpu)\nrate, device = 0.1, accelerator.device"
    check_transformed("setup", before, after, imports="import argparse")


def test_the_cpu_stays_the_cpu() -> None:
    after = "accelerator = Accelerator(cpu=True)\ndevice = accelerator.device"
    check_transformed("setup", "device = torch.device('cpu')", after)


@pytest.mark.parametrize(
    "snippet",
    [
        "x, y = x.to(device), y.to(device)",
        "x = x.cuda()\ny = y.cuda()",
        "x = x.to(device, non_blocking=True)",
        "x = x.cuda(non_blocking=True)  # é",
        "if torch.cuda.is_available():\n    x, y = x.cuda(), y.cuda()",
    ],
)
def test_moves_of_batches_go(snippet: str) -> None:
    check_transformed("batch", snippet, "", setup=DEVICE)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("x = x.view(-1, 4).to(device)", "x = x.view(-1, 4)"),
        ("noise = torch.randn(3).cuda()", "noise = torch.randn(3).to(accelerator.device)"),
        ("noise = (x + 1).cuda()", "noise = (x + 1).to(accelerator.device)"),
        ("noise = torch.randn(3, device='cuda')", "noise = torch.randn(3, device=accelerator.device)"),
        ("é = torch.ones(2).cuda(0); n = 'ü'", "é = torch.ones(2).to(accelerator.device); n = 'ü'"),
    ],
)
def test_moves_that_leave_something(before: str, after: str) -> None:
    check_transformed("batch", before, after, setup=DEVICE)


@pytest.mark.parametrize(
    "model",
    [
        "model = nn.Linear(4, 2).to(device)",
        "model = nn.Linear(4, 2)\nmodel.cuda()",
        "model = nn.Linear(4, 2)\nmodel = model.cuda()",
        "model = nn.Linear(4, 2)\nmodel.to(device)",
        "model = nn.Linear(4, 2)\nmodel.to(device);",
        "model = nn.Linear(4, 2)\nif torch.cuda.is_available():\n    model = model.cuda()",
    ],
)
def test_models_are_placed_by_prepare(model: str) -> None:
    check_transformed("build", f"{model}\n{SGD}", f"model = nn.Linear(4, 2)\n{SGD}", setup=DEVICE)


@pytest.mark.parametrize(
    ("there", "back"),
    [
        ("model.cpu()", "model.to(device)"),
        ("model.eval().cpu()", "model.to(device).train()"),
        ("model = model.to('cpu')", "model = model.to(device)"),
    ],
)
def test_a_model_that_was_taken_to_the_cpu_comes_back(there: str, back: str) -> None:
    conversion = convert(build=f"model = nn.Linear(4, 2)\n{SGD}", setup=DEVICE, epoch=f"{there}\n{back}")
    assert conversion.status == "converted", conversion.reason
    assert f"{there}\n    {back}\n" in conversion.new_text


FILL = """
import numpy as np
def fill(net, weights):
    for p, w in zip(net.parameters(), weights):
        {write}
"""


@pytest.mark.parametrize(
    ("write", "comes_back"),
    [
        ("p.data = torch.from_numpy(w)", True),
        ("new = torch.tensor(w)\n        p.data = new.float()", True),
        ("net.head.weight = nn.Parameter(torch.Tensor(w))", True),
        ("p.data.copy_(torch.from_numpy(w))", False),
        ("p.data = torch.from_numpy(w).to(p.device)", False),
        ("p.data = torch.zeros(3, device=p.device)", False),
        ("p.data = p.data * w", False),
    ],
)
def test_a_model_that_is_filled_from_the_host_comes_back(write: str, comes_back: bool) -> None:
    setup = DEVICE + FILL.format(write=write)
    epoch = "fill(model, [np.zeros((2, 4)), np.zeros(2)])\nmodel.to(device)"
    conversion = convert(build=f"model = nn.Linear(4, 2).to(device)\n{SGD}", setup=setup, epoch=epoch)
    assert conversion.status == "converted", conversion.reason
    assert "model = nn.Linear(4, 2)\n" in conversion.new_text
    assert ("    model.to(device)\n" in conversion.new_text) == comes_back


GROWS = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.Sequential(nn.Linear(4, 2))
        self.size = 2
    def grow(self):
        {body}
    def forward(self, x):
        return self.blocks(x)
"""


@pytest.mark.parametrize(
    ("body", "comes_back"),
    [
        ("self.blocks = nn.Sequential(*self.blocks, nn.Linear(2, 2))", True),
        ("self.blocks.append(nn.Linear(2, 2))", True),
        ("self.blocks.append(nn.Linear(2, 2).cuda())", False),
        ("self.size = self.size + 1", False),
    ],
)
def test_a_model_that_grows_behind_prepare_is_moved_again(body: str, comes_back: bool) -> None:
    setup = DEVICE + GROWS.format(body=body)
    build = f"model = Net().to(device)\n{SGD}"
    conversion = convert(build=build, setup=setup, epoch="model.grow()\nmodel.to(device)")
    assert conversion.status == "converted", conversion.reason
    assert "model = Net()\n" in conversion.new_text
    assert ("    model.to(device)\n" in conversion.new_text) == comes_back


OWN_WEIGHTS = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(4, 2)
        self.head.weight = nn.Parameter(torch.ones(2, 4))
        self.reset()

    def reset(self):
        self.head.bias = nn.Parameter(torch.zeros(2))

    def forward(self, x):
        return self.head(x)

"""


def test_a_model_that_makes_its_own_weights_is_moved_by_prepare() -> None:
    setup, build = DEVICE + OWN_WEIGHTS, f"model = Net().to(device)\n{SGD}"
    conversion = convert(build=build, setup=setup, epoch="model.to(device)")
    assert conversion.status == "converted", conversion.reason
    assert "model.to(device)" not in conversion.new_text
    conversion = convert(build=build, setup=setup, epoch="model.reset()\nmodel.to(device)")
    assert "    model.to(device)\n" in conversion.new_text


def test_a_criterion_is_moved_still() -> None:
    check_transformed(
        "ready",
        "criterion = nn.CrossEntropyLoss().cuda()",
        "criterion = nn.CrossEntropyLoss().to(accelerator.device)",
        setup=DEVICE,
        loss="loss = criterion(model(x), y)",
    )


def test_selections() -> None:
    check_transformed("setup", f"{DEVICE}\ntorch.cuda.set_device(1)", CHOSEN)
    conversion = convert(setup=f"os.environ['CUDA_VISIBLE_DEVICES'] = '1'\n{DEVICE}")
    assert "os.environ['CUDA_VISIBLE_DEVICES'] = '1'" in conversion.new_text
    assert "ACC113" in codes(conversion)


def test_the_wish_for_a_gpu_is_read_where_models_are_made() -> None:
    setup = """
args = argparse.Namespace(gpu=None)
args.cuda = args.gpu is not None
class Data:
    def __init__(self, cuda):
        self.cuda = cuda
    def get(self):
        x = torch.zeros(4)
        return x.cuda() if self.cuda else x
"""
    conversion = convert(
        imports="import argparse",
        setup=setup,
        build=f"model = nn.Linear(4, 2)\nif args.cuda:\n    model.cuda()\n{SGD}",
    )
    assert conversion.status == "converted", conversion.reason
    assert "Accelerator(cpu=args.gpu is None)" in conversion.new_text


def test_a_chain_of_branches_that_ends_on_the_cpu() -> None:
    setup = """
    if args.device == "gpu" and torch.cuda.is_available():
        device = torch.device("cuda")
    elif args.device == "gpu":
        device = torch.device("cpu")
    else:
        device = torch.device("cpu")
    """
    after = 'accelerator = Accelerator(cpu=args.device != "gpu")\ndevice = accelerator.device'
    check_transformed("setup", setup, after, imports="from start import args")


def test_what_the_machine_lacks_is_no_wish() -> None:
    setup = """args = argparse.Namespace(no_cuda=False)
device = "cpu" if (not torch.cuda.is_available() or args.no_cuda) else "cuda:0"
"""
    conversion = convert(
        imports="import argparse", setup=setup, build=f"model = nn.Linear(4, 2).to(device)\n{SGD}"
    )
    assert "Accelerator(cpu=args.no_cuda)" in conversion.new_text


def test_both_branches_of_a_flag_say_nothing_once_the_moves_are_gone() -> None:
    check_transformed(
        "batch",
        "if use_cuda:\n    x, y = x.cuda(), y.cuda()\nelse:\n    x, y = x.cpu(), y.cpu()",
        "",
        setup="use_cuda = torch.cuda.is_available()",
    )


def test_a_choice_in_both_branches_is_made_once() -> None:
    check_transformed(
        "setup",
        """
        if torch.cuda.is_available():
            device = torch.device("cuda")
            torch.backends.cudnn.benchmark = True
        else:
            device = torch.device("cpu")
        """,
        """
        accelerator = Accelerator()
        device = accelerator.device
        if torch.cuda.is_available():
            torch.backends.cudnn.benchmark = True
        """,
    )


def test_a_choice_in_every_branch_is_made_once() -> None:
    check_transformed(
        "setup",
        """
        if torch.cuda.is_available():
            torch.cuda.set_device(0)
            device = torch.device("cuda:0")
            torch.backends.cudnn.benchmark = True
        elif torch.backends.mps.is_available():
            device = torch.device("mps")
        else:
            device = torch.device("cpu")
        """,
        """
        accelerator = Accelerator()
        device = accelerator.device
        if torch.cuda.is_available():
            torch.backends.cudnn.benchmark = True
        """,
    )


def test_of_two_parts_the_one_that_stays() -> None:
    check_transformed("batch", "x, y = x.cuda(), torch.clamp(y, 0)", "y = torch.clamp(y, 0)")


def test_the_move_of_an_argument_stays_one() -> None:
    check_transformed(
        "ready",
        """
        weight = torch.ones(2)
        if torch.cuda.is_available():
            criterion = nn.CrossEntropyLoss(weight.cuda())
        else:
            criterion = nn.CrossEntropyLoss(weight)
        """,
        """
        weight = torch.ones(2)
        criterion = nn.CrossEntropyLoss(weight.to(accelerator.device))
        """,
        setup=DEVICE,
        loss="loss = criterion(model(x), y)",
    )


def test_a_cpu_beside_the_device_is_a_place_to_fetch_to() -> None:
    conversion = convert(setup=f"{DEVICE}\nhost = torch.device('cpu')", batch="kept = x.to(host)")
    assert "accelerator = Accelerator()\ndevice = accelerator.device\nhost = torch.device('cpu')" in (
        conversion.new_text
    )
    assert "kept = x.to(host)" in conversion.new_text


def test_parts_of_a_model_that_are_kept_on_the_cpu() -> None:
    net = """\
        class Net(nn.Module):
            def __init__(self, device, other):
                super().__init__()
                self.layer = nn.Linear(4, 2).to(device)
                self.scale = nn.Parameter(torch.ones(1)).to(other)
                self.shift = nn.Parameter(torch.zeros(1)).to(device)

            def forward(self, x):
                return self.layer(x)

        """
    setup = f"{textwrap.dedent(net)}\n{DEVICE}\nhost = torch.device('cpu')"
    build = "model = Net(device, host)\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)"
    conversion = convert(setup=setup, build=build, loss="loss = (model(x).to(host) * model.scale).mean()")
    assert "host = accelerator.device" in conversion.new_text
    # A parameter that is moved to another device is a copy: none of the model's.
    assert "self.scale = nn.Parameter(torch.ones(1))\n" in conversion.new_text
    assert "self.shift = nn.Parameter(torch.zeros(1)).to(device)\n" in conversion.new_text
    assert [
        "`host` keeps parts of `Net`" in f.message for f in conversion.remaining if f.code == "ACC103"
    ] == [True]


def test_a_device_in_two_statements_is_one() -> None:
    before = "device = 'cpu'\nif torch.cuda.is_available():\n    device = torch.cuda.current_device()"
    check_transformed("setup", before, f"{CHOSEN}.type", batch="x, y = x.to(device), y.to(device)")


def test_a_device_that_an_if_chooses_right_before_it_is_made_is_one() -> None:
    parsed = "args = argparse.ArgumentParser().parse_args()\n"
    before = (
        "if not torch.cuda.is_available():\n    args.device = 'cpu'\nargs.device = torch.device(args.device)"
    )
    after = 'accelerator = Accelerator(cpu=str(args.device) == "cpu")\nargs.device = accelerator.device'
    batch = "x, y = x.to(args.device), y.to(args.device)"
    check_transformed("setup", parsed + before, parsed + after, batch=batch, imports="import argparse")


@pytest.mark.parametrize(
    ("read", "device"),
    [
        ("if device == 'cuda': print(1)", "accelerator.device.type"),
        ("if device.startswith('cuda'): print(1)", "accelerator.device.type"),
        ("if 'cuda' in device: print(1)", "accelerator.device.type"),
        ("print(device.split(':')[0])", "str(accelerator.device)"),
        ("name = device + '.pt'", "str(accelerator.device)"),
        ("print(device)", "accelerator.device.type"),
    ],
)
def test_a_device_that_is_read_as_text(read: str, device: str) -> None:
    choice = "device = 'cuda' if torch.cuda.is_available() else 'cpu'"
    assert f"device = {device}\n" in convert(setup=choice, batch=read).new_text


@pytest.mark.parametrize(
    "use",
    [
        "show()",
        "print(score(model))",
        "shadow = copied(model)",
    ],
)
def test_a_model_that_is_used_before_prepare_keeps_its_move(use: str) -> None:
    functions = (
        "def show(): print(model(torch.zeros(1, 4).to(device)))\n"
        "def score(net): return net(torch.zeros(1, 4).to(device)).sum()\n"
        "def copied(net): return [p.data.clone() for p in net.parameters()]\n"
    )
    build = f"model = nn.Linear(4, 2)\nmodel.to(device)\n{use}\n{SGD}\n"
    conversion = convert(setup=f"{DEVICE}\n{functions}", build=build)
    assert "model.to(accelerator.device)" in conversion.new_text or "model.to(device)" in conversion.new_text


def test_devices_that_are_tried_out_stay() -> None:
    conversion = convert(ready="for device in ['cpu', 'cuda']:\n    model.to(device)\n")
    assert "    model.to(device)" in conversion.new_text
    assert "ACC113" in codes(conversion)


def test_a_choice_in_a_function_of_its_own_is_made_there() -> None:
    setup = """
    def choose():
        if torch.cuda.is_available():
            device = torch.device("cuda")
        else:
            device = torch.device("cpu")
        return device


    def run(device):
        model = nn.Linear(4, 2).to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for x in torch.ones(3, 2, 4):
            loss = model(x.to(device)).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


    def main():
        device = choose()
        run(device)


    main()
    """
    text = convert(setup=setup).new_text
    assert "def choose():\n    device = accelerator.device\n    return device\n" in text
    assert "    device = choose()\n" in text


def test_options_that_are_set_later_are_waited_for() -> None:
    build = """
    model = nn.Linear(4, 2)
    if opt.use_gpu:
        model.cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    """
    later = "for name, value in given.items():\n    setattr(opt, name, value)"
    setup = f"class Options:\n    use_gpu = True\nopt = Options()\n{later}"
    conversion = convert(setup=setup, build=build, imports="from start import given")
    above, _, below = conversion.new_text.partition("accelerator = Accelerator(cpu=not opt.use_gpu)")
    assert later in above
    assert "model = nn.Linear" in below
    assert "ACC410" not in codes(conversion)


def test_options_that_a_function_sets_later_are_named() -> None:
    script = """
    import torch
    from torch import nn
    class Options:
        use_gpu = True
    opt = Options()
    def run(model, x, **given):
        for name, value in given.items():
            setattr(opt, name, value)
        return model(x.cuda() if opt.use_gpu else x)
    model = nn.Linear(4, 2)
    if opt.use_gpu:
        model.cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for i in range(3):
        loss = run(model, torch.ones(8, 4), use_gpu=True).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    """
    conversion = convert_source(Source.from_text(textwrap.dedent(script), PATH), ConvertOptions())
    assert "accelerator = Accelerator(cpu=not opt.use_gpu)" in conversion.new_text
    assert "ACC410" in codes(conversion)


def test_what_stands_beside_a_device_in_a_dictionary_is_none() -> None:
    setup = """
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    def rate(fin, step):
        return min(fin * step / 10, fin)
    def weight(flag, **given):
        return rate(given["fin"], 3) if flag else given["fin"]
    """
    loss = "loss = F.cross_entropy(model(x), y) * weight(True, device=device, **vars(args))"
    text = convert(setup=setup, loss=loss, imports="from start import args").new_text
    assert 'return rate(given["fin"], 3) if flag else given["fin"]' in text


def test_an_option_that_is_asked_for_the_kind_of_device() -> None:
    build = """
    model = nn.Linear(4, 2)
    if args.mode == "gpu":
        model = model.cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    """
    text = convert(imports="from start import args", build=build).new_text
    assert 'accelerator = Accelerator(cpu=args.mode != "gpu")' in text


def test_torchscript_knows_no_accelerator() -> None:
    setup = """
    class Net(torch.jit.ScriptModule):
        def __init__(self):
            super().__init__()
            self.body = nn.Linear(4, 2)
        @torch.jit.script_method
        def forward(self, x):
            return self.body(x + torch.zeros(x.size(0), 4).cuda())
    @torch.jit.script
    def scaled(x):
        return x * torch.ones(4).cuda()
    """
    build = "model = Net().cuda()\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)"
    text = convert(setup=setup, build=build, batch="x, y = scaled(x).cuda(), y.cuda()").new_text
    assert "x + torch.zeros(x.size(0), 4).cuda()" in text
    assert "x * torch.ones(4).cuda()" in text


@pytest.mark.parametrize(
    ("early", "kept"),
    [
        ("print(model.first(torch.ones(1, 4, device=device)))", True),
        ("print(model(torch.ones(1, 4, device=device)))", True),
        ("print(model.up(torch.ones(1, 4, device=device)))", True),
        ("print(model.first.weight.shape)", False),
        ("print(model.size())", False),
    ],
)
def test_a_model_of_which_a_part_is_run_before_prepare_is_moved_by_the_script(early: str, kept: bool) -> None:
    build = f"""
device = torch.device("cuda")
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 2)
    def forward(self, x):
        return self.first(x)
    def up(self, x):
        return 2 * self.first(x)
    def size(self):
        return self.first.weight.numel()
model = Net()
model = model.to(device)
{early}
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""
    assert ("model = model.to(device)" in convert(build=build).new_text) == kept


@pytest.mark.parametrize(
    ("test", "cpu"),
    [
        ("not config['no_cuda']", "config['no_cuda']"),
        ("config['cuda']", "not config['cuda']"),
        ("config['model']['use_gpu']", "not config['model']['use_gpu']"),
        ("config.get('num_gpu', 0) > 0", "config.get('num_gpu', 0) <= 0"),
        ("torch.cuda.is_available() and config['num_gpu'] >= 1", "config['num_gpu'] < 1"),
        ("config.ngpu != 0", "config.ngpu == 0"),
        ("config.gpu >= 0", "config.gpu < 0"),
        ("len(config.gpu_ids) > 0", "len(config.gpu_ids) <= 0"),
        ("not config.no_cuda", "config.no_cuda"),
    ],
)
def test_switches_by_an_entry_or_a_number_of_gpus(test: str, cpu: str) -> None:
    move = "x, y = x.cuda(), y.cuda()"
    build = f"model = nn.Linear(4, 2)\nif {test}:\n    model.cuda()\n{SGD}"
    given = {"imports": "from start import config", "batch": f"if {test}:\n    {move}"}
    assert f"accelerator = Accelerator(cpu={cpu})" in convert(build=build, **given).new_text
    other = f"model = nn.Linear(4, 2)\nif not ({test}):\n    pass\nelse:\n    model.cuda()\n{SGD}"
    text = convert(build=other, imports=given["imports"]).new_text
    assert f"accelerator = Accelerator(cpu={cpu})" in text


@pytest.mark.parametrize(
    "build",
    [
        "if config['gpu'] >= 0:\n    model.cuda(config['gpu'])\nelse:\n    model.cuda()",
        "n_gpu = torch.cuda.device_count()\nif n_gpu > 0:\n    model.cuda()",
        "if config.resume:\n    model.load_state_dict(torch.load(config.resume))\n    model.cuda()",
        "if config.n_gpu > 1:\n    model = nn.DataParallel(model).cuda()\nelse:\n    model.cuda()",
        "model.cuda()\nif config.fast:\n    model.cuda()",
        "model.cuda()\nif config['gpu'] >= 0:\n    weight = torch.ones(2).cuda()",
    ],
)
def test_what_switches_no_gpu_off(build: str) -> None:
    build = f"model = nn.Linear(4, 2)\n{build}\n{SGD}"
    assert "accelerator = Accelerator()" in convert(build=build, imports="from start import config").new_text


@pytest.mark.parametrize(
    ("move", "cpu"),
    [
        ("if config.gpu is not None:\n    model.cuda(config.gpu)", "config.gpu is None"),
        ("if config.where == 'card':\n    model.to('cuda')", "config.where != 'card'"),
        ("if config.cuda.startswith('True'):\n    model.cuda()", "not config.cuda.startswith('True')"),
        (
            "if config['gpu'] > 0 and config['fast']:\n    print('fast')\n    model.cuda()",
            "not (config['gpu'] > 0 and config['fast'])",
        ),
        ("model = model.cuda() if config.fast else model", "not config.fast"),
        (
            "def put(net, c):\n    if c.fast == 'yes':\n        net.cuda()\n    return net\nmodel = put(model, config)",
            "config.fast != 'yes'",
        ),
    ],
)
def test_the_condition_under_which_the_model_moves(move: str, cpu: str) -> None:
    build = f"model = nn.Linear(4, 2)\n{move}\n{SGD}"
    text = convert(build=build, imports="from start import config").new_text
    assert f"accelerator = Accelerator(cpu={cpu})" in text


MACHINE = "'cuda' if torch.cuda.is_available() else 'cpu'"
PICK = f"""def pick(name):
    if name is None:
        name = {MACHINE}
    return name
"""
SELECT = f"""def pick(name):
    if name == "auto":
        return torch.device({MACHINE})
    return torch.device(name)
"""


@pytest.mark.parametrize(
    ("choice", "cpu"),
    [
        ("device = torch.device(str(args.device))", 'str(args.device) == "cpu"'),
        (f"device = args.device or ({MACHINE})", 'str(args.device) == "cpu"'),
        (f"device = torch.device(args.device or ({MACHINE}))", 'str(args.device) == "cpu"'),
        (f"device = args.device if args.device else ({MACHINE})", 'str(args.device) == "cpu"'),
        (f"device = ({MACHINE}) if args.device is None else args.device", 'str(args.device) == "cpu"'),
        (
            f"if args.device == 'auto':\n    device = torch.device({MACHINE})\n"
            "else:\n    device = torch.device(args.device)",
            'str(args.device) == "cpu"',
        ),
        (f"{PICK}device = pick(args.device)", 'str(pick(args.device)) == "cpu"'),
        (f"{SELECT}device = pick(args.device)", 'str(pick(args.device)) == "cpu"'),
        ("device = torch.device(args.gpu) if args.gpu >= 0 else torch.device('cpu')", "args.gpu < 0"),
        (
            "device = torch.device(args.device) if args.device else torch.device('cpu')",
            'not (args.device and str(args.device) != "cpu")',
        ),
    ],
)
def test_an_option_that_may_name_the_cpu(choice: str, cpu: str) -> None:
    setup = f"args = argparse.ArgumentParser().parse_args()\n{choice}"
    batch = "x, y = x.to(device), y.to(device)"
    text = convert(setup=setup, imports="import argparse", batch=batch).new_text
    assert f"cpu={cpu}" in text
    assert "device = accelerator.device" in text


@pytest.mark.parametrize("told", ["name == 'cpu'", "name == 'cpu' or not torch.cuda.is_available()"])
def test_a_helper_that_gives_the_cpu_where_an_option_says_so(told: str) -> None:
    helper = f"def pick(name):\n    if {told}:\n        return torch.device('cpu')\n    return torch.device('cuda')\n"
    setup = (
        f"args = vars(argparse.ArgumentParser().parse_args())\n{helper}device = pick(args.get('place.name'))"
    )
    batch = "x, y = x.to(device), y.to(device)"
    text = convert(setup=setup, imports="import argparse", batch=batch).new_text
    assert "Accelerator(cpu=str(pick(args.get('place.name'))) == \"cpu\")\n" in text


def test_a_helper_that_asks_for_another_text() -> None:
    helper = (
        "def pick(name):\n    if name == 'x': return torch.device('cpu')\n    return torch.device('cuda')\n"
    )
    setup = (
        f"args = vars(argparse.ArgumentParser().parse_args())\n{helper}device = pick(args.get('place.name'))"
    )
    text = convert(setup=setup, imports="import argparse", batch="x, y = x.to(device), y.to(device)").new_text
    assert "Accelerator(cpu=args.get('place.name') == 'x')" in text


@pytest.mark.parametrize(
    ("helper", "made", "device", "cpu"),
    [
        (
            "if where == 'cpu' or not torch.cuda.is_available():\n    return torch.device('cpu'), 'cpu'\n"
            "return torch.device('cuda'), 'cuda'",
            "device, kind = pick(args.device)",
            "device",
            "cpu=args.device == 'cpu'",
        ),
        (
            "one = torch.device('cpu' if where == 'cpu' else 'cuda')\nreturn {'seed': 1, 'device': one}",
            "found = pick(args.device)",
            "found['device']",
            "cpu=args.device == 'cpu'",
        ),
        (
            "if where == 'cpu':\n    return Place(device=torch.device('cpu'))\n"
            "name = 'cuda' if torch.cuda.is_available() else 'cpu'\nreturn Place(device=torch.device(name))",
            "found = pick(args.device)",
            "found.device",
            "cpu=args.device == 'cpu'",
        ),
        (
            "return where, torch.device('cuda' if torch.cuda.is_available() else 'cpu')",
            "seed, device = pick(args.seed)",
            "device",
            "",
        ),
    ],
)
def test_a_device_is_one_part_of_what_a_helper_gives(helper: str, made: str, device: str, cpu: str) -> None:
    place = "from dataclasses import dataclass\n@dataclass\nclass Place:\n    device: torch.device\n"
    body = textwrap.indent(helper, "    ")
    setup = f"{place}def pick(where):\n{body}\nargs = argparse.ArgumentParser().parse_args()\n{made}"
    batch = f"x, y = x.to({device}), y.to({device})"
    text = convert(setup=setup, imports="import argparse", batch=batch).new_text
    assert f"Accelerator({cpu})" in text


def test_a_helper_that_shows_what_it_chooses_is_asked_as_before() -> None:
    told = SELECT.replace("        return", '        print("the best")\n        return')
    setup = f"args = argparse.ArgumentParser().parse_args()\n{told}device = pick(args.device)"
    batch = "x, y = x.to(device), y.to(device)"
    found = convert(setup=setup, imports="import argparse", batch=batch)
    assert 'accelerator = Accelerator(cpu=str(pick(args.device)) == "cpu")\n' in found.new_text
    assert '        print("the best")\n' in found.new_text
    assert prints_by_all(found)


@pytest.mark.parametrize("shows", ["print(device)", "logger.info('on %s', device)", "pass"])
def test_a_helper_of_another_module_goes_on_to_show_what_it_chooses(shows: str, tmp_path: Path) -> None:
    head = "import logging\nimport torch\nlogger = logging.getLogger(__name__)\n\n\n"
    body = f"    device = torch.device({MACHINE})\n    {shows}\n    return device\n"
    helper = f"{head}def get_device():\n{body}"
    (tmp_path / "tools.py").write_text(helper)
    text = frame(
        imports="from tools import get_device", setup="device = get_device()", batch="x = x.to(device)"
    )
    (tmp_path / "train.py").write_text(text)
    new = convert_project(Source.read(tmp_path / "train.py"))[0].new_text
    asked = "if accelerator.is_main_process:\n    get_device()\n"
    assert (f"{asked}device = accelerator.device" in new) is (shows != "pass")


def test_a_setting_that_a_helper_has_under_another_name() -> None:
    helper = f"def pick(name):\n    place = torch.device(name) if name else torch.device({MACHINE})\n    return place\n"
    setup = f"args = argparse.ArgumentParser().parse_args()\n{helper}device = pick(args.device)"
    batch = "x, y = x.to(device), y.to(device)"
    text = convert(setup=setup, imports="import argparse", batch=batch).new_text
    assert 'Accelerator(cpu=str(args.device) == "cpu")\n' in text


NUMBERED = "torch.device('cuda:0' if torch.cuda.is_available() else 'cpu')"
OF_A_TENSOR = "torch.empty(0, device=accelerator.device).device"


@pytest.mark.parametrize(
    ("choice", "use", "device"),
    [
        (NUMBERED, "print('on', device)", OF_A_TENSOR),
        (NUMBERED, "print(f'on {device}')", OF_A_TENSOR),
        (NUMBERED, "number = device.index", OF_A_TENSOR),
        ("'cuda:0'", "number = int(device.split(':')[1])", f"str({OF_A_TENSOR})"),
        ("'cuda:0'", "first = device == 'cuda:0'", f"str({OF_A_TENSOR})"),
        (NUMBERED, "print('on')", "accelerator.device"),
        ("'cuda:0'", "print('on')", "str(accelerator.device)"),
        (NUMBERED.replace(":0", ""), "print('on', device)", "accelerator.device"),
        ("'cuda'", "first = device == 'cuda'", "accelerator.device.type"),
    ],
)
def test_the_number_of_a_gpu_is_there_where_it_is_asked_for(choice: str, use: str, device: str) -> None:
    """A run of one process has a device without one."""
    text = convert(setup=f"device = {choice}", batch="x, y = x.to(device), y.to(device)", end=use).new_text
    assert f"device = {device}\n" in text


def test_an_entry_that_is_set_later_is_waited_for() -> None:
    setup = "config = dict(vars(args))\nif config['debug']:\n    config['num_gpu'] = 0"
    build = f"model = nn.Linear(4, 2)\nif config['num_gpu'] > 0:\n    model.cuda()\n{SGD}"
    text = convert(setup=setup, build=build, imports="from start import args").new_text
    above, made, _ = text.partition("accelerator = Accelerator(cpu=config['num_gpu'] <= 0)")
    assert made
    assert "config['num_gpu'] = 0" in above


CHOOSES = """
import os
def set_gpu(x):
    os.environ["CUDA_VISIBLE_DEVICES"] = x
"""
CHOSEN_LATE = """
import argparse
import os
import torch
from torch import nn
{imports}
def get_data():
    return torch.randn(32, 4), torch.randn(32, 1)
if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--gpu", default="0")
    args = parser.parse_args()
    x, y = get_data()
    {chosen}
    model = nn.Linear(4, 1).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for i in range(3):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x.cuda()), y.cuda())
        loss.backward()
        optimizer.step()
"""


@pytest.mark.parametrize(
    ("imports", "chosen"),
    [
        ("from utils import set_gpu", "set_gpu(args.gpu)"),
        (CHOOSES, "set_gpu(args.gpu)"),
        ("from utils import set_gpu", "if args.gpu:\n        set_gpu(args.gpu)"),
        ("", 'if args.gpu:\n        os.environ["CUDA_VISIBLE_DEVICES"] = args.gpu'),
    ],
)
def test_gpus_are_chosen_before_the_accelerator_opens_one(tmp_path: Path, imports: str, chosen: str) -> None:
    (tmp_path / "utils.py").write_text(CHOOSES)
    (tmp_path / "train.py").write_text(CHOSEN_LATE.format(imports=imports, chosen=chosen))
    (conversion,) = convert_paths([tmp_path / "train.py"])
    text = conversion.new_text
    last = chosen.splitlines()[-1].strip()
    assert text.index(f"{last}") < text.index("= Accelerator(")
    assert "ACC113" in codes(conversion)
    if "utils" in imports:
        (message,) = [f.message for f in conversion.remaining if f.code == "ACC113"]
        assert message.startswith("`set_gpu` sets CUDA_VISIBLE_DEVICES in utils.py")


@pytest.mark.parametrize(
    ("written", "device"),
    [
        ("json.dump(vars(args), open('a.json', 'w'))", "accelerator.device.type"),
        ("json.dump(args.__dict__, open('a.json', 'w'))", "accelerator.device.type"),
        ("print(json.dumps(vars(args)))", "accelerator.device.type"),
        ("json.dump({'lr': 0.1}, open('a.json', 'w'))", "accelerator.device.type"),
        ("print(args)", "accelerator.device.type"),
    ],
)
def test_options_that_are_written_as_text_hold_text(written: str, device: str) -> None:
    build = f"{written}\nmodel = nn.Linear(4, 2).to(args.device)\n"
    build += "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)"
    imports = "import argparse, json\nparser = argparse.ArgumentParser()\n"
    imports += 'parser.add_argument("--device", default="cpu")\nargs = parser.parse_args()'
    text = convert(imports=imports, build=build, batch="x, y = x.to(args.device), y.to(args.device)").new_text
    assert f"\nargs.device = {device}\n" in text


PLACED = """
class Agent:
    def __init__(self):
        self.net = nn.Linear(4, 2)
        self.place = "cpu"

    def put(self, place):
        if self.place != place:
            self.net = self.net.cuda() if place == "gpu" else self.net.cpu()
            {keep}
"""


@pytest.mark.parametrize(
    ("keep", "cpu"),
    [("self.place = place", False), ("self.net.to(self.place)", True)],
)
def test_the_word_for_where_something_was_put_last_is_no_wish(keep: str, cpu: bool) -> None:
    text = convert(
        setup=PLACED.format(keep=keep), build="agent = Agent()\nmodel = agent.net\n" + SGD
    ).new_text
    assert ('self.place = "cpu"' not in text) is cpu


@pytest.mark.parametrize(
    "move",
    [
        "model.cuda() if torch.cuda.is_available() else model.cpu()",
        "model.cuda() if torch.cuda.is_available() else None",
        "None if not torch.cuda.is_available() else model.to('cuda')",
    ],
)
def test_a_choice_between_moves_goes_as_a_whole(move: str) -> None:
    made = "model = nn.Linear(4, 2)"
    check_transformed("build", f"{made}\n{move}\n{SGD}", f"{made}\n{SGD}")
