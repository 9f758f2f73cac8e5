#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# run_examples.sh BIN_DIR FILE...: runs what the documents show. In a ```console block a line "$ command" is run in a scratch
# directory with BIN_DIR first on PATH; the lines up to the next command must be exactly what it prints on stdout.
set -uo pipefail

bin_dir=$(cd "$1" && pwd)
shift
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export PATH="$bin_dir:$PATH"
failures=0
examples=0

check() { # file line command expected
  examples=$((examples + 1))
  local got
  got=$(cd "$scratch" && eval "$3" 2>"$scratch/stderr")
  if [[ $got != "$4" ]]; then
    failures=$((failures + 1))
    printf '%s:%s: $ %s\n' "$1" "$2" "$3"
    diff <(printf '%s\n' "$4") <(printf '%s\n' "$got") | sed 's/^/    /'
    sed 's/^/    stderr: /' "$scratch/stderr"
  fi
}

for file in "$@"; do
  inside=false command='' expected='' indent='' line_number=0 command_line=0
  while IFS= read -r line; do
    line_number=$((line_number + 1))
    if ! $inside && [[ $line =~ ^(\ *)\`\`\`console$ ]]; then
      inside=true indent=${BASH_REMATCH[1]}
      continue
    fi
    $inside || continue
    line=${line#"$indent"}
    if [[ $line == '```' || $line == '$ '* ]]; then
      [[ -n $command ]] && check "$file" "$command_line" "$command" "${expected%$'\n'}"
      command='' expected=''
      if [[ $line == '```' ]]; then inside=false; else command=${line#'$ '} command_line=$line_number; fi
    else
      expected+="$line"$'\n'
    fi
  done <"$file"
done

printf '%d examples, %d differ\n' "$examples" "$failures"
((examples > 0 && failures == 0))
