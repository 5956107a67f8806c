# ---- Proof ---------------------------------------------------------------------------------------------------------
# Before the first attempt: does this training give the same model if it is killed and resumed? On this node, in epochs of
# a few steps. A proof that cannot be made is a line in the log; only a resume that differs ends the job.
prove() { # SECONDS PYTHON RANKS COMMAND…: two starts may take SECONDS; 0: the job is too short for a proof
  local seconds=$1 python=$2 ranks=$3
  shift 3
  [ "$(wc -l <"$RUN/attempts")" -eq 1 ] || return
  if [ "$seconds" -eq 0 ]; then
    say "not proved: the job is shorter than an hour"
    return
  elif ! "$python" -c 'import rankup.verify, typer' 2>/dev/null; then
    say "not proved: $python has no rankup"
    return
  elif [ -f "$1" ] && ! grep -q rankup "$1"; then
    say "not proved: $1 does not use rankup"
    return
  fi
  say "does a resume give the same model? (--no-proof leaves this out)"
  rm -f "$RUN/logs/proof.json"
  # The proof itself names what a resume would lose, so its attempts go on.
  RANKUP_LOST=${RANKUP_LOST#stop} "$python" -m rankup verify --quick --budget "${seconds}s" --nproc-per-node "$ranks" \
    --runs-root "$RUN/proof" --out "$RUN/logs/proof.json" -- "$@" &
  wait "$!" || : # in the background, as the ranks: bash hears signals between commands only
  if grep -qs '"conclusion": "differs"' "$RUN/logs/proof.json"; then
    echo "a resume does not give the same model: the log names the cause; --no-proof trains all the same" >"$RUN/why"
    say "$(cat "$RUN/why")"
    finish failed 1
  fi
  rm -rf "$RUN/proof"
  grep -qs '"conclusion": "proved"' "$RUN/logs/proof.json" || say "not proved"
}
