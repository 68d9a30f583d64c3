"""The rules of what is not proved: a sink's demand is one rule, and which rules of transforms speak of the same."""

from __future__ import annotations

from typing import NamedTuple

from accelify.findings import Finding, Rule, Safety


class ProofRule(NamedTuple):
    """A rule, the demands of the engine that it stands for, and the text of its page."""

    rule: Rule
    demands: frozenset[str]
    text: str


_CONVERTED = "What the converted script does on several processes, gone through without running it."
_WRITTEN = "What a script does that is written for several processes, gone through without running it."


def _rule(
    code: str, name: str, summary: str, demands: str, effort: int, text: str, head: str = _CONVERTED
) -> ProofRule:
    rule = Rule(code, name, summary, safety=Safety.MANUAL, effort=effort)
    return ProofRule(rule, frozenset(demands.split(", ")), f"{head}\n\n{text}")


RULES = (
    _rule(
        "ACC701",
        "unproved-figure",
        "A figure that is shown or written is not proved to be the original's.",
        "content",
        10,
        """\
The message names the operations that the figure comes from, the last one first, back to where the processes part. Put
it together over the processes at the first place where that is a sum or a mean:

    total = accelerator.reduce(total, reduction="sum")
    print(total / len(loader.dataset))

What a training loop shows as it goes on, of the main process's share, is no finding: one line of the summary says
where. `accelify verify` runs the script and settles what cannot be seen without running it.""",
    ),
    _rule(
        "ACC702",
        "effect-by-all",
        "Every process does what the original does once.",
        "once",
        5,
        """\
A file, a log, a folder, a download or a line of output is made by every process, at the same time and in the same
place. Let the main process do it, and the others wait where they read it afterwards:

    if accelerator.is_main_process:
        figure.savefig("curve.png")
    accelerator.wait_for_everyone()""",
    ),
    _rule(
        "ACC703",
        "parted-path",
        "A path that all processes use can differ between them.",
        "path",
        5,
        """\
The name of a file or folder comes from the clock, or from what one process has computed by itself. Make it the main
process's for all:

    folder = broadcast_object_list([folder])[0]""",
    ),
    _rule(
        "ACC704",
        "parted-processes",
        "Processes do not all come to a place where they meet, or decide something differently.",
        "all ranks, same",
        15,
        """\
A backward, a step, a gather or reduce waits until all processes have come there. Under a condition that can be true on
one process only, or after some have left the loop, the others wait for ever. A schedule that is steered by a figure of
one process's share gives the processes different learning rates. Let all agree on the condition first:

    stop = accelerator.reduce(int(stop), reduction="max")""",
    ),
    _rule(
        "ACC705",
        "parted-gradients",
        "The gradients of a step are not proved to be the original's.",
        "loss, prepared, accumulated",
        15,
        """\
The gradients of all processes are averaged. That gives the original's where the loss is a mean over the rows of each
process's batch or, with `reduction="sum"`, their sum. It is not so where the loss comes from a product or a ratio of
sums, from a norm or deviation over all rows, from a mean by weights or over padding, from rows of other processes, from
a layer that goes along the axis of the rows (`batch_first`), from random numbers that are the same for the rows of
every process, where all processes train with the same batches, where neither the model nor its optimizer is prepared,
or where nothing stands under `accumulate`. The message names the operation that breaks it.""",
    ),
    _rule(
        "ACC706",
        "counted-rounds",
        "A count of one process's rounds stands for that of the original.",
        "rounds",
        10,
        """\
Each of N processes makes 1/N of the rounds of the original. A schedule, a learning rate that the script sets, a part
of a loss, a step of an optimizer, or a number of batches that is counted in rounds comes N times later, or is N times
as many. Count those of all processes:

    step += accelerator.num_processes

A scheduler of torch that is prepared advances by them; where it gets a count of steps, `scheduler.step(step)`, leave
the number out. It is no finding where the count is one of epochs, where it is compared with the length of the prepared
loader, and where training ends after a number of steps.""",
    ),
    _rule(
        "ACC707",
        "written-with-wrapper",
        "A prepared model is written with its wrapper.",
        "unwrapped",
        5,
        """\
After `prepare` the model may be wrapped: written as a whole, or by the names of the weights in the wrapper, it is not
what the original would load. Take the wrapper off first:

    torch.save(accelerator.unwrap_model(model), "model.pt")""",
    ),
    _rule(
        "ACC708",
        "never-released",
        "Each round of a loop prepares objects anew, and none are let go of.",
        "let go",
        10,
        """\
The Accelerator remembers what it has prepared, until it is to forget it: the memory of all rounds adds up. At the end
of a round:

    accelerator.free_memory()""",
    ),
    _rule(
        "ACC709",
        "unordered-files",
        "A file is read by every process, and nothing waits for the main process, which writes it.",
        "order",
        3,
        """\
The main process writes a file or makes a folder, and the others come to the place where it is read while it may not be
there yet, or not whole. Let all wait in between:

    if accelerator.is_main_process:
        torch.save(model.state_dict(), "best.pt")
    accelerator.wait_for_everyone()
    model.load_state_dict(torch.load("best.pt"))

A command of the main process is taken to write what it names: `cp a.png images/`. Where all look for a name that is
free, the wait stands after the search.""",
    ),
    _rule(
        "ACC710",
        "two-devices",
        "An operation joins tensors that lie on the host and on the device.",
        "one device",
        3,
        """\
A prepared loader gives its batches on the device of the process. What the script has fetched to the host, as it was
when the batches were there, does not go together with them any more: on a GPU the operation raises an error, also in a
run of one process. The same holds for a batch of a loader that is not prepared, which lies on the host, where it meets
a prepared model, and for a tensor that is made without `device=`. Fetch the other side as well, or leave both on the
device:

    correct += (prediction == labels).sum().item()""",
    ),
    _rule(
        "ACC711",
        "misplaced-prepare",
        "An object is prepared twice, or its results are taken in another order.",
        "twice, taken",
        3,
        """\
`prepare` gives its objects in the order of its arguments. Taken in another order each name stands for another object;
prepared twice a model is wrapped in two wrappers, and of a loader each process reads a share of its share:

    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)""",
        _WRITTEN,
    ),
    _rule(
        "ACC712",
        "beside-accelerator",
        "Something is done by hand that the Accelerator does, too.",
        "beside, divided",
        3,
        """\
A plain `loss.backward()` knows nothing of the loss scale of fp16, of accumulated gradients or of DeepSpeed; a plain
clipping sees gradients that are still scaled; a loss that is divided by the number of accumulated batches is divided
again; a model in `DataParallel` or a loader with a `DistributedSampler` is distributed twice. What one sees is another
loss curve than on one process, or an error in the first step. Leave it to the Accelerator:

    accelerator.backward(loss)
    accelerator.clip_grad_norm_(model.parameters(), 1.0)""",
        _WRITTEN,
    ),
    _rule(
        "ACC713",
        "counted-twice",
        "Samples count more than once in a figure.",
        "gathered",
        3,
        """\
The last batch of a prepared loader is filled up with samples of its beginning, so that all processes have as many.
`gather` puts them into the figure twice, `gather_for_metrics` leaves them out. What is gathered twice has every sample
once for each process:

    outputs, labels = accelerator.gather_for_metrics((outputs, labels))""",
        _WRITTEN,
    ),
    _rule(
        "ACC714",
        "one-device-for-all",
        "Every process uses the same device.",
        "device",
        2,
        """\
A device that is named by its number is the same for all processes of a machine: they share its memory, or fail where
what they compute with lies on another one. A file that was saved on a GPU is loaded onto that GPU by every process,
unless `map_location` says otherwise:

    noise = torch.randn(8, 100, device=accelerator.device)
    weights = torch.load("model.pt", map_location="cpu")""",
        _WRITTEN,
    ),
    _rule(
        "ACC715",
        "attribute-of-wrapper",
        "An attribute is asked of a prepared model that may be wrapped.",
        "wrapper",
        2,
        """\
On one process `prepare` gives the model itself, on several a wrapper around it. The wrapper has the methods of every
module, and no attribute of the model's own class; `.module` is there on several processes only. The script ends with
an AttributeError in one of the two:

    accelerator.unwrap_model(model).generate(inputs)""",
        _WRITTEN,
    ),
    _rule(
        "ACC716",
        "same-order-each-epoch",
        "A DistributedSampler never gets the number of the epoch.",
        "epoch",
        1,
        """\
A `DistributedSampler` shuffles by its seed and the number of the epoch. Without `set_epoch` every epoch has the same
batches in the same order, which costs accuracy and raises no error:

    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        for batch in loader:
            ...""",
        _WRITTEN,
    ),
)

_BY_DEMAND = {demand: one.rule for one in RULES for demand in one.demands}


def rule_of(demand: str) -> Rule:
    """The rule that a demand of the engine is named by."""
    return _BY_DEMAND[demand]


def _table(lines: str) -> dict[str, frozenset[str]]:
    rows = (line.partition(": ") for line in lines.splitlines())
    return {
        f"ACC{code}": frozenset(demands.split(", ")) for codes, _, demands in rows for code in codes.split()
    }


# Of what the findings of transforms speak, in the engine's demands: at their places it is not said once more.
SPOKEN_OF = _table(
    """\
109: unwrapped
120: one device
201 202 203 204 205 207 209 210 214: once
206: once, unwrapped
208: unwrapped
211 213: path, content
212: content, loss
301 302 304 306 307 309: content
401 412 604: rounds
402: loss, content, rounds
403: same, all ranks
405: all ranks
406 416 417 418 603: loss, content
414: content
420: loss, prepared
423: loss
605: accumulated, loss
""".rstrip()
)

# Of which effects the findings at a call speak, by the beginnings of the engine's sinks.
_EFFECTS = {
    "ACC201": ("terminal.",),
    "ACC202": ("bar.",),
    "ACC203": ("file.", "folder.", "wait."),
    "ACC204": ("tracker.",),
    "ACC205": ("network.",),
    "ACC206": ("file.",),
    "ACC209": ("log.",),
    "ACC214": ("figure.",),
}
# What ACC210 says of a call.
_EFFECTS_BY_WORD = {
    "writes files": ("file.", "folder."),
    "makes folders": ("folder.",),
    "draws pictures": ("figure.", "file."),
    "a log": ("log.", "file."),
    "prints": ("terminal.",),
    "asks with": ("wait.", "terminal."),
}

# Findings that speak of all that one logger or tracker does, wherever it does it: by the beginning of its sinks.
SPOKEN_OF_EVERYWHERE = {"ACC204": "tracker.", "ACC209": "log."}


def effects_of(finding: Finding) -> tuple[str, ...]:
    """The effects of which a finding at a call speaks, by the beginnings of the engine's sinks."""
    if finding.code != "ACC210":
        return _EFFECTS.get(finding.code, ())
    return tuple(
        one for word, effects in _EFFECTS_BY_WORD.items() if word in finding.message for one in effects
    )


# Findings of transforms that are untrue where the engine proves this demand of all that stands at their place.
_SETTLED_BY = _table(
    """\
201 202 203 204 205 206 209 210 214: once
304 306 307: content
406: loss
403: same
""".rstrip()
)


def settled_by(finding: Finding) -> frozenset[str]:
    """The demands by which a finding of a transform is untrue, where the engine proves them at its places."""
    # That it is done once says nothing of when.
    is_race = finding.message.startswith("the main process may")
    return frozenset() if is_race else _SETTLED_BY.get(finding.code, frozenset())
