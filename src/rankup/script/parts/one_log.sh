# One log for all attempts, which can be read while the job runs.
write_one_log() { exec >>"$BASE/logs/job${RANKUP_TASK+-$RANKUP_TASK}.log" 2>&1; }
