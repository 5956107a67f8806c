"""What command lines of launchers and schedulers mean: one grammar for all who read them.

The files of ``tables/`` hold the options of each command, a row each, written as ``--help`` writes them.

| module | what |
|---|---|
| ``options`` | a table → ``Grammar``: the ``Option``s of a command, and how it spells them |
| ``reader`` | a command line → its options, their values, and the program with its arguments |
| ``launchers`` | commands and modules of Python that launch ranks |
| ``accelerate_config`` | accelerate's file → options |
| ``dialects`` | which of the families of MPI a command line is for |
| ``numbers`` | the numbers that Slurm takes |
"""
