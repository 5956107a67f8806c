"""Somebody else's table: read from a page, recomputed, judged.

| module | what |
|---|---|
| ``grids`` | tables whose cells span rows and columns: HTML, reStructuredText |
| ``latex`` | tables of LaTeX |
| ``documents`` | Markdown, HTML, reStructuredText, LaTeX, CSV → tables and paragraphs |
| ``quantities`` | a cell → seconds, a rate, a ratio, devices, a precision |
| ``columns`` | a header and its cells → what the column holds |
| ``page`` | what the text around a table tells |
| ``setup`` | the GPU, the model and the data of a row |
| ``entries`` | a row, as far as it is understood |
| ``curves`` | a table → the same quantity on different numbers of devices |
| ``pairs`` | each entry beside its baseline, recomputed |
| ``prose`` | speed-ups that a sentence tells |
| ``fairness`` | was the same work done in the same way? |
| ``ratios`` | do the ratios follow from the numbers? |
| ``judge`` | all that is wrong with them |
| ``read`` | a file → what to judge |
"""
