"""What a training tells of itself: records for programs, a bar or lines for people.

| module | what |
|---|---|
| ``training_records`` | called by the loop: steps, epochs, samples per second, time left |
| ``step_counts`` | what a step counts: all that most steps do here; and totals, which are in the snapshots |
| ``outputs`` | rank 0's files, loggers and display |
| ``rank_records`` | what each rank does, once a second, written by a thread |
| ``arrival`` | when a rank has computed its part of a step, just before it waits for the others |
| ``logged_numbers`` | the numbers of ``run.log``, each with its step |
| ``facts`` | what was trained, and how: what a comparison of two runs needs |
| ``first_batches`` | the shape of the inputs, and an autocast of the script's own: what only the first steps tell |
| ``progress_display`` | the bar of a terminal, the lines of a job's log |
"""
