"""Models that nothing moves, and that are run on batches which prepare places."""

from __future__ import annotations

import pytest

from tests.transforms.support import convert, place_of

SGD = "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)"
TRAINED = f"model = nn.Linear(4, 2).cuda()\n{SGD}"
BATCH = "x, y = x.cuda(), y.cuda()"
RUN = "for x, y in test_loader:\n    print(base(x).argmax(1).numpy())"


@pytest.mark.parametrize(
    ("setup", "end"),
    [
        ("base = nn.Linear(4, 2)", RUN),
        ("base = nn.Sequential(\n    nn.Linear(4, 2),\n    nn.Tanh(),\n)", RUN),
        ("base = nn.Linear(4, 2)\nbase.eval()", f"def run(net, loader):\n    {RUN.replace(chr(10), chr(10) + '    ')}"
         .replace("base", "net").replace("test_loader", "loader") + "\nrun(base, test_loader)"),
    ],
)  # fmt: skip
def test_the_model_follows_its_batches(setup: str, end: str) -> None:
    text = convert(setup=setup, build=TRAINED, batch=BATCH, end=end).new_text
    made, _, rest = place_of(text, "setup").partition(".to(accelerator.device)")
    assert made + rest == "\n".join(["accelerator = Accelerator()", setup])
    assert ".cpu().numpy()" in place_of(text, "end")


def test_what_else_it_is_given_goes_there_too() -> None:
    end = f"{RUN}\nprint(base(torch.ones(1, 4)))"
    text = convert(setup="base = nn.Linear(4, 2)", build=TRAINED, batch=BATCH, end=end).new_text
    assert "print(base(torch.ones(1, 4, device=accelerator.device)))" in place_of(text, "end")


@pytest.mark.parametrize(
    ("setup", "build", "end"),
    [
        ("base = nn.Linear(4, 2)", f"model = nn.Linear(4, 2)\n{SGD}", RUN),  # all of it is on the CPU
        ("base = nn.Linear(4, 2)", TRAINED, RUN.replace("x)", "x.cpu())")),
        ("base = nn.Linear(4, 2)", TRAINED, "print(base(torch.ones(1, 4)))"),
        ("base = nn.Linear(4, 2)", TRAINED, "base.cpu()\n" + RUN),
        (
            "class Base(nn.Linear):\n    def forward(self, x):\n        return super().forward(x.cpu())\n"
            "base = Base(4, 2)",
            TRAINED,
            RUN,
        ),
    ],
)
def test_who_has_its_own_place_stays(setup: str, build: str, end: str) -> None:
    batch = BATCH if ".cuda" in build else ""
    text = convert(setup=setup, build=build, batch=batch, end=end).new_text
    assert place_of(text, "setup").replace("accelerator = Accelerator()\n", "").endswith(setup)
