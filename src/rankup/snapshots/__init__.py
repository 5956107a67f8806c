"""The state of a run on disk: complete and verified, or not there at all.

| module | what |
|---|---|
| ``state`` | ``SnapshotState``: what a snapshot consists of; and its copy, so that the training goes on |
| ``saver`` | ``Saver``: one per run; it locks the directory, saves, and finds the newest good snapshot |
| ``snapshot`` | ``Snapshot``: a verified snapshot, and how it is loaded |
| ``layout`` | the names in a directory of snapshots, and which of them it keeps: ``Retention``; no torch |
| ``manifest`` | ``manifest.json`` and ``SHA256SUMS``, and whether they are kept; no torch |
| ``tensor_checksum`` | fast checksums of tensors |
| ``shards`` | which part of a tensor each rank holds; read with any other sharding |
| ``plan`` | which rank writes what, and where; made once per layout |
| ``writing`` | from the copies to a durable directory |
| ``disk`` | every write, rename and fsync of a save; tests make each of them fail |
| ``peers`` | ranks that save together agree over gloo groups of their own |
| ``alike`` | what several ranks hold must be the same on all of them |
| ``newest`` | which snapshot to resume from |
| ``prune`` | deletes what ``Retention`` does not keep |
| ``diff`` | where two snapshots differ, for the command line |
| ``export`` | the model alone as one file, for the command line |

This file imports nothing: the command line reads snapshots on machines without torch.
"""
