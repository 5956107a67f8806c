"""What is wrong with a job, as data: code, severity, message, why and fix; each output renders it in its own way.

| module | what |
|---|---|
| ``finding`` | ``Finding`` and its severities |
"""
