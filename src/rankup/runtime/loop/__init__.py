"""Epochs and steps: what happens around each batch of the loop.

| module | what |
|---|---|
| ``epochs`` | ``run.epochs`` and ``run.steps`` |
| ``gradients`` | ``run.backward`` and ``run.step`` |
| ``loss_weights`` | what ``run.backward`` is told about a loss |
| ``precision`` | fp32, tf32, bf16, fp16, fp64 |
| ``loss_scaling`` | the loss scale of fp16 |
| ``accumulation`` | gradients that are accumulated by hand |
| ``optimizer`` | the optimizer of a prepared model |
| ``closures`` | ``opt.step(closure)``, the same decisions on all ranks |
| ``several_models`` | one optimizer over several models |
| ``evaluation`` | ``run.batches``: each sample once over all ranks |
| ``meter`` | ``run.meter``: means over batches, ranks and attempts |
| ``body_checks`` | calls that are wrong in the loop's body under some strategies |
| ``gradient_guard`` | gradients must not change between micro-batches |
| ``schedules`` | a schedule must not move once per micro-batch |
| ``nan_watch`` | warns of a loss or metric that is NaN |
"""
