"""Ways in which a bundle can lie while its lengths, counts and hashes are right: each changes a `Draft` in one way.

Some keep the rest in step, so that what is odd is accepted and gets as far as a launch: a type comes with its layout and image, an
expression with its program. Others do not, and so break one rule.
"""

from __future__ import annotations

import json
import random
import re
import struct
from collections.abc import Callable
from typing import Any

from tests.support.bundles import compress
from tests.support.drafts import Change, Draft, KernelDraft, clone, expressions_of, mend_programs, remake
from tests.support.jsonlies import Document, canonical, get, nodes, put
from tests.support.mutation import NUMBERS, SHAPES, TEXTS, WIDE, change_node
from tests.support.random_kernels import ARCHS, ints_of, random_condition, random_sum, random_tuning, random_type

__all__ = ["WAYS", "Way"]

Way = Callable[[random.Random, Draft], None]
WAYS: dict[str, tuple[Way, int]] = {}
"""Each way by its name, and how often it is taken."""

EXPRESSIONS = (
    "n // 0", "-9223372036854775807 - 1", "n * 4611686018427387904", "9223372036854775807 + n", "cdiv(n, -1)", "cdiv(n, 0)", "n % 0",
    "next_pow2(9223372036854775807)", "true", "none", "'text'", "n", "x", "unknown", "has(n)", "aligned(n, 0)", "aligned(n, -16)",
    "aligned(x, 9223372036854775807)", "not n", "n and n", "true and n", "false or n // 0 == 1", "min(n, n)", "max(n, 'a')", "arch",
    "dtype == 'fp16'", "dtype", "BLOCK", "MODE == true", "num_warps", "n == none", "1 == true", "(" * 60 + "n" + ")" * 60,
    "-" * 60 + "n", " + ".join(["n"] * 900), "min(" + ", ".join(["n"] * 1000) + ")", "n and " * 300 + "n", "not " * 60 + "true", "",
    "0", "-1", "2147483648", "4294967296", "65536 * 65536", "9223372036854775807", "0 - 1", "n - n", "n +", "\x7f", "stream", "grid",
)  # fmt: skip
NAMES = (
    "self", "stream", "grid", "device", "arch", "warmup", "num_warps", "true", "none", "min", "has", "and", "x", "n", "key0", "args",
    "kwargs", "__class__", "BLOCK", "_", "a" * 200, "multiprocessors", "only", "name",
)  # fmt: skip
VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2**63, -(2**63), 2**64 - 1, -(2**64) + 1, 2**64, "", "a", "é", "\0", "a" * 8192, "a" * 8193, "\U0001f600",
    {"float": "nan"}, {"float": "inf"}, {"float": "-0x0.0p+0"}, {"float": "0x0.0000000000001p-1022"}, {"float": "0X1p0"}, {"dtype": "fp16"},
    {"dtype": ""}, {"dtype": "x" * 9000}, {"function": "os:system"}, {"function": ""}, {"function": "m"}, {"tuple": []},
    {"tuple": [1] * 64}, {"tuple": [1] * 65}, {"tuple": [{"float": "nan"}, None, {"dtype": "i32"}]},
)  # fmt: skip
BOUNDS: dict[str, tuple[int, ...]] = {
    "num_warps": (0, 1, 2, 3, 32, 33, 64, 65),
    "num_ctas": (0, 1, 2, 3, 8, 16, 17),
    "shared_bytes": (0, 1, 49_152, 49_153, 232_448, 232_449, 1 << 20, (1 << 20) + 1),
    "global_scratch_bytes": (0, 1, 1 << 30, (1 << 30) + 1),
    "global_scratch_align": (0, 1, 3, 1 << 20, 1 << 21),
    "profile_scratch_bytes": (0, 1, 1 << 30, (1 << 30) + 1),
    "profile_scratch_align": (0, 1, 3, 256, 1 << 20),
}
TYPES = (
    "i3", "*fp128", "(", "()", "(" * 9 + "i32" + ")" * 9, "tensordesc<fp16[]>", "tensordesc<fp16[0]>", "tensordesc<i32[1048576]>",
    "tensordesc<i32[1048577]>", "tensordesc<fp16[1,1,1,1,1,1]>", "(" + ",".join(["i32"] * 255) + ")", "(" + ",".join(["i32"] * 300) + ")",
    "=18446744073709551615", "=18446744073709551616", "=1e400", "='%00'", "='" + "a" * 4000 + "'", "=dtype:", "=function:", "=", "*kk",
    "tensormap", "none", "*k", "(none,none)", "((),())", "i64", "fp64", "*fp16", "=-0.0",
)  # fmt: skip


def way(weight: int) -> Callable[[Way], Way]:
    """Say how often a way is taken."""

    def known(one: Way) -> Way:
        WAYS[one.__name__.replace("_", " ")] = (one, weight)
        return one

    return known


def _kernel(chance: random.Random, draft: Draft) -> tuple[int, KernelDraft]:
    number = chance.randrange(len(draft.kernels))
    return number, draft.kernels[number]


def _image_arch(draft: Draft) -> str:
    arch = draft.index["target"]["image_arch"]
    return arch if isinstance(arch, str) else "sm_90a"


def _remade(draft: Draft, kernel: KernelDraft, *static: int) -> None:
    remake(kernel, _image_arch(draft), static or (0,))


# the JSON of tables and of the index


@way(12)
def a_node_of_a_table(chance: random.Random, draft: Draft) -> None:
    _, kernel = _kernel(chance, draft)
    change_node(chance, kernel.header, chance.choice([*nodes(kernel.header)]))


@way(6)
def a_node_of_a_table_with_right_programs(chance: random.Random, draft: Draft) -> None:
    _, kernel = _kernel(chance, draft)
    change_node(chance, kernel.header, chance.choice([*nodes(kernel.header)]))
    mend_programs(kernel.header)


@way(4)
def two_nodes_swapped(chance: random.Random, draft: Draft) -> None:
    _, kernel = _kernel(chance, draft)
    places = [*nodes(kernel.header)]
    here = chance.choice(places)
    alike = [place for place in places if type(get(kernel.header, place)) is type(get(kernel.header, here))]
    there = chance.choice(alike)
    one, other = clone(get(kernel.header, here)), clone(get(kernel.header, there))
    put(kernel.header, here, other)
    put(kernel.header, there, one)


@way(4)
def a_node_of_the_index(chance: random.Random, draft: Draft) -> None:
    change_node(chance, draft.index, chance.choice([*nodes(draft.index)]))


@way(3)
def a_fact_of_a_kernel_in_the_index(chance: random.Random, draft: Draft) -> None:
    _, kernel = _kernel(chance, draft)
    field = chance.choice(("name", "variants", "images", "groups", "payload_bytes", "table"))
    number = chance.choice((*NUMBERS, *WIDE, len(kernel.images) + 1, len(kernel.columns[0]) - 1))
    junk = chance.choice((number, number, chance.choice(SHAPES), chance.choice(TEXTS)))
    kernel.entry[field] = clone(junk)


@way(2)
def attachments_that_lie(chance: random.Random, draft: Draft) -> None:
    name = chance.choice(("a", "origins.json", chance.choice(NAMES), chance.choice(TEXTS)))
    content = bytes(chance.choice((0, 1, 4 << 10, 5 << 10, 1 << 20, 5 << 20)))
    draft.attachments.insert(chance.randrange(len(draft.attachments) + 1), (name, content))
    if chance.random() < 0.5:
        draft.attachments.sort()
    if chance.random() < 0.3:
        section = {"raw_bytes": chance.choice(WIDE), "sha256": "0" * 64, "stored_bytes": chance.choice(WIDE)}
        draft.index["attachments"] = [{"name": name, "section": section}]


@way(2)
def kernels_that_collide(chance: random.Random, draft: Draft) -> None:
    number, kernel = _kernel(chance, draft)
    other = kernel.copied()
    other.name = chance.choice((kernel.name, kernel.name + ".", chance.choice(NAMES), kernel.name.upper()))
    draft.kernels.insert(number + chance.randrange(2), other)
    if chance.random() < 0.5:
        draft.kernels.sort(key=lambda one: one.name)


@way(2)
def a_target_that_lies(chance: random.Random, draft: Draft) -> None:
    target = draft.index["target"]
    target["image_arch"] = chance.choice((*ARCHS, "sm_89", "sm_120f", "sm_103a", "sm_100f", "sm_87", "sm_999", "sm_10"))
    if chance.random() < 0.7:
        target["arch"] = target["image_arch"].rstrip("af")
    if chance.random() < 0.5:
        for kernel in draft.kernels:
            _remade(draft, kernel)


@way(2)
def json_spelled_otherwise(chance: random.Random, draft: Draft) -> None:
    _, kernel = _kernel(chance, draft)
    depth = chance.choice((7, 8, 9, 22, 23, 900, 5000, 200_000))
    nested = b"[" * depth + b"1" + b"]" * depth
    tagged = b'{"tuple":[' * depth + b"1" + b"]}" * depth
    odd = (
        b"1.5",
        b"1e400",
        b"NaN",
        b"-0",
        b"01",
        b"9" * 5000,
        b'"\\ud800"',
        b'"\\u00e9"',
        b'"\\u0041"',
        b" 1",
        b"",
        b"\xff",
        b'"\x00"',
    )
    # the place is known by what stands there
    put(kernel.header, chance.choice([*nodes(kernel.header)]), "@here")
    spelled = chance.choice((nested, tagged, *odd, b'{"a":1,"a":2}'))
    kernel.spell = lambda header: canonical(header).replace(b'"@here"', spelled, 1)


@way(2)
def a_pool_many_times_over(chance: random.Random, draft: Draft) -> None:
    _, kernel = _kernel(chance, draft)
    name = chance.choice([key for key, value in kernel.header.items() if isinstance(value, list) and value])
    times = chance.choice((2, 5, 40, 200, 1000))
    kernel.header[name] = [clone(one) for one in kernel.header[name] * times][:33_000]
    if chance.random() < 0.5:
        mend_programs(kernel.header)


# expressions, with right programs


def _an_expression(chance: random.Random, header: Document) -> str:
    ints = ints_of(header)
    others = [param["name"] for param in header["params"] if param["name"] not in ints]
    made = (random_sum(chance, ints), random_condition(chance, ints, others), chance.choice(EXPRESSIONS))
    text = chance.choice(made)
    # the names of the texts above are those of this kernel, half of the time
    if ints and chance.random() < 0.5:
        text = re.sub(r"\bn\b", chance.choice(ints), text)
    return text


@way(10)
def another_expression(chance: random.Random, draft: Draft) -> None:
    _, kernel = _kernel(chance, draft)
    header = kernel.header
    for _ in range(chance.choice((1, 1, 3))):
        text = _an_expression(chance, header)
        place = chance.randrange(4)
        if place == 0:
            header["grid"] = [text, *header["grid"][1:]]
        elif place == 1 and header["derived"]:
            chance.choice(header["derived"])["expression"] = text
        elif place == 2 and header["tuning"]:
            header["tuning"]["key"][-1] = text
        else:
            chance.choice(header["configs"])["requires"] = text
    mend_programs(header)


@way(3)
def a_program_of_another_expression(chance: random.Random, draft: Draft) -> None:
    _, kernel = _kernel(chance, draft)
    texts = expressions_of(kernel.header)
    if texts:
        header = clone(kernel.header)
        header["grid"], header["derived"], header["tuning"] = [_an_expression(chance, header)], [], None
        mend_programs(header)
        kernel.header["programs"][chance.randrange(len(texts))] = chance.choice(
            (*header["programs"], "", "n +", "1 " * 500)
        )


@way(6)
def another_tuning(chance: random.Random, draft: Draft) -> None:
    _, kernel = _kernel(chance, draft)
    ints = ints_of(kernel.header) or ["n"]
    made = random_tuning(chance, kernel.header, ints, str(draft.index["target"]["arch"]))
    kernel.header["tuning"] = made
    for _ in range(chance.randrange(3)):
        change_node(chance, made, chance.choice([*nodes(made)]))
    mend_programs(kernel.header)


# what is passed


@way(10)
def another_type(chance: random.Random, draft: Draft) -> None:
    _, kernel = _kernel(chance, draft)
    signature = chance.choice(kernel.header["signatures"])
    for _ in range(chance.choice((1, 1, 2))):
        kind = random_type(chance).format(dtype="fp16").rstrip("?") if chance.random() < 0.7 else chance.choice(TYPES)
        signature[chance.randrange(len(signature))] = kind
    if chance.random() < 0.85:
        _remade(draft, kernel)


@way(5)
def other_hints(chance: random.Random, draft: Draft) -> None:
    _, kernel = _kernel(chance, draft)
    header = kernel.header
    params = [param["name"] for param in header["params"] if not param["constexpr"]]
    paths = [*params, *(f"{param}.{chance.randrange(3)}" for param in params)]
    hints = [[path, chance.choice((1, 16))] for path in chance.sample(paths, chance.randrange(len(paths) + 1))]
    header["hint_sets"][chance.randrange(len(header["hint_sets"]))] = hints
    _remade(draft, kernel)


@way(4)
def more_or_fewer_params(chance: random.Random, draft: Draft) -> None:
    _, kernel = _kernel(chance, draft)
    header = kernel.header
    params, number = header["params"], chance.choice((1, 1, 5, 100, 600, 1020))
    if chance.random() < 0.3:
        place = chance.randrange(len(params))
        runtime = [param["name"] for param in params if not param["constexpr"]]
        gone = params.pop(place)
        if not gone["constexpr"]:
            for signature in header["signatures"]:
                del signature[runtime.index(gone["name"])]
    else:
        kind = random_type(chance).format(dtype="fp16").rstrip("?")
        default = chance.choice(([], [], [1], [{"tuple": []}]))
        params += [{"constexpr": False, "default": default, "name": f"more_{place}"} for place in range(number)]
        for signature in header["signatures"]:
            signature.extend([kind] * number)
    _remade(draft, kernel)


@way(5)
def names_that_collide(chance: random.Random, draft: Draft) -> None:
    number, kernel = _kernel(chance, draft)
    header = kernel.header
    old = chance.choice([item["name"] for field in ("params", "axes", "derived") for item in header[field]])
    new = chance.choice((*NAMES, chance.choice(header["params"])["name"]))
    spelled = json.dumps(header)
    draft.kernels[number].header = json.loads(re.sub(rf"(?<![\w*]){re.escape(old)}(?!\w)", new, spelled))
    if chance.random() < 0.7:
        _remade(draft, draft.kernels[number])


@way(4)
def other_values(chance: random.Random, draft: Draft) -> None:
    _, kernel = _kernel(chance, draft)
    header, value = kernel.header, clone(chance.choice(VALUES))
    way_of = chance.randrange(4)
    if way_of == 0 and header["axes"]:
        axis = chance.choice(header["axes"])["values"]
        axis[chance.randrange(len(axis))] = value
    elif way_of == 1:
        config = chance.choice(header["configs"])
        pairs = chance.choice((config["constexprs"], config["options"]))
        if pairs:
            chance.choice(pairs)[1] = value
    elif way_of == 2 and header["derived"]:
        values = chance.choice(header["derived_values"])
        values[chance.randrange(len(values))] = value
    else:
        chance.choice(header["params"])["default"] = [value]


@way(5)
def another_launch(chance: random.Random, draft: Draft) -> None:
    _, kernel = _kernel(chance, draft)
    launch = chance.choice(kernel.header["launches"])
    for _ in range(chance.choice((1, 1, 2, 3))):
        field = chance.choice([*BOUNDS])
        launch[field] = chance.choice(BOUNDS[field])
    launch["cooperative"], launch["pdl"] = chance.random() < 0.2, chance.random() < 0.2
    launch["symbol"] = chance.choice(
        (launch["symbol"],) * 5 + ("", "a b", "é", "s" * 3000, ".text.k", "$global_scratch")
    )
    if chance.random() < 0.8:
        _remade(draft, kernel, chance.choice((0, 1024, 1 << 16, (1 << 30) + 5, 1 << 40)))


@way(4)
def another_layout(chance: random.Random, draft: Draft) -> None:
    _, kernel = _kernel(chance, draft)
    layouts = kernel.header["layouts"]
    place = chance.randrange(len(layouts))
    words = layouts[place].split(" ")
    here, there = chance.randrange(len(words)), chance.randrange(len(words))
    change = chance.randrange(6)
    if change == 0:
        words[here], words[there] = words[there], words[here]
    elif change == 1:
        del words[here]
    elif change == 2:
        words.insert(there, words[here])
    elif change == 3:
        words[here] = f"{words[here].split(':')[0]}:{random_type(chance)}"
    elif change == 4:
        words *= chance.choice((2, 300))
    else:
        words[here] = chance.choice(TEXTS)
    layouts[place] = " ".join(words)


@way(4)
def another_tensor_map(chance: random.Random, draft: Draft) -> None:
    _, kernel = _kernel(chance, draft)
    launches = [launch for launch in kernel.header["launches"] if launch["tensor_maps"]]
    if not launches:
        signature = chance.choice(kernel.header["signatures"])
        signature[chance.randrange(len(signature))] = "tensordesc<fp16[64,64]>"
        _remade(draft, kernel)
        launches = kernel.header["launches"][:1]
    for made in chance.choice(launches)["tensor_maps"]:
        field = chance.choice([*made])
        choices: dict[str, tuple[Any, ...]] = {
            "block": ([], [1], [256, 64], [64, 257], [1] * 5, [1] * 6, [64, 128], [32, 64], [0, 64], [64, 16]),
            "fp4_padded": (True, False, 1),
            "source": ("x", "", "desc.map", made["source"] + ".0"),
        }
        made[field] = clone(chance.choice(choices.get(field, (0, 1, 2, 3, 4, 6, 7, 8, 9, 14, 31, 32, -1))))


# rows


@way(6)
def other_numbers_in_columns(chance: random.Random, draft: Draft) -> None:
    _, kernel = _kernel(chance, draft)
    for _ in range(chance.choice((1, 1, 2, 6))):
        column = chance.choice(kernel.columns)
        if column:
            row = chance.randrange(len(column))
            column[row] = chance.choice(
                (chance.choice(NUMBERS), column[row] + 1, column[row] - 1, chance.choice(column))
            )


@way(4)
def other_rows(chance: random.Random, draft: Draft) -> None:
    _, kernel = _kernel(chance, draft)
    rows = [[*row] for row in zip(*kernel.columns, strict=True)]
    change = chance.randrange(4)
    if change == 0:
        rows = [row for row in rows if chance.random() < 0.6]
    elif change == 1:
        rows += [[*row] for row in rows] * chance.choice((1, 3))
    elif change == 2:
        chance.shuffle(rows)
    elif rows:
        cases = len(kernel.header["cases"])
        kernel.header["cases"] += clone(kernel.header["cases"])
        rows += [[row[0] + cases, *row[1:]] for row in rows]
    if chance.random() < 0.7:
        rows = sorted({tuple(row[:4]): row for row in rows}.values())
    kernel.columns = [[*column] for column in zip(*rows, strict=True)] if rows else [[] for _ in range(8)]
    if chance.random() < 0.3 and rows:
        _remade(draft, kernel)


# images


@way(10)
def a_field_of_an_elf(chance: random.Random, draft: Draft) -> None:
    _, kernel = _kernel(chance, draft)
    if not kernel.images:
        return
    place = chance.randrange(len(kernel.images))
    data = bytearray(kernel.images[place])
    for _ in range(chance.choice((1, 1, 1, 2, 4))):
        _change_elf(chance, data)
    kernel.images[place] = bytes(data)


def _change_elf(chance: random.Random, data: bytearray) -> None:
    if len(data) < 64:
        return
    (sections_at,) = struct.unpack_from("<Q", data, 40)
    (count,) = struct.unpack_from("<H", data, 60)
    where = chance.randrange(4)
    number = chance.choice(
        (*NUMBERS, *(value for value in WIDE if 0 <= value < 2**64), len(data), len(data) - 1, len(data) + 1, count)
    )
    if where == 0:
        at, size = chance.choice(
            (
                (16, 2),
                (18, 2),
                (32, 8),
                (40, 8),
                (48, 4),
                (52, 2),
                (54, 2),
                (56, 2),
                (58, 2),
                (60, 2),
                (62, 2),
                (7, 1),
                (8, 1),
            )
        )
    elif where == 1 and count and sections_at + 64 * count <= len(data):
        header = sections_at + 64 * chance.randrange(count)
        offset, size = chance.choice(((0, 4), (4, 4), (24, 8), (32, 8), (40, 4), (44, 4), (56, 8)))
        at = header + offset
    elif count and sections_at + 64 * count <= len(data):
        start, length = struct.unpack_from("<QQ", data, sections_at + 64 * chance.randrange(count) + 24)
        if start >= len(data) - 8 or not length:
            return
        size = chance.choice((1, 2, 4))
        at = start + chance.randrange(min(length, len(data) - start - 7))
    else:
        at, size = chance.randrange(len(data) - 8), 1
    data[at : at + size] = (number & ((1 << 8 * size) - 1)).to_bytes(size, "little")


@way(4)
def an_image_cut_or_moved(chance: random.Random, draft: Draft) -> None:
    _, kernel = _kernel(chance, draft)
    images = kernel.images
    if not images:
        return
    place, other = chance.randrange(len(images)), chance.randrange(len(images))
    image = images[place]
    at = chance.randrange(len(image) + 1)
    images[place] = chance.choice(
        (
            image[:at],
            image[:64],
            b"",
            image[at:],
            image + bytes(chance.choice((1, 64, 100_000))),
            images[other],
            image[:at] + image,
        )
    )


@way(3)
def groups_that_lie(chance: random.Random, draft: Draft) -> None:
    number, kernel = _kernel(chance, draft)
    change = chance.randrange(4)
    if change == 0:
        kernel.groups = [1] * len(kernel.images)
    elif change == 1:
        kernel.groups = [chance.choice((0, 1, 2, len(kernel.images), 1 << 31)), *kernel.groups]
    else:
        part = chance.choice((f"groups {number}", f"images {number}"))
        draft.raw[part] = _words_of(chance)


def _words_of(chance: random.Random) -> Change:
    def changed(raw: bytes) -> bytes:
        data = bytearray(raw)
        if len(data) >= 4:
            at = chance.randrange(len(data) // 4) * 4
            (old,) = struct.unpack_from("<I", data, at)
            struct.pack_into("<I", data, at, chance.choice((*NUMBERS, old + 1, old - 1)) & 0xFFFFFFFF)
        cut = chance.random()
        return (
            bytes(data[: chance.randrange(len(data) + 1)])
            if cut < 0.1
            else bytes(data) * 2
            if cut < 0.15
            else bytes(data)
        )

    return changed


# raw parts and frames


@way(3)
def a_raw_part(chance: random.Random, draft: Draft) -> None:
    part = chance.choice(draft.parts())
    start, size = chance.random(), chance.choice((0, 1, 4, 44, 500))
    junk = chance.choice((b"", bytes(4), bytes(200), b"\xff" * 8, chance.randbytes(8)))

    def changed(raw: bytes) -> bytes:
        at = int(start * len(raw))
        return raw[:at] + junk + raw[at + size :]

    draft.raw[part] = changed


EMPTY_FRAME = bytes.fromhex("28b52ffd240001000099e9d851")


def _rle(raw: bytes) -> bytes:
    """Say the right size, and repeat one byte until it is reached."""
    left, blocks = len(raw), b""
    while True:
        size = min(left, 128 << 10)
        left -= size
        blocks += struct.pack("<I", (left == 0) | 1 << 1 | size << 3)[:3] + b" "
        if not left:
            return b"\x28\xb5\x2f\xfd\xa4" + struct.pack("<I", len(raw)) + blocks + bytes(4)


def _frames(chance: random.Random) -> Change:
    number = chance.choice((*NUMBERS, 1 << 20, 1 << 23, 5 << 20, 8 << 20))
    at, byte = chance.randrange(14), chance.randrange(256)
    return chance.choice(
        (
            lambda raw: compress(raw)[:4] + b"\xa4" + struct.pack("<I", number) + compress(raw)[6:],
            lambda raw: compress(raw)[:at] + bytes([byte]) + compress(raw)[at + 1 :],
            lambda raw: compress(raw) + EMPTY_FRAME,
            lambda raw: b"\x50\x2a\x4d\x18\x04\0\0\0abcd" + compress(raw),
            lambda raw: compress(raw)[: -number % 9],
            lambda raw: compress(raw)[:-4] + b"abcd",
            lambda _: b"",
            lambda _: EMPTY_FRAME,
            _rle,
            lambda raw: compress(raw + bytes(min(number, 8 << 20))),
            lambda raw: compress(raw, 19),
            lambda raw: raw,
        )
    )


@way(4)
def a_frame_that_lies(chance: random.Random, draft: Draft) -> None:
    number, kernel = _kernel(chance, draft)
    names = ["index", f"section {number}", *(f"payload {number}.{place}" for place in range(len(kernel.groups)))]
    names += [f"attachment {place}" for place in range(len(draft.attachments))]
    draft.frames[chance.choice(names)] = _frames(chance)


@way(2)
def much_in_little(chance: random.Random, draft: Draft) -> None:
    """Say right sizes of parts that repeat themselves."""
    number, kernel = _kernel(chance, draft)
    size = chance.choice((4 << 10, 100 << 10, 1 << 20, 5 << 20, 9 << 20))
    if chance.random() < 0.5 and kernel.images:
        kernel.images[chance.randrange(len(kernel.images))] += bytes(size)
    else:
        draft.raw[f"table {number}"] = lambda raw: raw + bytes(size)


# what is signed


@way(3)
def a_signed_statement(chance: random.Random, draft: Draft) -> None:
    spoil = chance.randrange(4)

    def changed(raw: bytes) -> bytes:
        statement = json.loads(raw)
        for _ in range(spoil):
            change_node(chance, statement, chance.choice([*nodes(statement)]))
        return json.dumps(statement, sort_keys=True, separators=(",", ":")).encode()

    draft.statement = changed


@way(2)
def nothing(_chance: random.Random, _draft: Draft) -> None:
    """Leave a right bundle right."""
