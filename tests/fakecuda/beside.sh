# Sourced: builds the engine and its binding beside those in the checkout, never over them.
#
#     build_beside FOLDER COMPILER FLAGS...
#
# builds both into one library. FOLDER becomes a package folder of links around it, to stand in front on the path. `root` names the
# checkout, `python` the interpreter.

build_beside() {
    folder=$1
    compiler=$2
    shift 2
    package=$folder/nojit/runtime
    mkdir -p "$package"
    for file in "$root"/runtime/*.py; do
        ln -s "$file" "$package/"
    done
    for file in "$root"/runtime/*/__init__.py; do
        ln -s "${file%/*}" "$package/"
    done
    for file in "$root"/package/*.py; do
        ln -s "$file" "$folder/nojit/"
    done
    suffix=$("$python" -c 'import sysconfig; print(sysconfig.get_config_var("EXT_SUFFIX"))')
    include=$("$python" -c 'import sysconfig; print(sysconfig.get_path("include"))')
    # paths from the checkout's root on: a profile names static functions by them
    (cd "$root" && $compiler -std=c11 -g -shared -fPIC -fvisibility=hidden "$@" -I"$include" \
        -Iruntime/binding -Iruntime/engine -Iruntime/engine/include \
        runtime/binding/*.c runtime/binding/*/*.c runtime/engine/*/*.c -ldl -lm -o "$package/_core$suffix")
    # who opens the library beside the extension gets the same one
    ln -s "_core$suffix" "$package/libnojit.so.0"
}
