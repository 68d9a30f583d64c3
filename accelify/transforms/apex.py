"""NVIDIA apex's amp, which becomes the Accelerator's mixed precision, and its synchronised batch norm, torch's own.

model, optimizer = amp.initialize(model, optimizer, opt_level="O1")  ->  Accelerator(mixed_precision="fp16" ...)

with amp.scale_loss(loss, optimizer) as scaled_loss:                 ->  accelerator.backward(loss)
    scaled_loss.backward()

clip_grad_norm_(amp.master_params(optimizer), 1.0)  ->  accelerator.clip_grad_norm_(model.parameters(), 1.0)

model = apex.parallel.convert_syncbn_model(model)   ->  model = nn.SyncBatchNorm.convert_sync_batchnorm(model)

Level O0 casts nothing and becomes no mixed precision; O2 and O3 become what O1 is: the model's own weights stay in
full precision. A checkpoint no longer keeps amp's state.
"""

from __future__ import annotations

from accelify.findings import Safety, Severity
from accelify.transforms.base import Rule

# Its edits are made before the script is analysed: accelify/lowering/apex.py.
APEX = Rule(
    "ACC117",
    "apex-amp",
    "The script casts, scales or synchronises by apex, past the Accelerator.",
    Severity.ERROR,
    Safety.REVIEW,
    effort=10,
)
