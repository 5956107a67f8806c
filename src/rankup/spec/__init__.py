"""What a job is: ``JobSpec``, one description for every command.

| module | what |
|---|---|
| ``jobspec`` | ``JobSpec`` and its fields |
| ``field_types`` | the types of its fields: what is read, and which values are refused |
| ``flag`` | ``Flag``: how a field is given on a command line |
| ``job_values`` | the values of a job as files write them: ``[job]`` of a job.toml, ``[defaults]`` of a site |
| ``variables`` | what the ranks find in their environment, here or in a job's script |
| ``validation`` | an invalid value as one clear sentence |
"""
