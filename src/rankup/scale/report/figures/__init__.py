"""One function per figure, and how they are drawn.

| module | what |
|---|---|
| ``picture`` | a figure as data: its name, its words, and a function that draws it; colours and labels |
| ``scaling`` | throughput, time and efficiency against devices |
| ``breakdown`` | where the time of a step goes |
| ``cost`` | device-hours against time, with the frontier |
| ``learning`` | loss and accuracy against epochs and against time |
| ``lines`` | lines of many over time: all of a few, or median, band and extremes |
| ``ranks`` | what each rank of one run needs for a step |
| ``utilization`` | how busy GPUs and CPUs were, their memory, power and temperature; the network |
| ``all_pictures`` | which figures a report has |
| ``pages`` | text and figures as one PDF |
| ``draw`` | the files: SVG, PDF, PNG, and the SVG of the page |
"""
