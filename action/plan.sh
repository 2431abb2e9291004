#!/usr/bin/env bash
# Run `gradbot plan`, which imports the packages, as `check.sh` runs the check.
set -euo pipefail

arguments=(plan --format github-matrix --output "$PLAN" --shards "$INPUT_SHARDS")
[[ -z $INPUT_CONFIG ]] || arguments+=(--config "$INPUT_CONFIG")
[[ -z $INPUT_DEVICE ]] || arguments+=(--device "$INPUT_DEVICE")
[[ -z $INPUT_DTYPE ]] || arguments+=(--dtype "$INPUT_DTYPE")
read -r -d '' -a packages <<<"$INPUT_PACKAGES" || true
arguments+=(-- ${packages[@]+"${packages[@]}"})

# shellcheck source=action/hidden.sh
source "$ACTION_PATH/action/hidden.sh"
exec env ${hidden[@]+"${hidden[@]}"} "$PYTHON" -m gradbot "${arguments[@]}" >"$MATRIX"
