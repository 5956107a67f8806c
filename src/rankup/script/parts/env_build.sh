# What is built is said above: folder, name, python, torch, torch_index, cuda, requirements, wheels.
set -u # not before: modules and profiles use variables that are not set

fail() { # MESSAGE HINT
  printf 'error: %s\n  hint:  %s\n' "$1" "$2" >&2
  exit 1
}

env=$folder/$name-$(uname -m)
if [ -e "$env/environment.json" ]; then
  fail "$env is there already" "use it, or remove it, or choose another --name or --path"
fi
command -v "$python" >/dev/null || fail "Python not found: $python on $(uname -n)" \
  "--python names one, and --module loads what brings it"
# One step that looks and takes: of two that build the same, the second stops here.
{ mkdir -p "$folder" && mkdir "$env"; } || fail "cannot make $env" \
  "if it is what a killed attempt left, remove it; or choose another --name or --path"
trap '[ -e "$env/environment.json" ] || rm -rf "$env"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
trap 'exit 129' HUP

"$python" -m venv "$env" || fail "$python cannot make a virtual environment" \
  "Debian and Ubuntu have that in a package of its own, python3-venv; else choose another --python"
install=("$env/bin/python" -m pip --disable-pip-version-check --no-input install --progress-bar off)
[ -z "$wheels" ] || install+=(--no-index --find-links "$wheels")

# torch first, and then held: the requirements must not replace the build that was chosen for this CUDA.
if [ "${#torch[@]}" -gt 0 ]; then
  index=()
  [ -z "$torch_index" ] || index=(--index-url "$torch_index")
  "${install[@]}" ${index[@]+"${index[@]}"} "${torch[@]}" || fail "pip could not install ${torch[*]}" \
    "no network on this node? --torch-index names a mirror, and so can pip's own configuration"
fi
"$env/bin/python" -m pip list --disable-pip-version-check --format=freeze | grep '^torch' >"$env/torch.txt" || true
if [ -n "$requirements" ]; then
  "${install[@]}" --constraint "$env/torch.txt" --requirement "$requirements" \
    || fail "pip could not install $requirements" \
      "if it is torch that does not fit: --torch says which one, and --torch none leaves it to the requirements"
fi

# What torch was built for, beside what this node can run.
facts=$("$env/bin/python" -c '
import importlib.util
if importlib.util.find_spec("torch") is None:
    print("none none no")
else:
    import torch
    print(torch.__version__, torch.version.cuda or "none", "yes" if torch.cuda.is_available() else "no")
') || fail "torch is installed and does not import" "its own words are above; often a module's library is missing"
read -r version built available <<<"$facts"
number='\([0-9][0-9]*\.[0-9][0-9]*\).*'
gpus=$(nvidia-smi --list-gpus 2>/dev/null | grep -c '^GPU' || true)
driver=$(nvidia-smi 2>/dev/null | sed -n "s/.*CUDA[A-Z ]* Version: *$number/\1/p" || true)
toolkit=$(nvcc --version 2>/dev/null | sed -n "s/.*release $number/\1/p" || true)

if [ "$version" != none ] && [ "$cuda" != cpu ]; then
  elsewhere="--torch-index or --torch choose another build; --cuda cpu where no GPU is wanted"
  if [ "$cuda" != auto ] && [ "$built" != "$cuda" ]; then
    fail "torch $version is built for CUDA $built, and $cuda was asked for" "$elsewhere"
  fi
  if [ "$gpus" -gt 0 ] && [ "$built" = none ]; then
    fail "there are $gpus GPUs here, and torch $version is built without CUDA" "$elsewhere"
  fi
  # Within one major version a driver runs what is built for a later minor one.
  if [ "$built" != none ] && [ -n "$driver" ] && [ "${built%%.*}" -gt "${driver%%.*}" ]; then
    fail "the driver here runs CUDA $driver: too old for torch $version, which is built for CUDA $built" "$elsewhere"
  fi
  if [ "$gpus" -gt 0 ] && [ "$available" = no ]; then
    fail "torch $version for CUDA $built sees none of the $gpus GPUs here" \
      "compare nvidia-smi with CUDA_VISIBLE_DEVICES=${CUDA_VISIBLE_DEVICES-} and LD_LIBRARY_PATH"
  fi
  if [ "$built" != none ] && [ -n "$toolkit" ] && [ "${built%%.*}" != "${toolkit%%.*}" ]; then
    echo "note: nvcc is of CUDA $toolkit and torch of $built: extensions of torch will not build with it"
  fi
  if [ "$built" != none ] && [ "$gpus" = 0 ]; then
    echo "note: no GPU on $(uname -n): whether the driver suits CUDA $built shows in the first job"
  fi
fi

# Written last, and by rename: an environment without it is not whole.
"$env/bin/python" -c '
import json, platform, sys
path, torch, cuda, available = sys.argv[1:]
facts = {"path": path, "arch": platform.machine(), "host": platform.node(), "python": platform.python_version()}
facts.update(torch=torch, cuda=cuda, gpu_available=available == "yes")
print(json.dumps({name: None if value == "none" else value for name, value in facts.items()}, indent=2))
' "$env" "$version" "$built" "$available" >"$env/.environment.json"
mv "$env/.environment.json" "$env/environment.json"
echo "built $env: torch $version, CUDA $built, GPU available: $available"
