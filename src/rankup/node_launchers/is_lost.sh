# A node that PBS does not reach any more.
is_lost() { timeout 20 pbsnodes "$1" 2>/dev/null | grep -Eiq '^ *state = .*(down|unknown|stale)'; }
