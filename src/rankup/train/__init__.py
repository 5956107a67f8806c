"""The training loop of the built-in workloads. It uses only the public library.

| module | what |
|---|---|
| ``loop`` | the loop, on one screen |
| ``workload`` | ``Workload``: the members that the loop calls; built-in, or your own |
| ``options`` | the options of ``rankup train``, as every rank gets them |
| ``parallel`` | the strategy for a workload |
| ``optimizers`` | the optimizers that ``--optimizer`` names |
| ``learning_rate`` | the learning rate for the global batch, and its warm-up |
| ``metrics`` | loss and accuracy over many batches |
| ``early_stop`` | ends the training at a target accuracy |
| ``report`` | a line per epoch and a summary, printed by rank 0 |
| ``breakdown`` | the time of a step: data, compute, communication, optimizer |

``python -m rankup.train OPTIONS`` is what ``rankup train`` starts on every rank; it imports the standard library and
torch alone.
"""
