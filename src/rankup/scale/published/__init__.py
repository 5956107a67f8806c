"""Somebody else's table: read, recomputed, judged as a study of one's own is.

| module | what |
|---|---|
| ``cells`` | a cell → a number with its unit, or the reason why nobody can read it |
| ``columns`` | names of columns → what they hold |
| ``table`` | a CSV file, or the one table of a Markdown page → its rows, and what was left out |
| ``as_study`` | these rows as the results of a study, so that ``comparability`` judges them |
| ``judge`` | all that is wrong with the table and with the text around it |
"""
