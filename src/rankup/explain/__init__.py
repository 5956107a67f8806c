"""Why a job failed: from the logs of all its ranks to the cause, without what followed from it.

| module | what |
|---|---|
| ``explain_logs`` | ``explain_logs``: from paths to an ``Explanation`` |
| ``run_directory`` | what the directory of a run tells besides its logs |
| ``reading`` | any file as lines, in bounded memory |
| ``prefixes`` | rank, host, time and colours before a line |
| ``tracebacks`` | Python's tracebacks in a stream of lines |
| ``endings`` | what launchers say of the end of ranks |
| ``watchdog`` | which rank did not come to a collective |
| ``signatures`` | what known failures look like: tables, one for each origin |
| ``events`` | what happened, as data |
| ``log_reader`` | one pass over a log |
| ``choose`` | which event is the cause |
| ``verdict`` | the cause in words |
| ``judge`` | from facts to the answer |
| ``cascade`` | what followed from it |
| ``explanation`` | the answer, as data and as lines |
| ``codes`` | what rankup says under a code, read from its source |

Which rank failed first is decided as `rankup run` does it (``run/failure.py``).
"""
