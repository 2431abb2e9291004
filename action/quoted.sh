#!/usr/bin/env bash
# Run a command so that nothing it prints is taken for a workflow command. The token that ends this is known to this
# shell alone: it is in no environment and on no command line.
set -uo pipefail

token=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
echo "::stop-commands::$token"
"$@" &
child=$!
trap 'kill -TERM "$child" 2>/dev/null' INT TERM
wait "$child"
code=$?
while kill -0 "$child" 2>/dev/null; do # a signal ended the wait, not the command
  wait "$child"
  code=$?
done
echo
echo "::$token::"
exit "$code"
