"""Scripts that distribute or scale by hand, brought back to the plain form for one device that convert understands.

What the plain form cannot say (`if rank == 0`, the world size, options of DistributedDataParallel) is in it as a
placeholder or is recorded in `accelify.analysis.lowered`. Positions of findings are those in the original script.
"""

from __future__ import annotations

from accelify.analysis.script import ScriptModel
from accelify.lowering.apex import lower_apex
from accelify.lowering.ddp import lower_ddp
from accelify.lowering.work import Plain, Work
from accelify.writer.errors import EditError


def lower(script: ScriptModel, *, replace_ddp: bool = False) -> Plain | None:
    """The plain form of a script, None where it is plain already.

    Args:
        script: the script as it is.
        replace_ddp: also take out DistributedDataParallel and what is around it; otherwise only apex's amp.

    What is not understood is in the result's `problems`; it has no text then.
    """
    work = Work(script)
    try:
        lower_apex(work)
        if replace_ddp:
            lower_ddp(work)
    except EditError as error:
        work.problem(script.tree.module.body[0], str(error))
    return work.finish() if work.touched else None


__all__ = ["Plain", "lower"]
