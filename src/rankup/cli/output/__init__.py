"""What people and programs read on the terminal. In reading order:

| module | what |
|---|---|
| ``console`` | errors and findings in one form, JSON, colours |
| ``help`` | the page of a command |
| ``table`` | rows in columns |
| ``rank_lines`` | what ranks print, each line with its rank |
| ``trial_lines`` | the runs of a study, a line each |
| ``progress`` | the progress bar of ``rankup train`` |
| ``diagnostics`` | what ``rankup check`` finds: text, JSON, GitHub, SARIF |
| ``top`` | the live view of a run |
| ``verify_page`` | the answer of ``rankup verify`` as a page |
| ``month`` | the device-hours of a group |
| ``snapshots`` | snapshots as rows, verdicts and differences |
"""
