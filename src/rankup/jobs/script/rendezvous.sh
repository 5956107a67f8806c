# ---- Where the ranks meet -----------------------------------------------------------------------------------------
# The address of this host that the others reach: the one from which packets to them leave, or that of INTERFACE. A
# host's own name may resolve to 127.0.1.1 on itself.
MASTER_ADDR=127.0.0.1
if [ "${#HOSTS[@]}" -gt 1 ]; then
  if [ -n "$INTERFACE" ]; then
    address=$(ip -o -4 address show dev "$INTERFACE" 2>/dev/null | awk '{ sub("/.*", "", $4); print $4; exit }')
  else
    peer=$(getent ahostsv4 "${HOSTS[1]}" | awk '{ print $1; exit }')
    address=$(ip -o -4 route get "$peer" 2>/dev/null | sed -n 's/.* src \([0-9.]*\).*/\1/p')
  fi
  MASTER_ADDR=${address:-${HOSTS[0]}}
fi
# A port of this job's own, below 32768, where Linux begins to lend ports to anyone; the next one where it is taken.
number=${JOB%%[!0-9]*}
MASTER_PORT=$((15000 + (10#${number:-0} + ${RANKUP_TASK:-0}) % 17000))
while (exec 3<>"/dev/tcp/$MASTER_ADDR/$MASTER_PORT") 2>/dev/null; do MASTER_PORT=$((MASTER_PORT + 1)); done
export MASTER_ADDR MASTER_PORT
