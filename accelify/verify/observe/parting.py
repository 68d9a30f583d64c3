"""Where two runs part: the first weights, module output, loss or gradient of a step that is not the reference's."""

from __future__ import annotations

from functools import partial

import torch

from accelify.verify.events import mean_loss
from accelify.verify.observe.tracing import Call, Window, close


def first_difference(
    reference: dict[int, Window], ranks: list[dict[int, Window]], tolerance: float
) -> tuple[int, str]:
    """The number of the step with the first part that differs, and words about it; 0 where none was found.

    Args:
        reference: the steps of the original, by their number.
        ranks: those of each rank of the other run.
        tolerance: what rounding may make of the loss, as a share of it.
    """
    for number in sorted(reference):
        windows = [steps[number] for steps in ranks if number in steps]
        if len(windows) != len(ranks):
            return number, "not every process takes part"
        for compare in (_weights, _outputs, partial(_loss, tolerance=tolerance), _gradients):
            if sentence := compare(reference[number], windows):
                return number, sentence
    return 0, ""


def _weights(reference: Window, windows: list[Window]) -> str:
    mine = windows[0]["weights"]
    if [w.shape for w in mine] != [w.shape for w in reference["weights"]]:
        return ""
    for other in windows[1:]:
        if any(not torch.equal(a, b) for a, b in zip(mine, other["weights"], strict=False)):
            return "the processes begin with different weights"
    if all(close(a, b) for a, b in zip(reference["weights"], mine, strict=True)):
        return ""
    return "the weights differ already when it begins: the update before it was another one"


def _outputs(reference: Window, windows: list[Window]) -> str:
    seen: dict[str, int] = {}
    for call in reference["calls"]:
        turn = seen.get(call["name"], 0)
        seen[call["name"]] = turn + 1
        outputs = [_output(window["calls"], call["name"], turn) for window in windows]
        if any(output is None for output in outputs):
            continue
        whole = _together([output for output in outputs if output is not None], call["output"])
        if whole is None or _same_rows(call["output"], whole):
            continue
        named = f"the output of `{call['name']}` ({call['kind']})"
        if call["mixes"]:
            return (
                f"{named} is the first that differs: it mixes the rows of a batch, and each process has only its part "
                "of them"
            )
        return f"{named} is the first that differs{_ratio(whole, call['output'])}"
    return ""


def _same_rows(reference: torch.Tensor, whole: torch.Tensor) -> bool:
    """Whether two outputs have the same rows, in whatever order: ranks' rows need not stand one rank after another."""
    if close(reference, whole):
        return True
    if (
        reference.dim() == 0
        or reference.shape != whole.shape
        or reference.is_complex()
        or not reference.numel()
    ):
        return False
    # Each column by itself: rounding cannot part the two as it can where rows are put in order.
    a, b = (output.reshape(len(output), -1).sort(0).values for output in (reference, whole))
    return close(a, b)


def _output(calls: list[Call], name: str, turn: int) -> torch.Tensor | None:
    found = [call["output"] for call in calls if call["name"] == name]
    return found[turn] if turn < len(found) else None


def _together(outputs: list[torch.Tensor], reference: torch.Tensor) -> torch.Tensor | None:
    """The outputs of all ranks as one; None where they cannot be compared with the reference's."""
    if reference.dim() == 0:
        return torch.stack(outputs).mean(0) if all(output.dim() == 0 for output in outputs) else None
    if all(output.shape == reference.shape for output in outputs):
        # Every rank had all of the rows.
        return outputs[0]
    if any(output.dim() != reference.dim() or output.shape[1:] != reference.shape[1:] for output in outputs):
        return None
    whole = torch.cat(outputs)
    return whole if whole.shape == reference.shape else None


def _loss(reference: Window, windows: list[Window], tolerance: float) -> str:
    mean = mean_loss([window["loss"] for window in windows], [window["weight"] for window in windows])
    wanted = reference["loss"]
    if abs(mean - wanted) <= tolerance * max(abs(wanted), 1e-30):
        return ""
    same = "the modules' outputs are the original's, but " if reference["calls"] else ""
    over = " over all processes" if len(windows) > 1 else ""
    values = f"{mean:.6g}{over}, {wanted:.6g} in the original"
    return f"{same}the loss is not: {values}{_why(mean, wanted, len(windows))}"


def _gradients(reference: Window, windows: list[Window]) -> str:
    if not windows[0]["ends"]:
        return ""
    wanted = dict(reference["gradients"])
    for name, mine in windows[0]["gradients"]:
        others = [dict(window["gradients"]).get(name) for window in windows[1:]]
        if any(other is None or not close(mine, other) for other in others):
            return (
                f"the gradient of `{name}` is not the same on every process: it is not reduced over them, as where its "
                "model is not prepared or is called past its wrapper"
            )
        if name in wanted and wanted[name].shape == mine.shape and not close(wanted[name], mine):
            return f"the gradient of `{name}` is another one{_ratio(mine, wanted[name])}"
    missing = [name for name in wanted if name not in dict(windows[0]["gradients"])]
    return f"`{missing[0]}` has no gradient" if missing else ""


def _ratio(mine: torch.Tensor, wanted: torch.Tensor) -> str:
    """`, 0.5 times the original's` where one is the other times a number."""
    a, b = mine.double().flatten(), wanted.double().flatten()
    size = float(b @ b)
    if not size or a.shape != b.shape:
        return ""
    factor = float(a @ b) / size
    says_more = abs(factor) > 1e-6 and f"{factor:.4g}" != "1" and close(a, b * factor)
    return f", {factor:.4g} times the original's" if says_more else ""


def _why(mean: float, wanted: float, ranks: int) -> str:
    factor = mean / wanted if wanted else 0.0
    if ranks > 1 and abs(factor * ranks - 1) < 0.02:
        return f", one part in {ranks}, as where a sum over the batch is only over each process's part"
    for times in (factor, 1 / factor if factor else 0.0):
        if times > 1.5 and abs(times - round(times)) < 1e-3 * times:
            return f", {factor:.4g} times the original's, as where a sum is a mean or a mean a sum"
    if ranks == 1:
        return ""
    return (
        ": it is no mean of the rows, or a mean over a number of rows that is not the same on every process"
    )
