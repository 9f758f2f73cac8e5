# SPDX-License-Identifier: Apache-2.0
"""What depth attention costs in PyTorch on the same GPU and shape as gpu_measure: eager, compiled, and the fused operator
of flash-linear-attention where it can be imported. Prints one JSON object; what could not run says why.

    gpu_torch.py [tokens width sources]      default: 8192 7168 9
    gpu_torch.py --dry-run                   the same on the CPU at a small shape; its times say nothing"""
import json
import sys
import time

DRY = sys.argv[1:] == ["--dry-run"]


def not_run(why):
    print(json.dumps({"torch": f"not run: {why}"}))
    sys.exit(0)


try:
    import torch
except ImportError as error:
    not_run(error)
if not DRY and not torch.cuda.is_available():
    not_run("no GPU")

T, D, N = (64, 128, 9) if DRY else (int(x) for x in (sys.argv[1:4] if len(sys.argv) > 3 else (8192, 7168, 9)))
DEVICE = "cpu" if DRY else "cuda"
TIMES = 3 if DRY else 10


def aggregate(sources, query):
    keys = [v.float() * torch.rsqrt(v.float().square().mean(-1, keepdim=True) + 1e-6) for v in sources]
    logits = torch.stack([k @ query for k in keys], dim=-1)
    weights = logits.softmax(-1)
    return sum(weights[:, i : i + 1] * v.float() for i, v in enumerate(sources)).to(sources[0].dtype)


def ms_of(call):
    if DRY:
        begin = time.perf_counter()
        call()
        return 1e3 * (time.perf_counter() - begin)
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    call()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end)


def median_ms(call):
    call()
    return sorted(ms_of(call) for _ in range(TIMES))[TIMES // 2]


def time_of(function):
    torch.manual_seed(1)
    sources = [torch.randn(T, D, device=DEVICE, dtype=torch.bfloat16, requires_grad=True) for _ in range(N)]
    query = (torch.randn(D, device=DEVICE) * 0.02).requires_grad_()
    grad = torch.randn(T, D, device=DEVICE, dtype=torch.bfloat16)

    def forward():
        with torch.no_grad():
            return function(sources, query)

    def both():
        for each in (*sources, query):
            each.grad = None
        function(sources, query).backward(grad)

    # Another function would not be a comparison: beyond two roundings of bf16 its time is not reported.
    with torch.no_grad():
        formula = aggregate(sources, query).float()
    apart = ((forward().float() - formula).norm() / formula.norm()).item()
    if not apart < 1e-2:
        raise ValueError(f"computes something else: {apart:.1e} from the formula")
    return {"forward_ms": round(median_ms(forward), 4), "forward_backward_ms": round(median_ms(both), 4)}


def attempt(make):
    try:
        return time_of(make())
    except Exception as error:  # whatever a foreign package or an old GPU has to say
        return f"not run: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"


def fused():
    from fla.ops.attnres import fused_attnres  # moves between releases; then this line says so in the report

    gain = torch.ones(D, device=DEVICE)
    return lambda sources, query: fused_attnres(query=query, residuals=tuple(sources), rms_weight=gain)


print(
    json.dumps(
        {
            "torch": torch.__version__,
            "gpu": "none: a dry run" if DRY else torch.cuda.get_device_name(),
            "aggregate_eager": attempt(lambda: aggregate),
            "aggregate_compiled": attempt(lambda: torch.compile(aggregate)),
            "aggregate_flash_linear_attention": attempt(fused),
        },
        indent=2,
    )
)
