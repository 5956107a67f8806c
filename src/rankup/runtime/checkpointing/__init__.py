"""When to save, what is saved, how a run stops and resumes.

- ``policy``: when a run saves, and which snapshots it keeps
- ``checkpointing``: what happens before, between and after steps
- ``loop_saves``: when a save is due, and the save
- ``training_folder``: the directory of each training of a process, and of its stages
- ``stop``: requests to stop
- ``state``: the state of a run: collected, compared and restored
- ``resume``: restores a run from a snapshot
- ``epoch_end``: the state at the end of an epoch, until its evaluation has ended
- ``registered``, ``adapters``, ``registered_state``: what ``run.register`` got, and its state
- ``untracked_state``: what has a state and is in no snapshot
- ``frozen``: which parameters are frozen
- ``settings``, ``resume_settings``, ``changed_settings``: settings that the script has changed since a snapshot
- ``save_model``: the model alone, in one file
"""
