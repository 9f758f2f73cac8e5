#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# page_sizes.sh PLUMB FILE: the rows "| P ranks x V, M microbatches | computations | messages | size MB |" of a document
# are what pages of steps of that size have. Steps of more than 100000 computations take seconds and are not made.
set -uo pipefail

plumb=$1
document=$2
page=$(mktemp)
trap 'rm -f "$page"' EXIT
checked=0
failures=0

count_of() { grep -o "\"$1\":{\"all\":[0-9]*" "$page" | grep -o '[0-9]*$'; }

while IFS= read -r row; do
  [[ $row =~ ^\|\ ([0-9]+)\ ranks\ x\ ([0-9]+),\ ([0-9]+)\ microbatches\ \| ]] || continue
  ranks=${BASH_REMATCH[1]} stages=${BASH_REMATCH[2]} microbatches=${BASH_REMATCH[3]}
  ((2 * ranks * stages * microbatches <= 100000)) || continue
  checked=$((checked + 1))
  "$plumb" sim --sublayers 512 --block 64 --pp "$ranks" --vp "$stages" --microbatches "$microbatches" --html "$page" >/dev/null
  megabytes=$(awk -v bytes="$(wc -c <"$page")" 'BEGIN { printf "%.1f", bytes / 1e6 }')
  made="| $ranks ranks x $stages, $microbatches microbatches | $(count_of actions) | $(count_of messages) | $megabytes MB |"
  [[ $row == "$made" ]] && continue
  failures=$((failures + 1))
  printf '%s says\n    %s\nplumb makes\n    %s\n' "$document" "$row" "$made"
done <"$document"

printf '%d pages, %d differ\n' "$checked" "$failures"
((checked > 0 && failures == 0))
