#!/bin/sh
# Make this checkout ready to run: the packages of the system (Slurm, munge, an SSH server, a C compiler, shellcheck)
# and a virtual environment in .venv. Installs only what is missing and says so. Nothing that it installs is started or
# enabled: the sandbox runs daemons of its own.
set -eu

CDPATH='' cd -- "$(dirname -- "$0")/.."

PACKAGES="slurmctld slurmd slurm-client munge openssh-server gcc libc6-dev shellcheck python3 python3-venv"
SERVICES="slurmctld slurmd munge ssh ssh.socket"
POLICY=/usr/sbin/policy-rc.d
STAMP=.venv/.hpkit-setup

say() {
    echo "setup: $*"
}

die() {
    echo "setup: $*" >&2
    exit 1
}

as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    else
        sudo "$@"
    fi
}

missing_packages() {
    for package in $PACKAGES; do
        case "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || :)" in
            installed) ;;
            *) printf '%s ' "$package" ;;
        esac
    done
}

# Without dpkg we cannot install anything, but the tools may be there all the same.
require_tools() {
    lacking=""
    for tool in slurmctld slurmd scontrol munged sshd gcc shellcheck python3; do
        PATH="$PATH:/usr/sbin:/sbin" command -v "$tool" >/dev/null 2>&1 || lacking="$lacking $tool"
    done
    [ -z "$lacking" ] || die "this is no Debian or Ubuntu, and these programs are missing:$lacking"
}

# Package scripts ask policy-rc.d whether they may start a service; ours says no and is gone afterwards.
forbid_services() {
    [ -e "$POLICY" ] && return
    printf '#!/bin/sh\nexit 101\n' | as_root tee "$POLICY" >/dev/null
    as_root chmod 0755 "$POLICY"
    trap 'as_root rm -f "$POLICY"' EXIT
    trap 'exit 130' INT TERM
}

# A service that came with this very installation must not start at the next boot either.
disable_new_services() {
    command -v systemctl >/dev/null 2>&1 || return 0
    for service in $SERVICES; do
        package=$service
        case "$service" in ssh*) package=openssh-server ;; esac
        case " $1 " in
            *" $package "*) as_root systemctl disable "$service" >/dev/null 2>&1 || : ;;
        esac
    done
}

install_packages() {
    missing=$(missing_packages)
    missing=${missing% }
    [ -n "$missing" ] || return 0
    [ "$(id -u)" -eq 0 ] || command -v sudo >/dev/null 2>&1 ||
        die "run as root or install sudo; missing packages: $missing"
    say "installing packages: $missing"
    forbid_services
    as_root apt-get update -q
    # needrestart (Ubuntu's servers have it) would restart services that are none of our business.
    # shellcheck disable=SC2086 # a list of words
    as_root env DEBIAN_FRONTEND=noninteractive NEEDRESTART_SUSPEND=1 apt-get install -q -y --no-install-recommends $missing ||
        die "apt-get could not install them (on Ubuntu, Slurm is in the component universe)"
    disable_new_services "$missing"
    say "the new services (if any) are neither started nor enabled"
}

wanted_stamp() {
    pwd
    python3 --version
    cat pyproject.toml scripts/setup.sh | cksum
}

make_venv() {
    if [ -x .venv/bin/hpkit ] && [ "$(wanted_stamp)" = "$(cat "$STAMP" 2>/dev/null || :)" ]; then
        return 0
    fi
    .venv/bin/python -c '' 2>/dev/null || python3 -m venv --clear .venv
    say "installing hpkit and its test tools into .venv"
    .venv/bin/python -m pip install -q --disable-pip-version-check -e '.[test]'
    wanted_stamp >"$STAMP"
}

if command -v dpkg-query >/dev/null 2>&1; then
    install_packages
else
    require_tools
fi
make_venv
