#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Installs into a folder as a packager would (not root, another prefix than was built, a multiarch libdir), compiles a
# consumer against it through pkg-config as C11 and C++11, runs every program, and uninstalls: nothing may be left.
# make check-install runs it in the root of the tree.
set -u
cd "$(dirname "$0")/.." || exit 1
: "${VERSION:?run it as make check-install}" "${SOVERSION:?}"
make=${MAKE:-make} cc=${CC:-cc} cxx=${CXX:-g++} pkg_config=${PKG_CONFIG:-pkg-config}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/root
bad=0
fail() { echo "$1" && bad=1; }

prefix=/opt/cnre
libdir=$prefix/lib/x86_64-linux-gnu
where="DESTDIR=$root prefix=$prefix libdir=$libdir unitdir=$prefix/lib/systemd/system sysusersdir=$prefix/lib/sysusers.d
	tmpfilesdir=$prefix/lib/tmpfiles.d WITH_SYSTEMD=yes"
# shellcheck disable=SC2086 # words
"$make" --no-print-directory install $where >"$work/log" 2>&1 || { cat "$work/log" && exit 1; }

has() # mode path
{
	[ -e "$root$2" ] || { fail "not installed: $2" && return; }
	[ "$(stat -c %a "$root$2")" = "$1" ] || fail "$2 has mode $(stat -c %a "$root$2"), not $1"
}
has 755 $prefix/sbin/cnre-managerd
inspect=
[ ! -e "${BUILD:-build}/cnre-inspect" ] || inspect=sbin/cnre-inspect
for program in $inspect; do
	has 755 $prefix/$program
done
for program in cnrectl cnre-top cnre-gen cnre-sim cnre-olmoe cnre-route; do
	has 755 $prefix/bin/$program
done
has 644 "$libdir/libcnre.so.$VERSION"
has 644 $prefix/include/cnre/cnre.h
has 644 $libdir/pkgconfig/cnre.pc
for file in provider.h provider.c format.c expert_store.c; do
	has 644 $prefix/share/cnre/colibri/$file
done
for file in README.md LICENSE design.md families.md family.ini integrating.md; do
	has 644 $prefix/share/doc/cnre/$file
done
# Links between documents lead to files that are there.
while read -r file; do
	[ -e "$root$prefix/share/doc/cnre/$file" ] || fail "a document links to $file, which is not installed"
done < <(grep -hoE '\]\([^)#:]+' "$root$prefix"/share/doc/cnre/*.md | cut -c 3- | sort -u)
for unit in cnre-managerd.service cnre-managerd.socket cnre-managerd@.service cnre-managerd@.socket cnre.slice; do
	has 644 $prefix/lib/systemd/system/$unit
done
has 644 $prefix/share/doc/cnre/hugepages.conf
has 644 $prefix/share/doc/cnre/examples/cnre-dashboard.json
has 644 $prefix/share/doc/cnre/examples/cnre-alerts.yml
has 644 $prefix/lib/sysusers.d/cnre.conf
has 644 $prefix/lib/tmpfiles.d/cnre.conf
for page in man7/cnre-counters.7 man7/cnre-colibri.7 man8/cnre-managerd.8 man8/cnre-inspect.8 man1/cnrectl.1 man1/cnre-top.1; do
	has 644 $prefix/share/man/$page
done
grep -rl '@[a-z]*@' "$root" --include='*.service' --include='*.socket' --include='*.pc' | grep . && fail 'unreplaced @names@ in these files'

# Only what was asked for lies in the tree, and nothing that this machine's root could run by accident.
find "$root" ! -type l ! -type d -perm /022 | grep . && fail 'writable by others'
find "$root" -mindepth 1 -maxdepth 1 ! -name opt | grep . && fail 'installed outside the prefix'

# Whoever can write beside a program with a path to its libraries could give it others.
for program in sbin/cnre-managerd $inspect bin/cnrectl bin/cnre-top bin/cnre-gen bin/cnre-sim bin/cnre-olmoe bin/cnre-route; do
	objdump -p "$root$prefix/$program" | grep -E 'R(UN)?PATH' && fail "$program looks for libraries in a path of its own"
done

soname=$(objdump -p "$root$libdir/libcnre.so.$VERSION" | awk '$1 == "SONAME" {print $2}')
[ "$soname" = "libcnre.so.$SOVERSION" ] || fail "soname is $soname"
[ "$(readlink "$root$libdir/libcnre.so.$SOVERSION")" = "libcnre.so.$VERSION" ] || fail 'the link of the soname is wrong'
[ "$(readlink "$root$libdir/libcnre.so")" = "libcnre.so.$SOVERSION" ] || fail 'the development link is wrong'

# The .pc file says the final prefix; a sysroot leads to the staged files, as for a cross-compiling user.
export PKG_CONFIG_LIBDIR=$root$libdir/pkgconfig
grep -q "^prefix=$prefix\$" "$root$libdir/pkgconfig/cnre.pc" || fail 'cnre.pc does not name the prefix of the installation'
[ "$($pkg_config --modversion cnre)" = "$VERSION" ] || fail "cnre.pc says version $($pkg_config --modversion cnre)"
export PKG_CONFIG_SYSROOT_DIR=$root
cat >"$work/consumer.c" <<'END'
#include <cnre/cnre.h>

int main(void)
{
	struct cnre_options options = {sizeof(struct cnre_options), "none", 0, 0, 0, 0, 0, 0};
	struct cnre *client = 0;

	/* The socket "none" fails at once, without a manager. */
	return cnre_attach(&client, "/nonexistent", &options) < 0 && client == 0 ? 0 : 1;
}
END
cp "$work/consumer.c" "$work/consumer.cc"
consumer() # name compiler source options...
{
	local name=$1 compiler=$2 source=$3
	shift 3
	# shellcheck disable=SC2046 # words
	if ! "$compiler" "$@" -Wall -Wextra -Wno-missing-field-initializers -Werror -o "$work/$name" "$source" $($pkg_config --cflags --libs cnre) >"$work/log" 2>&1; then
		cat "$work/log"
		fail "a consumer in $name does not build"
	elif ! LD_LIBRARY_PATH=$root$libdir timeout 20 "$work/$name"; then
		fail "a consumer in $name does not run"
	fi
}
consumer C11 "$cc" "$work/consumer.c" -std=c11 -pedantic
consumer C++11 "$cxx" "$work/consumer.cc" -std=c++11 -pedantic

# What engines compile with their own sources stands alone, where it is installed; the store's headers are the tests' own.
colibri=$root$prefix/share/cnre/colibri
cat >"$work/engine.c" <<'END'
#include "provider.h"

int main(void)
{
	struct cnre_colibri_setup setup = {.model = "/nonexistent"};
	struct cnre_colibri *shim = 0;

	/* Without the switch nothing is attached; with it there is no such model. */
	return cnre_colibri_open(&shim, &setup, 0, 0);
}
END
# shellcheck disable=SC2046 # words
if ! "$cc" -std=c11 -D_GNU_SOURCE -Wall -Wextra -Werror -I"$colibri" -o "$work/engine" "$work/engine.c" "$colibri/provider.c" "$colibri/format.c" \
	-pthread $($pkg_config --cflags --libs cnre) >"$work/log" 2>&1; then
	cat "$work/log" && fail 'an engine with the installed provider does not build'
elif ! LD_LIBRARY_PATH=$root$libdir timeout 20 "$work/engine" || LD_LIBRARY_PATH=$root$libdir COLI_CACHE=cnre timeout 20 "$work/engine"; then
	fail 'an engine with the installed provider does not do as COLI_CACHE says'
fi
# shellcheck disable=SC2046 # words
"$cc" -std=c11 -D_GNU_SOURCE -Wall -Wextra -Werror -I"$colibri" -I. -Itests/support/colibri -c -o "$work/store.o" "$colibri/expert_store.c" \
	$($pkg_config --cflags cnre) >"$work/log" 2>&1 || { cat "$work/log" && fail 'the installed expert store does not compile'; }

for program in sbin/cnre-managerd $inspect bin/cnrectl bin/cnre-top bin/cnre-gen bin/cnre-sim bin/cnre-olmoe bin/cnre-route; do
	said=$(LD_LIBRARY_PATH=$root$libdir timeout 20 "$root$prefix/$program" --version 2>&1 </dev/null)
	status=$?
	if [ $status != 0 ] || ! grep -qF "$VERSION" <<<"$said"; then
		fail "$program --version ends with $status and says: $said"
	fi
done

# shellcheck disable=SC2086
"$make" --no-print-directory uninstall $where >"$work/log" 2>&1 || { cat "$work/log" && fail 'uninstall failed'; }
find "$root" ! -type d | grep . && fail 'left behind by uninstall'
[ $bad = 0 ] && echo 'installed; consumers in C11 and C++11 build and run; uninstalled without a trace'
exit $bad
