# SPDX-License-Identifier: Apache-2.0
"""What depth attention costs in PyTorch on the same GPU and shape as gpu_measure: eager, compiled, and the fused operator
of flash-linear-attention where it can be imported. Prints one JSON object; what could not run says why."""
import json
import sys

try:
    import torch
except ImportError as error:
    print(json.dumps({"torch": f"not run: {error}"}))
    sys.exit(0)
if not torch.cuda.is_available():
    print(json.dumps({"torch": "not run: no GPU"}))
    sys.exit(0)

T, D, N = (int(x) for x in (sys.argv[1:4] if len(sys.argv) > 3 else (8192, 7168, 9)))
TIMES = 10


def aggregate(sources, query):
    keys = [v.float() * torch.rsqrt(v.float().square().mean(-1, keepdim=True) + 1e-6) for v in sources]
    logits = torch.stack([k @ query for k in keys], dim=-1)
    weights = logits.softmax(-1)
    return sum(weights[:, i : i + 1] * v.float() for i, v in enumerate(sources)).to(sources[0].dtype)


def median_ms(call):
    call()
    all_ms = []
    for _ in range(TIMES):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        call()
        end.record()
        end.synchronize()
        all_ms.append(begin.elapsed_time(end))
    return sorted(all_ms)[TIMES // 2]


def time_of(function):
    sources = [torch.randn(T, D, device="cuda", dtype=torch.bfloat16, requires_grad=True) for _ in range(N)]
    query = (torch.randn(D, device="cuda") * 0.02).requires_grad_()
    grad = torch.randn(T, D, device="cuda", dtype=torch.bfloat16)

    def forward():
        with torch.no_grad():
            function(sources, query)

    def both():
        for each in (*sources, query):
            each.grad = None
        function(sources, query).backward(grad)

    return {"forward_ms": round(median_ms(forward), 4), "forward_backward_ms": round(median_ms(both), 4)}


def attempt(make):
    try:
        return time_of(make())
    except Exception as error:  # whatever a foreign package or an old GPU has to say
        return f"not run: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"


def fused():
    from fla.ops.attnres import fused_attnres  # moves between releases; then this line says so in the report

    gain = torch.ones(D, device="cuda")
    return lambda sources, query: fused_attnres(tuple(sources), query, gain)


print(
    json.dumps(
        {
            "torch": torch.__version__,
            "gpu": torch.cuda.get_device_name(),
            "aggregate_eager": attempt(lambda: aggregate),
            "aggregate_compiled": attempt(lambda: torch.compile(aggregate)),
            "aggregate_flash_linear_attention": attempt(fused),
        },
        indent=2,
    )
)
