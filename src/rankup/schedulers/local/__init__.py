"""No scheduler: a job runs on this machine, detached.

| module | what |
|---|---|
| ``commands`` | the command lines: start, status, cancel |
| ``process`` | the program behind them, which starts a job and answers about it |
"""
