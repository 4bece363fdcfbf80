#!/bin/sh
# together.sh PROGRAM SUITE...: suites that mostly wait, each in a process of its own, all at once; what
# they say comes one after another. Exit code: 1 when one failed, else 77 when a test was skipped,
# else 0.
program=$1
shift
logs=$(mktemp -d) || exit 1
pids=
trap 'kill $pids 2>/dev/null; rm -rf "$logs"' EXIT
trap 'exit 1' INT TERM
for suite in "$@"; do
  "$program" "--gtest_filter=$suite.*" >"$logs/$suite" 2>&1 &
  pids="$pids $!"
done
failed=0
for pid in $pids; do wait "$pid" || failed=1; done
pids=
for suite in "$@"; do cat "$logs/$suite"; done
[ "$failed" = 0 ] || exit 1
! grep -qF '[  SKIPPED ]' "$logs"/* || exit 77
