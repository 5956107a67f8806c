"""What ``rankup verify`` and ``rankup drill`` read and do in a training.

- ``trace``: what each rank records after every step
- ``any_script``: the same of a script without ``run.steps``
- ``script_hooks``: its places in torch, which ``startup/`` sets in each Python
- ``between_steps``: what such a script does between two steps: batches, evaluations, ends of epochs
- ``script_inputs``: what its optimizers hold, what its modules were given, and the generators
- ``script_position``: the step at which a resumed process goes on
- ``saves``: the saves that it makes by itself, and the interruption in one
- ``run_digests``: the hashes of a run's state, by name
- ``final_state``: the numbers with which a script ends
- ``written_files``: the files that the script writes, as they were and as they are
- ``saved_values``: the values in a file that it has saved, each for itself
- ``fault_injection``: an end put to a run at a chosen point
- ``drill_faults``: the failures of ``rankup drill`` that happen inside a job's processes
"""
