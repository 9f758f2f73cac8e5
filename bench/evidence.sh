#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Measures what docs/what-forwarding-on-arrival-is-worth.md reports and draws its pictures.
#
#   bench/evidence.sh BIN OUT [quick|rows|curves|all|full]
#
# BIN: folder with plumb and plumb-rehearse. OUT: folder for evidence.jsonl (one line per run, appended) and the SVGs.
# quick: one point per picture, short; rows: rehearsed against simulated; curves: overhead against unit time; all: both,
# some 20 minutes; full: with more unit times per curve, twice that.
# Nothing else should run meanwhile: every line tells how busy the machine was (`load`), so a disturbed one shows. As
# root the runs get a real-time priority, so that what else runs delays them little: they sleep nearly all the time.
# A run that is in evidence.jsonl already is not repeated: delete the file, or lines of it, to measure again.
set -eu

bin=${1:?folder with plumb and plumb-rehearse}
out=${2:?folder for the results}
what=${3:-all}
here=$(cd "$(dirname "$0")" && pwd)
log=$out/evidence.jsonl
first=
if [ "$(id -u)" = 0 ] && command -v chrt > /dev/null; then
  first="chrt --rr 10"
fi
mkdir -p "$out"
touch "$log"

# measure NAME FLAGS..: one rehearsal, one line {"name":..,"flags":..,"load":..,"result":{..}}
measure() {
  name=$1
  shift
  if grep -qF "\"name\":\"$name\"," "$log"; then
    return 0
  fi
  load=$(cut -d' ' -f1 /proc/loadavg)
  echo "$name (load $load)" >&2
  if result=$($first ${launch:-} "$bin/plumb-rehearse" --json "$@"); then
    printf '{"name":"%s","flags":"%s","load":%s,"result":%s}\n' "$name" "$*" "$load" "$result" >> "$log"
  else
    echo "  failed" >&2
    return 1
  fi
}

aligned="--sublayers 32 --block 1"             # with 32 chunks: every chunk closes one block
k3="--model kimi-k3"
dtype="--dtype fp32"                           # values and gradients of equal bytes: one unit time both ways

# point LAYOUT_NAME UNIT_SHARE POLICY F_US STEPS FLAGS..: F = I = W = F_US, the unit takes UNIT_SHARE of F
point() {
  layout=$1 share=$2 policy=$3 forward=$4 steps=$5
  shift 5
  unit=$(awk "BEGIN { print $share * $forward }")
  measure "curve $layout u=$share $policy F=$forward${impair:+ without $impair}" "$@" $dtype --cache "$policy" \
    --action-us "F=$forward,I=$forward,W=$forward" --unit-us "$unit" --hop-us 0 --unit-bytes 16384 --steps "$steps" \
    ${impair:+--impair "$impair"}
}

layout_flags() {
  case $1 in
    aligned-p8v4) echo "--pp 8 --vp 4 --microbatches 32 $aligned" ;;
    aligned-p8v4-n16) echo "--pp 8 --vp 4 --microbatches 32 --group 16 $aligned" ;;
    k3-p8v4) echo "--pp 8 --vp 4 --microbatches 32 $k3" ;;
    k3-p8v4-n16) echo "--pp 8 --vp 4 --microbatches 32 --group 16 $k3" ;;
    k3-p8v2) echo "--pp 8 --vp 2 --microbatches 32 $k3" ;;
    k3-p8v1) echo "--pp 8 --vp 1 --microbatches 32 $k3" ;;
  esac
}

curves() {
  forward=$1 steps=$2 shares=$3
  shift 3
  for layout in "$@"; do
    for share in $shares; do
      for policy in naive relay direct cached; do
        point "$layout" "$share" "$policy" "$forward" "$steps" $(layout_flags "$layout") || true
      done
    done
  done
}

# What the mechanism is worth: the same with one queue per edge, without priority, with communication that waits for
# computation; and what one communication stream per rank costs.
impaired() {
  for layout in aligned-p8v4 k3-p8v1; do
    for share in 0.05 0.2; do
      for impair in lanes priority overlap; do
        point "$layout" "$share" cached "$1" "$2" $(layout_flags "$layout") || true
      done
    done
  done
  for layout in aligned-p8v4 k3-p8v4 k3-p8v1; do
    for share in $3; do
      for impair in single-stream unplanned-stream; do
        for policy in relay direct cached; do
          point "$layout" "$share" "$policy" "$1" "$2" $(layout_flags "$layout") || true
        done
      done
    done
  done
  impair=
}

# Rehearsed against simulated step time: F = 10 ms, at least five alternating steps.
row() {
  name=$1
  shift
  measure "row $name" "$@" $dtype --action-us F=10000,I=10000,W=10000 --unit-us 1000 --hop-us 100 --steps 5 || true
}

rows() {
  for policy in naive relay direct cached; do
    row "P2 V1 1f1b $policy inproc" --pp 2 --vp 1 --microbatches 8 --sublayers 8 --block 2 --cache $policy
    row "P4 V2 interleaved $policy inproc" --pp 4 --vp 2 --microbatches 8 --sublayers 16 --block 2 --cache $policy
    row "P4 V2 zb-v $policy inproc" --pp 4 --vp 2 --microbatches 8 --sublayers 16 --block 2 --schedule zb-v --cache $policy
    row "P8 V4 interleaved $policy inproc" --pp 8 --vp 4 --microbatches 8 --sublayers 32 --block 1 --cache $policy
  done
  if command -v mpirun > /dev/null; then
    for policy in naive relay direct cached; do
      launch=$(mpi_launch 2)
      row "P2 V2 interleaved $policy mpi" --pp 2 --vp 2 --microbatches 8 --sublayers 16 --block 2 --cache $policy
      launch=$(mpi_launch 4)
      row "P4 V1 1f1b $policy mpi" --pp 4 --vp 1 --microbatches 8 --sublayers 16 --block 2 --cache $policy
    done
    launch=
  fi
}

mpi_launch() {
  root=
  [ "$(id -u)" != 0 ] || root=--allow-run-as-root
  echo "mpirun -n $1 --oversubscribe --bind-to none $root --mca btl self,vader --mca btl_vader_single_copy_mechanism none"
}

case $what in
  quick) curves 2000 1 "0.1" aligned-p8v4 k3-p8v1 ;;
  rows) rows ;;
  curves | all | full)
    [ "$what" = curves ] || rows
    curves 10000 3 "0.05" aligned-p8v4 k3-p8v1
    curves 10000 3 "0.1" k3-p8v4
    curves 5000 2 "0.1 0.2" aligned-p8v4 k3-p8v1 k3-p8v2
    curves 5000 2 "0.2" k3-p8v4
    curves 5000 2 "0.1" aligned-p8v4-n16 k3-p8v4-n16
    impaired 5000 2 0.1
    if [ "$what" = full ]; then
      curves 5000 2 "0.02 0.035 0.4" aligned-p8v4 k3-p8v1
      curves 5000 2 "0.02 0.035 0.05 0.4" k3-p8v4 k3-p8v2
      curves 5000 2 "0.02 0.035 0.05 0.2 0.4" aligned-p8v4-n16 k3-p8v4-n16
      impaired 5000 2 0.05
    fi
    ;;
  *)
    echo "evidence.sh: '$what' is none of quick, rows, curves, all, full" >&2
    exit 2
    ;;
esac
exec python3 "$here/evidence.py" "$bin/plumb" "$log" "$out"
