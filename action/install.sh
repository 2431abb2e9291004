#!/usr/bin/env bash
# Install gradbot from the action's own files: beside the packages where it checks, on its own where it only publishes.
set -euo pipefail

python=$INPUT_PYTHON
command -v "$python" >/dev/null || python=python3

if [[ $INPUT_PUBLISH == only ]]; then
  # Always anew: on a runner that is kept, what is installed may be what checked code has left there.
  folder=$(mktemp -d "$RUNNER_TEMP/gradbot-XXXXXXXX")
  "$python" -I -m venv "$folder"
  python="$folder/bin/python"
  "$python" -I -m pip install --disable-pip-version-check --quiet -- "$ACTION_PATH"
else
  if [[ -n $INPUT_TORCH ]]; then
    "$python" -m pip install --disable-pip-version-check ${INPUT_TORCH_INDEX_URL:+--index-url "$INPUT_TORCH_INDEX_URL"} -- "$INPUT_TORCH"
  fi
  version=$(sed -n 's/^__version__ = "\(.*\)"$/\1/p' "$ACTION_PATH/gradbot/version.py")
  if [[ $("$python" -I -c 'import gradbot; print(gradbot.__version__)' 2>/dev/null) != "$version" ]]; then
    "$python" -m pip install --disable-pip-version-check --quiet -- "$ACTION_PATH"
  fi
fi
echo "python=$(command -v "$python")" >>"$GITHUB_OUTPUT"
