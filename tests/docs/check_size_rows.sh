#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# check_size_rows.sh BIN_DIR FILE STEP: every STEP-th row of the tables of layouts that FILE shows for its `plumb size` command is what
# the command says when all choices of the row are settled: a few simulations instead of the whole search.
set -uo pipefail

bin_dir=$(cd "$1" && pwd)
file=$2
step=$3
command=$(sed -n 's/^\$ plumb size/size/p' "$file" | head -1)
rows=0 checked=0 failures=0

normal() { sed -E 's/^ +//; s/ +/ /g; s/ +$//'; }

while IFS= read -r line; do
  # pp vp tp ep dp batch schedule[, group G] cache recompute sharded cuts and the numbers; the best have a number in front
  row=$(normal <<<"$line")
  [[ $row =~ ^([0-9]+\ )?(([0-9]+)\ ([0-9]+)\ ([0-9]+)\ ([0-9]+)\ ([0-9]+)\ [0-9]+x([0-9]+)\ ([a-z0-9-]+)(,\ group\ [0-9]+)?\ ([a-z]+)\ ([a-z]+)\ ([a-z]+)\ (traffic|time)\ .*)$ ]] ||
    continue
  rows=$((rows + 1))
  ((rows % step == 1 || step == 1)) || continue
  m=("${BASH_REMATCH[@]}")
  checked=$((checked + 1))
  got=$("$bin_dir/plumb" $command --pp "${m[3]}" --vp "${m[4]}" --tp "${m[5]}" --ep "${m[6]}" --dp "${m[7]}" \
    --microbatch "${m[8]}" --schedule "${m[9]}" --cache "${m[11]}" --recompute "${m[12]}" --sharding "${m[13]}" 2>&1)
  if ! normal <<<"$got" | grep -qxF -e "${m[2]}" -e "1 ${m[2]}"; then
    failures=$((failures + 1))
    printf '%s shows\n  %s\nand plumb %s with that settled says\n%s\n' "$file" "${m[2]}" "$command" "$(head -6 <<<"$got")"
  fi
done <"$file"

printf '%d rows, %d looked at, %d differ\n' "$rows" "$checked" "$failures"
((checked > 0 && failures == 0))
