"""The three-line library: ``rankup.init()`` gives a ``Run``; everything a training loop needs belongs to it.

| module | what |
|---|---|
| ``api`` | ``init`` and ``Run``: the public interface |
| ``context`` | the state of one run, as the parts below share it |
| ``prepare`` | ``run.prepare`` and ``run.batches``: model, optimizer and data of this rank |
| ``device`` | the device of this process, by its local rank |
| ``seed`` | from one number of the user an independent seed for each purpose |
| ``select_strategy`` | which strategy a run uses |
| ``model_transforms`` | memory format, SyncBatchNorm, compilation: before the model is wrapped |
| ``data`` | which samples, in which order, on which rank |
| ``loop`` | epochs, steps, gradients, precision, evaluation |
| ``distributed`` | process groups, what ranks tell each other, shutdown |
| ``checkpointing`` | when to save, resume, stop |
| ``tracing`` | what ``rankup verify`` reads |
| ``pytree`` | tensors in nested batches and outputs |
| ``argument_types`` | arguments of a wrong type: one clear error |
| ``call_site`` | which line of the script calls |
| ``live_objects`` | objects of a type that are alive in this process |
| ``uncaught`` | how an error of ours is printed that the script does not catch |
"""
