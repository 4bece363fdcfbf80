#!/bin/sh
# keeps_input.sh PROGRAM [WAY...]: fuzz_planted dies in each way, and must leave what killed it.
program=$1
shift
place=$(mktemp -d) || exit 1
trap 'rm -rf "$place"' EXIT
cd "$place" || exit 1
for way in "$@"; do
  printf %s "$way" >input
  rm -f fuzz_planted.crash
  if "$program" input >/dev/null 2>&1; then
    echo "$way: nothing was found"
    exit 1
  fi
  cmp input fuzz_planted.crash || exit 1
done
