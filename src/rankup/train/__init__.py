"""The training loop of the built-in workloads, written with the public library and nothing else.

| module | what |
|---|---|
| ``loop`` | the loop, on one screen |
| ``workload`` | ``Workload``: what the loop calls; built-in, or your own |
| ``options`` | the options of ``rankup train``, as they reach every rank |
| ``parallel`` | the strategy for a workload |
| ``optimizers`` | the optimizers that ``--optimizer`` names |
| ``rates`` | the learning rate for another global batch, and its warm-up |
| ``metrics`` | loss and accuracy over many batches |
| ``early_stop`` | ends the training at a target accuracy |
| ``report`` | records for programs and lines for logs, written by rank 0 |
| ``allreduce_times`` | a rank of the bandwidth sweep of ``rankup predict --measure-links`` |
| ``parameter_bytes`` | the sizes of a workload's parameters, for ``rankup predict --simulate`` |

``python -m rankup.train OPTIONS`` is what ``rankup train`` starts on every rank; it imports the standard library and
torch alone.
"""
