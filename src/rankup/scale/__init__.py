"""What more processes bring, measured so that it convinces others.

| module | what |
|---|---|
| ``grid`` | which runs, in which order |
| ``plan`` | the grid of a study: its configurations, and the order of their runs |
| ``journal`` | a study on disk: its plan, and which runs have ended |
| ``runner`` | runs the trials of a study, here or as jobs, and goes on after an interruption |
| ``read_run`` | one run, from its records or its output |
| ``study`` | runs them, one after the other |
| ``measured`` | what one run did, read from its records |
| ``comparability`` | may these runs be compared? |
| ``stats`` | medians and ranges of few repeats |
| ``rows`` | from comparable runs to the rows of the table |
| ``table`` | the table, as text |
| ``results`` | the results of a study as data: ``results.json`` and back |
| ``summary`` | ``table.txt`` and ``results.json`` |
| ``machine`` | the machine: CPUs, devices, load |
| ``report`` | figures, tables and a page of a study or of any runs |
| ``predict`` | what larger sizes will reach, from results or from a description of the machine |

All but ``study``, ``results``, ``summary`` and ``report`` take data and return data.
"""
