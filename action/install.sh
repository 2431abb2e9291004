#!/usr/bin/env bash
# Install gradbot from the action's own files: beside the packages where it checks, on its own where it only publishes.
set -euo pipefail

version=$(sed -n 's/^__version__ = "\(.*\)"$/\1/p' "$ACTION_PATH/gradbot/version.py")
python=$INPUT_PYTHON
command -v "$python" >/dev/null || python=python3

has_gradbot() {
  [[ $("$1" -I -c 'import gradbot; print(gradbot.__version__)' 2>/dev/null) == "$version" ]]
}

if [[ -n $INPUT_TORCH && $INPUT_PUBLISH != only ]]; then
  "$python" -m pip install --disable-pip-version-check ${INPUT_TORCH_INDEX_URL:+--index-url "$INPUT_TORCH_INDEX_URL"} -- "$INPUT_TORCH"
fi
if ! has_gradbot "$python"; then
  if [[ $INPUT_PUBLISH == only ]]; then
    "$python" -m venv "$RUNNER_TEMP/gradbot-venv"
    python="$RUNNER_TEMP/gradbot-venv/bin/python"
  fi
  "$python" -m pip install --disable-pip-version-check --quiet -- "$ACTION_PATH"
fi
echo "python=$(command -v "$python")" >>"$GITHUB_OUTPUT"
