# Starts the agent of this node. In a session of its own torchrun gets TERM once, from this script: PBS sends it to all of
# a task's session, and after a second one torchrun leaves its ranks before they have saved. If PBS KILLs this script, a
# guard ends the ranks: each has a session of its own, which ends with no other.
# shellcheck disable=SC2317,SC2329 # it is called on the nodes, where there are several
start_agent() {
  env -u RANKUP_MARK setsid bash -c "$(declare -f marked)
    RANKUP_MARK=$RANKUP_MARK
    cd /
    while kill -0 $$; do sleep 2; done
    kill -KILL \$(marked)" </dev/null >/dev/null 2>&1 &
  setsid bash -c "$(declare -f agent); agent" 2> >(quiet) &
}
# Copies what torchrun prints on stderr, without the stacks that it prints as it ends: the traceback of having been told to
# end, the errors of its own agent, which are those of waiting for the other nodes after its ranks have ended well (torch
# waits for 300 s), and the C++ frames below a warning of the connection to them.
# shellcheck disable=SC2317,SC2329 # it is called on the nodes, where there are several
quiet() {
  trap '' TERM INT HUP
  exec env -u RANKUP_MARK sed --unbuffered -e '/^Traceback (most recent call last):$/{' -e ':more' -e N \
    -e '/\n[ \t][^\n]*$/b more' -e '/\n[^\n]*SignalException: [^\n]*$/d' -e '}' \
    -e '/^E[0-9][^]]*\/elastic\/agent\/server\/api\.py:[0-9]*\] /d' \
    -e '/^Exception raised from /d' -e '/^frame #[0-9]*: /d' -e '/^<omitting python frames>$/d' >&2
}
