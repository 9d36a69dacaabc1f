#!/bin/sh
# Show which lines of the engine the tests and the fuzz targets' seeds run, by file, the least covered first. Needs clang and llvm.
#
#     tests/fakecuda/coverage.sh FOLDER [pytest arguments]      default: the tests of the runtime, and hostile ones
#
# FOLDER keeps what was measured; `llvm-cov show` of FOLDER's `core.so` with `all.profdata` shows single lines.
set -eu

root=$(cd "$(dirname "$0")/../.." && pwd)
python=${PYTHON:-$root/.venv/bin/python}
compiler=${CLANG:-clang}
mkdir -p "$1"
folder=$(cd "$1" && pwd)
shift
flags="-O0 -fprofile-instr-generate -fcoverage-mapping"
rm -rf "$folder/beside" "$folder"/tests.*.profraw

cd "$root"
tests/fuzz/run.sh "$folder" -- -runs=0 >"$folder/fuzz.log" 2>&1
# shellcheck disable=SC1091 # of this folder
. "$root/tests/fakecuda/beside.sh"
# shellcheck disable=SC2086 # flags are words
(build_beside "$folder/beside" "$compiler" $flags)
ln -sf beside/nojit/runtime/libnojit.so.0 "$folder/core.so"
[ $# -gt 0 ] || set -- tests/runtime tests/abuse -q -m "not triton and not slow and not gpu" \
    --ignore tests/runtime/recording --ignore-glob "tests/runtime/serve/test_standin*"
# what fails is shown, and the lines that ran count
NOJIT_COVERAGE_CC="$compiler $flags" LLVM_PROFILE_FILE="$folder/tests.%4m.profraw" PYTHONPATH="$folder/beside" \
    PYTHONDONTWRITEBYTECODE=1 "$python" -m pytest -p no:cacheprovider "$@" || echo "some tests failed"
llvm-profdata merge -o "$folder/both.profdata" "$folder/all.profdata" "$folder"/tests.*.profraw
mv "$folder/both.profdata" "$folder/all.profdata"
llvm-cov export "$folder/core.so" -instr-profile="$folder/all.profdata" -summary-only $(find runtime/engine -name '*.c') |
    "$python" -c '
import json, sys
files = json.load(sys.stdin)["data"][0]["files"]
rows = sorted((each["summary"]["lines"]["percent"], each["filename"], each["summary"]["lines"]) for each in files)
for percent, name, lines in rows:
    missed, count, short = lines["count"] - lines["covered"], lines["count"], name[name.find("runtime/engine"):]
    print(f"{percent:6.1f}%  {missed:4d} of {count:4d} lines missed  {short}")
'
