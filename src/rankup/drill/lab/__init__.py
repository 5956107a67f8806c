"""A real SLURM or PBS of several hosts on this machine, in namespaces, for ``rankup drill --here`` and for rankup's own
tests.

| module | what |
|---|---|
| ``lab`` | ``Lab``: its hosts go up and down, one of them loses its power, a command runs on one of them |
| ``slurm``, ``pbs`` | the scheduler on them |
| ``users`` | whose jobs run in it, and how root acts for that user |

``node.sh`` is process 1 of a host, ``own_tmp.sh`` gives a host its own /tmp, ``slurm.sh`` and ``pbs.sh`` start the
scheduler, ``slurm.conf.in`` configures SLURM.
"""
