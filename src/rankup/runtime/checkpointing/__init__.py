"""When to save, what is saved, how a run stops and resumes.

- ``policy``: when a run saves, and which snapshots it keeps
- ``checkpointing``: what happens before, between and after steps
- ``loop_saves``: when a save is due, and the save
- ``training_folder``: the directory of each training of a process, and of its stages
- ``stop``: requests to stop
- ``state``: the state of a run: collected, compared and restored
- ``run_state``: ``run.state``, for scripts that store the state themselves
- ``resume``: restores a run from a snapshot
- ``resumed_epoch``: the code before an inner loop, if its epoch is resumed in the middle
- ``resumed_header``: ``enumerate`` and ``zip`` in the header of a loop that is resumed
- ``save_place``: code of an epoch that follows ``run.save()``
- ``outside_loops``: training without a loop of rankup's
- ``open_loops``: loops of several trainings at the same time
- ``later_loops``: the code between two loops, if a later one is resumed
- ``loop_variables``: what the code after a loop reads, if the loop does not run after a resume
- ``epoch_end``: the state at the end of an epoch, until its evaluation has ended
- ``registered``, ``adapters``, ``registered_state``: what ``run.register`` got, and its state
- ``untracked_state``: what has a state and is in no snapshot
- ``plain_values``, ``attributes``: counters and the like in attributes of models, optimizers and data sets
- ``data_orders``: lists and arrays of data sets that ranks must hold alike
- ``data_rows``: tensors and arrays of data sets that a script shuffles or changes
- ``carried``: variables of the script that a loop carries from pass to pass
- ``frozen``: which parameters are frozen, and which modules are in evaluation mode
- ``settings``: learning rates and other settings, and how two of them differ
- ``check_settings``: a snapshot with other settings than the script's is refused, unless the user chose
- ``apply_settings``: the settings that the user chose
- ``save_model``: the model alone, in one file
"""
