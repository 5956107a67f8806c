# ---- Spare nodes ---------------------------------------------------------------------------------------------------
# The job has more nodes than its ranks use. HOSTS are those that they use, also as USED, and SPARES are the others. This
# script runs on the first node, which no other can replace.
use_nodes() { # COUNT
  SPARES=("${HOSTS[@]:$1}")
  HOSTS=("${HOSTS[@]:0:$1}")
  USED=$(IFS=,; echo "${HOSTS[*]}")
}
replace_nodes() { # BAD...: whether the others are enough
  local host well=() count=${#HOSTS[@]} bad=" $* "
  for host in "${HOSTS[@]}" "${SPARES[@]}"; do
    [ "${bad/ $host /}" != "$bad" ] || well+=("$host")
  done
  if [ "${#well[@]}" -lt "$count" ] || [ "${well[0]}" != "${HOSTS[0]}" ]; then
    say "no spare node can replace: $*"
    return 1
  fi
  HOSTS=("${well[@]}")
  use_nodes "$count"
  say "without $*, on ${HOSTS[*]}"
}
# After an attempt that has lost nodes: whether another one begins on those that are left.
go_on_without_lost() {
  local before=$USED
  [ -n "$lost" ] || return
  # shellcheck disable=SC2086 # one or more
  replace_nodes $lost || return
  [ "$USED" != "$before" ] || return # none of them was in use: on the same nodes it would end in the same way
  [ -z "${holder:-}" ] || kill "$holder" 2>/dev/null # the port is free again
  begin_attempt
}
