#!/usr/bin/env bash
# Summary, annotations and outputs of this job's own report. There is no token here, and the verdict is the check's.
set -euo pipefail

if [[ ! -s $REPORT ]]; then
  echo "::warning title=gradbot::no report was written; see the log of the check"
  exit 0
fi
arguments=(publish --no-gather --comment-mode off --fail-on nothing)
[[ -z $INPUT_CONFIG ]] || arguments+=(--config "$INPUT_CONFIG")
[[ -z $INPUT_BASELINE ]] || arguments+=(--baseline "$INPUT_BASELINE")
exec env -u GITHUB_TOKEN "$PYTHON" -m gradbot "${arguments[@]}" -- "$REPORT"
