"""Rules that judge a job script, alone or together with the programs that it starts."""
