"""The converter's promises over scripts that nobody chose: mutated fixtures, generated training scripts and the
standard library's own files.

Whatever comes in, conversion does not fail, its result parses and compiles, a second one changes nothing, `check`
finds nothing to mend in it, and lines without an edit are the same bytes.
"""

from __future__ import annotations

import ast
import builtins
import difflib
import io
import keyword
import random
import re
import sysconfig
import tokenize
import warnings
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from accelify.conversion import CONVERTED, FAILED, REFUSED, Conversion, ConvertOptions
from accelify.convert import convert_source
from accelify.source import Source, SourceError, python_files, split_lines

FIXTURES = Path(__file__).resolve().parent.parent / "fixtures"
KINDS = {path.parent.name: Source.read(path).text for path in sorted(FIXTURES.glob("*/before.py"))}
SCRIPT = Path("/nowhere/train.py")  # beside no other modules, which the analysis would follow
SIZES = st.sampled_from(["per-process", "total"])
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::SyntaxWarning")


def fuzzed(examples: int) -> settings:
    """The same examples in every run, so that a change of the converter is all that can make a difference."""
    return settings(
        max_examples=examples, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
    )


def compiles(text: str) -> bool:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(text, "train.py", "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError):
        return False
    return True


def held_promises(data: bytes, batch_size: str = "per-process") -> Conversion:
    """Convert a script, check every promise on the way, and give the conversion back."""
    options = ConvertOptions(batch_size, replace_ddp=data.startswith(b"# convert: --replace-ddp"))
    source = Source.from_bytes(data, SCRIPT)
    conversion = convert_source(source, options)
    new = source.encode(conversion.new_text)
    assert conversion.status != FAILED, conversion.reason
    if conversion.status != CONVERTED:
        assert conversion.reason
        assert (new == data) is True
        return conversion
    assert not conversion.reason
    assert ast.parse(conversion.new_text)
    if compiles(source.text):
        assert compiles(conversion.new_text), conversion.new_text
    assert "\n".join(edited_elsewhere(conversion)) == ""
    again = convert_source(Source.from_bytes(new, SCRIPT), options)
    assert difference(conversion.new_text, again.new_text) == ""
    # A script that has an Accelerator is left alone, and so a rule could hide behind that.
    assert [finding for finding in [*again.applied, *again.remaining] if finding.fixable] == []
    return conversion


def difference(old: str, new: str) -> str:
    """What is different, short enough to be read; empty where nothing is."""
    if old == new:
        return ""
    lines = difflib.unified_diff(split_lines(old), split_lines(new), n=1)
    return "\n".join(repr(line) for line in lines)[:3000]


def edited_elsewhere(conversion: Conversion) -> list[str]:
    """Lines that are changed or gone although they hold nothing that an edit may be about.

    Every line of the new script is one of the old, byte for byte, or has the accelerator in it, or a word of an edit;
    an import goes with the last line that reads it.
    """
    old, new = split_lines(conversion.source.text), split_lines(conversion.new_text)
    reasons = {
        line
        for finding in [*conversion.applied, *conversion.remaining]
        for line in range(finding.line, max(finding.end_line, finding.line) + 1)
    }
    strange: list[str] = []
    for kind, i1, i2, j1, j2 in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if kind == "equal":
            # The last line can have got a line end, all others are the same bytes.
            assert (old[i1:i2] == new[j1:j2]) is True
            continue
        moved = {line.strip() for line in new[j1:j2]}
        strange += [
            f"{number}: {old[number - 1]!r} -> {new[j1:j2]!r}"
            for number in range(i1 + 1, i2 + 1)
            if number not in reasons
            # Between two blank lines a statement takes one of them with it.
            and old[number - 1].strip()
            and old[number - 1].strip() not in moved
            and not any("accelerator" in line for line in new[j1:j2])
            and not is_unread_import(old[number - 1], conversion.new_text)
        ]
    return strange


def is_unread_import(line: str, new: str) -> bool:
    """Whether a line imports a name that the new script has nowhere: what read it is gone."""
    start, word, names = line.strip().partition("import ")
    return (not start or start.startswith("from ")) and any(
        re.search(rf"\b{name}\b", new) is None for name in re.findall(r"\w+", names if word else "")
    )


# -- the fixtures, and mutations of them


@pytest.mark.parametrize("batch_size", ["per-process", "total"])
@pytest.mark.parametrize("kind", KINDS)
def test_fixtures(kind: str, batch_size: str) -> None:
    text = KINDS[kind]
    expected = REFUSED if batch_size == "total" and text.startswith("# convert: --replace-ddp") else CONVERTED
    assert held_promises(text.encode(), batch_size).status == expected


def with_comments(text: str, chance: random.Random) -> str:
    """A comment behind some of the logical lines."""
    lines = split_lines(text)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.NEWLINE and chance.random() < 0.3:
            line = lines[token.start[0] - 1]
            if "#" not in line:
                comment = chance.choice(["  # loss.backward()", " # é", "#"])
                lines[token.start[0] - 1] = line.rstrip("\n") + comment + "\n"
    return "".join(lines)


def statement_starts(text: str) -> list[tuple[int, str]]:
    """Line number and indentation of the statements with a line of their own, without docstrings and the future."""
    tree, lines, found = ast.parse(text), split_lines(text), []
    for node in ast.walk(tree):
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, None)
            for index, stmt in enumerate(block if isinstance(block, list) else []):
                if not isinstance(stmt, ast.stmt) or (
                    isinstance(stmt, ast.ImportFrom) and stmt.module == "__future__"
                ):
                    continue
                if index == 0 and isinstance(stmt, ast.Expr) and isinstance(stmt.value, ast.Constant):
                    continue
                decorators = getattr(stmt, "decorator_list", [])
                line = min([stmt.lineno, *[decorator.lineno for decorator in decorators]])
                before = lines[line - 1][: stmt.col_offset]
                if not before.strip() and not lines[line - 1].lstrip().startswith("elif"):
                    found.append((line, before))
    return sorted(set(found))


STRANGERS = (
    "pass",
    "unrelated = [number for number in range(3)]",
    '"""a string\nover two lines"""',
    "unrelated = {'model': 1, 'loader': (2,)}",
    "if False: unrelated = 1; another = 2",
    "try:\n{}    import not_there\n{}except ImportError:\n{}    not_there = None",
    "assert True, 'never'",
    "unrelated = lambda model, *loss: model",
    "unrelated = 'x' \\\n        'y'",
    "# a comment",
    "",
)


def with_strangers(text: str, chance: random.Random) -> str:
    """Unrelated statements, comments and blank lines between those of the script."""
    lines = split_lines(text)
    places = statement_starts(text)
    for line, indent in sorted(chance.sample(places, min(len(places), 6)), reverse=True):
        stranger = chance.choice(STRANGERS).replace("{}", indent)
        lines.insert(line - 1, f"{indent}{stranger}\n")
    return "".join(lines)


def with_tabs(text: str, chance: random.Random) -> str:
    """Tabs for blanks, where every level is four of them and no string spans lines."""
    lines = split_lines(text)
    inside = {
        line
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type in (tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", -1))
        for line in range(token.start[0] + 1, token.end[0] + 1)
    }
    for index, line in enumerate(lines):
        blanks = len(line) - len(line.lstrip(" "))
        if index + 1 not in inside:
            lines[index] = "\t" * (blanks // 4) + " " * (blanks % 4) + line[blanks:]
    new = "".join(lines)
    return new if compiles(new) else text


def with_other_names(text: str, chance: random.Random) -> str:
    """Some variables under other names."""
    tree = ast.parse(text)
    stored = {
        node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }
    fixed = {argument.arg for argument in ast.walk(tree) if isinstance(argument, ast.arg)} | {
        word.arg for word in ast.walk(tree) if isinstance(word, ast.keyword) and word.arg
    }
    names = sorted(stored - fixed - set(dir(builtins)))
    chosen = {name: f"{name}_{chance.choice('abc')}" for name in chance.sample(names, min(len(names), 3))}
    lines = split_lines(text)
    spots = [
        token
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type == tokenize.NAME and token.string in chosen and not keyword.iskeyword(token.string)
    ]
    for token in reversed(spots):
        row, column = token.start
        line = lines[row - 1]
        if not line[:column].rstrip().endswith("."):
            lines[row - 1] = line[:column] + chosen[token.string] + line[column + len(token.string) :]
    new = "".join(lines)
    return new if compiles(new) else text


MUTATIONS = [with_comments, with_strangers, with_tabs, with_other_names]
ENDS = st.sampled_from(["\n", "\r\n", "\r"])


def as_bytes(text: str, end: str, bom: bool, ended: bool) -> bytes:
    text = text.rstrip("\n") + "\n" * ended
    return (b"\xef\xbb\xbf" if bom else b"") + text.replace("\n", end).encode()


@fuzzed(120)
@given(
    st.sampled_from(sorted(KINDS)),
    st.lists(st.sampled_from(MUTATIONS), unique=True, max_size=4),
    st.integers(0, 10_000),
    ENDS,
    st.booleans(),
    st.booleans(),
    SIZES,
)
def test_mutated_fixtures(
    kind: str, mutations: list, seed: int, end: str, bom: bool, ended: bool, batch_size: str
) -> None:
    text, chance = KINDS[kind], random.Random(seed)
    for mutation in mutations:
        text = mutation(text, chance)
        assert compiles(text), mutation
    held_promises(as_bytes(text, end, bom, ended), batch_size)


@fuzzed(60)
@given(st.sampled_from(sorted(KINDS)), st.integers(0, 10_000))
def test_fixtures_with_lines_taken_out(kind: str, seed: int) -> None:
    """A script with a statement missing is no sensible script, but one that people have half-written."""
    chance = random.Random(seed)
    lines = split_lines(KINDS[kind])
    start = chance.randrange(len(lines))
    del lines[start : start + chance.randint(1, 4)]
    text = "".join(lines)
    if compiles(text):
        held_promises(text.encode())


# -- training scripts made up from the idioms of real ones

DEVICES = {
    "none": ("", "", ""),
    "to": (
        'device = torch.device("cuda" if torch.cuda.is_available() else "cpu")',
        ".to(device)",
        ".to(device)",
    ),
    "guarded": ("use_cuda = torch.cuda.is_available()", "", ""),
    "cuda": ("", ".cuda()", ".cuda()"),
    "string": ("device = 'cuda:0'", ".to(device)", ".to(device, non_blocking=True)"),
    "argument": ("args = argparse.Namespace(cuda=False)", "", ""),
}
SCHEDULERS = {
    "StepLR": "torch.optim.lr_scheduler.StepLR({}, step_size=2)",
    "CosineAnnealingLR": "optim.lr_scheduler.CosineAnnealingLR({}, T_max=10)",
    "LambdaLR": "torch.optim.lr_scheduler.LambdaLR({}, lambda step: 0.9 ** step)",
}


def indented(lines: list[str], unit: str, levels: int = 1) -> list[str]:
    return [unit * levels + line if line else line for line in lines]


@st.composite
def training_scripts(draw: st.DrawFn) -> str:
    """A script that trains: in the module, a function or a main function, with the idioms that people mix."""
    unit = draw(st.sampled_from(["    ", "  ", "\t"]))
    device = draw(st.sampled_from(sorted(DEVICES)))
    set_up, model_move, batch_move = DEVICES[device]
    flag = {"guarded": "use_cuda", "argument": "args.cuda"}.get(device)
    style = draw(st.sampled_from(["module", "main", "function", "arguments"]))
    models = draw(st.integers(1, 2))
    scheduler = draw(st.sampled_from(["", *SCHEDULERS]))
    per_batch = draw(st.booleans())
    reduction = draw(st.sampled_from(["", "reduction='sum'", "reduction='mean'"]))
    accumulation = draw(st.sampled_from([0, 0, 0, 2, 4]))
    clip = draw(st.booleans())
    evaluation = draw(st.sampled_from(["", "sum", "list", "accuracy"]))
    saves = draw(st.booleans())
    progress = draw(st.booleans())
    loop = draw(st.sampled_from(["for {} in loader:", "for step, {} in enumerate(loader):"]))
    if accumulation or progress:
        loop = "for step, {} in enumerate(loader):"
    names = ["model", "other"][:models]

    head = ["import argparse", "import torch", "import torch.nn as nn", "import torch.optim as optim"]
    head += ["from torch.utils.data import DataLoader, TensorDataset", "", ""]
    if draw(st.booleans()):
        head += ["class Net(nn.Module):", unit + "def __init__(self):", unit * 2 + "super().__init__()"]
        head += [unit * 2 + "self.layer = nn.Linear(4, 1)", "", unit + "def forward(self, x):"]
        head += [unit * 2 + "return self.layer(x)", "", ""]
        constructor = "Net()"
    else:
        layers = "nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1)"
        constructor = draw(st.sampled_from(["nn.Linear(4, 1)", f"nn.Sequential({layers})"]))

    made = [line for line in [set_up, "torch.manual_seed(0)"] if line]
    made += ["dataset = TensorDataset(torch.randn(22, 4), torch.randn(22, 1))"]
    made += ["loader = DataLoader(dataset, batch_size=4, shuffle=True)"]
    if evaluation:
        made += ["test_loader = DataLoader(dataset, batch_size=5)"]
    for name in names:
        made += [f"{name} = {constructor}{model_move}"]
        if flag:
            made += [f"if {flag}:", f"{unit}{name}.cuda()"]
        made += [
            f"{name}_optimizer = optim.{draw(st.sampled_from(['SGD', 'Adam']))}({name}.parameters(), lr=0.1)"
        ]
        if scheduler:
            made += [f"{name}_scheduler = {SCHEDULERS[scheduler].format(name + '_optimizer')}"]
    made += [f"criterion = nn.MSELoss({reduction}){model_move if draw(st.booleans()) else ''}"]

    batch = [f"x, y = x{batch_move}, y{batch_move}"] if batch_move and draw(st.booleans()) else []
    if batch_move and not batch:
        batch = [f"x = x{batch_move}", f"y = y{batch_move}"]
    if flag:
        batch = [f"if {flag}:", f"{unit}x, y = x.cuda(), y.cuda()"]
    steps: list[str] = []
    for name in names:
        step = [f"{name}_optimizer.step()"]
        zero = [f"{name}_optimizer.zero_grad()"]
        if clip:
            step.insert(0, f"torch.nn.utils.clip_grad_norm_({name}.parameters(), 1.0)")
        if scheduler and per_batch:
            step += [f"{name}_scheduler.step()"]
        backward = [f"{name}_loss = criterion({name}(x), y)", f"{name}_loss.backward()"]
        if accumulation:
            backward.insert(1, f"{name}_loss = {name}_loss / {accumulation}")
            steps += [*backward, f"if (step + 1) % {accumulation} == 0:", *indented([*step, *zero], unit)]
        else:
            steps += [*zero, *backward, *step] if draw(st.booleans()) else [*backward, *step, *zero]
    steps += draw(
        st.sampled_from([[], ["total += model_loss.item()"], ["total += float(model_loss) * len(x)"]])
    )
    if progress:
        steps += ["if step % 10 == 0:", unit + "print(epoch, step, len(loader), model_loss.item())"]
    body = ["model.train()", "total = 0.0", loop.format("(x, y)" if "enumerate" in loop else "x, y")]
    body += indented([*batch, *steps], unit)
    if scheduler and not per_batch:
        body += [f"{name}_scheduler.step()" for name in names]
    prints = ["print('epoch', epoch, total / len(loader))", 'print(f"{epoch}: {total:.3f}")']
    body += draw(st.sampled_from([[], *[[line] for line in prints]]))
    if evaluation:
        start, count = {
            "sum": ("score = 0", "score += criterion(model(x), y).item()"),
            "list": ("score = []", "score.extend(model(x).cpu().numpy().tolist())"),
            "accuracy": ("score = 0", "score += ((model(x) > 0) == (y > 0)).sum().item()"),
        }[evaluation]
        body += ["model.eval()", start, "with torch.no_grad():", unit + "for x, y in test_loader:"]
        body += indented([*batch, count], unit, 2)
        body += ["print(score)" if evaluation == "list" else "print(score / len(dataset))"]
    if saves:
        body += ["torch.save(model.state_dict(), 'model.pt')"]
    epochs = ["for epoch in range(2):", *indented(body, unit)]
    if style == "module":
        lines = [*head, *made, *epochs]
    elif style == "main":
        lines = [*head, "def main():", *indented([*made, *epochs], unit), "", ""]
        lines += ["if __name__ == '__main__':", unit + "main()"]
    elif style == "function":
        lines = [*head, *made, "", "", "def train(epoch):", *indented(body, unit), "", ""]
        lines += ["for epoch in range(2):", unit + "train(epoch)"]
    else:
        known = names + [f"{name}_optimizer" for name in names] + ["loader", "criterion"]
        known += [f"{name}_scheduler" for name in names if scheduler]
        known += ["test_loader", "dataset"] if evaluation else []
        known += ["device"] if "device =" in set_up else []
        known += [flag.partition(".")[0]] if flag else []
        parameters = ", ".join([*known, "epoch"])
        lines = [*head, f"def train({parameters}):", *indented(body, unit), "", "", "def main():"]
        lines += indented([*made, "for epoch in range(2):", f"{unit}train({parameters})"], unit)
        lines += ["", "", "if __name__ == '__main__':", unit + "main()"]
    return "\n".join(lines) + "\n"


@fuzzed(150)
@given(training_scripts(), SIZES, ENDS, st.booleans())
def test_generated_scripts(text: str, batch_size: str, end: str, ended: bool) -> None:
    assert compiles(text), text
    conversion = held_promises(as_bytes(text, end, False, ended), batch_size)
    # Each of them is one that the converter has to know.
    assert conversion.status == CONVERTED, f"{conversion.reason}\n{text}"
    new = conversion.new_text
    backwards = len(re.findall(r"_loss\.backward\(\)", text))
    assert not re.search(r"_loss\.backward\(", new)
    assert len(re.findall(r"accelerator\.backward\(", new)) == backwards
    assert not re.search(r"\b(?:x|y|model|other)\.cuda\(\)", new)
    # Batches of a loader that stays whole go to the device by hand.
    stays_whole = "test_loader" in text and not re.search(r"\bprepare\([^)]*\btest_loader", new)
    assert stays_whole or not re.search(r"\b[xy]\.to\(", new)
    assert len(re.findall(r"\.prepare\(", new)) >= 1


# -- Python files of any other kind


def library() -> list[Path]:
    files = [
        path for path in python_files(Path(sysconfig.get_paths()["stdlib"])) if path.stat().st_size < 80_000
    ]
    return random.Random(4).sample(files, min(len(files), 400))


def test_the_standard_library_is_left_alone() -> None:
    seen = 0
    for path in library():
        data = path.read_bytes()
        try:
            assert Source.from_bytes(data, SCRIPT).tree
        except SourceError:
            continue
        assert not held_promises(data).changed, path
        seen += 1
    assert seen >= 300


LOOP = """\
import torch
from torch import nn, optim
from torch.utils.data import DataLoader
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
net = nn.Linear(4, 1).to(device)
sgd = optim.SGD(net.parameters(), lr=0.1)
for batch in DataLoader(torch.randn(9, 4), batch_size=2):
    sgd.zero_grad()
    net(batch.to(device)).mean().backward()
    sgd.step()
"""


def test_the_standard_library_behind_a_training_loop() -> None:
    """Every construct of the language stands in the way of the analysis once."""
    converted = 0
    for path in library()[:150]:
        try:
            source = Source.read(path)
            assert source.tree
        except SourceError:
            continue
        if "__future__" in source.text or len(source.text) > 40_000 or source.encoding != "utf-8":
            continue
        conversion = held_promises((LOOP.replace("\n", source.newline) + source.text).encode())
        converted += conversion.status == CONVERTED
    assert converted >= 50
