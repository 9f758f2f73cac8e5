#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# check_page.sh text|browser PLUMB: writes pages with `plumb sim --html` and checks them.
#   text     the page allows exactly its own script and style (their hashes), and names nothing outside itself
#   browser  it works in headless Chromium, offline: see drive_page.mjs. 77 where Chromium or node is not there.
set -uo pipefail

what=$1
plumb=$2
here=$(cd "$(dirname "$0")" && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
failures=0

fail() {
  printf 'FAIL %s\n' "$1"
  failures=$((failures + 1))
}

# between FILE FIRST LAST: what lies between the last FIRST and the last LAST, to the byte.
between() {
  local from to
  from=$(($(grep -boaF "$2" "$1" | tail -1 | cut -d: -f1) + ${#2}))
  to=$(grep -boaF "$3" "$1" | tail -1 | cut -d: -f1)
  tail -c +$((from + 1)) "$1" | head -c $((to - from))
}

sha256_base64() {
  local hex
  hex=$(sha256sum | cut -d' ' -f1)
  printf '%b' "$(sed 's/../\\x&/g' <<<"$hex")" | base64
}

page() { # file flags...
  local file=$scratch/$1
  shift
  "$plumb" sim "$@" --html "$file" >/dev/null || fail "plumb sim $* --html"
}

page small.html --model kimi-k3 --pp 4 --vp 2 --microbatches 8 --hop-GBps 200
if [[ $what == text ]]; then
  for part in script style; do
    hash=$(between "$scratch/small.html" "<$part>" "</$part>" | sha256_base64)
    grep -qF "$part-src 'sha256-$hash'" "$scratch/small.html" || fail "the policy does not name sha256-$hash of its $part"
  done
  grep -nE 'https?:|<(script|img|link|iframe)[^>]*(src|href)="[^d#]' "$scratch/small.html" && fail 'the page names something outside'
  ((failures == 0)) && echo 'the page allows its own script and style, and nothing else'
  exit $((failures > 0))
fi

browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome)
if [[ -z $browser ]] || ! command -v node >/dev/null; then
  echo 'skipped: Chromium or node is not installed (Debian: chromium, nodejs)'
  exit 77
fi
page large.html --sublayers 256 --block 32 --pp 32 --vp 4 --microbatches 64 --schedule interleaved
page split.html --sublayers 32 --block 4 --pp 4 --vp 2 --microbatches 8 --schedule zb-v --sharing fair --streams per-direction
page one.html --sublayers 4 --block 2 --pp 1 --microbatches 1
page plain.html --sublayers 8 --residual standard --pp 2 --microbatches 2 --hop-GBps inf
# What is not in a browser's cache must not be needed; each page gets a browser of its own.
for name in small large split one plain; do
  echo "$name.html"
  node "$here/drive_page.mjs" "$browser" "$scratch/$name.html" || fail "$name.html does not work"
done
exit $((failures > 0))
