"""What ``rankup verify`` reads of a training, and how it interrupts one.

| module | what |
|---|---|
| ``trace`` | what each rank records after every step |
| ``digest`` | SHA-256 of any state |
| ``fingerprint`` | a cheap fingerprint of a state, to compare ranks |
| ``script_variables`` | the variables of the script, for the names in advice |
| ``fault_injection`` | ends a run at a chosen point |
"""
