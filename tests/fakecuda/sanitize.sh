#!/bin/sh
# Run the launch path's tests with the C core and the fake driver under AddressSanitizer and UBSan.
#
#     tests/fakecuda/sanitize.sh [pytest arguments]      default: the tests of the runtime, of the fakes, of launch faults, of readers
#
# Some tests repeat a case many times. Here, where each case is slow, they do so less often: NOJIT_FAULT_CODES,
# NOJIT_FUZZ_CALLS and NOJIT_FUZZ_BUNDLES say how often.
#
# The engine and its binding are built beside those in the checkout. Python's own allocator is switched off, so that the sanitizer sees each object by itself. PYTHON names the interpreter,
# CC the compiler.
set -eu

root=$(cd "$(dirname "$0")/../.." && pwd)
python=${PYTHON:-$root/.venv/bin/python}
compiler=${CC:-gcc}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT INT TERM

flags="-fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer"
# shellcheck disable=SC1091 # of this folder
. "$root/tests/fakecuda/beside.sh"
# shellcheck disable=SC2086 # flags are words
build_beside "$work" "$compiler" -O1 $flags

cd "$root"
# what is measured in time is not measured here; test_c_sanitized.py has programs of its own, under other sanitizers. What records,
# what serves a program and what starts it are Python alone
[ $# -gt 0 ] || set -- tests/runtime tests/fakecuda tests/abuse/test_calls.py tests/abuse/test_nomemory.py \
    tests/abuse/test_readers.py tests/abuse/test_fuzz_bundles.py tests/abuse/test_launch_*.py -q -m "not triton and not slow" --ignore tests/runtime/test_c_sanitized.py \
    --ignore tests/runtime/recording --ignore tests/runtime/serve --ignore tests/runtime/autostart --deselect tests/runtime/explain/test_explanation.py::test_ten_thousand_variants
export NOJIT_FAULT_CODES="${NOJIT_FAULT_CODES:-2,700,709}" NOJIT_FUZZ_CALLS="${NOJIT_FUZZ_CALLS:-500}" \
    NOJIT_FUZZ_BUNDLES="${NOJIT_FUZZ_BUNDLES:-120}"
# leaks are the interpreter's own by the thousand; the core's are looked for by counting references
FAKECUDA_CFLAGS="$flags" \
    PYTHONPATH="$work" PYTHONMALLOC=malloc PYTHONDONTWRITEBYTECODE=1 \
    LD_PRELOAD="$($compiler -print-file-name=libasan.so) $($compiler -print-file-name=libubsan.so)" \
    ASAN_OPTIONS="detect_leaks=0:strict_string_checks=1:abort_on_error=1:allocator_may_return_null=1" \
    UBSAN_OPTIONS="print_stacktrace=1:halt_on_error=1" \
    "$python" -m pytest -p no:cacheprovider --capture=sys "$@"
