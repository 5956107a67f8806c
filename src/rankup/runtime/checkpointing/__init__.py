"""When to save, what belongs to the state, resume and stop.

| module | what |
|---|---|
| ``checkpointing`` | ``Snapshots`` and the policy: resume, save as it goes, save and exit |
| ``stop`` | ``rankup.should_stop()``: the same answer on every rank |
| ``state`` | the state of a run |
| ``registered`` | what ``run.register`` accepts |
| ``registered_state`` | what was registered, saved over ranks |
| ``settings`` | the settings of a script, recorded with each snapshot |
| ``resume_settings`` | a resume with changed settings |
| ``training_folder`` | where each training of a process keeps its snapshots |
| ``epoch_end`` | the state of an earlier moment, without a copy of all of it |
| ``frozen`` | which parameters are frozen |
| ``untracked_state`` | state that is in no snapshot, and the warning |
| ``save_model`` | ``run.save_model`` |
"""
