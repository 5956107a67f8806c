"""What more processes bring, measured so that it convinces others.

| module | what |
|---|---|
| ``plan`` | the grid of a study: its configurations, and the order of their runs |
| ``journal`` | a study on disk: its plan, and which runs have ended |
| ``runner`` | runs the trials of a study, here or as jobs, and goes on after an interruption |
| ``predicted`` | predicts each larger configuration before it is measured, and scores that |
| ``read_run`` | one run, from its records or its output |
| ``results`` | the results of a study as data: ``results.json`` and back |
| ``families`` | which configurations are compared with which baseline |
| ``stats`` | medians, ranges and intervals of few repeats |
| ``rows`` | times of each configuration, ratios against each baseline |
| ``parts`` | where the time of a step goes, and the largest loss |
| ``work`` | did all configurations do the same work? |
| ``conditions`` | a busy machine, shared cores, superlinear results |
| ``comparability`` | may these configurations be compared? |
| ``table`` | the tables, as text |
| ``summary`` | ``table.txt`` and ``results.json`` |
| ``machine`` | the machine: CPUs, devices, load |
| ``report`` | figures, tables and a page of a study or of any runs |
| ``predict`` | what larger sizes will reach, from what was measured |
| ``published`` | somebody else's table: read, recomputed, judged |

All but ``journal``, ``runner``, ``predicted``, ``read_run``, ``results``, ``summary`` and ``report`` take data and
return data.
"""
