"""What happens in a loop: epochs and steps, losses and gradients, evaluations and means.

- ``epochs``: the loop itself, and what is done around each batch
- ``evaluation``: ``run.batches``
- ``gradients``: ``run.backward`` and ``run.step``
- ``run_strategy``: ``run.strategy``: a forward and backward that every strategy has
- ``backward_checks``: what ``run.backward`` refuses
- ``loss_scaling``: the factor of a loss in fp16
- ``optimizer_steps``, ``gradient_guard``: steps that were taken, and gradients that wait for one
- ``optimizer``, ``closures``, ``schedules``: optimizers and their schedules
- ``precision``: the arithmetic in which the model computes
- ``meter``, ``nan_watch``: means that survive a resume, and losses that are NaN
"""
