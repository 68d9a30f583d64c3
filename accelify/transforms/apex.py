"""NVIDIA apex: amp becomes the Accelerator's mixed precision, its synchronised batch norm becomes torch's.

model, optimizer = amp.initialize(model, optimizer, opt_level="O1")  ->  Accelerator(mixed_precision="fp16" ...)

with amp.scale_loss(loss, optimizer) as scaled_loss:                 ->  accelerator.backward(loss)
    scaled_loss.backward()

clip_grad_norm_(amp.master_params(optimizer), 1.0)  ->  accelerator.clip_grad_norm_(model.parameters(), 1.0)

model = apex.parallel.convert_syncbn_model(model)   ->  model = nn.SyncBatchNorm.convert_sync_batchnorm(model)

Level O0 casts nothing and becomes no mixed precision; O2 and O3 become what O1 is: the model's weights stay in
full precision. A checkpoint no longer contains amp's state. A function of another module that scales a loss by amp is
named by ACC712, as nothing calls amp.initialize any more.
"""

from __future__ import annotations

from accelify.findings import Safety, Severity
from accelify.transforms.base import Rule

# Its edits are made before the script is analysed: accelify/lowering/apex.py.
APEX = Rule(
    "ACC117",
    "The script casts, scales or synchronises by apex, past the Accelerator.",
    Severity.ERROR,
    Safety.REVIEW,
    effort=10,
    done="replaced apex by the Accelerator",
)
