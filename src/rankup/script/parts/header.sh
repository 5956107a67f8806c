# ---- The header of the log -----------------------------------------------------------------------------------------
print_header() { # PYTHON
  echo "nodes     ${HOSTS[*]}${QUEUE:+ (queue $QUEUE)}"
  echo "machine   $(uname -m), $(env -u OMP_NUM_THREADS -u OMP_THREAD_LIMIT nproc) cores for this shell"
  echo "modules   ${LOADEDMODULES:-none}"
  command -v nvidia-smi >/dev/null && nvidia-smi --list-gpus
  env | grep -E '^(NCCL|GLOO|FI|UCX|OMP|CUDA|MPICH)_|^MASTER_' | sort
  echo "python    $*"
}
