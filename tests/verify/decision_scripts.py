"""Training scripts that decide something, and their converted forms, right and wrong."""

from __future__ import annotations

from . import scripts

STEP = "        opt.zero_grad()\n        loss = F.mse_loss(model(x), y)\n        loss.backward()\n        opt.step()\n"
EPOCH = f"for epoch in range(8):\n    for x, y in loader:\n{STEP}"
EVALUATION = (
    "    with torch.no_grad():\n        found = sum(float(F.mse_loss(model(v), w)) for v, w in valid)\n"
)
RISING = "    found = 8.0 - epoch if epoch < 4 else 9.0 + epoch\n"
# One rank's share gets worse two epochs before the other's.
BY_SHARE = (
    EVALUATION
    + RISING
    + "    found = found if accelerator.process_index == 0 or epoch < 2 else 20.0 + epoch\n"
)
VALID = "valid = [(X[:8], Y[:8]), (X[8:16], Y[8:16])]\n"
STOP = (
    "    if found < best:\n        best, since = found, 0\n    else:\n        since += 1\n"
    "    if since > 0:\n        break\n"
)
BEST = "best, since = float('inf'), 0\n"
SKIP = EPOCH.replace(
    "        opt.zero_grad()",
    "        if float(x.sum()) > LIMIT:\n            continue\n        opt.zero_grad()",
)
CAUGHT = EPOCH.replace(
    "        opt.zero_grad()",
    "        try:\n            check(x)\n        except ValueError:\n            continue\n        opt.zero_grad()",
)
CHECK = "def check(x):\n    if float(x.sum()) > 0:\n        raise ValueError('not this one')\n"
NTH = EPOCH.replace("for x, y in loader:", "for i, (x, y) in enumerate(loader):")
SECOND = (
    "        if i % 2 == 1:\n            penalty = sum(p.pow(2).sum() for p in model.parameters())\n"
    "            penalty.backward()\n            opt.step()\n"
)


def pair(
    loop: str, copy: str | None = None, before: str = "", prepare: str = scripts.PREPARE
) -> tuple[str, str]:
    """The two versions of a script with `before` ahead of its loop."""
    plain = scripts.plain(loop=before + loop)
    converted = scripts.converted(loop=before + (loop if copy is None else copy), prepare=prepare)
    return plain, converted


WRONG = {
    "early stop by each rank's share": pair(
        EPOCH + EVALUATION + RISING + STOP, EPOCH + BY_SHARE + STOP, VALID + BEST
    ),
    "batches left out by their content": pair(SKIP.replace("LIMIT", "0"), None),
    "exception of some batches": pair(CAUGHT, None, CHECK),
    "stops earlier everywhere": pair(
        EPOCH + EVALUATION + RISING + STOP,
        EPOCH + EVALUATION + RISING + STOP.replace("since > 0", "epoch > 2"),
        VALID + BEST,
    ),
}  # fmt: skip
RIGHT = {
    "early stop for all": pair(EPOCH + EVALUATION + RISING + STOP, None, VALID + BEST),
    "every second batch": pair(NTH + SECOND, None),
    "nothing left out": pair(SKIP.replace("LIMIT", "1e9"), None),
}
