"""How fast a larger size will be, from what was measured on smaller ones, or from a description of the machine.

| module | what |
|---|---|
| ``points`` | what was measured: sizes and their rates, from a study, a CSV file or the command line |
| ``links`` | α and β of a link, the time of an all-reduce, the fit of both to measured all-reduces |
| ``reduced`` | the few parameters that rates alone can tell, and their fit |
| ``interval`` | how far a prediction may be off, and how that is known |
| ``prediction`` | a prediction with its interval, the linear baseline, what is refused; its score afterwards |
| ``curves`` | eight published curves, which the interval rests on |
| ``step_model`` | the whole model of a step, where its parts and the links were measured |
| ``stragglers`` | how much a device's step varies, from the repeats of a study |
| ``batch_cost`` | how many more samples a larger global batch needs |
| ``recommend`` | which size to ask for |
| ``buckets`` | the buckets of DDP, from the sizes of a model's parameters |
| ``fabrics`` | links of common machines |
| ``failures`` | snapshot interval by Young and Daly, goodput |
| ``simulate`` | a step event by event, up to thousands of devices |
| ``queue_wait`` | how long a job of each size would wait, by the scheduler |
| ``children`` | what needs torch, in a process of its own: all-reduces timed here, the parameters of a workload |
| ``text`` | all of it as text |

All but ``queue_wait`` and ``children`` take data and return data.
"""
