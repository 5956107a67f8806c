"""``rankup drill``: a job script meets the failures that a week brings, on the queue that it is written for.

The job's folder is copied for each failure, and the copy is submitted. A few lines in the copied script have each
attempt recorded, as ``rankup verify`` does it; so it is known which steps were trained, and with what result.

| module | what |
|---|---|
| ``failures`` | the table of failures, and how each is made to happen |
| ``copied_job`` | the copy of a job: its folder, and its script with the lines that record |
| ``queue`` | what is asked of a scheduler |
| ``slurm``, ``pbs`` | the commands of both |
| ``here`` | a cluster on this machine, of the size that the job asks for |
| ``lab`` | its hosts, if it is real |
| ``pretended``, ``pretended_job`` | a scheduler that rankup pretends, and its jobs |
| ``attempts`` | which steps each attempt trained, read from the traces |
| ``drill`` | submit, wait, strike, wait for the end |
| ``leftovers`` | processes that outlive their job |
| ``judge`` | what a failure cost |
| ``advice`` | what to change |
| ``table`` | the answer as text and as JSON |
"""
