#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Rehearses over real, slow links: one network namespace per rank, joined by veth pairs and a bridge, each side limited
# by a token bucket, MPI over TCP between them. Prints one line per policy and compares the bytes.
#
#   tests/netns.sh BIN [MBIT [STEPS]]       BIN: folder with plumb-rehearse; rate of every link [200], steps [3]
#   tests/netns.sh BIN quick                one policy, milliseconds a step: whether it works, not what it costs
#
# Needs root, ip, tc and mpirun; skipped (exit 77) with the reason otherwise. Cleans up after itself.
set -eu

bin=$(cd "${1:?folder with plumb-rehearse}" && pwd)
ranks=4
if [ "${2:-}" = quick ]; then
  mbit=200 steps=1 bytes=16384 virtual=2 microbatches=4 policies=cached limit=40
else
  mbit=${2:-200} steps=${3:-3} bytes=262144 virtual=4 microbatches=8 policies="naive relay direct cached" limit=300
fi
prefix=plumb$$
net=10.$((64 + $$ % 128))  # two runs at a time do not meet

skip() {
  echo "skipped: $1"
  exit 77
}
[ "$(id -u)" = 0 ] || skip "network namespaces need root"
for tool in ip tc mpirun unshare python3; do
  command -v $tool > /dev/null || skip "there is no $tool"
done
[ -x "$bin/plumb-rehearse" ] || skip "there is no $bin/plumb-rehearse"
ip netns add "$prefix-try" 2> /dev/null || skip "this machine does not let us make network namespaces"
names=yes
ip netns exec "$prefix-try" unshare --uts true 2> /dev/null || names=
ip netns del "$prefix-try"
[ "$names" ] || skip "this machine does not let us give a namespace a host name"

work=$(mktemp -d /tmp/plumbns.XXXXXX)
clean() {
  for r in $(seq 0 $((ranks - 1))); do
    ip netns del "$prefix-$r" 2> /dev/null || true
  done
  ip link del "$prefix" 2> /dev/null || true
  rm -rf "$work"
}
trap clean EXIT
trap 'exit 130' INT TERM

ip link add "$prefix" type bridge || skip "this machine has no bridges"
ip addr add "$net.0.1/24" dev "$prefix"
ip link set "$prefix" up
hosts=
for r in $(seq 0 $((ranks - 1))); do
  ip netns add "$prefix-$r"
  ip link add "v$$-$r" type veth peer name eth0 netns "$prefix-$r" || skip "this machine has no veth pairs"
  ip link set "v$$-$r" master "$prefix" up
  ip netns exec "$prefix-$r" ip link set lo up
  ip netns exec "$prefix-$r" ip addr add "$net.0.1$r/24" dev eth0
  ip netns exec "$prefix-$r" ip link set eth0 up
  # Egress of the namespace and its ingress (the bridge's side of the pair): full duplex, one rate each way.
  ip netns exec "$prefix-$r" tc qdisc add dev eth0 root tbf rate "${mbit}mbit" burst 32kb latency 400ms ||
    skip "this kernel has no token bucket filter (tc tbf)"
  tc qdisc add dev "v$$-$r" root tbf rate "${mbit}mbit" burst 32kb latency 400ms
  hosts="$hosts${hosts:+,}$net.0.1$r:1"
done

# mpirun starts its daemons through this: enters the namespace of the address instead of a remote shell, with a host
# name of its own, for to MPI equal names are equal machines.
cat > "$work/agent" << AGENT
#!/bin/sh
host=\$1
shift
r=\${host##*.1}
exec ip netns exec $prefix-\$r unshare --uts sh -c "hostname $prefix-\$r; \$*"
AGENT
chmod +x "$work/agent"

rehearse() {
  TMPDIR=/tmp OMPI_MCA_plm_rsh_agent="$work/agent" timeout $limit mpirun --allow-run-as-root -n $ranks --host "$hosts" \
    --bind-to none --mca plm rsh --mca btl self,tcp --mca btl_tcp_if_include "$net.0.0/24" \
    --mca oob_tcp_if_include "$net.0.0/24" --mca mpi_yield_when_idle 1 "$bin/plumb-rehearse" --json --links real "$@"
}

# One unit takes as long as the rate says: 8 bits a byte, MBIT bits a microsecond.
unit=$(awk "BEGIN { print $bytes * 8 / $mbit }")
forward=$(awk "BEGIN { print 10 * $unit }")
echo "$ranks namespaces, $mbit Mbit/s each way, a unit of $bytes bytes takes $unit us, a chunk's forward $forward us"
for policy in $policies; do
  result=$(rehearse --pp $ranks --vp $virtual --microbatches $microbatches --sublayers $((ranks * virtual)) --block 1 \
    --dtype fp32 --cache "$policy" \
    --action-us "F=$forward,I=$forward,W=$forward" --unit-us "$unit" --hop-us 100 --unit-bytes $bytes --steps "$steps")
  echo "$result" | python3 -c '
import json, sys
result = json.loads(sys.stdin.readlines()[-1])
moved = result["bytes_per_step"]
print("%-7s step %8.2f ms, over standard %+6.2f %%; simulated %8.2f ms, %+6.2f %%; %d bytes a step, %s the formula" % (
    sys.argv[1], result["step_us"] / 1000, 100 * result["overhead_over_standard"], result["predicted_step_us"] / 1000,
    100 * result["predicted_overhead_over_standard"], moved["wire"],
    "equal to" if len(set(moved.values())) == 1 else "NOT"))
sys.exit(0 if len(set(moved.values())) == 1 and result["mismatches"] == 0 else 1)' "$policy"
done
