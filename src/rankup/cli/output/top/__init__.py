"""What ``rankup top`` shows.

| module | what |
|---|---|
| ``columns`` | the columns of the table of ranks, which of them fit, sort and filter |
| ``sparkline`` | numbers as a line of eighths of blocks |
| ``screen`` | one frame as lines of a given width and height |
| ``plain`` | one frame for a pipe, as text or as JSON |
| ``keyboard`` | single keys, where there is a terminal |
| ``live`` | frame after frame on a terminal |
"""
