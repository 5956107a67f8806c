"""Running here and now: on this machine, on machines started by hand, or on a whole allocation.

| module | what |
|---|---|
| ``execute`` | ``execute``: runs a job |
| ``attempts`` | how an attempt begins; ``Attempt``, which all parts take whole; how the last one ended |
| ``view`` | who looks on while a job runs, and the copy of it in ``logs/job.log`` |
| ``allocation`` | the nodes that a scheduler has given, and those that a job takes |
| ``agents`` | one ``rankup run`` per node of an allocation |
| ``meeting`` | the port, the run and the settings that nodes share which were started one by one |
| ``handshake`` | they find each other and compare settings |
| ``disagreement`` | what differs between nodes, as an error for each of them |
| ``node`` | this node's processes: started, watched, sampled, ended |
| ``environment`` | the environment of the ranks, and the line that says what starts on this node |
| ``rank`` | wraps each rank: its output goes to its own log file |
| ``separate_models`` | warns if several processes each train a model of their own |
| ``terminal`` | a single process on the terminal, so that a debugger works |
| ``interrupts`` | SIGINT, SIGTERM and SIGHUP, as a question that the watching loop asks |
| ``logs`` | the ranks' log files, followed line by line |
| ``failure`` | which rank failed first, and why |
| ``outcome`` | how an attempt ended: result, files, error |
| ``process_cleanup`` | finds and kills all processes of a run |
| ``markers`` | small files that a job's script and its ranks leave in the run directory |

``torch_hook/`` is put on ``PYTHONPATH`` of the ranks for ``separate_models``.
"""
