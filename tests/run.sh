#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs tests and counts them: tests/run.sh check | asan | tsan | fuzz [NAME] | criterion | system. make calls it.
#
# One line for each program: its name, what passed, failed and was skipped, and the seconds; then the reason of every skip
# and the tail of every failure. The whole output of each program stays under $BUILD/check/. The last line is
# "N passed, N failed, N skipped"; exit status 0 only if something passed and nothing failed. The order is from basic to
# complex, so that the first failure is the most basic one. Each program has a time limit and its own process group.
set -u
cd "$(dirname "$0")/.." || exit 1

make=${MAKE:-make}
build=${BUILD:-build}
export BUILD=$build
export CNRE_BUILD=${CNRE_BUILD:-$build} # whose programs the tests start: with sanitizers, too
export CNRE_CHECK=1        # every lease with a cookie: a double release is an error (libcnre(3))
logs=$build/check
all_passed=0 all_failed=0 all_skipped=0
limit_tests=300         # seconds: one criterion program
limit_system=300        # one system test
limit_stress=180        # one stress program under TSan
limit_step=600          # one build or lint step

say_result() # name passed failed skipped seconds log
{
	printf '%-44s %4d passed %2d failed %2d skipped %4d s\n' "$1" "$2" "$3" "$4" "$5"
	all_passed=$((all_passed + $2)) all_failed=$((all_failed + $3)) all_skipped=$((all_skipped + $4))
	if [ "$3" -gt 0 ]; then
		tail -n 40 "$6" | sed 's/^/    | /'
		echo "    the whole output: $6"
	fi
}

# Ends the program after its time, and in any case what it left running: timeout makes a process group of its own.
limited() # seconds log command...
{
	local seconds=$1 log=$2
	shift 2
	timeout -k 10 "$seconds" "$@" >"$log" 2>&1 </dev/null &
	local group=$! status
	wait $group
	status=$?
	kill -KILL -- -$group 2>/dev/null
	[ $status != 124 ] && [ $status != 137 ] || echo "ended after its time limit of $seconds s" >>"$log"
	return $status
}

# Sanitizers write their reports to files, because criterion ends with 0 when a test only leaks. A report is a failure.
sanitizer_reports() # log
{
	local found=1 report
	for report in "$1".sanitizer.*; do
		[ -e "$report" ] || continue
		cat "$report" >>"$1"
		# A missing symbolizer writes such a file, too.
		! grep -qE 'ERROR: |SUMMARY: |runtime error: ' "$report" || found=0
	done
	return $found
}

run_sanitized() # seconds log command...
{
	local seconds=$1 log=$2
	shift 2
	rm -f "$log".sanitizer.*
	ASAN_OPTIONS="log_path=$(realpath "$logs")/$(basename "$log").sanitizer:detect_leaks=1:abort_on_error=0" UBSAN_OPTIONS=print_stacktrace=1 \
		LSAN_OPTIONS="suppressions=$(realpath tests/lsan.supp):print_suppressions=0" limited "$seconds" "$log" "$@"
}

# A command that passes with 0, is skipped with 77 (its last line says why), and fails otherwise.
step() # name seconds command...
{
	local name=$1 seconds=$2 log start status
	shift 2
	log=$logs/${name//[^a-zA-Z0-9_.-]/_}.log
	start=$SECONDS
	run_sanitized "$seconds" "$log" "$@"
	status=$?
	sanitizer_reports "$log" && status=1
	case $status in
	0) say_result "$name" 1 0 0 $((SECONDS - start)) "$log" ;;
	77)
		say_result "$name" 0 0 1 $((SECONDS - start)) "$log"
		echo "    skipped: $(tail -n 1 "$log")"
		;;
	*) say_result "$name" 0 1 0 $((SECONDS - start)) "$log" ;;
	esac
	[ $status = 0 ] || [ $status = 77 ]
}

criterion_program() # path
{
	local name log start status passed failed skipped planned
	name=$(basename "$1")
	log=$logs/$name.log
	start=$SECONDS
	if [ ! -e "$1" ] && [ "$name" = test_inspect_elf_file ] && [ ! -e "$build/cnre-inspect" ]; then
		say_result "$name" 0 0 1 0 "$log"
		echo '    skipped: cnre-inspect was left out of the build'
		return
	fi
	run_sanitized $limit_tests "$log" "$1" --tap -j2
	status=$?
	skipped=$(grep -c '^ok - .*# SKIP' "$log")
	passed=$(($(grep -c '^ok - ' "$log") - skipped))
	failed=$(grep -c '^not ok - ' "$log")
	planned=$(sed -n 's/^1\.\.\([0-9][0-9]*\)$/\1/p' "$log" | head -n 1)
	# A runner that was killed, or that ended before its plan, fails even if no test said so.
	if [ "$failed" = 0 ] && { [ $status != 0 ] || [ $((passed + skipped)) != "${planned:-none}" ]; }; then
		failed=1
	fi
	if sanitizer_reports "$log"; then
		failed=$((failed + 1))
	fi
	say_result "$name" "$passed" "$failed" "$skipped" $((SECONDS - start)) "$log"
	sed -n 's/^ok - \(.*[^ ]\) *# SKIP \(.*\)/    skipped \1: \2/p' "$log"
}

criterion_programs()
{
	local source folder found
	# In the order of the arrows: what stands below is tested first.
	for folder in base shm policy model gpu fakecuda kvstore manager client engine ctl inspect gen system; do
		for source in tests/test_"$folder"_*.c; do
			[ -e "$source" ] || continue
			criterion_program "$build/tests/$(basename "$source" .c)"
		done
	done
	for source in tests/test_*.c; do
		found=$(basename "$source")
		case $found in
		test_base_* | test_shm_* | test_policy_* | test_model_* | test_gpu_* | test_fakecuda_* | test_kvstore_* | test_manager_* | test_client_* | test_engine_* | test_ctl_* | test_inspect_* | test_gen_* | test_system_*) ;;
		*) criterion_program "$build/tests/${found%.c}" ;;
		esac
	done
}

system_tests()
{
	local script
	for script in tests/system/*.sh; do
		[ -e "$script" ] || continue
		step "$(basename "$script" .sh)" $limit_system bash "$script"
	done
}

models()
{
	[ -e tests/model/run.sh ] || return 0
	step 'protocol models (spin)' $limit_step bash tests/model/run.sh
}

stress_programs()
{
	local source
	step 'build for TSan' $limit_step "$make" --no-print-directory $jobs build-tsan || return
	for source in tests/stress/stress_*.c; do
		[ -e "$source" ] || continue
		TSAN_OPTIONS='halt_on_error=1 second_deadlock_stack=1' \
			step "$(basename "$source" .c) (TSan)" $limit_stress build/tsan/stress/"$(basename "$source" .c)"
	done
}

# Seeds in tests/fuzz/corpus/NAME/ are read, new inputs are kept in the build folder, crash files are named.
fuzz_program() # name seconds
{
	local name=$1 seconds=$2 work=build/fuzz/corpus/$1 crashes=build/fuzz/crashes
	mkdir -p "$work" $crashes
	set -- build/fuzz/fuzz/"$name" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 \
		-artifact_prefix=$crashes/"$name"- "$work"
	[ ! -d tests/fuzz/corpus/"$name" ] || set -- "$@" tests/fuzz/corpus/"$name"
	step "$name ($seconds s)" $((seconds + 60)) "$@" ||
		ls -l $crashes/"$name"-* 2>/dev/null | sed 's/^/    input that fails: /'
}

fuzz_programs() # seconds [name]
{
	local source
	step 'build for fuzzing' $limit_step "$make" --no-print-directory $jobs build-fuzz || return
	for source in tests/fuzz/${2:-fuzz_*}.c; do
		[ -e "$source" ] || continue
		fuzz_program "$(basename "$source" .c)" "$1"
	done
}

close_run()
{
	echo "$all_passed passed, $all_failed failed, $all_skipped skipped"
	[ $all_failed = 0 ] && [ $all_passed -gt 0 ]
	exit
}

# Under `make -j` the jobserver decides; otherwise as many jobs as processors.
case ${MAKEFLAGS-} in
*jobserver* | *-j*) jobs= ;;
*) jobs=-j$(nproc) ;;
esac
mkdir -p "$logs"

case ${1-} in
check)
	# A build that fails leaves nothing to test.
	step 'build, warnings are errors' $limit_step "$make" --no-print-directory $jobs WERROR=1 all || close_run
	step 'build tests' $limit_step "$make" --no-print-directory $jobs WERROR=1 tests || close_run
	step headers $limit_step "$make" --no-print-directory check-header
	step lint $limit_step "$make" --no-print-directory WERROR=1 lint
	models
	criterion_programs
	step install $limit_step "$make" --no-print-directory WERROR=1 check-install
	system_tests
	stress_programs
	fuzz_programs "${FUZZ_SECONDS:-10}"
	;;
asan)
	step 'build for ASan and UBSan' $limit_step "$make" --no-print-directory $jobs build-asan || close_run
	criterion_programs
	system_tests
	;;
tsan) stress_programs ;;
fuzz) fuzz_programs "${FUZZ_SECONDS:-60}" "${2-}" ;;
criterion) criterion_programs ;;
system) system_tests ;;
*)
	echo 'usage: tests/run.sh check|asan|tsan|fuzz [NAME]|criterion|system' >&2
	exit 2
	;;
esac
close_run
