"""Right kernels of every kind, made at random: types, tuples, descriptors, hints, configs, derived constexprs, grids, tunings."""

from __future__ import annotations

import random
from typing import Any

from nojit.runtime.types.names import NONE, is_compiled_in, is_descriptor, leaves

from tests.support.bundles import Parts, kernel, target
from tests.support.drafts import Draft, mend_programs, take_apart
from tests.support.jsonlies import Document

__all__ = ["ARCHS", "DEVICES", "random_condition", "random_draft", "random_sum", "random_tuning", "random_type"]

ARCHS = ("sm_90a", "sm_90a", "sm_90", "sm_80", "sm_100a")
DEVICES = (90, 80, 100)
"""What runs them, by ordinal."""
INTS = ("i32", "i64", "u32", "u64", "i16", "u16", "i8", "u8")
FLOATS = ("fp32", "fp64", "fp16", "bf16")
POINTERS = ("*fp16", "*{dtype}", "*fp32", "*kbf16", "*i8", "*fp8e5", "*i1", "*i64", "*fp16?")
CONSTANTS = ("=3", "=-1", "='silu'", "=1.5", "=true", "=dtype:fp16", "=function:m:f", "none", "=nan", "='%C3%A9'")
ELEMENTS = ("fp16", "bf16", "fp32", "i8", "i32", "fp8e4nv", "fp64")
NAMES = ("x", "y", "n", "m", "s_1", "group", "desc", "k", "Z", "stride_xm")
VALUES: tuple[tuple[Any, ...], ...] = (
    ("fast", "slow"),
    (True, False),
    (1, 1.0),
    (None, 3),
    ((1, 2.0), (1, (2,))),
    (0.5, -0.0),
)
OPERATORS = ("+", "-", "*", "//", "%")
COMPARISONS = ("==", "!=", "<", "<=", ">", ">=")


def random_type(chance: random.Random, depth: int = 0) -> str:
    """Make the type of a param."""
    way = chance.random()
    if way < 0.3:
        return chance.choice(INTS)
    if way < 0.6:
        return chance.choice(POINTERS if depth == 0 else POINTERS[2:-1])
    if way < 0.7:
        return chance.choice((*FLOATS, "i1", "u1"))
    if way < 0.78:
        return chance.choice(CONSTANTS)
    if way < 0.9 and depth < 3:
        return f"({','.join(random_type(chance, depth + 1) for _ in range(chance.randrange(4)))})"
    block = [chance.choice((1, 2, 8, 16, 64, 128, 256)) for _ in range(chance.choice((1, 2, 2, 2, 3, 5)))]
    block[-1] = chance.choice((16, 32, 64, 128))
    return f"tensordesc<{chance.choice(ELEMENTS)}[{','.join(map(str, block))}]>"


def random_sum(chance: random.Random, names: list[str], depth: int = 0) -> str:
    """Write an expression that gives an int, where no operation fails."""
    way = chance.random()
    if depth > 3 or way < 0.3 or not names:
        return chance.choice(
            [*names, "1", "7", "128", str(1 << chance.randrange(63)), "arch"] if depth else names or ["3"]
        )
    one, other = (random_sum(chance, names, depth + 1) for _ in range(2))
    if way < 0.5:
        return f"cdiv({one}, {chance.choice((one, '128', '3', other))})"
    if way < 0.6:
        return f"{chance.choice(('min', 'max'))}({one}, {other}{chance.choice(('', ', 5'))})"
    if way < 0.65:
        return f"next_pow2({one})"
    if way < 0.7:
        return f"(-{one})"
    return f"({one} {chance.choice(OPERATORS)} {chance.choice((other, '4', '16'))})"


def random_condition(chance: random.Random, ints: list[str], others: list[str], depth: int = 0) -> str:
    """Write an expression that gives a bool, where no operation fails."""
    way = chance.random()
    if depth < 2 and way < 0.3:
        one, other = (random_condition(chance, ints, others, depth + 1) for _ in range(2))
        return f"({one} {chance.choice(('and', 'or'))} {other})"
    if way < 0.35:
        return f"not {random_condition(chance, ints, others, depth + 1)}"
    if others and way < 0.55:
        return chance.choice(("has({0})", "aligned({0}, 16)", "not has({0})", "{0} == none")).format(
            chance.choice(others)
        )
    return f"{random_sum(chance, ints, 2)} {chance.choice(COMPARISONS)} {random_sum(chance, ints, 2)}"


def random_tuning(chance: random.Random, header: Document, ints: list[str], arch: str) -> Document:
    """Measure a kernel's cases on some devices, so to speak."""
    sums = (random_sum(chance, ints, 2).replace("arch", "9") for _ in range(3))
    keys = [one if chance.random() < 0.3 else chance.choice(ints) for one in sums][: chance.randrange(1, 4)]
    cases, configs = len(header["cases"]), len(header["configs"])
    tables = []
    for number in range(chance.choice((1, 1, 2, 3))):
        device = {"arch": arch, "memory_bytes": 1 << 37, "multiprocessors": (132, 66, 1)[number], "name": "Fake"}
        half = chance.randrange(1, cases + 1)
        blocks = [_block(chance, range(half), len(keys), configs)]
        if half < cases:
            blocks.append(_block(chance, range(half, cases), len(keys), configs))
        tables.append({"blocks": blocks, "device": device})
    return {"bucket": chance.choice(("pow2", "quarter_pow2", "sixteenth_pow2", "exact")), "key": keys, "tables": tables}


def _block(chance: random.Random, cases: range, keys: int, configs: int) -> Document:
    places = sorted({tuple(1 << chance.randrange(20) for _ in range(keys)) for _ in range(chance.randrange(1, 5))})
    rows = []
    for place in places:
        use = chance.sample(range(configs), chance.randrange(1, configs + 1))
        rows.append([[*place], use, [0, *[chance.randrange(2000) for _ in use[1:]]]])
    block: Document = {"cases": [*cases], "costs": [], "rows": rows}
    if chance.random() < 0.4:
        words = ("key0 64 *", "multiprocessors", "key0 128 cdiv() multiprocessors cdiv() 1000 *", "7", "key0 0 //")
        block["costs"] = [[config, chance.choice(words)] for config in range(configs)]
    return block


def random_draft(chance: random.Random) -> Draft:
    """Make a right bundle of one or two kernels."""
    image_arch = chance.choice(ARCHS)
    on = target(image_arch)
    names = chance.sample(("alpha", "beta", "gamma.x", "_d-1"), chance.choice((1, 1, 2)))
    kernels = [kernel(name, on=on, **_words(chance, clusters=on.arch != "sm_80")) for name in names]
    draft = take_apart(Parts.of(*kernels, on=on, group_images=chance.choice((1, 3, 16))).seal())
    for one in draft.kernels:
        ints = ints_of(one.header)
        if ints and chance.random() < 0.4:
            one.header["tuning"] = random_tuning(chance, one.header, ints, on.arch)
            mend_programs(one.header)
    return draft


def ints_of(header: Document) -> list[str]:
    """Name the params of a table that are ints in every signature."""
    params = [param["name"] for param in header["params"] if not param["constexpr"]]
    columns = zip(*header["signatures"], strict=True)
    return [param for param, kinds in zip(params, columns, strict=True) if set(kinds) <= set(INTS)]


def _words(chance: random.Random, *, clusters: bool) -> dict[str, Any]:
    """Spell a kernel as `tests.support.bundles.kernel` takes it."""
    params = {name: random_type(chance) for name in chance.sample(NAMES, chance.randrange(1, 6))}
    if any("{dtype}" in kind for kind in params.values()) and chance.random() < 0.5:
        params = dict(sorted(params.items()))
    ints = [name for name, kind in params.items() if kind in INTS]
    others = [name for name, kind in params.items() if kind.startswith("*")]
    matrix: dict[str, Any] = {}
    if any("{dtype}" in kind for kind in params.values()):
        matrix["dtype"] = chance.sample(["fp16", "fp32", "bf16", "i8"], chance.randrange(1, 3))
    if chance.random() < 0.4:
        matrix["MODE"] = chance.choice(VALUES)
        params["MODE"] = "constexpr"
    configs: list[dict[str, Any]] = [
        {"num_warps": warps} for warps in chance.sample((1, 2, 4, 8), chance.randrange(1, 4))
    ]
    if chance.random() < 0.6:
        params["BLOCK"] = "constexpr"
        configs = [config | {"BLOCK": chance.choice((16, 64, 1024))} for config in configs]
    for config in configs:
        if chance.random() < 0.3:
            config["requires"] = random_condition(chance, ints, others)
        if clusters and chance.random() < 0.1:
            config["num_ctas"] = 2
    derived = {}
    if ints and chance.random() < 0.3:
        params["EVEN"] = "constexpr"
        derived["EVEN"] = random_condition(chance, [*ints, *(["BLOCK"] if "BLOCK" in params else [])], others)
    known = [*ints, *(["BLOCK"] if "BLOCK" in params else [])]
    defaults = {name: _default(chance, kind) for name, kind in params.items() if kind in INTS and chance.random() < 0.2}
    return {
        "params": params,
        "matrix": matrix,
        "configs": configs,
        "hints": [_hints(chance, params) for _ in range(chance.randrange(3))],
        "derived": derived,
        "defaults": defaults,
        "grid": [random_sum(chance, known) for _ in range(chance.randrange(4))],
        "launch": _launch(chance, ("cooperative", "pdl") if clusters else ("cooperative",)),
        "batch": chance.sample(ints, min(len(ints), chance.randrange(2))),
        "static_shared_bytes": chance.choice((0, 0, 1024, 40_000)),
    }


def _default(chance: random.Random, kind: str) -> Any:
    return chance.choice((0, 1, 16, 1 << 20 if kind[1:] in ("32", "64") else 5))


def _hints(chance: random.Random, params: dict[str, str]) -> dict[str, int]:
    hints = {}
    for param, kind in params.items():
        if kind == "constexpr" or kind.endswith("?"):
            continue
        for path, leaf in leaves(kind, param):
            if not is_compiled_in(leaf) and not is_descriptor(leaf) and leaf != NONE and chance.random() < 0.4:
                is_int = leaf in INTS
                if is_int or leaf.startswith("*"):
                    hints[path] = chance.choice((16, 1)) if is_int else 16
    return hints


def _launch(chance: random.Random, flags: tuple[str, ...]) -> dict[str, Any]:
    facts: dict[str, Any] = {}
    if chance.random() < 0.3:
        facts |= {
            "global_scratch_bytes": chance.choice((1, 64, 4096)),
            "global_scratch_align": chance.choice((1, 16, 128)),
        }
    if chance.random() < 0.1:
        facts |= {"profile_scratch_bytes": 64, "profile_scratch_align": 16}
    if chance.random() < 0.3:
        facts["shared_bytes"] = chance.choice((16, 50_000, 200_000))
    facts |= {flag: True for flag in flags if chance.random() < 0.1}
    return facts
