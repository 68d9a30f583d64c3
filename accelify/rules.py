"""Every rule, with the text of its page: collected from the transforms, so that a new rule needs no list."""

from __future__ import annotations

import importlib
import pkgutil
import textwrap
from functools import cache
from itertools import groupby
from typing import NamedTuple

import accelify.transforms
from accelify.findings import Safety, Severity
from accelify.notebook import CODE as NOTEBOOK_LAUNCHER
from accelify.notebook import UNREAD as UNREAD_CELL
from accelify.other_callers import OTHER_CALLERS
from accelify.proving.rules import RULES as PROOF_RULES
from accelify.selection import UNUSED_IGNORE
from accelify.transforms.base import Rule


class RuleEntry(NamedTuple):
    """A rule, and the text of the module that has it (a line of summary, then the rewrites or the reasons)."""

    rule: Rule
    text: str


def _left_alone(code: str, summary: str, text: str) -> RuleEntry:
    rule = Rule(code, "left-alone", summary, Severity.ERROR, Safety.MANUAL, effort=30)
    return RuleEntry(rule, f"Scripts that are left as they are.\n\n{text}")


_AS_A_WHOLE = "The core edits of a script are made all together or not at all. "
# Reasons why a whole script cannot be converted are found before any transform runs.
LEFT_ALONE = (
    _left_alone(
        "ACC001",
        "The script is distributed already.",
        "It uses Accelerate, Lightning, a Trainer, DistributedDataParallel, DeepSpeed or the like, and would then "
        "have two engines. `check` does not show this one.",
    ),
    _left_alone(
        "ACC003",
        "No model that is trained here can be seen.",
        _AS_A_WHOLE
        + "Without a model there is nothing to prepare: the script trains bare tensors, or makes its model where "
        "the converter cannot follow. Put the parameters into an nn.Module, or make the model in this file.",
    ),
    _left_alone(
        "ACC004",
        "The model or optimizer comes from a caller in another file.",
        _AS_A_WHOLE
        + "`prepare` belongs where model and optimizer are made: convert the script that makes them.",
    ),
    _left_alone(
        "ACC005",
        "The model or optimizer is stored in no variable.",
        _AS_A_WHOLE
        + "`prepare` gives the object back under its name. Give it a variable or an attribute first, or a list, "
        "tuple or dictionary that holds nothing else. What the base class of a library stores counts once the "
        "class sets it itself.",
    ),
    _left_alone(
        "ACC006",
        "There is no place for the Accelerator.",
        _AS_A_WHOLE
        + "The Accelerator must be made before the first model and reach the training loop from there.",
    ),
    _left_alone(
        "ACC007",
        "The Accelerator cannot be passed to where it is needed.",
        _AS_A_WHOLE
        + "The function that calls backward is called from places that cannot be seen or changed, for instance "
        "as a callback. Hand it the Accelerator, or call it directly.",
    ),
    _left_alone(
        "ACC008",
        "A core edit cannot be made.",
        _AS_A_WHOLE
        + "The message says which one and why, for instance because its place lies inside an f-string.",
    ),
    _left_alone(
        "ACC009",
        "The training loop is in another file.",
        _AS_A_WHOLE
        + "Named by its path a script is converted together with the files that hold its loop; from standard "
        "input, or where those files cannot be edited as a group, it stands alone and stays as it is.",
    ),
    _left_alone(
        "ACC010",
        "Something is made only after the place for prepare.",
        _AS_A_WHOLE
        + "A model, optimizer or loader that is trained with has to exist where prepare stands; this one is made "
        "later, so that no single place is right.",
    ),
)

_BY_HAND = _left_alone(
    "ACC011",
    "What the script does by hand is not understood.",
    _AS_A_WHOLE
    + "It distributes itself (`--replace-ddp`) or uses apex's amp, and a line of it, which the message names, has no "
    "counterpart that is known to give the same numbers. Change that line, or take it out. In modules that are "
    "converted with a script, apex is not taken out yet.",
)

IGNORED = RuleEntry(
    UNUSED_IGNORE,
    """Comments that silence nothing.

What a comment such as `# accelify: ignore[ACC702]` silenced is gone, or stands in another line. Take the comment out,
so that it does not silence what comes there later. It is a note, which does not fail a run.""",
)

LAUNCHER = RuleEntry(
    Rule(
        NOTEBOOK_LAUNCHER,
        "notebook-launcher",
        "A notebook runs on one process.",
        Severity.INFO,
        Safety.MANUAL,
        5,
    ),
    """Start the training of a notebook on several processes.

The cells of a notebook run in one process. Put those that train into one function, from the Accelerator on, which must
be made inside of it, and start that function:

    from accelify.runtime import notebook_launcher

    def train():
        accelerator = Accelerator()
        ...

    notebook_launcher(train, num_processes=2)

No cell before that one may use a GPU: processes that are forked afterwards could not. Functions and classes of those
cells see the notebook's own names only, and none that are local to `train`: where they read the Accelerator or another
object that `train` makes, begin it with `global accelerator, model`. The finding says which names these are.""",
)

CALLERS = RuleEntry(
    Rule(
        OTHER_CALLERS,
        "other-callers",
        "A function is called by a script that was not converted with it.",
        Severity.WARNING,
        Safety.MANUAL,
        10,
    ),
    """A function, class or static method of a project leaves moves to the device to `prepare` now, and a file that
stays as it was calls it as before. Looked through are the files below the script's folder and the packages of the
functions that changed, and below what holds both, in one project.

Such a script prepares its model and its loader, or moves them itself before the call:

    model, loader = Accelerator().prepare(model, loader)""",
)

UNREAD = RuleEntry(
    Rule(UNREAD_CELL, "unread-cell", "A cell is not valid Python.", Severity.WARNING, Safety.MANUAL, 10),
    """A cell of a notebook that could not be read.

The cell is unfinished, or no code at all, and was left out of the conversion, IPython's magics aside. If it makes a
model, an optimizer or a loader, or trains, the rest of the notebook was converted without knowing of it. Finish the
cell, or make it a Markdown cell, and convert the original notebook again.""",
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
def all_rules() -> dict[str, RuleEntry]:
    """The rules by code, in the order of their codes."""
    found = {entry.rule.code: entry for entry in (*LEFT_ALONE, CALLERS, _BY_HAND, IGNORED, LAUNCHER, UNREAD)}
    found |= {one.rule.code: RuleEntry(one.rule, one.text) for one in PROOF_RULES}
    for info in pkgutil.iter_modules(accelify.transforms.__path__):
        module = importlib.import_module(f"accelify.transforms.{info.name}")
        for value in vars(module).values():
            if isinstance(value, Rule) and value.code not in found:
                found[value.code] = _entry(value, (module.__doc__ or "").strip("\n"))
    return dict(sorted(found.items()))


def _entry(rule: Rule, text: str) -> RuleEntry:
    if rule.code not in ADVICE:
        return RuleEntry(rule, text)
    title = text.partition("\n\n")[0]
    return RuleEntry(rule._replace(safety=Safety.MANUAL), f"{title}\n\n{ADVICE[rule.code]}")


def rule_page(entry: RuleEntry) -> str:
    """The rule's page as Markdown: what it is about, what is rewritten, how safe that is and what it costs by hand."""
    rule = entry.rule
    title, _, text = entry.text.partition("\n\n")
    hand = f"{rule.effort} minute" + ("s" if rule.effort != 1 else "")
    parts = [
        f"# {rule.code}: {rule.name}",
        rule.summary,
        "## What it is about",
        title,
        *_blocks(text),
        "## Safety",
        f"Severity **{rule.severity}**, safety **{rule.safety}**: {_SAFETY[rule.safety]} By hand: about {hand}.",
    ]
    return "\n\n".join(part for part in parts if part.strip()) + "\n"


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
    return "\n".join([*head, *table, *rows]) + "\n"


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
    return block[0].isupper() and block.rstrip().endswith((".", ":")) and " -> " not in block
