"""What more processes bring, measured so that it convinces others.

| module | what |
|---|---|
| ``grid`` | which runs, in which order |
| ``study`` | runs them, one after the other |
| ``measured`` | what one run did, read from its records |
| ``results`` | the results of a study as data: ``results.json`` and back |
| ``families`` | which configurations are compared with which baseline |
| ``stats`` | medians, ranges and intervals of few repeats |
| ``rows`` | times of each configuration, ratios against each baseline |
| ``work`` | did all configurations do the same work? |
| ``conditions`` | a busy machine, shared cores, superlinear results |
| ``comparability`` | may these configurations be compared? |
| ``table`` | the tables, as text |
| ``summary`` | ``table.txt`` and ``results.json`` |
| ``machine`` | the machine: CPUs, devices, load |
| ``published`` | somebody else's table: read, recomputed, judged |

All but ``study``, ``results`` and ``summary`` take data and return data.
"""
