#!/usr/bin/env bash
# Run `gradbot check` where neither it nor anything above it in this step knows a token or one of the runner's files.
set -euo pipefail

arguments=(check --json "$REPORT" --junit-xml "$JUNIT" --html "${REPORT%.json}.html")
[[ -z $INPUT_CONFIG ]] || arguments+=(--config "$INPUT_CONFIG")
[[ -z $INPUT_DEVICE ]] || arguments+=(--device "$INPUT_DEVICE")
[[ -z $INPUT_DTYPE ]] || arguments+=(--dtype "$INPUT_DTYPE")
[[ -z $INPUT_MODE ]] || arguments+=(--mode "$INPUT_MODE")
[[ -z $INPUT_PLAN ]] || arguments+=(--plan "$INPUT_PLAN")
[[ -z $INPUT_SHARD ]] || arguments+=(--shard "$INPUT_SHARD")
# What is new only the publishing job can tell, which knows the base; with a baseline this job can tell too.
[[ $INPUT_FAIL_ON != new-failures || -n $INPUT_BASELINE ]] || INPUT_FAIL_ON=nothing
[[ -z $INPUT_FAIL_ON ]] || arguments+=(--fail-on "$INPUT_FAIL_ON")
[[ -z $INPUT_BASELINE ]] || export GRADBOT_BASELINE=$INPUT_BASELINE
read -r -d '' -a packages <<<"$INPUT_PACKAGES" || true
arguments+=(-- ${packages[@]+"${packages[@]}"})

# shellcheck source=action/hidden.sh
source "$ACTION_PATH/action/hidden.sh"
exec env ${hidden[@]+"${hidden[@]}"} bash "$ACTION_PATH/action/quoted.sh" "$PYTHON" -m gradbot "${arguments[@]}"
