"""Findings: one engine for everything that is wrong, or may go wrong, with a job, a run, a comparison or a machine.

| module | what |
|---|---|
| ``finding`` | ``Finding``, its severities, and the order of several |
| ``table`` | findings whose words stand in a TOML file, a row for each code |
| ``text`` | findings as the lines that people read |
| ``error`` | ``FindingsError``: findings that stop a command |
| ``engine`` | collects findings from named sources, and decides the exit code |

A user of the engine is a literal table, code → source: a function that takes facts and yields findings. So are:
    ADVICE, SITE_LIMITS, PROGRAM   in ``resolve``: facts are a job and its site
    COMPARABILITY                  in ``scale``: facts are the runs of a study
    a rule of ``check``            one file with a source each; facts are what a bash or Python file says
    a judge of ``doctor``          facts are what a probe has gathered
    a signature of ``explain``     facts are a run's logs; ``first`` takes the first that recognises them
"""
