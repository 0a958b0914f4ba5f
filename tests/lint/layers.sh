#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Who may include what (README, "Where things are"): arrows go one way. Run in the root of a tree.
set -u
bad=0
complain() { echo "$1" && bad=1; }

# folder: the folders whose headers it may include, besides its own.
allowed_for() # folder
{
	case $1 in
	base) ;;
	shm | policy | model | gpu | kvstore) echo base ;;
	client) echo base shm kvstore gpu cnre ;; # of kvstore the names of blocks, which client and manager compute alike
	manager) echo base shm policy model gpu kvstore ;;
	client/colibri) echo cnre ;; # and the headers of the user's tree, in angle brackets
	engine) echo cnre ;;
	tools/ctl) echo base shm kvstore model ;; # files of prefixes, and checkpoints without a manager
	tools/top) echo base shm tools/ctl ;; # how a manager is found and asked
	tools/inspect) echo base shm model tools/ctl ;; # what a checkpoint holds, and how a manager is found and asked
	tools/sim) echo base policy model ;;
	tools/gen) echo base ;;
	tools/route) echo cnre ;;
	*) echo none ;;
	esac
}

check_file() # file folder
{
	local file=$1 folder=$2 header target
	# "shm/ring.h" by quotes, and the public header by either form
	while read -r header; do
		case $header in
		cnre/cnre.h | client/cnre/cnre.h) target=cnre ;;
		*/*) target=${header%/*} ;;
		*)
			complain "$file: \"$header\" is not written from the root"
			continue
			;;
		esac
		[ "$target" = "$folder" ] && continue
		case " $(allowed_for "$folder") " in
		*" $target "*) ;;
		*) complain "$file: $folder may not include $header" ;;
		esac
	done < <(sed -n -E 's/^[ \t]*#[ \t]*include[ \t]*"([^"]+)".*/\1/p; s/^[ \t]*#[ \t]*include[ \t]*<(cnre\/[^>]+)>.*/\1/p' "$file")
}

# A header that is not ours, the C library's or the kernel's stays in the files named here: a regular expression.
third_party='liburing.h         (manager/(loader_uring|bell|loop)|kvstore/disk_uring)\.c
jansson.h          (manager|model|tools/ctl|tools/top|tools/gen|tools/sim|tools/route|tools/inspect|engine)/[a-z_]+\.[ch]
ini.h              (manager/settings|model/family_file)\.c
openssl/[a-z]+.h   (base/(fingerprint|payload)|kvstore/key)\.c
(deepseek_v4_internal|expert_store|expert_store_registry|tensor).h client/colibri/expert_store\.c
microhttpd.h       manager/metrics_server\.c
xxhash.h           (manager/digest\.c|kvstore/checker_body\.h)
(n?curses|term).h  tools/top/screen\.c
sys/sdt.h          base/probe\.h
bpf/(bpf|libbpf).h tools/inspect/programs\.c
bpf/(bpf_helpers|bpf_core_read|bpf_tracing|usdt.bpf).h tools/inspect/inspect\.bpf\.c
gelf.h             tools/inspect/elf_file\.c
cuda.h             gpu/cuda_api\.h'

check_third_party() # files...
{
	local header where file
	while read -r header where; do
		for file in $(grep -lE "^[ \t]*#[ \t]*include[ \t]*<$header>" "$@" /dev/null); do
			[[ $file =~ ^$where$ ]] || complain "$file: <$header> belongs in $where only"
		done
	done <<<"$third_party"
}

files=()
for folder in base shm policy model gpu kvstore client client/colibri manager engine tools/*; do
	for file in "$folder"/*.[ch]; do
		[ -e "$file" ] || continue
		files+=("$file")
		check_file "$file" "$folder"
	done
done
[ ${#files[@]} -gt 0 ] || [ -e client/cnre/cnre.h ] || complain 'no source files here'
[ ${#files[@]} = 0 ] || check_third_party "${files[@]}"

if [ -e client/cnre/cnre.h ]; then
	others=$(grep -n '#[ \t]*include' client/cnre/cnre.h | grep -vE '<(stddef|stdint)\.h>')
	[ -z "$others" ] || complain "client/cnre/cnre.h: includes more than <stddef.h> and <stdint.h>: $others"
fi

# The data plane never allocates, locks or logs.
for file in shm/ring.[ch] shm/ledger.[ch] shm/access_log.[ch] shm/futex.[ch] shm/word.h; do
	[ -e "$file" ] || continue
	found=$(grep -nE '\b(malloc|calloc|realloc|free|pthread_[a-z_]+|cnre_log)[ \t]*\(' "$file")
	[ -z "$found" ] || complain "$file: data plane allocates, locks or logs: $found"
done

# Below main nothing prints: errors are returned, and the top says them once. base/log.c is how the daemon speaks.
for file in "${files[@]}"; do
	case $file in
	tools/* | engine/* | */main.c | base/log.c) continue ;;
	manager/check.c) continue ;; # all that --check says
	client/colibri/expert_store.c) continue ;; # in an engine that has no other place for the reason of a failed lookup
	esac
	found=$(grep -nE '\b(printf|vprintf|puts|putchar|perror)[ \t]*\(|\b(v?fprintf|fputs|fputc)[ \t]*\(.*\b(stdout|stderr)\b' "$file")
	[ -z "$found" ] || complain "$file: prints below main: $found"
done
exit $bad
