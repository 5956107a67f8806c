"""What a job is: ``JobSpec``, one description for every command.

| module | what |
|---|---|
| ``jobspec`` | ``JobSpec`` and its fields |
| ``flag`` | how a field is given on a command line |
| ``variables`` | the environment variables of the ranks, wherever they start |
| ``job_values`` | the values of a job as files write them: ``[job]`` of a job.toml, ``[defaults]`` of a site |
| ``validation`` | an invalid value as one clear sentence |
"""
