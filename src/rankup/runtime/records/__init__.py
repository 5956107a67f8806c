"""What a training tells of itself, on rank 0: records for programs, a bar or lines for people.

| module | what |
|---|---|
| ``training_records`` | called by the loop: steps, epochs, samples per second, time left |
| ``logged_numbers`` | the numbers of ``run.log``, each with its step |
| ``facts`` | what was trained, and how: what a comparison of two runs needs |
| ``progress_display`` | the bar of a terminal, the lines of a job's log |
"""
