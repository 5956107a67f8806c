"""The command line. ``commands/`` has one file per command.

| module | what |
|---|---|
| ``app`` | the table of commands and the dispatcher; ``rankup --help`` imports nothing else |
| ``console`` | prints errors in one form, and colours on a terminal |
| ``usage_errors`` | click's usage errors in our form |
| ``findings`` | findings as text |
| ``output`` | help pages and tables |
| ``completion`` | completion for bash, zsh and fish |
| ``examples`` | the examples in each command's help |
| ``options`` | options of several commands |
| ``shared_options`` | options as the parameters of a function |
| ``job_options`` | the options that describe a job |
| ``training_options`` | the options that describe a training |
| ``resume_options`` | ``--resume`` |
| ``target_parser`` | a script or workload with its own options, inside another command |
| ``run_targets`` | how a run is named, printed and followed |
| ``submitted_job`` | from the options of ``rankup submit`` to a job, with the origin of each value |
| ``workload_job`` | from ``rankup train`` to a job of ``python -m rankup.train`` |
| ``log_view`` | prints the lines of ranks |
| ``progress`` | progress bars from records |
| ``snapshot_lines`` | snapshots as rows |
| ``interactive`` | ``--interactive``: a shell on a job's resources |
| ``env_build`` | ``rankup env create`` |
| ``site_survey`` | facts about this cluster for ``rankup sites new`` |
| ``commands`` | one file per command |
"""
