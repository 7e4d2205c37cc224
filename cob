#!/bin/sh
# Installs what is missing, builds what is out of date, and starts the host command with the same arguments.
# When nothing is missing and nothing is out of date, all this costs is one `find`.
set -eu

project=$(dirname "$(readlink -f "$0")")
state=$project/.cob
built=$state/built           # newer than every source: nothing to build
toolchain=$state/toolchain   # which cargo, and its words for bare metal; read below
host=$project/target/release/cob
kernel=$project/target/x86_64-unknown-none/kernel/kernel

say() { echo "cob: $*" >&2; }
fail() { say "$@"; exit 2; }

# Both are set by the file $toolchain.
cargo='' bare_metal=''

up_to_date() {
    [ -f "$built" ] && [ -f "$toolchain" ] && [ -x "$host" ] && [ -f "$kernel" ] &&
        [ -z "$(find "$project/crates" "$project/.cargo" "$project/Cargo.toml" "$project/Cargo.lock" \
            "$project/cob" -newer "$built" -print -quit)" ]
}

# Debian packages for what is not there. Arguments: pairs of a file or command that shows it is there, and a package.
missing_packages() {
    while [ $# -gt 0 ]; do
        # A file may be given as a pattern.
        # shellcheck disable=SC2086
        case $1 in
            /*) ls $1 >/dev/null 2>&1 || echo "$2" ;;
            *) command -v "$1" >/dev/null 2>&1 || echo "$2" ;;
        esac
        shift 2
    done
}

install_packages() {
    [ $# -gt 0 ] || return 0
    command -v apt-get >/dev/null 2>&1 || fail "missing, and this is no Debian to install it: $*"
    if [ "$(id -u)" = 0 ]; then
        sudo=
    else
        command -v sudo >/dev/null 2>&1 || fail "missing, and there is no sudo to install it: $*"
        sudo=sudo
    fi
    say "installing $*"
    mkdir -p "$state"
    log=$state/install.log
    export DEBIAN_FRONTEND=noninteractive
    { $sudo apt-get update && $sudo apt-get install -y --no-install-recommends "$@"; } </dev/null >"$log" 2>&1 || {
        tail -n 20 "$log" >&2
        fail "apt-get failed (all of it: $log)"
    }
}

# A toolchain of rustup that has the bare-metal target is taken as it is. Otherwise Debian's, which is recent enough and
# brings the library's source; building that library is unstable, hence RUSTC_BOOTSTRAP.
rustup_fits() {
    command -v rustup >/dev/null 2>&1 && command -v cargo >/dev/null 2>&1 &&
        rustup target list --installed 2>/dev/null | grep -qx x86_64-unknown-none &&
        [ "$(rustc --version | sed -n 's/^rustc 1\.\([0-9]*\).*/\1/p')" -ge 90 ]
}

prepare() {
    wanted=$(missing_packages qemu-system-x86_64 qemu-system-x86 ld.lld lld gcc gcc \
        /usr/include/stdio.h libc6-dev /bin/busybox busybox-static /etc/ssl/certs/ca-certificates.crt ca-certificates)
    mkdir -p "$state"
    if rustup_fits; then
        cargo=$(command -v cargo)
        words="--target x86_64-unknown-none"
    else
        wanted="$wanted $(missing_packages /usr/bin/rustc rustc-web /usr/bin/cargo cargo-web \
            '/usr/src/rustc-*/library/core/src/lib.rs' rust-web-src)"
        cargo=/usr/bin/cargo
        words="-Zbuild-std=core,alloc,compiler_builtins -Zbuild-std-features=compiler-builtins-mem,optimize_for_size"
        words="$words --target x86_64-unknown-none"
    fi
    # Word by word on purpose.
    # shellcheck disable=SC2086
    install_packages $wanted
    printf 'cargo="%s"\nbare_metal="%s"\n' "$cargo" "$words" >"$toolchain"
}

# Runs the chosen cargo, with Debian's rustc beside it if it is Debian's.
run_cargo() {
    (
        cd "$project"
        [ "$cargo" != /usr/bin/cargo ] || PATH=/usr/bin:$PATH
        CARGO_TARGET_DIR=$project/target "$cargo" "$@"
    )
}

run_cargo_bare_metal() {
    # shellcheck disable=SC2086
    RUSTC_BOOTSTRAP=1 run_cargo "$@" $bare_metal
}

build() {
    # The time before the build: what is edited meanwhile is built the next time.
    touch "$built.started"
    if [ -f "$built" ]; then quiet=$state/build.log; else quiet=; fi
    [ -n "$quiet" ] || say "building; the first time takes a few minutes"
    if [ -n "$quiet" ]; then
        { run_cargo build --release -p cob && run_cargo_bare_metal build --profile kernel -p kernel; } >"$quiet" 2>&1 || {
            cat "$quiet" >&2
            fail "the build failed"
        }
    else
        { run_cargo build --release -p cob && run_cargo_bare_metal build --profile kernel -p kernel; } >&2 ||
            fail "the build failed"
    fi
    mv "$built.started" "$built"
}

if ! up_to_date; then
    # One at a time installs and builds. Who has waited for another finds it done; the lock ends with this shell, however it ends.
    mkdir -p "$state"
    exec 9>"$state/lock"
    flock 9
    if ! up_to_date; then
        prepare
        # shellcheck source=/dev/null
        . "$toolchain"
        build
    fi
    exec 9>&-
fi
# shellcheck source=/dev/null
. "$toolchain"

case ${1-} in
    test | bench | fuzz)
        more=$(missing_packages python3 python3 ps procps ss iproute2 \
            babeltrace2 babeltrace2 curl curl ping iputils-ping /usr/sbin/nginx nginx wrk wrk webhook webhook redis-server redis-server \
            /usr/sbin/sshd openssh-server ssh openssh-client node nodejs /usr/sbin/debugfs e2fsprogs mount mount \
            /usr/lib/postgresql postgresql psql postgresql-client \
            mpirun.openmpi openmpi-bin mpicc.openmpi libopenmpi-dev mpirun.mpich mpich mpicc.mpich libmpich-dev)
        if [ "$cargo" = /usr/bin/cargo ]; then
            PATH=/usr/bin:$PATH
            more="$more $(missing_packages /usr/bin/rustfmt rustfmt-web /usr/bin/clippy-driver rust-web-clippy)"
        fi
        # shellcheck disable=SC2086
        install_packages $more
        # Perfetto's own schema, for the tests of traces.
        if [ "$1" = test ] && [ ! -f "$state/python/ready" ]; then
            install_packages $(missing_packages /usr/share/doc/python3-venv python3-venv)
            rm -rf "$state/python"
            # Without PyPI these tests say that they leave it out.
            if { python3 -m venv "$state/python" && "$state/python/bin/pip" install -q perfetto==0.59.1 protobuf==6.33.1; } \
                >"$state/install.log" 2>&1 </dev/null; then
                touch "$state/python/ready"
            else
                say "no Perfetto schema from PyPI: $(tail -n 3 "$state/install.log")"
            fi
        fi
        export PATH COB_PROJECT="$project" COB_CARGO="$cargo" COB_BARE_METAL="$bare_metal"
        export CARGO_TARGET_DIR="$project/target"
        ;;
esac
exec "$host" "$@"
