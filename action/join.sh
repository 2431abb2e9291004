#!/usr/bin/env bash
# Join the shards' reports. Missing shards are told in what is written; the verdict is the publishing job's.
set -euo pipefail

reports=()
while IFS= read -r -d '' report; do
  reports+=("$report")
done < <(find "$INPUT_REPORTS" -name report.json -type f -print0 2>/dev/null)
if ((${#reports[@]} == 0)); then
  echo "::warning title=gradbot::no shard left a report to join"
  exit 0
fi
mkdir -p "$INPUT_FOLDER"
"$PYTHON" -I -m gradbot merge --fail-on nothing -o "$INPUT_FOLDER/report.json" --junit-xml "$INPUT_FOLDER/junit.xml" -- "${reports[@]}"
"$PYTHON" -I -m gradbot report --fail-on nothing --html "$INPUT_FOLDER/report.html" -- "$INPUT_FOLDER/report.json"
