# shellcheck shell=bash
# Sourced: `hidden` becomes the arguments to `env` that take tokens and the runner's files out of the environment.
hidden=()
while IFS= read -r -d '' line; do
  name=${line%%=*}
  case $name in
    GITHUB_TOKEN | GITHUB_ENV | GITHUB_PATH | GITHUB_OUTPUT | GITHUB_STATE | GITHUB_STEP_SUMMARY | ACTIONS_* | INPUT_*)
      hidden+=(-u "$name")
      ;;
  esac
done < <(env -0)
