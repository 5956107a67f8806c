"""Which samples, in which order, on which rank, and how they get there.

- ``order``: which sample is at which position of an epoch, and how it is cut into steps
- ``sharding``: the order of an epoch and each rank's share: pure functions
- ``samplers``: the order of a user's ``sampler=`` or ``batch_sampler=``
- ``portions``: a batch, the batches that are handed out at once, and where the training on a data set is
- ``batches``: batches of one rank, cut out of global batches; shorter epochs for ``rankup verify --quick``
- ``loaders``: batches of map-style data sets
- ``resident``: data that fits in memory, and its batches, on the device
- ``feeds``: which of these loads a given data set
- ``loader_options``: arguments of the DataLoader, and its workers' end
- ``worker_copies``: whether workers have the data set that the script has
- ``checked_fork``: workers that have started, on a Python whose forks may deadlock
- ``sample_rng``, ``generators``: random numbers that belong to a sample
- ``stream``, ``stream_reader``, ``worker_info``: iterable data sets, and what reads them
- ``stream_split``: who splits a stream, and whether each sample was handed out once
- ``identity``: whether all ranks have the same data
"""
