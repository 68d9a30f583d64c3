"""The codes of rules: each is a sink and a demand, for `check` and `convert` alike.

Parts of the converter that find the same have codes by themselves, which were rules once and are aliases now: they go
on working in configuration and comments, where they select what they selected.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from accelify.findings import Finding

# Rule, name, and the codes of its parts besides itself.
_TABLE = """\
ACC001 distributed-already
ACC003 left-alone 004 005 006 007 008 009 010 011
ACC012 unused-ignore
ACC013 checked-in-part
ACC102 accelerator 101 105 410 415
ACC106 prepare
ACC122 old-python 123 124
ACC212 random-numbers 215 423
ACC402 unshared-data 115 303
ACC404 fixed-batch-size 125 413
ACC409 other-callers 427
ACC501 notebook-launcher
ACC502 unread-cell
ACC601 accelerate-loader 602 609 610
ACC606 accelerate-model 607 608 611 612 613
ACC701 unproved-figure 301 302 304 306 307
ACC702 effect-by-all 201 202 203 204 205 206 209 210 214
ACC703 parted-path 211 213
ACC704 parted-processes 403 405 414
ACC705 parted-gradients 406 416 417 418 420 603 605
ACC706 counted-rounds 401 412 604
ACC707 written-with-wrapper
ACC708 never-released
ACC709 unordered-files
ACC710 two-devices 114 120 121
ACC711 misplaced-prepare
ACC712 beside-accelerator 107 108 109 110 111 112 116 117
ACC713 counted-twice
ACC714 one-device-for-all 103 104 113 118 126 207
ACC715 attribute-of-wrapper 208
ACC716 same-order-each-epoch
ACC717 unfit-for-tpu
"""
_ROWS = [line.split() for line in _TABLE.splitlines()]
# The names of the rules by their codes.
NAMES = {code: name for code, name, *_ in _ROWS}
# The codes of what finds something, of rules as of their parts, with the codes of the rules.
PUBLIC = {part: code for code, _, *numbers in _ROWS for part in (code, *(f"ACC{one}" for one in numbers))}

# What a person does about a finding that `convert` does not fix, by the code of what finds it.
_BY_HAND = """\
001 look at it with `accelify check`, which finds what is wrong in such a script
003 put bare tensors into an `nn.Module`, or make the model in this file
004 convert the script that makes it
005 give it a name in this file, as in `model = Net()`, before it is passed on
006 make the model in a function from which the training loop is called
007 call the function that trains directly, not as a callback
008 write the line in another way, or on a line of its own
009 name the script that has the training loop
010 make it before the training loop, beside the model
011 change this line, or take it out
101 102 make it before the first model: `accelerator = Accelerator()`
103 118 take `accelerator.device` in its place
104 take the move out, or move to `accelerator.device`
105 pass it the Accelerator as an argument
106 prepare it: `accelerator.prepare(...)`
107 call `accelerator.backward(loss)`
108 call `accelerator.clip_grad_norm_` or `clip_grad_value_`
109 take the DataParallel out; prepare distributes the model
110 111 choose the precision where the Accelerator is made: `Accelerator(mixed_precision=...)`
112 put each batch under `with accelerator.accumulate(model):`
113 choose the GPUs when launching
114 copy it to the host first: `.cpu()`
115 give each process its part: `accelerator.shard_batch(...)`
116 ask the Accelerator in place of torch.distributed
117 take it out, and choose the precision where the Accelerator is made
120 put both on `accelerator.device`
121 use `torch.is_tensor`, or look for the type on the GPU as well
122 write `next(iterator)`
123 write `non_blocking`
124 write `loss.item()`
125 make it once, for one process
126 load it to the device of the process: `accelerator.device`
201 print with `accelerator.print`, or under `if PartialState().is_main_process:`
202 pass `disable=not PartialState().is_local_main_process`
203 204 209 210 214 put it under `if PartialState().is_main_process:`
205 let the main process do it first: `with PartialState().main_process_first():`
206 call `accelerator.save` on every process
207 load it with `map_location="cpu"`
208 take the wrapper off first: `accelerator.unwrap_model(model)`
211 send the others the main process's: `broadcast_object_list([...])[0]`
212 seed the environment, on every process alike
213 name the file after `device.type`
215 draw them on every process
301 gather what it is computed from: `accelerator.gather_for_metrics((outputs, targets))`
302 304 put it together over the processes before it is read: `accelerator.reduce(...)` or `gather_for_metrics(...)`
303 402 to share the work, prepare a DataLoader of it, or call `accelerator.split_between_processes(...)`
401 divide it by `accelerator.num_processes`
403 give it the mean over the processes: `accelerator.reduce(...)`
404 take the size of the batch, as in `data.size(0)`
405 let all processes decide together: `accelerator.reduce(...)`
406 write the loss as one sum or one mean over the rows of the batch
409 convert that script as well, or change its call
410 write the option where the Accelerator is made
412 end the loop with the batches of one process: `len(loader)`
413 leave the number of GPUs out
415 convert the script that makes the model
416 average it over the processes: `accelerator.reduce(..., reduction="mean")`
418 change the gradients after backward, where they are averaged
423 draw it with torch, or seed NumPy with the rank added
502 write the cell as Python
601 give the loader `drop_last=True`
606 611 call the model itself, or average these gradients: `accelerator.reduce(...)`
607 read it from the object inside the wrapper
608 give the Accelerator `DistributedDataParallelKwargs(find_unused_parameters=True, broadcast_buffers=False)`
609 choose a batch size that the number of processes divides
610 make it of torch's own DataLoader
701 put it together over the processes first (gather or reduce)
702 leave it to the main process
703 send the others the main process's
704 let all processes come there
705 write the loss as a mean over the rows of the batch, or accept that each process's batch counts as a whole one
706 go by the batches of all processes: N times those of one
707 take the wrapper off first
708 free it at the end of each round
709 let all wait in between
710 put both on the device of the process
711 take the results in the order of the arguments
712 leave it to the Accelerator
713 gather it once
714 let the launch choose the device
715 take the wrapper off first
716 call `set_epoch` on the sampler at the start of each epoch
717 leave it out on TPU
"""
_WAYS = {
    f"ACC{code}": " ".join(row.split()[len(codes) :])
    for row in _BY_HAND.splitlines()
    for codes in [[word for word in row.split() if word.isdigit()]]
    for code in codes
}
_CODE = re.compile(r"`[^`]*`")
# How what a person is to do begins, after what is wrong.
_DO = re.compile(
    r"[;:,] (?:or |after this call, |afterwards, |first |if [^;:]*, |where [^;:]*, )?(?:add|ask|assign|average|"
    r"broadcast|call|change|choose|clip|convert|copy|count|cut|decide|divide|draw|drop|end|fix|free|gather|get|give|go|have|import|"
    r"leave|let|load|look|make|move|multiply|name|open|pad|pass|prepare|print|put|read|reduce|save|seed|send|set|show|start|"
    r"sum|take|use|wrap|write)\b(?! with it)|[;:,] accelerator\.|--\w"
)
_AGAIN = re.compile(r"; the same at .*$")
# Causes that have one way out, whatever comes of them.
_OF_CAUSES = {
    "which is not prepared": "prepare it: `accelerator.prepare(...)`",
    "which is not divided between them": "give the DataLoader `sampler=DistributedSampler(...)`",
    "data that differ between them": "draw and choose them alike on all: with one seed, or as the main process does",
    "as reduced by ": "reduce the sum and the number that it is divided by, each by itself",
}
# The same of a figure that is shown: the loss that it is made of is put right otherwise.
_OF_FIGURES = {
    "is a mean by `": "multiply it by what its rows weigh, and reduce its sum and that of the weights, each by itself",
}


def by_hand(code: str) -> str:
    """What a person does about a finding of this code that names nothing else; empty for a code that needs nothing."""
    return _WAYS.get(code, "")


def says_what_to_do(message: str) -> bool:
    """Whether a message names what a person does about it."""
    return _DO.search(_CODE.sub("`", _AGAIN.sub("", message))) is not None


def with_way_out(finding: Finding) -> Finding:
    """A finding that is left to a person, with what to do about it at the end of its message."""
    is_loss = PUBLIC.get(finding.code, finding.code) == "ACC705"
    ways = _OF_CAUSES if is_loss else {**_OF_FIGURES, **_OF_CAUSES}
    of_cause = next((way for cause, way in ways.items() if cause in finding.message), "")
    way = finding.mark or of_cause or by_hand(finding.code)
    if finding.fixable or finding.severity == "info" or not way or says_what_to_do(finding.message):
        return finding
    again = _AGAIN.search(finding.message)
    end = again[0] if again else ""
    return replace(finding, message=f"{finding.message.removesuffix(end)}; {way}{end}")


def name_of(code: str) -> str:
    """The name of the rule that a code stands for."""
    return NAMES.get(PUBLIC.get(code, code), code)


def published(finding: Finding) -> Finding:
    """A finding of a part as one of its rule, which is what users see."""
    code = PUBLIC.get(finding.code, finding.code)
    finding = with_way_out(finding)
    return replace(finding, code=code, name=NAMES.get(code, finding.name), part=finding.code)


def published_all(findings: Iterable[Finding]) -> list[Finding]:
    """Findings of parts as those of their rules, each place and message once."""
    return list({(one, one.cell, one.message): one for one in map(published, findings)}.values())
