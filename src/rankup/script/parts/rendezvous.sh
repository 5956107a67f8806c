# ---- Where the ranks meet ------------------------------------------------------------------------------------------
# Sets MASTER_ADDR: the address of this host that the others reach. Packets to them leave from it, or it is that of
# INTERFACE. (A host's own name may resolve to 127.0.1.1 on itself.) Sets MASTER_PORT, which no other job can get.
choose_rendezvous() {
  local peer address python port
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
  MASTER_PORT=''
  for python in python3 python /usr/libexec/platform-python; do
    exec {port}< <(hold_port "$python")
    holder=$!
    read -r -t 60 MASTER_PORT <&"$port" && break
    exec {port}<&-
  done
  # Without any Python on this host: a port on which nobody listens now.
  while [ -z "$MASTER_PORT" ] || (exec 3<>"/dev/tcp/$MASTER_ADDR/$MASTER_PORT") 2>/dev/null; do
    MASTER_PORT=$((15000 + (RANDOM * 32768 + RANDOM) % 17000))
  done
  export MASTER_ADDR MASTER_PORT
}
# A process binds the port, and holds it until this script ends. A server that sets SO_REUSEADDR, as torch's does, can
# still listen on it.
hold_port() { # PYTHON
  exec "$1" - "$$" 2>/dev/null <<'END_OF_PYTHON'
@ports.py@
END_OF_PYTHON
}
