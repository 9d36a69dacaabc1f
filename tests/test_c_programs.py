"""Programs in C, C++ and Rust that link libnojit: those of the documentation and of the examples, run against the fake driver."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
from nojit.aot.cli.commands.config import facts
from nojit.runtime import _core

from tests.fakecuda import FakeCuda
from tests.support.bundles import SyntheticKernel, kernel, make_bundle
from tests.support.capi import LISTED

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs/c-api.md").read_text(encoding="utf-8")
HEADER = (ROOT / "runtime/engine/include/nojit.h").read_text(encoding="utf-8")
FLAGS = facts()
VERSION = re.findall(r"#define NOJIT_VERSION_(?:MAJOR|MINOR) (\d+)", HEADER)
LIBRARY = Path(FLAGS["lib_dir"]) / "libnojit.so.0"
WARNINGS = ["-Wall", "-Wextra", "-Werror"]
VECTOR_ADD = kernel(
    "vector_add",
    {"x_ptr": "*{dtype}", "y_ptr": "*{dtype}", "out_ptr": "*{dtype}", "n": "i32", "BLOCK": "constexpr"},
    matrix={"dtype": ["fp16", "fp32"]},
    configs=[{"BLOCK": 1024}],
    hints=[{"x_ptr": 16, "y_ptr": 16, "out_ptr": 16}],
    grid=["cdiv(n, BLOCK)"],
)


def blocks(language: str) -> list[str]:
    """Return the blocks of the page in a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def build(compiler: str, source: Path, out: Path, *more: str) -> None:
    command = [
        compiler,
        *WARNINGS,
        *more,
        str(source),
        *FLAGS["cflags"].split(),
        *FLAGS["libs"].split(),
        "-o",
        str(out),
    ]
    subprocess.run(command, check=True)


def run(program: Path, *words: str | Path, fakecuda: FakeCuda) -> subprocess.CompletedProcess[str]:
    command = [str(program), *map(str, words)]
    return subprocess.run(command, env=fakecuda.environment(90), capture_output=True, text=True, check=False)


def of_manifest(name: str, manifest: str, matrix: dict[str, list[object]], **facts: object) -> SyntheticKernel:
    """Make a kernel that is called as one of the library's is: with its params, in its order."""
    entries = tomllib.loads((ROOT / manifest).read_text(encoding="utf-8"))["kernel"]
    (entry,) = [one for one in entries if one["name"] == name]
    return kernel(
        name, {**entry["params"], **dict.fromkeys(facts.pop("constexprs", ()), "constexpr")}, matrix=matrix, **facts
    )  # type: ignore[arg-type]


@pytest.mark.parametrize("standard", ["c11", "c17"])
def test_the_example_of_the_page_runs(tmp_path: Path, fakecuda: FakeCuda, standard: str) -> None:
    source, configs = blocks("c")
    (tmp_path / "configs.c").write_text(configs, encoding="utf-8")
    build("gcc", tmp_path / "configs.c", tmp_path / "configs.so", f"-std={standard}", "-pedantic", "-shared", "-fPIC")
    (tmp_path / "add.c").write_text(source, encoding="utf-8")
    build("gcc", tmp_path / "add.c", tmp_path / "add", f"-std={standard}", "-pedantic")
    ran = run(tmp_path / "add", make_bundle(tmp_path / "a.nojit", VECTOR_ADD), fakecuda=fakecuda)
    assert (ran.returncode, ran.stderr) == (0, "")
    ran = run(tmp_path / "add", tmp_path / "none.nojit", fakecuda=fakecuda)
    assert ran.returncode == 1
    assert "No such file or directory - at" in ran.stderr


def test_the_example_in_cpp_compiles(tmp_path: Path) -> None:
    (source,) = blocks("cpp")
    (tmp_path / "add.cpp").write_text(source, encoding="utf-8")
    for standard in ("c++17", "c++20"):
        build("g++", tmp_path / "add.cpp", tmp_path / "add.so", f"-std={standard}", "-pedantic", "-shared", "-fPIC")


CPP = r"""
#include <nojit.h>
#include <cstdio>
#include <fstream>
#include <iterator>

static int asked;
static nj_code ask(const nj_plan *plan, size_t number, nj_plan_value_info *info, nj_error *error)
{
    asked++;
    return nj_plan_value(plan, number, info, error);
}
#define nj_plan_value ask
#include <nojit.hpp>

struct half {
    unsigned short bits;
};
template <> struct nojit::dtype_of<half> {
    static constexpr nj_dtype value = NJ_DTYPE_FP16;
};
static_assert(nojit::dtype_of<const float>::value == NJ_DTYPE_FP32);

static void convert()
{
    const nj_arg made = nojit::arg(static_cast<const half *>(nullptr)).get();
    std::printf("%d\n", made.kind == NJ_ARG_POINTER && made.dtype == NJ_DTYPE_FP16);
}

template <typename Launch> static void refused(Launch launch)
{
    try {
        launch();
    } catch (const nojit::error &error) {
        std::printf("%d %s\n", error.code() == NJ_ERROR_ARGUMENT, error.what());
    }
}

int main(int, char **words)
{
    convert();
    nojit::bundle moved(words[1]), bundle(words[1]);
    bundle = std::move(moved);
    std::printf("%d\n", bundle.fit() > 0);
    for (std::string_view name : bundle.kernel_names()) {
        nojit::kernel kernel = bundle.kernel(name);
        for (const nj_param_info &param : kernel.params()) {
            std::printf("%s ", param.name);
        }
        nojit::launch_setup setup;
        setup.grid = {3, 2};
        setup.keywords = {{"BLOCK", 1024}, {"num_warps", 4}};
        float *x = reinterpret_cast<float *>(0x1000);
        kernel(setup, x, x, x, 1000);
        const nojit::selection_setup selection{setup.device, setup.keywords};
        nojit::plan plan = kernel.prepare(selection, x, x, x, 1000);
        std::printf("%s %zu %zu\n", plan.values()[3].type, plan.about().value_count, kernel.configs()[0].setting_count);
        int before = asked;
        plan.launch(nullptr, {2}, x, x, x, 1008);
        nojit::plan(plan).launch(nullptr, x, x, x, 1008);
        const int n = 1008;
        const void *const values[] = {&x, &x, &x, &n};
        plan.launch_pointers(nullptr, values);
        std::printf("asked %d times\n", asked - before);
        refused([&] { plan.launch(nullptr, x, x, x, 1008L); });
        refused([&] { plan.launch(nullptr, x, x, x, 1008.0f); });
        refused([&] { plan.launch(nullptr, x, x, reinterpret_cast<half *>(x), 1008); });
        refused([&] { plan.launch(nullptr, x, x, x); });
        plan.launch(nullptr, static_cast<void *>(x), std::uint64_t{0x1000}, x, 1008u);
        int reasons = 0;
        kernel.explain(selection, [&](const nj_reason &) { reasons++; }, x, x, x, 1000);
        std::printf("%d\n", reasons);
        try {
            kernel.explain(selection, [](const nj_reason &) { throw 5; }, x, x, x, 1000);
        } catch (int thrown) {
            std::printf("%d\n", thrown);
        }
    }
    std::ifstream file(words[1], std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(file), {}};
    std::printf("%d\n", nojit::bundle::from_memory(bytes.data(), bytes.size()).kernel_names() == bundle.kernel_names());
    std::string_view notes = bundle.attachment(bundle.attachment_names().at(0));
    std::printf("%.*s\n", int(notes.size()), notes.data());
    try {
        static_cast<void>(bundle.kernel(std::string("none")));
    } catch (const nojit::error &error) {
        std::printf("%s\n", error.what());
    }
}
"""


def test_a_program_in_cpp_asks_and_launches(tmp_path: Path, fakecuda: FakeCuda) -> None:
    (tmp_path / "ask.cpp").write_text(CPP, encoding="utf-8")
    build("g++", tmp_path / "ask.cpp", tmp_path / "ask", "-std=c++17", "-pedantic")
    bundle = make_bundle(tmp_path / "a.nojit", VECTOR_ADD, attachments=(("notes.txt", b"built on a Monday"),))
    ran = run(tmp_path / "ask", bundle, fakecuda=fakecuda)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.splitlines() == [
        "1",
        "1",
        "x_ptr y_ptr out_ptr n BLOCK i32 4 4",
        "asked 0 times",
        "1 expected a value of type i32, got another type of 8 bytes - at kernel vector_add argument n",
        "1 expected a value of type i32, got another type of 4 bytes - at kernel vector_add argument n",
        "1 expected a value of type *fp32, got another type of 8 bytes - at kernel vector_add argument out_ptr",
        "1 expected 4 values, got 3 - at kernel vector_add",
        "4",
        "5",
        "1",
        "built on a Monday",
        f"expected one of 1 kernels, got 'none' - at {bundle}",
    ]


BORROWED = r"""
#include <nojit.hpp>

// 0 is no size of memory
static_assert(!std::is_constructible_v<nojit::bundle, const void *, std::size_t>);
static_assert(!std::is_constructible_v<nojit::bundle, nj_bundle *>);
template <typename T> constexpr bool makes_arg = std::is_constructible_v<nojit::arg, T>;

static_assert(makes_arg<const std::string &> && makes_arg<std::string &>);
// a string, or bytes on the device
static_assert(!makes_arg<const char *> && !makes_arg<char *> && makes_arg<signed char *> && makes_arg<const unsigned char *>);
static_assert(!makes_arg<std::string> && !makes_arg<const std::string>);
static_assert(makes_arg<const nj_tensor_descriptor &> && !makes_arg<nj_tensor_descriptor>);
static_assert(std::is_constructible_v<nojit::keyword, const char *, const std::string &>);
static_assert(std::is_constructible_v<nojit::keyword, const char *, const char *>);
static_assert(!std::is_constructible_v<nojit::keyword, const char *, std::string>);
"""
TEMPORARY = """
#include <nojit.hpp>

std::string name();
nojit::arg it() { return {line}; }
"""


def test_no_argument_in_cpp_borrows_of_a_temporary(tmp_path: Path) -> None:
    (tmp_path / "borrowed.cpp").write_text(BORROWED, encoding="utf-8")
    build("g++", tmp_path / "borrowed.cpp", tmp_path / "borrowed.so", "-std=c++17", "-pedantic", "-shared", "-fPIC")
    for line, allowed in {
        "nojit::arg(name())": False,
        'nojit::keyword{"MASK", name()}.value': False,
        "nojit::arg::tuple({1, 2})": False,
        "nojit::arg::tuple(*new std::vector<nojit::arg>{1, 2.0})": True,
        "nojit::arg::tuple(new nojit::arg[2]{1, 2.0}, 2)": True,
        "*new std::string": True,
        "static_cast<volatile char *>(nullptr)": False,
    }.items():
        (tmp_path / "temporary.cpp").write_text(TEMPORARY.replace("{line}", line), encoding="utf-8")
        command = ["g++", "-std=c++17", "-fsyntax-only", f"-I{FLAGS['include_dir']}", str(tmp_path / "temporary.cpp")]
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (ran.returncode == 0, "deleted" in ran.stderr) == (allowed, not allowed), line


REFUSED = """
#include <nojit.hpp>

void use(const nojit::plan &plan, const nojit::kernel &kernel, const nojit::launch_setup &setup, char *bytes)
{
    {line};
}
"""


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("plan.launch(nullptr, bytes)", "a char * could be a string"),
        ("plan.launch(nullptr, const_cast<const char *>(bytes))", "a char * could be a string"),
        ('plan.launch(nullptr, "bytes")', "not an array of the host"),
        # their stream and grid would be ignored
        ("(void)kernel.prepare(setup, 1)", "nojit::selection_setup"),
        ("kernel.explain(setup, [](const nj_reason &) {}, 1)", "nojit::selection_setup"),
        ("plan.launch(nullptr, static_cast<void *>(bytes))", ""),
        ("(void)kernel.prepare({setup.device, setup.keywords}, 1)", ""),
    ],
)
def test_a_call_in_cpp_that_would_be_misread_does_not_compile(tmp_path: Path, line: str, words: str) -> None:
    (tmp_path / "refused.cpp").write_text(REFUSED.replace("{line}", line), encoding="utf-8")
    command = ["g++", "-std=c++17", "-fsyntax-only", f"-I{FLAGS['include_dir']}", str(tmp_path / "refused.cpp")]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ran.returncode == 0, words in ran.stderr) == (not words, True)


def test_the_example_that_opens_the_cpp_header_compiles(tmp_path: Path) -> None:
    header = (Path(FLAGS["include_dir"]) / "nojit.hpp").read_text(encoding="utf-8")
    example = re.findall(r"^//     (.+)$", header.split("#ifndef")[0], re.MULTILINE)
    assert len(example) > 5
    body = "\n    ".join(example)
    params = "void *stream, float *x, float *y, float *out, int n"
    (tmp_path / "opening.cpp").write_text(
        f"#include <nojit.hpp>\nvoid use({params})\n{{\n    {body}\n}}\n", encoding="utf-8"
    )
    subprocess.run(
        ["g++", "-std=c++17", "-fsyntax-only", f"-I{FLAGS['include_dir']}", str(tmp_path / "opening.cpp")], check=True
    )


ZERO = """
#include <nojit.hpp>

int main() {
    nojit::keyword zero{"BLOCK", 0}, none{"MASK", nullptr}, text{"MASK", "causal"};
    return zero.value.kind != NJ_ARG_INT || none.value.kind != NJ_ARG_NONE || text.value.kind != NJ_ARG_TEXT;
}
"""


def test_a_zero_in_cpp_is_a_number_and_no_text_at_null(tmp_path: Path) -> None:
    (tmp_path / "zero.cpp").write_text(ZERO, encoding="utf-8")
    build("g++", tmp_path / "zero.cpp", tmp_path / "zero", "-std=c++17", "-pedantic")
    subprocess.run([tmp_path / "zero"], check=True)


def test_the_page_lists_every_code() -> None:
    listed = re.findall(r"^\| `(NJ_ERROR_\w+)` \|", PAGE, re.MULTILINE)
    assert listed == re.findall(r"^    (NJ_ERROR_\w+) = ", HEADER, re.MULTILINE)


def symbols(library: Path, pattern: str) -> set[str]:
    """Return the symbols of a library that `nm` shows like this."""
    shown = subprocess.run(["nm", "-D", str(library)], capture_output=True, text=True, check=True).stdout
    return set(re.findall(rf"{pattern}$", shown, re.MULTILINE))


def test_the_public_symbols_are_those_of_the_header() -> None:
    declared = set(re.findall(r"^NJ_API .*?\b(nj_\w+)\(", HEADER, re.MULTILINE))
    assert len(declared) == 21
    assert symbols(LIBRARY, rf" T (nj_\w+)@@NOJIT_{'.'.join(VERSION)}") == declared


def test_the_header_starts_with_a_table_of_its_functions() -> None:
    declared = re.findall(r"^NJ_API .*?\b(nj_\w+)\(", HEADER, re.MULTILINE)
    table = HEADER.partition("-- Functions --")[2].partition("-- Rules --")[0]
    assert sorted(re.findall(r"^ \*     (nj_\w+) ", table, re.MULTILINE)) == sorted(declared)


def test_the_comment_of_each_function_that_can_fail_lists_its_errors() -> None:
    failing = re.findall(r"^NJ_API [^;]*?\b(nj_\w+)\([^;]*nj_error \*error\);", HEADER, re.MULTILINE)
    assert [*LISTED] == failing
    assert all(LISTED.values())


def test_the_private_symbols_are_those_that_the_binding_uses() -> None:
    private = symbols(LIBRARY, r" [TD] (nj_\w+)@@NOJIT_PRIVATE")
    assert symbols(Path(_core.__file__), r" U (nj_\w+)@NOJIT_PRIVATE") == private
    assert symbols(LIBRARY, r" [A-TV-Z] (nj_\w+)@@\S+") == private | symbols(LIBRARY, r" T (nj_\w+)@@NOJIT_[0-9.]+")


def test_programs_need_the_library_of_their_major_version(tmp_path: Path) -> None:
    (tmp_path / "version.c").write_text(
        "#include <nojit.h>\nint main(void) { return nj_version_fits(nj_version()) ? 0 : 1; }\n", encoding="utf-8"
    )
    build("gcc", tmp_path / "version.c", tmp_path / "version", "-std=c11", "-pedantic")
    shown = subprocess.run(
        ["readelf", "-dV", str(tmp_path / "version")], capture_output=True, text=True, check=True
    ).stdout
    assert f"[{LIBRARY.name}]" in shown
    assert f"Name: NOJIT_{'.'.join(VERSION)} " in shown
    assert subprocess.run([str(tmp_path / "version")], check=False).returncode == 0
    assert LIBRARY.name == f"libnojit.so.{VERSION[0]}"


VERSIONS = r"""
#include <nojit.h>

_Static_assert(NOJIT_VERSION_NUMBER == 1000 * NOJIT_VERSION_MAJOR + NOJIT_VERSION_MINOR, "a number");

int main(void)
{
    /* bit 0 is the header's own version, bit 1 an older minor, bit 2 a newer one, bit 3 another major */
    return nj_version_fits(NOJIT_VERSION_NUMBER) | nj_version_fits(NOJIT_VERSION_NUMBER - 1) << 1 |
           nj_version_fits(NOJIT_VERSION_NUMBER + 1) << 2 | nj_version_fits(NOJIT_VERSION_NUMBER + 1000) << 3;
}
"""


def test_other_versions_of_the_library_are_told_apart(tmp_path: Path) -> None:
    """While the major version is 0, each minor is another interface; later a newer minor serves older programs."""
    for version, fitting in (("0.1", 0b0001), ("2.3", 0b0101)):
        major, minor = version.split(".")
        header = re.sub(r"(define NOJIT_VERSION_MAJOR) \d+", rf"\1 {major}", HEADER)
        (tmp_path / "nojit.h").write_text(re.sub(r"(define NOJIT_VERSION_MINOR) \d+", rf"\1 {minor}", header))
        (tmp_path / "versions.c").write_text(VERSIONS, encoding="utf-8")
        command = ["gcc", *WARNINGS, f"-I{tmp_path}", str(tmp_path / "versions.c"), "-o", str(tmp_path / "versions")]
        subprocess.run(command, check=True)
        assert subprocess.run([str(tmp_path / "versions")], check=False).returncode == fitting


def test_each_struct_with_a_size_has_an_initialiser_that_sets_it(tmp_path: Path) -> None:
    sized = re.findall(r"^typedef struct (nj_\w+) \{\n    size_t size;$", HEADER, re.MULTILINE)
    # the library makes these, and passes them to callbacks
    made = [name for name in sized if name not in {"nj_claim", "nj_event", "nj_reason"}]
    assert len(made) == 9
    rows = [
        f"    {name} {name[3:]} = {name.upper()}_INIT;\n    wrong |= {name[3:]}.size != sizeof({name});"
        for name in made
    ]
    source = (
        "#include <nojit.h>\nint main(void)\n{\n    int wrong = 0;\n" + "\n".join(rows) + "\n    return wrong;\n}\n"
    )
    for compiler, ending, standard in (("gcc", "c", "c11"), ("g++", "cpp", "c++17")):
        (tmp_path / f"init.{ending}").write_text(source, encoding="utf-8")
        build(compiler, tmp_path / f"init.{ending}", tmp_path / "init", f"-std={standard}", "-pedantic")
        assert subprocess.run([str(tmp_path / "init")], check=False).returncode == 0


def test_the_library_is_small_and_needs_libc_alone() -> None:
    library = LIBRARY
    stripped = library.with_name("libnojit.stripped")
    try:
        subprocess.run(["strip", "-o", str(stripped), str(library)], check=True)
        assert stripped.stat().st_size <= 400_000
    finally:
        stripped.unlink(missing_ok=True)
    needed = subprocess.run(["readelf", "-d", str(library)], capture_output=True, text=True, check=True).stdout
    # the loader is libc's own: it finds variables of threads
    libraries = {name for name in re.findall(r"\(NEEDED\).*\[(.*)\]", needed) if not name.startswith("ld-linux-")}
    assert libraries <= {
        "libc.so.6",
        "libdl.so.2",
        "libm.so.6",
        "libpthread.so.0",
    }


def test_pkg_config_and_cmake_say_what_the_command_says() -> None:
    package = (Path(FLAGS["pkgconfig_dir"]) / "nojit.pc").read_text(encoding="utf-8")
    assert f"Version: {'.'.join(VERSION)}\n" in package
    if shutil.which("pkg-config") is not None:
        environment = os.environ | {"PKG_CONFIG_PATH": FLAGS["pkgconfig_dir"]}
        asked = ["pkg-config", "--cflags", "--libs", "nojit"]
        told = subprocess.run(asked, env=environment, capture_output=True, text=True, check=True).stdout.split()
        assert {Path(word[2:]).resolve() for word in told if word.startswith("-I")} == {Path(FLAGS["include_dir"])}
        assert {Path(word[2:]).resolve() for word in told if word.startswith("-L")} == {Path(FLAGS["lib_dir"])}
    cmake = (Path(FLAGS["cmake_dir"]) / "nojitConfig.cmake").read_text(encoding="utf-8")
    assert set(re.findall(r"libnojit\.so[.\d]*", cmake)) == {LIBRARY.name}
    dynamic = subprocess.run(["readelf", "-d", str(LIBRARY)], capture_output=True, text=True, check=True).stdout
    assert f"soname: [{LIBRARY.name}]" in dynamic


def server_kernels() -> tuple[SyntheticKernel, SyntheticKernel]:
    attention = of_manifest(
        "flash_attention_fwd",
        "manifests/flash_attention.toml",
        {"dtype": ["bf16"], "MASK": ["causal"], "BLOCK_D": [64, 128], "BLOCK_DV": [64, 128]},
        constexprs=("MASK", "BLOCK_D", "BLOCK_DV", "BLOCK_M"),
        configs=[{"BLOCK_M": 128, "num_warps": 8}],
        hints=[{"q_ptr": 16, "head_dim": 16}],
        grid=["cdiv(q_len, BLOCK_M) * batch * heads"],
    )
    matmul = of_manifest(
        "bmm",
        "manifests/bmm.toml",
        {"dtype": ["bf16"], "out": ["bf16"], "PRECISION": ["ieee"]},
        constexprs=("PRECISION", "BLOCK_M", "BLOCK_N"),
        configs=[{"BLOCK_M": 128, "BLOCK_N": 128, "requires": "m_len >= 512"}, {"BLOCK_M": 64, "BLOCK_N": 64}],
        hints=[{"a_ptr": 16, "stride_ak": 1}],
        grid=["batch * splits * cdiv(m_len, BLOCK_M) * cdiv(n_len, BLOCK_N)"],
    )
    return attention, matmul


def test_the_server_runs(tmp_path: Path, fakecuda: FakeCuda) -> None:
    source = ROOT / "examples/cpp_server/server.cpp"
    build("g++", source, tmp_path / "server", "-std=c++17", "-O1", "-ldl")
    bundle = make_bundle(tmp_path / "a.nojit", *server_kernels())
    ran = run(tmp_path / "server", bundle, "--no-check", fakecuda=fakecuda)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert [line.partition(":")[0] for line in ran.stdout.splitlines()] == [
        "batch 1, 16 heads of 128, 1024 tokens",
        "batch 8, 16 heads of 128, 128 tokens",
        "batch 1, 16 heads of 64, 333 tokens",
    ]
    # the fake driver computes nothing
    ran = run(tmp_path / "server", bundle, fakecuda=fakecuda)
    assert (ran.returncode, ran.stderr) == (1, "error: expected the layer's results to be those of the processor\n")


def test_cmake_builds_the_server(tmp_path: Path, fakecuda: FakeCuda) -> None:
    if shutil.which("cmake") is None:
        pytest.skip("needs cmake")
    configure = [
        "cmake",
        "-S",
        str(ROOT / "examples/cpp_server"),
        "-B",
        str(tmp_path),
        f"-Dnojit_DIR={FLAGS['cmake_dir']}",
    ]
    subprocess.run(configure, check=True, capture_output=True)
    subprocess.run(["cmake", "--build", str(tmp_path)], check=True, capture_output=True)
    ran = run(
        tmp_path / "server", make_bundle(tmp_path / "a.nojit", *server_kernels()), "--no-check", fakecuda=fakecuda
    )
    assert (ran.returncode, ran.stderr) == (0, "")


def test_cargo_builds_the_example_in_rust(tmp_path: Path, fakecuda: FakeCuda) -> None:
    source = (ROOT / "examples/rust/src/nojit.rs").read_text(encoding="utf-8")
    assert f"const VERSION: c_int = {1000 * int(VERSION[0]) + int(VERSION[1])};" in source
    if shutil.which("cargo") is None:
        pytest.skip("needs cargo")
    copy = shutil.copytree(ROOT / "examples/rust", tmp_path / "rust")
    environment = os.environ | {"NOJIT_LIB_DIR": FLAGS["lib_dir"]}
    command = ["cargo", "build", "--offline", "--quiet", "--target-dir", str(tmp_path / "target")]
    subprocess.run(command, cwd=copy, env=environment, check=True)
    bundle = make_bundle(tmp_path / "a.nojit", VECTOR_ADD)
    ran = run(tmp_path / "target/debug/launch", bundle, "--no-check", fakecuda=fakecuda)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout == "kernels: vector_add\nadded 100000 numbers\n"
