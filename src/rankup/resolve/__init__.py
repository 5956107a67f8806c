"""From flags, job.toml, site and defaults to one job in which nothing is open.

| module | what |
|---|---|
| ``resolve`` | ``resolve``: the first source that sets a value decides |
| ``here`` | ``resolve_here``: the same for what runs here and now |
| ``layers`` | values and their origins, the later over the earlier |
| ``resolved`` | ``Resolved``: the job, its site, and the origin of each value |
| ``job_toml`` | ``job.toml``: a job as a file, read and written |
| ``defaults`` | default values derived from other fields of the job |
| ``facts`` | what the checks of a job look at |
| ``checks`` | all that is wrong with a job, at once |
| ``site_limits`` | whether the site can run the job: nodes, launchers, required options |
| ``program`` | whether the script or program exists |
| ``script_imports`` | whether the script imports rankup |
| ``interpreter`` | the Python version and processor of a virtual environment |
| ``advice`` | findings about a valid job that may still fail, before it is submitted |

It is a package of its own because a ``Site`` holds default values of a ``JobSpec``: ``spec`` must not import ``sites``,
and what combines the two lies above both.
"""
