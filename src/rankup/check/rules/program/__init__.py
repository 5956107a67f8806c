"""Rules that judge a Python program, alone or together with the job scripts that start it."""
