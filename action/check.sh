#!/usr/bin/env bash
# Run `gradbot check` where neither it nor anything above it in this step knows a token or one of the runner's files.
set -euo pipefail

arguments=(check --json "$REPORT" --junit-xml "$JUNIT")
[[ -z $INPUT_CONFIG ]] || arguments+=(--config "$INPUT_CONFIG")
[[ -z $INPUT_DEVICE ]] || arguments+=(--device "$INPUT_DEVICE")
[[ -z $INPUT_DTYPE ]] || arguments+=(--dtype "$INPUT_DTYPE")
[[ -z $INPUT_MODE ]] || arguments+=(--mode "$INPUT_MODE")
[[ -z $INPUT_SHARD ]] || arguments+=(--shard "$INPUT_SHARD")
[[ -z $INPUT_FAIL_ON ]] || arguments+=(--fail-on "$INPUT_FAIL_ON")
[[ -z $INPUT_BASELINE ]] || arguments+=(--baseline "$INPUT_BASELINE")
read -r -d '' -a packages <<<"$INPUT_PACKAGES" || true
arguments+=(-- ${packages[@]+"${packages[@]}"})

hidden=()
while IFS= read -r -d '' line; do
  name=${line%%=*}
  case $name in
    GITHUB_TOKEN | GITHUB_ENV | GITHUB_PATH | GITHUB_OUTPUT | GITHUB_STATE | GITHUB_STEP_SUMMARY | ACTIONS_* | INPUT_*)
      hidden+=(-u "$name")
      ;;
  esac
done < <(env -0)
exec env ${hidden[@]+"${hidden[@]}"} bash "$ACTION_PATH/action/quoted.sh" "$PYTHON" -m gradbot "${arguments[@]}"
