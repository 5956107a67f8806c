"""How fast a larger size will be, from what was measured on smaller ones.

| module | what |
|---|---|
| ``points`` | what was measured: sizes and their rates, from a study, a CSV file or the command line |
| ``reduced`` | the few parameters that rates can tell, and their fit |
| ``interval`` | how far a prediction may be off, and how that is known |
| ``prediction`` | a prediction with its interval, the linear baseline, what is refused; its score afterwards |
| ``recommend`` | which size to ask for |
| ``failures`` | snapshot interval by Young and Daly, goodput |
| ``queue_wait`` | how long a job of each size would wait, by the scheduler |
| ``text`` | all of it as text |

All but ``queue_wait`` take data and return data.
"""
