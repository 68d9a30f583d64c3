"""Every rule, with the text of its page: collected from the transforms, so that a new rule needs no list."""

from __future__ import annotations

import importlib
import pkgutil
import textwrap
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib.resources import files
from itertools import groupby
from typing import NamedTuple

import accelify.transforms
from accelify.findings import Safety, Severity
from accelify.notebook import CODE as NOTEBOOK_LAUNCHER
from accelify.notebook import UNREAD as UNREAD_CELL
from accelify.other_callers import OTHER_CALLERS
from accelify.proving.rules import RULES as PROOF_RULES
from accelify.rule_codes import NAMES, PUBLIC
from accelify.selection import UNUSED_IGNORE
from accelify.transforms.base import Rule


class RuleEntry(NamedTuple):
    """A rule, and the text of the module that has it (a line of summary, then the rewrites or the reasons)."""

    rule: Rule
    text: str


# Reasons why a whole script cannot be converted are found before any transform runs.
LEFT_ALONE = {
    "ACC001": "The script is distributed already.",
    "ACC003": "No model that is trained here can be seen.",
    "ACC004": "The model or optimizer comes from a caller in another file.",
    "ACC005": "The model or optimizer is stored in no variable.",
    "ACC006": "There is no place for the Accelerator.",
    "ACC007": "The Accelerator cannot be passed to where it is needed.",
    "ACC008": "A core edit cannot be made.",
    "ACC009": "The training loop is in another file.",
    "ACC010": "Something is made only after the place for prepare.",
    "ACC011": "What the script does by hand is not understood.",
}
_BESIDE = (
    *(Rule(code, "left-alone", text, Severity.ERROR, Safety.MANUAL, 30) for code, text in LEFT_ALONE.items()),
    Rule(
        OTHER_CALLERS,
        "other-callers",
        "A function is called by a script that was not converted with it.",
        Severity.WARNING,
        Safety.MANUAL,
        10,
    ),
    UNUSED_IGNORE,
    Rule(
        NOTEBOOK_LAUNCHER,
        "notebook-launcher",
        "A notebook runs on one process.",
        Severity.INFO,
        Safety.MANUAL,
        5,
    ),
    Rule(UNREAD_CELL, "unread-cell", "A cell is not valid Python.", Severity.WARNING, Safety.MANUAL, 10),
    *(one.rule for one in PROOF_RULES),
)

# What a person does about the rules that have no edit, in the order of their codes.
ADVICE = {
    "ACC303": """\
Every process runs the whole evaluation, so the metrics stay right, but several processes are no faster than one.
To share the work, prepare the loader and gather what the metric is made of:

    output, target = accelerator.gather_for_metrics((output, target))""",
    "ACC401": """\
After `prepare` each of N processes sees 1/N of the batches. A number such as `len(dataset) // batch_size` counts those
of the original. Where it means steps of this process, divide it:

    print(i, len(dataset) // batch_size // accelerator.num_processes)

A length that is taken before `prepare` counts the batches of all processes, too. A schedule is right either way: made
from such a length it is prepared, and advances by the batches of all processes; made from that of a prepared loader,
also by a helper that gets the number, it is stepped as it is.""",
    "ACC402": """\
The result is right: every process makes the same update. To be faster on several processes, let each take its part.
Of a batch that the script makes by hand, with one entry a sample in its first dimension:

    x, y = inputs[index], targets[index]
    x, y = accelerator.shard_batch(x, y)

Of other data, a DataLoader that is given to `prepare`, or a part of a list:

    with accelerator.split_between_processes(indices) as own: ...

What is split or put in order at random before the Accelerator is made is the same only where it is seeded, or where
`accelify launch` starts all processes on one machine, which begins them alike. Under torchrun, or on several machines,
each process would train on a different split, and on the test data of another:

    np.random.seed(args.seed)    # or make the Accelerator first: all generators agree from then on
    train, test = train_test_split(samples)""",
    "ACC403": """\
A scheduler that looks at a metric must look at the same number on every process, or their learning rates part:

    scheduler.step(accelerator.reduce(val_loss, reduction="mean"))""",
    "ACC404": """\
On several processes, and in the last batch, a batch can be smaller than the configured size. Take the batch's size:

    noise = torch.randn(args.batch_size, 100)    ->  noise = torch.randn(data.size(0), 100)""",
    "ACC405": """\
When one process leaves the loop, the others wait for it in the next reduction and the run hangs. Let all agree:

    if loss < 0.01: break    ->  if accelerator.reduce(loss.detach(), reduction="mean") < 0.01: break

Where the test reads the loss alone, the converter writes this. Sizes of batches are agreed on as well, and where two of
them are compared with each other, the answer is:

    if len(x) != len(y): continue    ->  if accelerator.reduce(int(len(x) != len(y)), reduction="max"): continue

An error that is raised ends all processes, unless somebody around it catches it and goes on.""",
    "ACC406": """\
Where the last batch does not divide, each process's share is weighed by its samples, and that weight differs between
a sum and a mean over the batch. Bring all parts of the loss to one of them, then say which:

    accelerator.backward(loss, reduction="sum")    # all parts are sums over the batch""",
    "ACC415": """\
A class that takes its model as an argument makes an Accelerator itself where its file is converted alone. The script
that makes the model goes on to use it, and the data, where it put them. Convert that script; the file with the class is
converted with it:

    accelify convert main.py""",
    "ACC601": """\
Accelerate gives every process a full last batch, with samples from the beginning of the epoch where there are too few.
Their gradients count twice. accelify's runtime cuts the last batch evenly and weighs each share by its samples. To be
exact under Accelerate, leave the last batch out where the original may do without it:

    loader = DataLoader(dataset, batch_size=64, shuffle=True, drop_last=True)""",
    "ACC602": """\
On one process the order is the original's. On several, Accelerate draws a seed when the loader is prepared and
shuffles with a new generator, so that the samples come in another order: as good, but no loss can be compared
with one of the original. A generator that the script passes to its loader stays, and with it the order:

    loader = DataLoader(dataset, batch_size=64, shuffle=True, generator=torch.Generator().manual_seed(0))""",
    "ACC603": """\
The gradients of N processes are averaged. For a loss that is summed over the batch the average is N times too small,
so it is multiplied:

    loss.backward()    ->  accelerator.backward(loss * accelerator.num_processes)

This is exact as long as the last batch is not filled up (ACC601). Printed losses stay those of one process.""",
    "ACC604": """\
Accelerate steps a prepared scheduler once for every process at each call. After an epoch of B batches on N processes it
has made N * ceil(B / N) steps, where the original made B. A cosine or one-cycle schedule then ends that much earlier.
accelify's runtime counts the batches. Under Accelerate, drop the last batches, or make the schedule as long as that.

Schedulers that step once an epoch are not prepared, so that they step once whatever the number of processes.""",
    "ACC605": """\
A window that is carried into the next epoch while the count starts over, or a scheduler that steps at every
micro-batch beside it, has no counterpart in Accelerate's `accumulate`. The script keeps counting by hand: its numbers
stay, and gradients are reduced at every micro-batch instead of once a window, which costs time only.""",
    "ACC608": """\
Accelerate's wrapper on several processes is torch's DistributedDataParallel. It raises where a parameter gets no
gradient in a backward, and where a forward changes buffers (batch norm) between another forward and its backward.
Where that happens, say so when the Accelerator is made:

    ddp = DistributedDataParallelKwargs(find_unused_parameters=True, broadcast_buffers=False)
    accelerator = Accelerator(kwargs_handlers=[ddp])""",
    "ACC609": """\
With `--batch-size total` Accelerate cuts every batch into equal parts, and raises at `prepare` where the number of
processes does not divide the batch size. accelify's runtime cuts as evenly as it goes.""",
    "ACC610": """\
`prepare` of Accelerate builds a new DataLoader from the parts of the script's. Methods of a class of one's own are not
among them, a batch sampler has to tell its batch size, and an iterable dataset is read by the main process for all.""",
    "ACC611": """\
Accelerate gathers tensors of equal shapes. Batches that are padded to their own longest sample differ between
processes: pad to the longest of all first:

    output = accelerator.pad_across_processes(output, dim=1)""",
    "ACC612": """\
A model prepared by Accelerate turns its outputs into float32, in a region of the script's own as well. What is computed
from them in that region is cast again where autocast casts; a comparison of dtypes can find another one.""",
    "ACC613": """\
Started by torchrun on a machine without GPUs, `Accelerator()` of Accelerate makes every process believe to be
alone: all train on everything and write the same files. Say that the CPU is meant:

    Accelerator(cpu=True)    # or ACCELERATE_USE_CPU=true in the environment, or accelerate launch --cpu""",
}


@cache
def parts() -> dict[str, RuleEntry]:
    """What finds something, by the codes that were rules once, in their order."""
    found = {rule.code: RuleEntry(rule, "") for rule in _BESIDE}
    for info in pkgutil.iter_modules(accelify.transforms.__path__):
        module = importlib.import_module(f"accelify.transforms.{info.name}")
        for value in vars(module).values():
            if isinstance(value, Rule) and value.code not in found:
                found[value.code] = _entry(value, (module.__doc__ or "").strip("\n"))
    return dict(sorted(found.items()))


def _entry(rule: Rule, text: str) -> RuleEntry:
    if rule.code not in ADVICE:
        return RuleEntry(rule, text)
    return RuleEntry(rule._replace(safety=Safety.MANUAL), f"{rule.summary}\n\n{ADVICE[rule.code]}")


@cache
def all_rules() -> dict[str, RuleEntry]:
    """The rules by code, in the order of their codes: of each the page, and how bad the worst of its parts is."""
    known = parts()
    found = {}
    for code, page in _pages().items():
        rules = [known[part].rule for part, rule in PUBLIC.items() if rule == code and part in known]
        severity = min((one.severity for one in rules), key=list(Severity).index)
        safety = min((one.safety for one in rules), key=list(Safety).index)
        effort = max(one.effort for one in rules)
        rule = Rule(code, NAMES[code], page["summary"], severity, safety, effort)
        found[code] = RuleEntry(rule, _page(code, page, [known[one.code] for one in rules]))
    return found


def rule_page(entry: RuleEntry) -> str:
    """The rule's page as Markdown."""
    rule = entry.rule
    return f"# {rule.code}: {rule.name}\n\n{rule.summary}\n\n{entry.text}\n"


@cache
def _pages() -> dict[str, dict[str, str]]:
    text = files("accelify").joinpath("rules.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def _page(code: str, page: Mapping[str, str], found: Sequence[RuleEntry]) -> str:
    example = ""
    if "wrong" in page:
        example = f"```python\n{page['wrong']}```\n\nRight is:\n\n```python\n{page['right']}```"
    silence = (
        f"`# accelify: ignore[{code}]` on the line leaves a finding out, `ignore` or `per-file-ignores` in "
        "[tool.accelify] those of a project."
    )
    chapters = {
        "What it does": page["about"],
        "What one sees": page["seen"],
        "Example": example,
        "Fix": page["fix"],
        "Way out": f"{page['out']}\n{silence}",
    }
    text = [f"## {title}\n\n{body.strip()}" for title, body in chapters.items() if body]
    return "\n\n".join([*text, *_of_parts(code, found)])


def _of_parts(code: str, found: Sequence[RuleEntry]) -> Iterator[str]:
    """What finds it, how safe its edits are, and what they rewrite, each text once."""
    rules = [part.rule for part in found]
    safeties = sorted({one.safety for one in rules}, key=list(Safety).index)
    lines = "\n\n".join(f"**{one}**: {_SAFETY[one]}" for one in safeties)
    head = "| found as | | severity | safety | minutes by hand |\n|---|---|---|---|---|"
    rows = [f"| {one.code} | {one.summary} | {one.severity} | {one.safety} | {one.effort} |" for one in rules]
    yield "\n".join([f"## Safety\n\n{lines}\n\n{head}", *rows])
    texts = dict.fromkeys(part.text for part in found if part.text)
    if texts:
        yield "## What `convert` does"
    for text in texts:
        title, _, rest = text.partition("\n\n")
        page = _page_of(text)
        blocks = _blocks(rest) if page == code else [f"See [{page}]({page}.md)."]
        yield "\n\n".join([f"### {title.rstrip('.:')}", *blocks])


def _page_of(text: str) -> str:
    """The code of the page that a text of several parts stands on."""
    return next(PUBLIC[code] for code, part in parts().items() if part.text == text)


def rules_index() -> str:
    """A table of all rules as Markdown, linking to their pages."""
    rows = []
    for code, entry in all_rules().items():
        rule = entry.rule
        rows.append(
            f"| [{code}]({code}.md) | {rule.name} | {rule.severity} | {rule.safety} | {rule.summary} |"
        )
    head = ["# Rules", "", "Generated by `accelify rule --write docs/rules`.", ""]
    table = ["| code | name | severity | safety | |", "|---|---|---|---|---|"]
    older = [f"| {part} | [{code}]({code}.md) |" for part, code in sorted(PUBLIC.items()) if part != code]
    note = "Older codes go on working in configuration and comments; they select what they selected:"
    aliases = ["", note, "", "| older code | rule |", "|---|---|", *older]
    return "\n".join([*head, *table, *rows, *aliases]) + "\n"


_SAFETY = {
    Safety.SAFE: "`convert` makes the edit and the numbers stay.",
    Safety.REVIEW: "`convert` makes the edit; look at it, because it may mean something else here.",
    Safety.MANUAL: "`convert` has no edit for it and leaves it to a person.",
}


def _blocks(text: str) -> list[str]:
    """Paragraphs as they are; runs of anything else are rewrites and become one code block."""
    blocks: list[str] = []
    paragraphs = [block for block in text.split("\n\n") if block.strip()]
    for is_prose, run in groupby(paragraphs, _is_prose):
        if is_prose:
            blocks += run
        else:
            code = textwrap.dedent("\n\n".join(run))
            blocks.append(f"```python\n{code}\n```")
    return blocks


def _is_prose(block: str) -> bool:
    return (
        (block[0].isupper() or block[0] == "`")
        and block.rstrip().endswith((".", ":"))
        and " -> " not in block
    )
