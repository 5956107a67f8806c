"""Floor 2: the state of a run on disk, whole and verified or not there at all.

| file | what |
|---|---|
| ``state.py`` | ``State``: what a snapshot is made of |
| ``saver.py`` | ``Saver``: one per run; holds the directory, saves, finds the newest good one |
| ``found.py`` | ``Found``: a verified snapshot, to be loaded |
| ``layout.py``, ``manifest.py``, ``verify.py`` | names, contents, hashes; no torch, so that a login node can look |
| ``disk.py`` | every write, rename and fsync of a save, and the hook that lets tests fail at each |
| ``staging.py``, ``shards.py``, ``writing.py`` | copy, divide among ranks, make durable |
| ``newest.py``, ``prune.py``, ``lock.py``, ``peers.py`` | choose, delete, one run at a time, agree |
| ``compare.py``, ``export.py`` | for the command line |

Nothing is imported here: the command line reads snapshots where there is no torch.
"""
