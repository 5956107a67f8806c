# Batch shells do not always know `module`.
if ! type module >/dev/null 2>&1; then
  for init in "${MODULESHOME:-/nowhere}/init/bash" "${LMOD_PKG:-/nowhere}/init/bash" /etc/profile.d/{lmod,modules,z00_lmod}.sh; do
    # shellcheck disable=SC1090
    [ -r "$init" ] && . "$init" && break
  done
fi
