"""What rules, transforms and guards cost: one decision over ten rules, and calls a second with 64 in flight.

Run it: `python bench/policy_overhead.py`.

Exits with 1 when the median of a decision is over 50 µs.
"""

from __future__ import annotations

import asyncio
import sys
import time
from statistics import median

from mooring import Host, HostConfig, ServerConfig
from mooring.core.transforms import CallContext
from mooring.core.types import Tool
from mooring.demo import command
from mooring.policy.replay import enforcer

DECISIONS, ROUNDS, CALLS, IN_FLIGHT, LIMIT = 20_000, 7, 3_000, 64, 50.0
TOOL, ARGUMENTS = "mcp_clock_convert", {"time": "2026-01-01T12:00+00:00", "offset_hours": 0}
RULES = [
    {
        "when": f'tool == "convert" && arguments.time.startsWith("19{n}") && !(principal in ["ana", "bob"])',
        "then": "deny",
    }
    for n in range(10)
]
OTHERS = [{"when": f'tool == "other{n}" && arguments.x > {n}', "then": "deny"} for n in range(9)]
SHAPE = {"convert": {"description": "Convert a time.", "arguments": {"offset_hours": {"default": 0}}}}


def decision() -> float:
    """Median microseconds of one decision for which all ten rules are evaluated."""
    policy = enforcer(HostConfig(policy={"rules": RULES}))
    tool = Tool(name=TOOL, server="clock", remote_name="convert")
    context, taken = CallContext(principal="eve"), list[float]()
    for _ in range(DECISIONS):
        started = time.perf_counter()
        policy.decision(tool, ARGUMENTS, context)
        taken.append(time.perf_counter() - started)
    return median(taken) * 1e6


async def rate(host: Host) -> float:
    """Calls a second with 64 in flight."""
    left = CALLS

    async def caller() -> None:
        nonlocal left
        while left > 0:
            left -= 1
            await host.call(TOOL, ARGUMENTS, check=True)

    started = time.process_time()
    await asyncio.gather(*(caller() for _ in range(IN_FLIGHT)))
    return CALLS / (time.process_time() - started)


async def compared() -> tuple[float, float]:
    program, *args = command("clock")
    plain = ServerConfig(name="clock", command=program, args=tuple(args))
    shaped = ServerConfig(name="clock", command=program, args=tuple(args), transforms=SHAPE)
    both = HostConfig(servers=(shaped,), policy={"rules": [*OTHERS, RULES[0]]})
    async with Host([plain], lock=False) as one, Host(both, lock=False) as two:
        await one.ready()
        await two.ready()
        await rate(one)
        await rate(two)
        # In turns, so that a busy machine is fair to both.
        pairs = [(await rate(one), await rate(two)) for _ in range(ROUNDS)]
    return median(pair[0] for pair in pairs), median(pair[1] for pair in pairs)


def main() -> int:
    micro = decision()
    without, with_both = asyncio.run(compared())
    print(f"one decision, ten rules   {micro:.1f} µs (limit {LIMIT:.0f} µs)")
    print(f"calls per CPU second      {without:.0f} without, {with_both:.0f} with ten rules and a transform")
    print(f"overhead                  {1 - with_both / without:.1%}")
    return int(micro > LIMIT)


if __name__ == "__main__":
    sys.exit(main())
