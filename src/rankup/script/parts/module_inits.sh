# Files that define `module`, which batch shells do not always know.
module_inits() {
  local init
  for init in "${MODULESHOME:-/nowhere}/init/bash" "${LMOD_PKG:-/nowhere}/init/bash" /etc/profile.d/{lmod,modules,z00_lmod}.sh; do
    [ ! -r "$init" ] || printf '%s\n' "$init"
  done
}
