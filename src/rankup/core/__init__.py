"""What every other package uses. The standard library only: nothing here knows torch or schedulers.

| module | what |
|---|---|
| ``registry`` | names to things, imported on demand |
| ``nearest`` | the nearest right name of a mistyped one: "did you mean" |
| ``columns`` | tables as columns of plain text |
| ``units`` | durations, sizes and counts: parsed, and printed for people and schedulers |
| ``hostlist`` | SLURM's short notation for host names: ``rack[1-2]n[3-4]`` |
| ``endpoint`` | the address and port where several nodes meet |
| ``arrays`` | the indices of a job array, and lists of numbers |
| ``shell`` | the only place that starts programs |
| ``forked`` | one function over many items, in copies of this process |
| ``files`` | atomic writes, and file locks |
| ``locks`` | one process at a time, or an error that names the other |
| ``collector`` | Python's collector of cycles, off for a while |
| ``toml_file`` | TOML files: read with errors that name the line, and written |
| ``rundir`` | the run directory ``runs/<name>/<id>/``: what lies where |
| ``records`` | records: one JSON object per line |
| ``goodput`` | what the devices of a run did, over all attempts; ``python -m rankup.core.goodput RUN`` |
| ``elapsed`` | a line on our terminal that tells for how long something has been going on |
| ``progress`` | a step record in words, for bars, logs and ``rankup status`` |
| ``tail`` | follows a file that another process appends to |
| ``whole_lines`` | messages on a stream that a progress bar writes to as well |
| ``plain_text`` | what other programs write, without colours and control characters |
| ``choices`` | the values of ``--lost`` and ``--resume-with`` |
"""
