# Sourced by the scripts beside it: where the checkout is, and how a step says what it does.
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
jobs="$(nproc 2>/dev/null || echo 2)"

say() { printf '%s\n' "$*" >&2; }
die() { say "$(basename "$0"): $*"; exit 1; }

# The programs look for NVRTC and CUPTI in ADAMK_CUDA_HOME first.
if [[ -n "${ADAMK_IGNORE_TOOLKIT:-}" ]]; then
  export ADAMK_CUDA_HOME="$root/build/cuda"
fi
