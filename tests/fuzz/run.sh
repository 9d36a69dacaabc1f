#!/bin/sh
# Fuzz the engine with libFuzzer under ASan and UBSan, and show what lines of the engine the corpora reach. Needs clang and llvm.
#
#     tests/fuzz/run.sh FOLDER [TARGET...] [-- libFuzzer options]       for example: tests/fuzz/run.sh /tmp/fuzz image -- -runs=1000000
#
# FOLDER keeps the programs, each target's corpus, which grows from run to run, and what crashed. With -runs=0 nothing is fuzzed, and the
# lines that the corpora reach are shown.
set -eu

root=$(cd "$(dirname "$0")/../.." && pwd)
python=${PYTHON:-$root/.venv/bin/python}
compiler=${CLANG:-clang}
folder=$1
shift
targets=
while [ $# -gt 0 ] && [ "$1" != -- ]; do
    targets="$targets $1"
    shift
done
[ $# -eq 0 ] || shift
[ $# -gt 0 ] || set -- -max_total_time=60
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
cd "$root"
[ -n "$targets" ] || targets=$(ls tests/fuzz/*.c | sed 's#.*/##; s#\.c$##' | grep -Ev '^(main|starve)$')
engine=$(find runtime/engine -name '*.c')
flags="-std=c11 -g -Iruntime/engine -Iruntime/engine/include"
fuzzed="$flags -O1 -fsanitize=address,undefined -fno-sanitize-recover=all"
covered="$flags -O0 -fprofile-instr-generate -fcoverage-mapping"

# compiles the engine into FOLDER/$1.objects with the flags that follow; its allocations are those of starve.c
compile_engine() {
    objects="$folder/$1.objects"
    rm -rf "$objects"
    mkdir "$objects"
    shift
    for source in $engine; do
        "$compiler" "$@" -Dmalloc=fuzz_malloc -Dcalloc=fuzz_calloc -Drealloc=fuzz_realloc -c "$source" \
            -o "$objects/$(echo "$source" | tr / -).o"
    done
}

# shellcheck disable=SC2086 # flags and targets are words
compile_engine fuzzed $fuzzed -fsanitize=fuzzer-no-link
# shellcheck disable=SC2086
compile_engine covered $covered
for target in $targets; do
    echo "== $target"
    "$python" -m tests.fuzz.seeds "$target" "$folder/$target.seeds"
    mkdir -p "$folder/$target.corpus"
    # shellcheck disable=SC2086
    "$compiler" $fuzzed -fsanitize=fuzzer "tests/fuzz/$target.c" tests/fuzz/starve.c "$folder"/fuzzed.objects/*.o \
        -ldl -lm -lpthread -o "$folder/$target"
    "$folder/$target" -artifact_prefix="$folder/$target.crash-" "$@" "$folder/$target.corpus" "$folder/$target.seeds"
    # shellcheck disable=SC2086
    "$compiler" $covered "tests/fuzz/$target.c" tests/fuzz/main.c tests/fuzz/starve.c "$folder"/covered.objects/*.o \
        -ldl -lm -lpthread -o "$folder/$target.covered"
    export LLVM_PROFILE_FILE="$folder/$target.%p.profraw"
    find "$folder/$target.corpus" -type f -print0 | xargs -0 "$folder/$target.covered" >/dev/null
    find "$folder/$target.seeds" -type f -print0 | xargs -0 "$folder/$target.covered" --starve >/dev/null
    llvm-profdata merge -o "$folder/$target.profdata" "$folder/$target".*.profraw
    rm -f "$folder/$target".*.profraw
done
programs=$(for target in $targets; do echo "-object $folder/$target.covered"; done)
# shellcheck disable=SC2046
llvm-profdata merge -o "$folder/all.profdata" $(for target in $targets; do echo "$folder/$target.profdata"; done)
# shellcheck disable=SC2086
llvm-cov report ${programs#-object } -instr-profile="$folder/all.profdata" -show-region-summary=false \
    -show-branch-summary=false $engine
