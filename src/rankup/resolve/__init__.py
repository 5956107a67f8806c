"""From flags, job.toml, site and defaults to one job in which nothing is open.

| module | what |
|---|---|
| ``precedence`` | ``resolve``: of flags, job.toml, site and defaults the first that sets a value decides |
| ``here`` | the same for ``rankup run``, ``train``, ``verify`` and ``scale``, on this machine |
| ``origins`` | values with their origins, and the values that are derived from others |
| ``resolved`` | ``Resolved``: the job, its site, and the origin of each value |
| ``job_toml`` | ``job.toml``: a job as a file, read and written |
| ``checks`` | all that is wrong with a job, at once |
| ``findings`` | the words of what is said about a job, from ``findings.toml`` |
| ``site_limits`` | whether the site can run the job: nodes, launchers, required options |
| ``program`` | whether the script or program exists, what it imports, and what it was built for |
| ``advice`` | findings about a valid job that may still fail |

It is a package of its own because a ``Site`` holds default values of a ``JobSpec``: ``spec`` must not import ``sites``,
and what combines the two lies above both.
"""
