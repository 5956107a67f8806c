"""The command line. In reading order:

| module | what |
|---|---|
| ``app`` | the table of commands, the dispatcher, exit codes |
| ``commands`` | one file per command |
| ``next_steps`` | what ``rankup`` without a command suggests for this folder |
| ``output`` | what is printed: errors, pages of help (with ``examples.toml``), tables, lines of ranks, progress |
| ``usage_errors`` | click's errors in our form |
| ``completion`` | completion scripts for shells |
| ``options`` | options of several commands, and what adds options from tables |
| ``job_options`` | the options of a job, from the fields of JobSpec |
| ``submitted_job`` | the job that submit and render resolve; ``--ignore``, ``--interactive`` |
| ``training_options`` | the options of a training, for train and scale |
| ``workload_job`` | from these options to a job that trains a workload |
| ``target_parser`` | a script or a workload with its own options inside another command |
| ``resume_options`` | ``--resume``, and the last lines of a run |
| ``unfinished`` | the run that ``--resume`` names, or that ``--name`` finds unfinished |
| ``run_argument`` | how a run is named on the command line, printed and followed |
| ``run_watch`` | a run that is watched: its records, its alerts, its state |
| ``stacks`` | the stacks of its ranks |
| ``env_build`` | the building of ``rankup env create`` |
| ``study_plan`` | the plan of a study, from options and a study.toml |
| ``study_jobs`` | the job of each run of a study |
| ``prediction`` | ``rankup predict``: reads the measurements, predicts, recommends |
| ``micro_benchmarks`` | ``rankup doctor matmul``: a row for each size |
| ``mcp_server`` | the tools of ``rankup mcp``: read-only commands and their parameters |
| ``site_survey`` | the facts that ``rankup sites discover`` reads |
"""
