"""Ranks among each other: how they meet, what they exchange, how they end.

| module | what |
|---|---|
| ``groups`` | process groups |
| ``rendezvous`` | where ranks meet if no agent brings them together |
| ``control`` | the control group: small numbers that ranks exchange besides the training |
| ``waiting`` | which rank waits for which, and for how long |
| ``reduce`` | ``run.sum`` and ``run.mean`` |
| ``gather`` | ``run.gather``: all ranks' rows, with gradients |
| ``sections`` | ``run.main_first`` and the like: code that one process runs first |
| ``replicas`` | replicas must stay equal |
| ``buffers`` | batch statistics, made equal before an evaluation or a save |
| ``open_files`` | enough file descriptors for the connections |
| ``shutdown`` | how a rank ends, after success and after an exception |
"""
