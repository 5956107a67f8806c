"""What happens in a loop: epochs and steps, losses and gradients, evaluations and means.

- ``epochs``: the loop itself, and what is done around each batch
- ``evaluation``: ``run.batches``
- ``body_checks``: what cannot be done in a loop's body under some strategies
- ``gradients``: ``run.backward`` and ``run.step``
- ``loss_weights``, ``loss_scaling``: what a loss is multiplied by
- ``accumulation``, ``gradient_guard``: gradients that wait for a step
- ``optimizer``, ``closures``, ``schedules``: what steps
- ``several_models``: several models with one optimizer
- ``precision``: in what arithmetic the model computes
- ``meter``, ``nan_watch``: means that survive a resume, and losses that are NaN
"""
