"""Files that hold settings, a vocabulary or a list of files have nothing on a GPU; weights and other tensors have."""

from __future__ import annotations

import pytest

from tests.proving.several_programs import GROUP, LOOP, named

OPT = "opt = torch.optim.SGD(model.parameters(), lr={})\n"
# What a script makes of the file, with what it builds.
PLAIN = {
    "attributes": (
        """
saved = torch.load("run.pt")
model = DDP(torch.nn.Linear(saved.width, 1))
""",
        "saved.lr",
    ),
    "entries by names": (
        """
saved = torch.load("run.pt")
width, lr = saved["width"], saved.get("lr")
model = DDP(torch.nn.Linear(int(width), 1))
""",
        "lr",
    ),
    "a part of what is loaded": (
        """
args = torch.load("run.pt")["args"]
model = DDP(torch.nn.Linear(args.width, 1))
""",
        "args.lr",
    ),
    "a vocabulary": (
        """
vocab = torch.load("run.pt")
words = torch.tensor([vocab.stoi[word] for word in "a b".split()])
model = DDP(torch.nn.Linear(len(vocab.itos), 1))
""",
        "0.1",
    ),
    "the length alone": (
        """
vocab = torch.load("run.pt")
model = DDP(torch.nn.Linear(len(vocab), 1))
""",
        "0.1",
    ),
    "spread over a constructor": (
        """
class Net(torch.nn.Linear):
    def __init__(self, width, out):
        super().__init__(width, out)


config = torch.load("run.pt")
model = DDP(Net(**config))
""",
        "0.1",
    ),
    "handed to a function": (
        """
def build(config):
    return torch.nn.Linear(config["width"], config.get("out", 1))


config = torch.load("run.pt")
model = DDP(build(config))
""",
        "0.1",
    ),
    "given by a function": (
        """
def read(path):
    return torch.load(path)


config = read("run.pt")
model = DDP(torch.nn.Linear(config["width"], 1))
""",
        'config["lr"]',
    ),
    "a list of files": (
        """
import numpy as np


class Files(torch.utils.data.Dataset):
    def __init__(self, path):
        self.items = torch.load(path)

    def __len__(self):
        return len(self.items)

    def __getitem__(self, number):
        name, label = self.items[number]
        return torch.from_numpy(np.load(name)), label


files = Files("run.pt")
loader = DataLoader(files, batch_size=4, sampler=DistributedSampler(files, shuffle=False))
model = DDP(torch.nn.Linear(4, 1))
""",
        "0.1",
    ),
    "the positions of samples": (
        """
split = torch.load("run.pt")
part = torch.utils.data.Subset(data, split["train"])
loader = DataLoader(part, batch_size=4, sampler=DistributedSampler(part, shuffle=False))
model = DDP(torch.nn.Linear(4, 1))
""",
        "0.1",
    ),
}
TENSORS = {
    "weights beside settings": """
saved = torch.load("run.pt")
net = torch.nn.Linear(saved["width"], 1)
net.load_state_dict(saved["model"])
model = DDP(net)
""",
    "weights of a function": """
def build(saved):
    net = torch.nn.Linear(saved["width"], 1)
    net.load_state_dict(saved["model"])
    return net


saved = torch.load("run.pt")
model = DDP(build(saved))
""",
    "weights of a function's result": """
def read(path):
    return torch.load(path)


saved = read("run.pt")
net = torch.nn.Linear(saved["width"], 1)
net.load_state_dict({name.replace("module.", ""): one for name, one in saved["model"].items()})
model = DDP(net)
""",
    "a model": """
net = torch.load("run.pt")
model = DDP(net)
""",
    "a part of a model": """
saved = torch.load("run.pt")
model = DDP(torch.nn.Sequential(saved["body"], torch.nn.Linear(saved["width"], 1)))
""",
    "a weight": """
saved = torch.load("run.pt")
net = torch.nn.Linear(saved["width"], 1)
net.weight = torch.nn.Parameter(saved["weight"])
model = DDP(net)
""",
    "a table of vectors": """
table = torch.load("run.pt")
net = torch.nn.Embedding.from_pretrained(table)
model = DDP(torch.nn.Linear(4, 1))
""",
    "the samples": """
class Features(torch.utils.data.Dataset):
    def __init__(self, path):
        self.items = torch.load(path)

    def __len__(self):
        return len(self.items)

    def __getitem__(self, number):
        return self.items[number]


files = Features("run.pt")
loader = DataLoader(files, batch_size=4, sampler=DistributedSampler(files, shuffle=False))
model = DDP(torch.nn.Linear(4, 1))
""",
}


@pytest.mark.parametrize(("text", "rate"), PLAIN.values(), ids=PLAIN)
def test_files_without_tensors(text, rate, tmp_path):
    assert not named(GROUP + text + OPT.format(rate) + LOOP, tmp_path)


@pytest.mark.parametrize("text", TENSORS.values(), ids=TENSORS)
def test_files_with_tensors(text, tmp_path):
    found = [(code, line) for code, line in named(GROUP + text + OPT.format(0.1) + LOOP, tmp_path)]
    assert [(code, "torch.load(" in line) for code, line in found] == [("ACC714", True)]
