# Sourced by node.sh, pid 1 of a pretended host.
# A host has a /tmp of its own. FOLDERs stay visible, also to other users, where they lie in /tmp or in a closed home
# directory.
own_tmp() { # SCRATCH FOLDER...
  local see=$1 n=0 above part folder
  shift
  for folder; do
    mkdir -p "$see/$n"
    mount --rbind "$folder" "$see/$n"
    n=$((n + 1))
  done
  mount -t tmpfs -o mode=1777 tmp /tmp
  n=0
  for folder; do
    above=
    while IFS= read -r part; do
      [[ -n $part ]] || continue
      above=$above/$part
      if [[ $above != "$folder" && -d $above && $(stat -c %A "$above") != *[xt] ]]; then
        mount -t tmpfs -o mode=755 cover "$above"
      fi
    done < <(tr / '\n' <<<"$folder")
    if [[ ! -d $folder ]]; then
      mkdir -p "$folder"
      mount --rbind "$see/$n" "$folder"
    fi
    n=$((n + 1))
  done
}
