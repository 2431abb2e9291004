#!/usr/bin/env bash
# Where the report goes and what its artifact is called: PREFIX.COMMENT-ID.SHARD.ATTEMPT, as `gradbot publish` reads it.
set -euo pipefail

comment_id=${INPUT_COMMENT_ID:-gradbot}
shard=${INPUT_SHARD:-1/1}

refuse() {
  echo "::error title=gradbot::$1"
  exit 2
}
[[ $comment_id =~ ^[A-Za-z0-9_-]{1,40}$ ]] || refuse "comment-id: expected 1 to 40 letters, digits, '-' or '_'"
[[ $shard =~ ^[1-9][0-9]{0,4}/[1-9][0-9]{0,4}$ ]] || refuse "shard: expected a number of a number, such as 1/4"
[[ $INPUT_ARTIFACT_NAME =~ ^[A-Za-z0-9_-]{1,60}$ ]] || refuse "artifact-name: expected letters, digits, '-' or '_'"
[[ $INPUT_PUBLISH =~ ^(no|only|same-job)$ ]] || refuse "publish: expected no, only or same-job"
[[ -d $INPUT_WORKING_DIRECTORY ]] || refuse "working-directory: there is no such folder"

folder="$RUNNER_TEMP/gradbot/$comment_id/${shard/\//-of-}"
rm -rf "$folder"
mkdir -p "$folder"
junit="$folder/junit.xml"
if [[ -n $INPUT_JUNIT_PATH ]]; then
  [[ $INPUT_JUNIT_PATH != *$'\n'* ]] || refuse "junit-path: expected one line"
  junit="$PWD/$INPUT_WORKING_DIRECTORY/$INPUT_JUNIT_PATH"
  [[ $INPUT_JUNIT_PATH != /* ]] || junit=$INPUT_JUNIT_PATH
fi
mkdir -p "$(dirname "$junit")"
{
  echo "folder=$folder"
  echo "report=$folder/report.json"
  echo "junit=$junit"
  echo "artifact=$INPUT_ARTIFACT_NAME.$comment_id.${shard/\//-of-}.${GITHUB_RUN_ATTEMPT:-1}"
  echo "pip-cache=${PIP_CACHE_DIR:-$HOME/.cache/pip}"
} >>"$GITHUB_OUTPUT"
