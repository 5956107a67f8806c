"""Does a training that is killed and resumed give the same model, bit for bit? If not: the first difference, and why.

| module | what |
|---|---|
| ``proof`` | the scenarios on one number of processes, and the proof of all |
| ``any_script`` | the scenarios of a script without ``run.steps``, and how they are judged |
| ``interruptions`` | where such a script is interrupted: a table of kinds |
| ``interrupted`` | the attempts that are interrupted, one after another |
| ``resumes`` | where a resume went on, and which samples that cost |
| ``repetition`` | what makes such a script not deterministic: a table |
| ``script_causes`` | what a resume of such a script has not restored: a table |
| ``script_pair`` | one of its steps, and its twin after a resume |
| ``other_worlds`` | the scenarios on other numbers of processes, and how they are judged |
| ``scenario`` | one scenario: what it is asked to do, and the row that it gives |
| ``plan`` | where a run is interrupted, and where it saves; what that crosses: a step, an epoch, a save |
| ``attempts`` | starts one attempt |
| ``killer`` | ends its processes, or sends them a signal first |
| ``trace_reader`` | reads what each rank has traced |
| ``files`` | what the script writes and prints |
| ``times`` | what of that is a time: one training more, with faster clocks |
| ``two_files`` | copies of a file without and with an interruption, and where they differ first |
| ``first_difference`` | the first step at which two trainings differ |
| ``evidence`` | what the traces show, for the diagnosis; state that no snapshot holds |
| ``causes`` | the causes of a difference, each a source of findings |
| ``diagnosis`` | the most likely cause of a difference |
| ``values`` | how far two final snapshots are apart |
| ``conclusion`` | the answer: a last word, and position, state and result |
| ``table`` | what ``rankup verify`` prints |

Only ``attempts``, ``values`` and ``files`` start processes, and nothing here imports torch.
"""
