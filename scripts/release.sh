#!/bin/sh
# Runs this checkout on another release of Slurm: on the Debian that ships it, in a root of its own with its own Python.
#
#   scripts/release.sh list                    the releases, and which roots are there
#   scripts/release.sh make RELEASE            make the root, when it is not there yet (about a minute)
#   scripts/release.sh run RELEASE COMMAND…    run a command in it, in /src, on a copy of this checkout
#   scripts/release.sh clean [RELEASE]         remove the roots
#
# Roots are kept in HPKIT_ROOTS [default: /var/cache/hpkit/roots]. A command sees this machine's /proc, /sys and /dev,
# but has mounts, process numbers and a network of its own: everything that it started ends with it. What it writes to
# /out comes to the folder HPKIT_OUT, where that is set. It is interrupted by ^C; SIGTERM here ends it at once. Needs root.
set -eu

TOP=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
ROOTS=${HPKIT_ROOTS:-/var/cache/hpkit/roots}
MIRROR=${HPKIT_MIRROR:-}  # "": the one that debootstrap knows
KEYRING=/usr/share/keyrings/debian-archive-keyring.gpg
PACKAGES="slurmctld slurmd slurm-client munge openssh-server gcc libc6-dev procps iproute2 python3 python3-venv"
# What the tests import. No linters: those run once, on the machine itself.
LIBRARIES="click nvidia-ml-py psutil paramiko ClusterShell prometheus_client rich pytest pytest-timeout hypothesis"

say() {
    echo "release: $*" >&2
}

die() {
    say "$*"
    exit 3
}

# Slurm's release and the Debian that ships it.
releases() {
    cat <<TABLE
22.05 bookworm
24.11 trixie
26.05 forky
TABLE
}

suite_of() {
    suite=$(releases | while read -r release suite; do [ "$release" != "$1" ] || echo "$suite"; done)
    [ -n "$suite" ] || die "no release $1 here; there are: $(releases | cut -d' ' -f1 | tr '\n' ' ')"
    echo "$suite"
}

need() {
    [ "$(id -u)" -eq 0 ] || die "this needs root: sudo $0 $*"
    lacking=$(lacking)
    if [ -n "$lacking" ] && command -v apt-get >/dev/null 2>&1; then
        say "installing debootstrap"
        { apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends \
            debootstrap debian-archive-keyring iproute2; } >&2 || die "apt-get could not install debootstrap"
        lacking=$(lacking)
    fi
    [ -z "$lacking" ] || die "these programs are missing:$lacking"
    [ -x "$TOP/.venv/bin/python" ] || die "run scripts/setup.sh first: its pip fetches the libraries"
}

lacking() {
    for tool in debootstrap unshare setpriv chroot tar flock ip; do
        PATH="$PATH:/usr/sbin:/sbin" command -v "$tool" >/dev/null 2>&1 || printf ' %s' "$tool"
    done
    # Without it (Ubuntu) debootstrap takes what it downloads unverified.
    [ -e "$KEYRING" ] || printf ' %s' "$KEYRING"
}

# What debootstrap mounts in the root while it works must not stay when it is interrupted: it would be in the way for ever.
apart() {
    [ -z "${HPKIT_APART:-}" ] || return 0
    HPKIT_APART=1 exec unshare --mount "$TOP/scripts/${0##*/}" "$@"
}

# Two runs at once must not make the same root: the second waits, then finds it made.
make_root() {
    suite=$(suite_of "$1")
    root=$ROOTS/$1
    mkdir -p "$ROOTS"
    exec 9>"$ROOTS/.lock-$1"
    for way in -s -x; do  # those that run in it share the lock
        flock "$way" 9
        if [ "$(stamp "$1" "$suite")" = "$(cat "$root/etc/hpkit-root" 2>/dev/null || :)" ]; then
            exec 9>&-
            return 0
        fi
    done
    say "making the root for Slurm $1 (Debian $suite) in $root"
    remove "$root" "$root.part"
    bootstrap "$suite" "$root.part" >"$ROOTS/$1.log" 2>&1 ||
        die "the root for Slurm $1 could not be made; the last of $ROOTS/$1.log: $(tail -n 3 "$ROOTS/$1.log")"
    found=$(chroot "$root.part" slurmd -V)
    case "$found" in
        *" $1."*) ;;
        *) die "Debian $suite has '$found' by now, not $1: name its release in $0" ;;
    esac
    libraries "$root.part" >>"$ROOTS/$1.log" 2>&1 ||
        die "pip could not fetch the libraries of Slurm $1's Python; the last of $ROOTS/$1.log: $(tail -n 3 "$ROOTS/$1.log")"
    stamp "$1" "$suite" >"$root.part/etc/hpkit-root"
    mv "$root.part" "$root"
    exec 9>&-
}

# A root is made anew when this changes.
stamp() {
    echo "$1 $2 $PACKAGES $LIBRARIES 1" | cksum
}

remove() {
    for each in "$@"; do
        [ ! -e "$each" ] || rm -rf --one-file-system "$each"
    done
}

bootstrap() {
    # The debootstrap of an older Debian does not know a newer one's name; the script is the same for all of them.
    script=/usr/share/debootstrap/scripts/$1
    [ -e "$script" ] || script=/usr/share/debootstrap/scripts/sid
    debootstrap --variant=minbase --keyring="$KEYRING" --include=ca-certificates "$1" "$2" "$MIRROR" "$script"
    # No package may start a service in there.
    printf '#!/bin/sh\nexit 101\n' >"$2/usr/sbin/policy-rc.d"
    chmod 0755 "$2/usr/sbin/policy-rc.d"
    # shellcheck disable=SC2086 # a list of words
    DEBIAN_FRONTEND=noninteractive LC_ALL=C chroot "$2" \
        apt-get -o APT::Sandbox::User=root install -q -y --no-install-recommends $PACKAGES
    chroot "$2" apt-get clean
    rm -rf "$2/var/lib/apt/lists"
}

# The libraries for the root's Python, fetched by this machine's pip: it knows the ways out of here.
libraries() {
    version=$(chroot "$1" python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    libc=$(chroot "$1" python3 -c 'import platform; print(platform.libc_ver()[1].split(".")[1])')
    chroot "$1" python3 -m venv --without-pip /opt/venv
    tags=""
    for minor in $(seq "$libc" -1 17); do
        tags="$tags --platform manylinux_2_${minor}_$(uname -m)"
    done
    # shellcheck disable=SC2086 # lists of words
    "$TOP/.venv/bin/python" -m pip install -q --disable-pip-version-check --only-binary=:all: --python-version "$version" \
        --implementation cp --abi "cp$(echo "$version" | tr -d .)" --abi abi3 --abi none $tags \
        --platform "manylinux2014_$(uname -m)" --target "$1/opt/venv/lib/python$version/site-packages" $LIBRARIES
    echo /src >"$1/opt/venv/lib/python$version/site-packages/hpkit.pth"
}

run_in() {
    release=$1
    shift
    make_root "$release"
    root=$ROOTS/$release
    # Held while we run: nobody removes the root, or makes it anew, under our feet.
    exec 9>"$ROOTS/.lock-$release"
    flock -s 9
    [ -d "$root" ] || die "the root for Slurm $release is gone: somebody removed it"
    exec 3<&0  # a command in the background has none of its own
    child=""
    trap 'kill -KILL $child' TERM HUP
    trap : INT  # the command has had it too, and says when it is done
    # What is mounted in there is gone with the namespaces, the copy with the tmpfs. In the background, because a trap
    # waits for a program in front.
    # shellcheck disable=SC2016 # the inner shell expands them
    HPKIT_TOP=$TOP HPKIT_ROOT_DIR=$root setpriv --pdeathsig KILL unshare --mount --pid --net --fork --kill-child sh -eu -c '
        root=$HPKIT_ROOT_DIR
        mount --make-rprivate /
        mount --bind "$root" "$root"
        mount -t proc proc "$root/proc"
        mount --rbind /sys "$root/sys"
        mount --rbind /dev "$root/dev"
        mount -t tmpfs -o mode=0755 tmpfs "$root/run"
        mkdir -p "$root/src" "$root/var/tmp"
        # Sandboxes are made in there, named by process numbers that each run begins anew.
        for each in tmp var/tmp; do mount -t tmpfs -o mode=1777 tmpfs "$root/$each"; done
        mount -t tmpfs -o mode=0755 tmpfs "$root/src"
        mkdir -p "$root/out"
        [ -z "${HPKIT_OUT:-}" ] || mount --bind "$HPKIT_OUT" "$root/out"
        # 1: a file changed or went while it was read.
        { tar -C "$HPKIT_TOP" --exclude=./.venv --exclude=./.git --exclude=__pycache__ --exclude="./.*_cache" -cf - . ||
            [ $? -eq 1 ] || touch "$root/run/unread"; } |
            tar -C "$root/src" --no-same-owner --no-same-permissions -xf -
        [ ! -e "$root/run/unread" ] || { echo "release: not all of $HPKIT_TOP could be read" >&2; exit 3; }
        mkdir "$root/run/bin"
        for pair in hpkit:hpkit.cli hp-srun:hpkit.resume.main; do
            printf "#!/opt/venv/bin/python\nimport sys\nfrom %s import main\nsys.exit(main())\n" "${pair#*:}" \
                >"$root/run/bin/${pair%:*}"
            chmod 0755 "$root/run/bin/${pair%:*}"
        done
        ip link set lo up
        # Without an address besides 127.0.0.1 glibc answers getaddrinfo(NULL), which Slurm listens by, with nothing.
        ip address add 192.0.2.1/32 dev lo
        exec chroot "$root" env -i PATH=/run/bin:/opt/venv/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 \
            TERM="${TERM:-dumb}" python3 /src/scripts/first.py /src "$@"
    ' sh "$@" <&3 3<&- 9>&- &
    child=$!
    while :; do
        code=0
        wait "$child" || code=$?
        kill -0 "$child" 2>/dev/null || exit "$code"
    done
}

list() {
    releases | while read -r release suite; do
        if [ -d "$ROOTS/$release" ]; then echo "$release $suite $ROOTS/$release"; else echo "$release $suite -"; fi
    done
}

case "${1:-}" in
    list) list ;;
    make)
        [ $# -eq 2 ] || die "make one release: $0 make 24.11"
        need "$@"
        apart "$@"
        make_root "$2"
        ;;
    run)
        [ $# -ge 3 ] || die "run a command on a release: $0 run 24.11 COMMAND…"
        need "$@"
        apart "$@"
        shift
        run_in "$@"
        ;;
    clean)
        need "$@"
        for release in $(releases | cut -d' ' -f1); do
            [ "${2:-$release}" = "$release" ] || continue
            [ -d "$ROOTS" ] || break
            exec 9>"$ROOTS/.lock-$release"
            flock -n 9 || die "the root for Slurm $release is in use"
            remove "$ROOTS/$release" "$ROOTS/$release.part" "$ROOTS/$release.log"
        done
        ;;
    *)
        sed -n '2,11p' "$0" | sed 's/^# \{0,1\}//' >&2
        exit 3
        ;;
esac
