# The ids of the processes on this host that carry this attempt's mark.
marked() {
  (
    mark=$RANKUP_MARK
    unset RANKUP_MARK # the processes that search have no mark
    grep -lz "^RANKUP_MARK=$mark" /proc/[0-9]*/environ 2>/dev/null | tr -dc '0-9\n'
  )
}
