"""When to save, what is saved, how a run stops and resumes.

- ``policy``: when a run saves, and which snapshots it keeps
- ``checkpointing``: what happens around the steps of a loop
- ``saves``: when a save is due, and what it consists of
- ``stages``: the directory of each training of a process, and of each of its loops
- ``stop``: requests to stop
- ``state``: the state of a run: collected, compared and restored
- ``state_parts``: what contributes to it, and is there before the first step
- ``run_state``: ``run.state``, for scripts that store the state themselves
- ``resume``: restores a run from a snapshot
- ``resumed_loop``: what a loop says that does not fit the snapshot which it enters
- ``registered``, ``adapters``: what ``run.register`` takes, and how it gets the state of each kind
- ``registered_objects``: of an object of the script
- ``registered_containers``: of lists, dicts, tensors, arrays and generators
- ``registered_state``: the state of all that over ranks: collected, compared and restored
- ``places``: what a registered object holds, by the path that leads there
- ``unsaved``: what a registered thing holds that no snapshot can contain, and that must not change
- ``packing``: nested containers, as a snapshot holds them
- ``identities``: which objects registered things have held since their loop began, and which of them are one
- ``model_form``: names, shapes and kinds of a model's modules, and which parts are frozen or in evaluation mode
- ``settings``, ``new_settings``: what a script asks for: recorded, compared, and chosen from
- ``save_model``: the model alone, in one file
"""
