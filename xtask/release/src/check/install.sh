#!/bin/sh
# Installs each part of a release and uses it: with an empty home, without a network, and without a
# checkout. The folder of this script has
#
#   dist/      the release
#   programs/  programs and examples of the documentation
#   vendor/    the crates that the registry would provide, and those of the release
#   wheels/    the Python packages that the package index would provide
#
# `sh install.sh` runs all checks, and `sh install.sh NAME...` only some. A check is skipped if its
# tools are not installed. RUST is the folder of Cargo and rustc, if they are not on the PATH.

root=$(cd "$(dirname "$0")" && pwd)
work=$root/work
prefix=$work/prefix
data=$root/programs/examples/data/flights-january.arrow
export HOME="$work/home" CARGO_HOME="$work/cargo" CARGO_TARGET_DIR="$work/target" CARGO_NET_OFFLINE=true
export PIP_NO_INDEX=1 PIP_FIND_LINKS="$root/wheels $root/dist" PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
export PATH="${RUST:+$RUST:}$PATH" PKG_CONFIG_PATH="$prefix/lib/pkgconfig"

# The tarball is unpacked. Its command finds the plugins that are beside it.
tarball() {
    (cd "$root/dist" && sha256sum --check --quiet SHA256SUMS)
    tar -xzf "$root"/dist/crossdock-*-linux.tar.gz -C "$prefix" --strip-components=1
    crossdock --version
    crossdock doctor
    crossdock convert --quiet "$data" flights.csv
    test "$(wc -l <flights.csv)" = 27005
    crossdock convert --quiet flights.csv flights.arrow
    LD_LIBRARY_PATH=$prefix/lib/crossdock/sim-cuda crossdock convert --quiet --device cuda "$data" device.arrow
    crossdock show --rows 1 device.arrow
    ls "$prefix/share/man/man1/crossdock-convert.1" "$prefix/share/doc/crossdock/THIRD-PARTY-NOTICES.txt"
    bash -n "$prefix/share/bash-completion/completions/crossdock"
}

# Programs in C and C++ find the library by pkg-config.
pkg_config() {
    cp -r "$root"/programs/examples "$root"/programs/app.c .
    cc -std=c11 app.c -o app $(pkg-config --cflags --libs crossdock) "-Wl,-rpath,$prefix/lib"
    ./app "$data" | grep -x '27004 rows'
    for host in c-host cpp-host; do make -C examples/$host; done
    examples/c-host/c-host "$data" out.arrow | grep -F '27004 rows in 4 batches; 0 bytes copied, 0 leaks'
    examples/cpp-host/cpp-host "$data" late.csv "dep_delay > 60" "carrier == UA" | grep -F '194 rows of 21 columns'
}

# A program in C++ finds the library by CMake.
cmake_package() {
    cp "$root/programs/CMakeLists.txt" "$root/programs/main.cpp" .
    if ! command -v cmake; then
        python3 -m venv venv
        venv/bin/pip install --quiet cmake
        PATH=$PWD/venv/bin:$PATH
    fi
    cmake -S . -B build "-DCMAKE_PREFIX_PATH=$prefix"
    cmake --build build
    build/app "$data" | grep -x '27004 rows'
}

# `crossdock new` creates plugins in C.
plugin_c() {
    crossdock new weather --language c
    crossdock new packer --language c --encoding packer.bits
    verify_c weather sample.weather
    verify_c packer sample.cdenc
}

verify_c() {
    make -C "$1"
    make -C "$1" test
    crossdock verify "$1/libcrossdock_$1_plugin.so" --sample "$1/$2" --strict
}

# A program in Rust uses the crates.
cargo_add() {
    cargo new --quiet app
    cd app
    cargo add --quiet crossdock arrow-array
    cp "$root/programs/main.rs" src/main.rs
    cargo run --quiet -- "$prefix/lib/crossdock/plugins" "$data" | tee rows
    grep -x '.* rows' rows
}

# `crossdock new` creates plugins in Rust.
plugin_rust() {
    crossdock new weather
    crossdock new packer --encoding packer.bits
    verify_rust weather sample.weather
    verify_rust packer sample.cdenc
}

verify_rust() {
    (cd "$1" && cargo test --quiet && cargo build --quiet --release)
    crossdock verify "$CARGO_TARGET_DIR/release/libcrossdock_$1_plugin.so" --sample "$1/$2" --strict
}

# The wheel contains the plugins and the command. The program and the commands are those of the
# start page.
wheel() {
    python3 -m venv venv
    venv/bin/pip install --quiet --only-binary :all: crossdock numpy pyarrow
    cp -r "$root/programs/examples" "$root/programs/start.py" "$root/programs/start.sh" .
    PATH=$PWD/venv/bin:$PATH
    python start.py | tee output
    grep -x zero-copy output
    sh -eu start.sh
    crossdock doctor
    python -m crossdock --version
    test "$(find venv -name THIRD-PARTY-NOTICES.txt | wc -l)" = 1
}

# The wheel for the free-threaded interpreter keeps it free-threaded.
wheel_free_threaded() {
    python3.14t -m venv venv
    venv/bin/pip install --quiet --only-binary :all: crossdock
    venv/bin/python -c "
import sys, threading
import crossdock as cd
assert not sys._is_gil_enabled()
def work():
    assert cd.read(sys.argv[1]).filter([('distance', '>', 2000)]).num_rows > 0
threads = [threading.Thread(target=work) for _ in range(8)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
assert not sys._is_gil_enabled()
" "$data"
}

# The source distribution is built without a network. Without optimisation, this takes less time.
source_distribution() {
    python3 -m venv venv
    unset CARGO_TARGET_DIR CARGO_HOME
    venv/bin/pip install --quiet --config-settings profile=dev "$(find "$root/dist" -name 'crossdock-*.tar.gz' ! -name '*-linux.tar.gz')"
    venv/bin/crossdock --version
    venv/bin/python -c "import crossdock as cd, sys; assert cd.read(sys.argv[1]).num_rows == 27004" "$data"
}

# check NAME TOOL...
check() {
    name=$1
    shift
    case " $selected " in "  " | *" $name "*) ;; *) return ;; esac
    for tool; do
        if ! command -v "$tool" >"$work/which" 2>&1; then
            echo "test $name ... ignored, because $tool is not installed"
            ignored=$((ignored + 1))
            return
        fi
    done
    mkdir "$work/$name"
    begin=$(date +%s)
    # Within a condition, the shell ignores `set -e`.
    (
        set -eux
        cd "$work/$name"
        "$name"
    ) >"$work/$name.log" 2>&1 </dev/null
    if [ $? = 0 ]; then
        passed=$((passed + 1))
        echo "test $name ... ok, $(($(date +%s) - begin)) s"
    else
        failed=$((failed + 1))
        tail -n 40 "$work/$name.log"
        echo "test $name ... FAILED"
    fi
}

selected=$*
passed=0 failed=0 ignored=0
rm -rf "$work"
mkdir -p "$HOME" "$CARGO_HOME" "$prefix"
cat >"$CARGO_HOME/config.toml" <<END
[source.crates-io]
replace-with = "local"

[source.local]
directory = "$root/vendor"
END
# `cargo new` adds its package to the next workspace above it, which must not be that of a checkout.
printf '[workspace]\nexclude = ["plugin_rust", "source_distribution"]\n' >"$work/Cargo.toml"
PATH=$prefix/bin:$PATH
# All other checks use the tarball.
case " $selected " in "  " | *" tarball "*) ;; *) tar -xzf "$root"/dist/crossdock-*-linux.tar.gz -C "$prefix" --strip-components=1 ;; esac
check tarball
check pkg_config cc c++ make pkg-config
check cmake_package c++ make python3
check plugin_c cc make
# The package needs this version.
python=python3
python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>"$work/which" || python="python3 3.11"
check wheel "$python"
check wheel_free_threaded python3.14t
check source_distribution "$python" cargo cc
check cargo_add cargo cc
check plugin_rust cargo cc
result=ok
[ $failed = 0 ] || result=FAILED
echo "test result: $result. $passed passed; $failed failed; $ignored ignored"
[ $failed = 0 ]
