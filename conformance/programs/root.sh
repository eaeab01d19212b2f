# SPDX-License-Identifier: MIT OR Apache-2.0
# Fills the directory $1 with a small Debian-like system around a static busybox, for comparing programs in cells with the
# host. $2 is a text, $3 bytes of any value; with $4 = all, the whole of /usr/share is included.
set -eu
busybox=$(command -v busybox)
cd "$1"
umask 022
mkdir -p bin data dev etc home opt proc root run sbin sys tmp usr/bin usr/lib usr/share var/tmp work
chmod 1777 tmp var/tmp
chmod 700 root
cp "$busybox" bin/busybox
if [ "${4-}" = all ]; then
  cp -a /usr/share usr/
else
  for part in aclocal base-files bash-completion common-licenses debconf groff info keyrings perl5 terminfo zoneinfo; do
    [ ! -e "/usr/share/$part" ] || cp -a "/usr/share/$part" usr/share/
  done
fi
for name in passwd group hosts; do cp "/etc/$name" etc/; done

# Names and nodes of every kind, at their limits.
long() { head -c "$2" /dev/zero | tr '\0' "$1"; }
mkdir odd
cd odd
: > "$(long n 255)"
mkdir "$(long d 255)"
echo deep > "$(long d 255)/$(long f 255)"
ln -s "$(long t 4000)" long
ln -s ../etc/passwd up
ln -s /etc/passwd absolute
ln -s ../../../../../../etc/passwd out
ln -s nowhere dangling
ln -s itself itself
ln -s second first
ln -s first second
ln -s . here
echo hard > hard
ln hard hard2
ln hard hard3
echo space > 'two words'
echo line > 'a
b'
echo bytes > "$(printf '\377\376')"
echo star > '*'
echo dash > ./-n
echo hidden > .hidden
mkfifo fifo
mknod null c 1 3
mknod block b 7 9
echo setuid > setuid
chown 12:34 setuid
chmod 4755 setuid
echo setgid > setgid
chown 1234:4321 setgid
chmod 2711 setgid
mkdir sticky
chmod 1777 sticky
echo none > none
chmod 0 none
chown -h 77:88 up
truncate -s 10485760 hole
echo end >> hole
dd if="$3" of=hole bs=4096 count=2 seek=500 conv=notrunc status=none
mkdir empty many
(cd many && seq 2000 | xargs touch)
touch -d '1969-12-31 23:00:00' before-1970
touch -d '2100-01-01 00:00:00' future
touch -d '2001-02-03 04:05:06.123456789' fraction
cd ..

# Data, and compressed and archived forms of it.
cd data
cp "$2" text
cp "$3" binary
head -n 200 text > short
sed 's/aspen/poplar/; 7d; 50i\
another line' short > changed
diff -u short changed > patch || true
printf 'dos\r\nlines\r\n' > dos
printf 'key\tone\nlock\ttwo\n' > table
: > nothing
mkdir packed
for packer in gzip bzip2 lzop; do busybox $packer -c < text > packed/text.$packer; done
xz -c text > packed/text.xz
xz --format=lzma -c text > packed/text.lzma
busybox base64 -d > packed/text.Z << 'END'
H52QYebAKeMGxBk5b+yUARFwYMGDCRc2JMhQIMWJDxEqVIDRoEaJFjNGrOiQ5MWQHiNyRAlRoUmR
LjvKZPlxZcmWIG9+fMmzI04F
END
busybox tar -cf packed/some.tar -C .. etc data/short data/table odd/hard odd/hard2 odd/up
(cd .. && find etc odd/hard odd/hard2 odd/up odd/long | busybox cpio -o -H newc 2>/dev/null) > packed/some.cpio
busybox base64 text > packed/text.base64
busybox uuencode name < text > packed/text.uu
(cd .. && busybox sha256sum etc/* data/text) > packed/sums
head -c 100000 packed/text.gzip > packed/cut.gzip
head -c 3000 packed/some.tar > packed/cut.tar
md5sum text nothing | sed 's: : /data/:2' > packed/md5
member() { printf '%-16s%-12s%-6s%-6s%-8s%-10s`\n' "$1/" 1580674820 0 0 100644 "$(stat -c %s "$1")"; cat "$1"; }
(printf '!<arch>\n'; member short; member table) > packed/some.a
busybox base64 -d > packed/some.zip << 'END'
UEsDBBQAAAAAAIqiQlAgMDo2BgAAAAYAAAAFAAAAcGxhaW5oZWxsbwpQSwMEFAAAAAgAiqJCUDYT
PvYZAAAACAcAAAgAAABkaXIvZGVlcEtJTctJLElNUUgZZYwyRhmjjFHGKGPkMQBQSwECFAMUAAAA
AACKokJQIDA6NgYAAAAGAAAABQAAAAAAAAAAAAAApIEAAAAAcGxhaW5QSwECFAMUAAAACACKokJQ
NhM+9hkAAAAIBwAACAAAAAAAAAAAAAAApIEpAAAAZGlyL2RlZXBQSwUGAAAAAAIAAgBpAAAAaAAA
AAAA
END
(cd .. && find etc odd/hard odd/up odd/long) > names
busybox xxd -p short > hex
printf '/aspen/s/a/b/g\n2,3d\n1i\nfirst\n.\n$=\nw\n,p\nq\n' > edit
printf 'x = 2^100; x; sqrt(2); scale = 20; 1 / 3; define f(n) { if (n < 2) return 1; return n * f(n - 1) }; f(30)\n' > sums.bc
cat > script << 'END'
echo "$# $1"
select() { echo "function $*"; }
select "$@"
. /data/included
exit $status
END
echo 'status=7; echo included' > included
cd ..
find data etc -exec touch -h -d '2020-02-02 20:20:20' {} +
