"""The report: figures, tables, and one page that shows both, from a study or from the records of any runs.

| module | what |
|---|---|
| ``text`` | names and numbers as text that no format misreads |
| ``thin`` | fewer points of a curve, without losing a spike |
| ``run_records`` | what the records of one run say: curves, utilisation, facts |
| ``rank_records`` | what each rank of a run tells, on one grid of times |
| ``rows`` | what the report says of each configuration: the place where statistics come in |
| ``judged`` | these rows with the ratios that the study's judgement allows |
| ``content`` | what a report holds, from a study or from runs |
| ``sentences`` | the summary, in sentences with numbers |
| ``tables`` | the tables: CSV, Markdown, LaTeX |
| ``figures`` | one function per figure, and how they are drawn |
| ``frame`` | the frame of a page that asks nothing of any network; its style and script lie beside it |
| ``page`` | ``report.html`` |
| ``write`` | everything into one folder |
| ``centres`` | what centres ask for: ``proposals.toml`` |
| ``proposal`` | the scalability report that a centre asks for |

Only ``figures/draw`` and ``figures/pages`` import matplotlib. ``run_records`` and ``thin`` use NumPy, which comes with
it.
"""
