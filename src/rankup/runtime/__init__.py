"""The three-line library. ``rankup.init()`` gives a ``Run``, which a training loop calls.

Ten thousand ranks begin at once, on one file system. So what a rank needs only later, or only in some runs, is imported
in the function that needs it: a test counts the files that are opened until the first step.

- ``api``: ``Run``, what a training loop calls
- ``init``: ``rankup.init``, which makes a ``Run``; no other module imports these two
- ``context``: the state of one run that all parts share
- ``prepare``: a model, its optimizer and its data are brought to this rank
- ``data``: which samples, in which order, on which rank, and how they are loaded
- ``loop``: epochs and steps, losses and gradients, evaluations and means
- ``distributed``: process groups, and what ranks tell each other
- ``checkpointing``: when to save, what is saved, how a run stops and resumes
- ``unregistered``: what changes in the script and was not declared
- ``records``: what a training tells of itself: records and progress
- ``loggers``: where else the numbers go: CSV, TensorBoard, W&B, MLflow
- ``tracing``: what ``rankup verify`` reads

What these parts use:

- ``digest``: hashes of a value: exact ones, and cheap ones
- ``seed``: the random numbers of a run
- ``model_transforms``: several models with one optimizer; memory format, SyncBatchNorm, compilation
- ``pytree``: tensors in batches and outputs of any nesting
- ``call_site``: where the script is, and how an error that it does not catch is shown
- ``live_objects``: what is alive in the process
"""
