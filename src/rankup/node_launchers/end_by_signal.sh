# How this script tells the ranks to end, and whether they are told by themselves when the script is told.
end_ranks() { kill -TERM "$workers" 2>/dev/null; }
# shellcheck disable=SC2317,SC2329 # a trap calls it
are_told_too() { false; }
