# SPDX-License-Identifier: MIT OR Apache-2.0
# Runs busybox's own tests of an applet, or a folder with tests of its shell, in a copy of all tests.
# $1: Debian's source; $2: the tested applet or folder; $3: the compiled helpers of the shell's tests.
top=$(mktemp -d) && trap 'rm -r "$top"' EXIT && mkdir "$top/shell" || exit
cat "$1/debian/config/os/linux" "$1/debian/config/pkg/static" > "$top/.config"
ln -s "$(command -v busybox)" "$top/busybox"
case $2 in
ash-*)
    cp -r "$1/shell/ash_test" "$top/shell" && cp "$3"/* "$top/shell/ash_test" && cd "$top/shell/ash_test" || exit
    sh ./run-all "$2" | sed -n 's/^\(.*\): ok$/PASS: \1/p; s/^\(.*\): fail$/FAIL: \1/p';;
*)
    cp -r "$1/testsuite" "$top" && cd "$top/testsuite" || exit
    ECHO='busybox echo' sh ./runtest "$2";;
esac
