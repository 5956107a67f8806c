"""Which samples, in which order, on which rank; and their batches on the device.

| module | what |
|---|---|
| ``sharding`` | the order of an epoch and this rank's part: pure functions of (seed, epoch, step, rank, world size) |
| ``step_plan`` | how one epoch is cut into steps |
| ``position`` | where training on one data set is |
| ``feeds`` | which feed serves which data set |
| ``loaders`` | feeds of numbered samples: from a data set to batches on the device |
| ``resident`` | ``ResidentData``: data that fits in memory |
| ``loader_options`` | options of the DataLoader, and how its workers end |
| ``sample_rng`` | random numbers that depend on the sample alone |
| ``generators`` | the global generators of torch, Python and NumPy, saved and restored |
| ``samplers`` | the order of a user's ``sampler=`` or ``batch_sampler=`` |
| ``stream`` | feeds of an ``IterableDataset`` |
| ``stream_split`` | who splits a stream over ranks and workers |
| ``stream_reader`` | what reads a stream in each worker |
| ``worker_info`` | which worker a stream believes to be read by |
| ``identity`` | all ranks must hold the same data |
| ``batch_size_check`` | BatchNorm must not get a single sample |
"""
