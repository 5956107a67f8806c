# The job names no time limit, and the queue's own may be short: then half of it is left for work.
leave_time_for_work() {
  local left=$((END - $(date +%s)))
  [ "$END" -eq 0 ] || [ "$left" -gt "$((2 * STOP_BEFORE))" ] || STOP_BEFORE=$((left / 2))
}
