#!/usr/bin/env bash
# Run a command so that nothing it prints is taken for a workflow command. The token that ends this is known to this
# shell alone: it is in no environment and on no command line. A cancelled step's signal is passed on to the command.
set -uo pipefail

token=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
signalled=
child=
# shellcheck disable=SC2329  # the trap calls it
pass_on() {
  signalled=yes
  [[ -z $child ]] || kill -TERM "$child" 2>/dev/null
}
trap pass_on INT TERM
echo "::stop-commands::$token"
"$@" &
child=$!
[[ -z $signalled ]] || kill -TERM "$child" 2>/dev/null
while true; do # a signal ends the wait, not the command
  signalled=
  wait "$child"
  code=$?
  [[ -n $signalled ]] || break
done
echo
echo "::$token::"
exit "$code"
