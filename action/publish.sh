#!/usr/bin/env bash
# `gradbot publish` with the token. Isolated mode: nothing in the working folder is imported.
set -euo pipefail

arguments=(publish --artifact-name "$INPUT_ARTIFACT_NAME")
[[ -z $INPUT_CONFIG ]] || arguments+=(--config "$INPUT_CONFIG")
[[ -z $INPUT_FAIL_ON ]] || arguments+=(--fail-on "$INPUT_FAIL_ON")
[[ -z $INPUT_COMMENT_ID ]] || arguments+=(--comment-id "$INPUT_COMMENT_ID")
[[ -z $INPUT_COMMENT_MODE ]] || arguments+=(--comment-mode "$INPUT_COMMENT_MODE")
[[ -z $INPUT_BASE_WORKFLOW ]] || arguments+=(--base-workflow "$INPUT_BASE_WORKFLOW")
[[ -z $INPUT_BASELINE ]] || arguments+=(--baseline "$INPUT_BASELINE")
[[ -z $INPUT_CA_BUNDLE ]] || arguments+=(--ca-bundle "$INPUT_CA_BUNDLE")
[[ $INPUT_STRICT_PUBLISH != true ]] || arguments+=(--strict-publish)
[[ $INPUT_PUBLISH != only ]] || arguments+=(--no-annotations)
read -r -d '' -a shards <<<"$INPUT_EXPECT_SHARDS" || true
for shard in ${shards[@]+"${shards[@]}"}; do
  arguments+=(--expect-shard "$shard")
done
arguments+=(--)
[[ $INPUT_PUBLISH == only || ! -s $REPORT ]] || arguments+=("$REPORT")
exec "$PYTHON" -I -m gradbot "${arguments[@]}"
