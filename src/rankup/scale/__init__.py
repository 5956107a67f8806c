"""What more processes bring, measured so that it convinces others.

| module | what |
|---|---|
| ``grid`` | which runs, in which order |
| ``study`` | runs them, one after the other |
| ``measured`` | what one run did, read from its records |
| ``comparability`` | may these runs be compared? |
| ``stats`` | medians and ranges of few repeats |
| ``rows`` | from comparable runs to the rows of the table |
| ``table`` | the table, as text |
| ``results`` | the results of a study as data: ``results.json`` and back |
| ``summary`` | ``table.txt`` and ``results.json`` |
| ``machine`` | the machine: CPUs, devices, load |

All but ``study``, ``results`` and ``summary`` take data and return data.
"""
