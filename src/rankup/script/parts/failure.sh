# ---- Which rank failed first ---------------------------------------------------------------------------------------
# A launcher ends with the code of any rank, often of one that it has ended itself because of another. Each rank that
# fails leaves a line in RUN/failures (see write_rank_script). The cause is, among the last start of the ranks, the
# earliest that was not told to end, and did not just lose its connection to another one.
CONSEQUENCE='connection (was )?(closed|reset)|broken pipe|remote process exited|peer (closed|is gone)|DistNetworkError'
CONSEQUENCE+='|DistStoreError|socket timeout|NCCL communicator was aborted'
first_failure() { # sets code, and leaves RUN/failure: when, rank, host, exit code; then the exception
  local time rank host status words first='' how
  while read -r time rank host status _; do
    [ "$status" -ne 143 ] || continue # it was told to end
    words=$(last_words "$rank")
    [ -n "$first" ] || first="$time $rank $host $status"$'\n'"$words" # should all of them have lost a connection
    if grep -Eqi "$CONSEQUENCE" <<<"$words"; then continue; fi
    first="$time $rank $host $status"$'\n'"$words"
    break
  done < <(sort -k5,5nr -k1,1n "$RUN/failures" 2>/dev/null | awk 'NF != 5 { next } !seen++ { round = $5 } $5 == round')
  [ -n "$first" ] || return
  echo "$first" >"$RUN/failure"
  { read -r time rank host code && read -r words; } <"$RUN/failure"
  how="exit code $code"
  [ "$code" -le 128 ] || how="killed by SIG$(kill -l "$((code - 128))")"
  [ "$code" -ne 137 ] || how+=" (often: out of memory)"
  say "rank $rank on $host failed first, at $(date -d "@${time%.*}" '+%F %T'): $how${words:+: $words}"
}
# The exception that the last traceback of a rank names, in this attempt's part of the log.
last_words() { # RANK
  [ -f "$log_file" ] || return
  tail -c "+$((log_began + 1))" "$log_file" | tail -c 20000000 | awk -v rank="$1" '
    !sub("^(\\[rank " rank "\\]| *" rank ":) ?", "") { next }
    { sub(/^\[rank[0-9]+\]: ?/, "") }
    /Traceback \(most recent call last\)/ { inside = 1; next }
    inside && /^[^ \t]/ { words = $0; inside = 0 }
    END { print words }'
}
