"""Schedulers that are tested with recorded answers alone.

| module | what |
|---|---|
| ``torque`` | Torque: qsub and qstat of PBS, in words of its own |
"""
