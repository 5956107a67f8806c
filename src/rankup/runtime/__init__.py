"""The three-line library: ``rankup.init()`` gives a ``Run``; everything a training loop needs belongs to it.

| module | what |
|---|---|
| ``api`` | ``init`` and ``Run``: the public interface |
| ``device``, ``seed``, ``select_strategy``, ``any_world`` | what ``init`` decides once |
| ``model_transforms`` | changes to a model before it is wrapped: memory format, SyncBatchNorm, compilation |
| ``data`` | which samples, in which order, on which rank |
| ``loop`` | epochs, steps, gradients, precision, evaluation |
| ``distributed`` | process groups, what ranks tell each other, shutdown |
| ``checkpointing`` | when to save, resume, stop |
| ``tracing`` | what ``rankup verify`` reads |
| ``argument_types``, ``call_site``, ``live_objects``, ``pytree``, ``uncaught`` | small tools of the above |
"""
