# Sourced by the other scripts, not run: `needs rust`, `needs linker`, ... check for a thing and
# install it when it is missing. Nothing is installed that is there. System packages come from apt
# (with sudo unless root); each command is shown before it runs.
# shellcheck shell=bash

# The least Rust version, from the workspace.
least_rust() { sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml; }

say() { printf '== %s\n' "$*"; }

give_up() {
    printf '\nweir: %s\n' "$1" >&2
    shift
    printf '      %s\n' "$@" >&2
    exit 1
}

as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    else
        sudo "$@"
    fi
}

apt_updated=no
apt_update() {
    [ $apt_updated = yes ] && return
    echo "   apt-get update"
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq update </dev/null
    apt_updated=yes
}

# install_packages WHAT_FOR PACKAGE...
install_packages() {
    local why=$1
    shift
    say "Installing $* ($why)"
    command -v apt-get >/dev/null ||
        give_up "$why: missing, and there is no apt-get here." "Install what Debian calls: $*"
    [ "$(id -u)" = 0 ] || command -v sudo >/dev/null ||
        give_up "$why: missing, and there is no sudo here." "As root: apt-get install $*"
    apt_update
    echo "   apt-get install $*"
    as_root env DEBIAN_FRONTEND=noninteractive \
        apt-get -qq install --no-install-recommends -y "$@" </dev/null >/dev/null ||
        give_up "apt-get could not install $*."
}

# is_at_least VERSION LEAST
is_at_least() { [ "$(printf '%s\n' "$2" "$1" | sort -V | head -n 1)" = "$2" ]; }

cargo_version() { cargo --version 2>/dev/null | sed -n 's/^cargo \([0-9.]*\).*/\1/p'; }

rust_is_there() { is_at_least "$(cargo_version)" "$(least_rust)"; }

apt_version() { apt-cache policy "$1" 2>/dev/null | sed -n 's/^ *Candidate: \([0-9.]*\).*/\1/p'; }

needs_rust() {
    local least packaged
    least=$(least_rust)
    # Where rustup puts itself, for shells that have not read their profile anew.
    [ -d "${CARGO_HOME:-$HOME/.cargo}/bin" ] && PATH=${CARGO_HOME:-$HOME/.cargo}/bin:$PATH
    rust_is_there && return
    if ! command -v rustup >/dev/null && command -v apt-cache >/dev/null; then
        apt_update
        packaged=$(apt_version cargo)
        if [ -n "$packaged" ] && is_at_least "$packaged" "$least"; then
            install_packages "Rust $least or newer" cargo rustc rustfmt rust-clippy
            rust_is_there && return
        elif [ -n "$(apt_version rustup)" ]; then
            install_packages "rustup, which installs Rust $least" rustup
        fi
    fi
    if command -v rustup >/dev/null; then
        say "Installing Rust $least beside what is there (rustup toolchain install $least)"
        rustup toolchain install "$least" --profile minimal --component rustfmt,clippy </dev/null
        export RUSTUP_TOOLCHAIN=$least
        rust_is_there && return
    fi
    give_up "Rust $least or newer is needed (cargo here: $(cargo_version || true))." \
        "This system has no package of it. Install it from https://rustup.rs:" \
        "    curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh" \
        "then run the same command again."
}

links() { echo 'int main(void) { return 0; }' | cc -x c - "$@" -o /dev/null 2>/dev/null; }

# Rust links by the system's C compiler.
needs_linker() { links || install_packages "a linker and the C library" gcc libc6-dev; }

# The filter tests compare with the real libpcap.
needs_libpcap() { links -lpcap || install_packages "libpcap, to compare filters with" libpcap-dev; }

# The fuzzer's engine, libFuzzer, is C++.
needs_cxx() {
    echo 'int main() { return 0; }' | c++ -x c++ - -o /dev/null 2>/dev/null ||
        install_packages "a C++ compiler, for libFuzzer" g++
}

# Counts instructions.
needs_valgrind() {
    command -v valgrind >/dev/null || install_packages "instruction counts" valgrind
}

needs_components() {
    cargo fmt --version >/dev/null 2>&1 && cargo clippy --version >/dev/null 2>&1 && return
    if command -v rustup >/dev/null; then
        say "Installing rustfmt and clippy (rustup component add)"
        rustup component add rustfmt clippy </dev/null
    else
        install_packages "format and lint checks" rustfmt rust-clippy
    fi
}

# Debian starts a server as it installs it; policy-rc.d is the way to say no.
install_unstarted() {
    local no=/usr/sbin/policy-rc.d
    if [ -e $no ]; then
        install_packages "$@"
    else
        printf '#!/bin/sh\nexit 101\n' >$no
        chmod +x $no
        # Gone whether or not that succeeds, which ends the shell.
        (trap "rm -f $no" EXIT && install_packages "$@")
    fi
}

# Real clients, servers and networks for the tests of live devices, which only root runs.
needs_live() {
    local tool missing=()
    [ "$(id -u)" = 0 ] || return 0
    for tool in nginx:nginx-light curl:curl ip:iproute2 ethtool:ethtool ping:iputils-ping python3:python3 \
        setpriv:util-linux traceroute:traceroute iperf3:iperf3 tc:iproute2 sysctl:procps; do
        command -v "${tool%:*}" >/dev/null || missing+=("${tool#*:}")
    done
    [ ${#missing[@]} = 0 ] || install_unstarted "tests of live devices" "${missing[@]}" || exit 1
}

# What `weir bench` compares with, for the tests of that. Where they cannot be had those tests are skipped, by name.
needs_rivals() {
    local missing=()
    [ "$(id -u)" = 0 ] || return 0
    [ -x /usr/bin/dpdk-testpmd ] || missing+=(dpdk-dev)
    [ -x /usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk ] || missing+=(openvswitch-switch-dpdk)
    [ ${#missing[@]} = 0 ] || (install_unstarted "to compare with" "${missing[@]}") ||
        say "Without ${missing[*]}."
}

# needs THING...
needs() {
    local thing
    for thing; do "needs_$thing"; done
}
