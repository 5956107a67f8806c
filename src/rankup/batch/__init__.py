"""Submitted runs: submit, look, follow, cancel, resume.

| module | what |
|---|---|
| ``submit`` | the run directory, then the scheduler: all of it or nothing |
| ``freeze`` | the code of a run as it was at the submit |
| ``recover`` | finds the job of a submit that was killed |
| ``store`` | finds a run again by directory, id, name or job number |
| ``queue`` | asks the schedulers: one question for all jobs of one scheduler |
| ``status`` | the status of a run, from scheduler and run directory |
| ``follow`` | follows the log of a run to its end, and tells the ranks in it apart |
| ``cancel`` | ends a run at once, or after it has saved |
| ``resume`` | submits a run again into its own directory |
| ``env_create`` | builds a Python environment, here or in a short job |
"""
