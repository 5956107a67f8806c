"""PBS: OpenPBS and PBS Pro.

| module | what |
|---|---|
| ``commands`` | qsub, qstat, qdel: the command lines |
| ``directives`` | what a job requests, as options of qsub |
| ``limits`` | what the hosts have |
| ``queue_range`` | what a queue grants, after a refusal |
| ``start_estimate`` | when a job would start |
| ``qstat`` | the output of ``qstat -f``, as JSON or as text |
| ``states`` | PBS's states and reasons in our words |
| ``errors`` | the errors of PBS, each with the flag to change |
"""
