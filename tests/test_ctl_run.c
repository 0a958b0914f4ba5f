/* SPDX-License-Identifier: Apache-2.0 */
/* tools/ctl/run.c and the verbs: an answer of the agreed form is shown whole, any other is refused. */
#include "tools/ctl/run.h"

#include "shm/counters.h"
#include "tests/support/fake_manager.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

TestSuite(ctl_run, .timeout = 20);

static const char status_text[] =
	"{\"pid\":42,\"uptime_s\":11520,\"epoch\":3,\"socket\":\"/run/cnre/managerd.sock\",\"version\":\"0.1.0\",\"policy\":\"lru\","
	"\"models\":[{\"name\":\"OLMoE\",\"directory\":\"/models/olmoe\",\"family\":\"olmoe\",\"identity\":\"00112233445566778899\","
	"\"layers\":16,\"experts\":64,\"top_k\":8,\"objects\":1024,\"resident_objects\":812,\"resident_bytes\":9999998976,\"payload_bytes_total\":12884901888,"
	"\"slab_bytes_max\":12582912,\"payload_bytes_max\":12582912,"
	"\"directories\":[{\"directory\":\"/models/olmoe\",\"shards\":12,\"shards_not_used\":0},"
	"{\"directory\":\"/b/olmoe\",\"shards\":4,\"shards_not_used\":1}]}],"
	"\"mirrors\":[{\"directory\":\"/mirror\",\"state\":\"checked\",\"fault\":\"\",\"shards\":16,\"used\":4,\"refused\":1,"
	"\"absent\":11,\"waiting\":0,\"on_same_disk\":0,\"expert_bytes\":3221225472,\"expert_bytes_of\":12884901888,"
	"\"refusals\":[{\"what\":\"/mirror/a.safetensors: has 1 bytes\",\"do\":\"copy the shard again\"}]}],"
	"\"budget\":{\"bytes\":8589934592,\"binding\":\"configured: ram\",\"terms\":["
	"{\"bytes\":8589934592,\"source\":\"configured: ram\",\"do\":\"raise --ram\"},"
	"{\"bytes\":17179869184,\"source\":\"MemAvailable less reserve\",\"do\":\"free memory\"}]},"
	"\"pool\":{\"budget_bytes\":8589934592,\"backed_bytes\":8589934592,\"used_bytes\":4294967296,\"windows\":680,"
	"\"guaranteed\":680,\"reserved_slabs\":72,\"quarantined\":3,\"backing\":{\"hugetlb-1G\":0,\"hugetlb-2M\":8589934592,\"thp\":0,\"4k\":0}},"
	"\"loader\":{\"engine\":\"io_uring\",\"reason\":\"works\",\"registered_buffers\":true,\"registered_files\":true,"
	"\"files_direct\":3,\"files_buffered\":0,\"in_flight\":1,\"queued\":0,\"chunk_bytes\":1048576,\"chunk_depth\":8,"
	"\"reads_in_flight_max\":4},"
	"\"pressure\":{\"watch\":null,\"reason\":\"/proc/pressure/memory: Permission denied\",\"do\":\"use Linux 6.5\",\"steps\":0},"
	"\"kv\":{\"enabled\":true,\"budget_bytes\":8589934592,\"resident_bytes\":1073741824,\"namespaces\":3,\"disk\":{\"directory\":\"/var/kv\",\"files\":1234,\"bytes\":4294967296}},"
	"\"settings\":[{\"name\":\"ram\",\"value\":\"8G\",\"source\":\"command line\",\"in_force\":\"2.0 GiB\",\"by\":\"cnrectl\"}],\"clients\":2,"
	"\"degraded\":[{\"what\":\"no\\u001b[31m huge pages\",\"do\":\"reserve them: sysctl vm.nr_hugepages=4096\"}],"
	"\"bell\":\"io_uring\"}";

static char message[CTL_MESSAGE_BYTES];

/* The output of a verb for one answer, allocated; NULL with message set. */
static char *output_of(const char *verb, const char *text, int as_json, int *ret_status)
{
	struct fake_manager manager = {.text = text};
	struct run run = {.verb = verb_find(verb), .request = "{}", .as_json = as_json, .stop_fd = -1};
	char *output = NULL;

	cr_assert_eq(fake_manager_start(&manager), 0);
	run.places.given = manager.path;
	*ret_status = run_once(&run, &output, message);
	fake_manager_stop(&manager);
	return output;
}

static void expect_contains(const char *output, const char *part)
{
	cr_expect_not_null(strstr(output, part), "no \"%s\" in:\n%s", part, output);
}

static const char drives_text[] =
	"{\"bytes_read\":4294967296,\"bytes_before\":1073741824,\"replicated\":true,\"weights\":\"measured\",\"declared\":[],"
	"\"failovers\":3,\"failover_last_s\":0.0021,\"failover_most_s\":2.1,\"drives\":["
	"{\"device\":\"259:1\",\"name\":\"nvme0n1p1\",\"directory\":\"/data/olmoe\",\"role\":\"primary\",\"files\":12,"
	"\"files_degraded\":0,\"state\":\"ok\",\"state_s\":null,\"reason\":null,\"weight\":0.8,\"bytes\":2576980377,\"share\":0.8,"
	"\"reads\":400,\"read_s\":0.8,\"read_p99_s\":0.009,\"bandwidth\":2000000000.0,\"in_flight\":4,\"chunks\":9,"
	"\"errors\":{\"io\":0,\"short\":0,\"gone\":0,\"digest\":0,\"timeout\":0},\"failovers\":0,\"coverage\":1.0,\"coverage_used\":null},"
	"{\"device\":\"0:77\",\"name\":null,\"directory\":\"/mnt/copy\",\"role\":\"mirror\",\"files\":4,\"files_degraded\":2,"
	"\"state\":\"degraded\",\"state_s\":90,\"reason\":\"Input/output error\",\"do\":\"check it\",\"weight\":0.2,\"bytes\":644245095,\"share\":0.2,"
	"\"reads\":100,\"read_s\":0,\"bandwidth\":null,\"in_flight\":0,\"chunks\":0,"
	"\"errors\":{\"io\":5,\"short\":0,\"gone\":1,\"digest\":0,\"timeout\":0},\"failovers\":3,\"coverage\":0.25,\"coverage_used\":0.5}]}";

Test(ctl_run, drives_show_shares_coverage_and_who_is_out_and_why)
{
	int r;
	char *output = output_of("drives", drives_text, 0, &r);

	cr_assert_eq(r, 0, "%s", message);
	expect_contains(output, "3.0 GiB since the manager started, 1.0 GiB by managers before it");
	expect_contains(output, "weights    measured\n");
	expect_contains(output, "failovers  3, the last in 2.1 ms, the longest in 2.1 s\n");
	expect_contains(output, "nvme0n1p1  primary  ok         80.0 %    2.4 GiB   80.0 %  2000.0 MB/s      4     2.0 ms     9.0 ms        0   100.0 %        -       12\n");
	expect_contains(output, "0:77       mirror   degraded");
	expect_contains(output, "           degraded for 90.0 s: Input/output error\n");
	expect_contains(output, "           2 files are not read while another replica is good\n");
	expect_contains(output, "           errors: 5 io, 1 gone\n       do  check it\n");
	free(output);
}

Test(ctl_run, status_shows_trouble_with_its_remedy_and_what_binds)
{
	int r;
	char *output = output_of("status", status_text, 0, &r);

	cr_assert_eq(r, 0, "%s", message);
	expect_contains(output, "3 slabs in quarantine");
	expect_contains(output, "0.1.0, pid 42, up 3 h 12 min, 2 clients, policy lru");
	expect_contains(output, "DEGRADED   no?[31m huge pages\n       do  reserve them");
	expect_contains(output, "812 of 1,024 experts resident (79.3 %)");
	expect_contains(output, ">    8.0 GiB  configured: ram\n                       for more: raise --ram\n");
	cr_expect_null(strstr(output, "free memory"), "the remedy of a limit that does not bind");
	expect_contains(output, "4.0 GiB used of 8.0 GiB (50.0 %); 72 of 680 guaranteed slabs");
	expect_contains(output, "pages: hugetlb-2M 8.0 GiB\n");
	expect_contains(output, "settings   ram             8G  (command line); in force: 2.0 GiB  (cnrectl)\n");
	expect_contains(output, "/models/olmoe: 12 shards\n           /b/olmoe: 4 shards\n");
	expect_contains(output, "mirror     /mirror: checked\n           3.0 GiB of 12.0 GiB of experts (25.0 %) in 4 of 16 shards; "
				"1 refused, 11 not there, 0 to be checked\n");
	expect_contains(output, "refused: /mirror/a.safetensors: has 1 bytes\n       do  copy the shard again\n");
	expect_contains(output,
			"pressure   not watched: /proc/pressure/memory: Permission denied\n       do  use Linux 6.5\n");
	expect_contains(output, "ram             8G  (command line)");
	expect_contains(output, "kv         1.0 GiB resident of 8.0 GiB, 3 namespaces; 1,234 files (4.0 GiB) in /var/kv\n");
	cr_expect_null(strchr(output, '\033'));
	free(output);
}

Test(ctl_run, status_without_trouble_says_good)
{
	char *text = strdup(status_text);
	char *list = strstr(text, "\"degraded\":[") + 12;
	char *output;
	int r;

	strcpy(list, "],\"bell\":\"thread\"}");
	output = output_of("status", text, 0, &r);
	cr_assert_eq(r, 0, "%s", message);
	expect_contains(output, "health     good\n");
	free(output);
	free(text);
}

Test(ctl_run, status_says_where_pressure_is_watched)
{
	static const char not_watched[] = "\"watch\":null,\"reason\":\"/proc/pressure/memory: Permission denied\"";
	static const char watched[] = "\"watch\":\"/proc/pressure/memory\",\"reason\":\"\"";
	char *text = strdup(status_text), *place = strstr(text, not_watched), *output;
	int r;

	memset(place, ' ', strlen(not_watched));
	memcpy(place, watched, strlen(watched));
	output = output_of("status", text, 0, &r);
	cr_assert_eq(r, 0, "%s", message);
	expect_contains(output, "pressure   watched: /proc/pressure/memory\n");
	free(output);
	free(text);
}

Test(ctl_run, json_is_one_line_with_escapes_kept)
{
	int r;
	char *output = output_of("status", status_text, 1, &r);

	cr_assert_eq(r, 0);
	cr_expect_eq(strchr(output, '\n'), output + strlen(output) - 1);
	expect_contains(output, "no\\u001B[31m huge pages");
	expect_contains(output, "{\"bell\":\"io_uring\",\"budget\":{\"binding\":");
	free(output);
}

/* Every counter of the table with its number, and the two floats. */
static char *stats_text(void)
{
	json_t *stats = json_object();
	char *text;

	for (size_t i = 0; i < cnre_counter_count; i++)
		json_object_set_new(stats, cnre_counter_table[i].name, json_integer((json_int_t)(1000 + i)));
	json_object_set_new(stats, "felt_wait_s", json_real(1.5));
	json_object_set_new(stats, "service_s", json_real(2.5));
	text = json_dumps(stats, 0);
	json_decref(stats);
	return text;
}

Test(ctl_run, stats_shows_every_counter_with_its_sentence)
{
	char *text = stats_text();
	int r;
	char *output = output_of("stats", text, 0, &r);

	cr_assert_eq(r, 0, "%s", message);
	for (size_t i = 0; i < cnre_counter_count; i++) {
		expect_contains(output, cnre_counter_table[i].name);
		expect_contains(output, cnre_counter_table[i].sentence);
	}
	expect_contains(output, "felt wait  1.5 s");
	expect_contains(output, "FAILED");
	free(output);
	free(text);
}

Test(ctl_run, missing_field_is_named_and_never_read_as_zero)
{
	int r;

	cr_expect_null(output_of("stats", "{\"accesses\":1}", 0, &r));
	cr_expect_eq(r, -EBADMSG);
	expect_contains(message, "\"misses\"");
	cr_expect_null(output_of("reset", "{\"evicted\":\"all\",\"kept\":0}", 0, &r));
	cr_expect_eq(r, -EBADMSG);
	expect_contains(message, "\"evicted\"");
	cr_expect_null(output_of("reset", "{\"evicted\":-1,\"kept\":0}", 0, &r));
	cr_expect_eq(r, -EBADMSG);
}

Test(ctl_run, clients_are_a_table_and_a_disconnected_one_is_explained)
{
	static const char text[] =
		"{\"clients\":[{\"session\":1,\"name\":\"cnre-olmoe\",\"pid\":4242,\"uid\":1000,\"model\":\"OLMoE\",\"state\":"
		"\"disconnected\",\"reserve_slabs\":72,\"leased\":8,\"accesses\":1000,\"hits\":900,\"misses\":100,\"joins\":7,"
		"\"failures\":0,\"felt_wait_s\":0.25}]}";
	int r;
	char *output = output_of("clients", text, 0, &r);

	cr_assert_eq(r, 0, "%s", message);
	expect_contains(output, "cnre-olmoe");
	expect_contains(output, "90.0 %");
	expect_contains(output, "250.0 ms");
	expect_contains(output, "1 disconnected");
	free(output);
	output = output_of("clients", "{\"clients\":[]}", 0, &r);
	cr_expect_str_eq(output, "no clients\n");
	free(output);
}

Test(ctl_run, set_and_reset_say_what_happened)
{
	int r;
	char *output =
		output_of("set", "{\"budget_bytes\":1073741824,\"resident_bytes\":536870912,\"trimming\":true}", 0, &r);

	expect_contains(output, "budget 1.0 GiB, resident 512.0 MiB: still giving memory back");
	free(output);
	output = output_of("reset", "{\"evicted\":1000,\"kept\":24}", 0, &r);
	expect_contains(output, "1,000 experts evicted, 24 kept");
	free(output);
}

#define TRACE_FULL \
	"{\"state\":\"over\",\"records\":5,\"lost\":0,\"bytes\":0,\"full\":false,\"error\":\"No space left on device\"}"

Test(ctl_run, stopping_a_recording_fails_where_the_file_could_not_be_written)
{
	int orders = 2;

	while (orders-- > 0) {
		struct fake_manager manager = {.text = TRACE_FULL};
		struct run run = {.verb = verb_find("trace"), .request = "{}", .is_order = orders, .stop_fd = -1};
		char *output = NULL;
		int r;

		cr_assert_eq(fake_manager_start(&manager), 0);
		run.places.given = manager.path;
		r = run_once(&run, &output, message);
		fake_manager_stop(&manager);
		cr_expect_eq(r, orders ? -EIO : 0, "status asks, and is answered");
		expect_contains(orders ? message : output, "No space left on device");
		free(output);
	}
}

Test(ctl_run, who_may_not_record_is_told_so)
{
	struct fake_manager manager = {.behaviour = FAKE_HANGS_UP};
	struct run run = {.verb = verb_find("trace"), .request = "{}", .is_order = 1, .stop_fd = -1};
	int file = STDERR_FILENO;
	char *output = NULL;

	cr_assert_eq(fake_manager_start(&manager), 0);
	run.places.given = manager.path;
	run.file = &file;
	cr_expect_lt(run_once(&run, &output, message), 0);
	fake_manager_stop(&manager);
	expect_contains(message, "only root and its own user may hand it a file");
}

/* ---- watch ---- */

struct watcher {
	struct run run;
	FILE *out, *err;
	int status;
	char message[CTL_MESSAGE_BYTES];
};

static void *watch(void *argument)
{
	struct watcher *watcher = argument;

	watcher->status = run_watch(&watcher->run, 0.05, watcher->out, watcher->err, watcher->message);
	return NULL;
}

/* Reads lines of a pipe: a watcher writes to its other end, so waiting for a line needs no sleep. */
static void expect_line(FILE *from, const char *part)
{
	char line[4096] = "";

	cr_assert_not_null(fgets(line, sizeof line, from));
	expect_contains(line, part);
}

/*
 * Goal: watching goes on across a restart of the manager, with one line about the gap.
 * Method: stop the fake manager between two lines, start another at the same path, then make stop_fd readable.
 */
Test(ctl_run, watch_survives_a_restart_and_ends_with_0)
{
	struct fake_manager before = {.text = "{\"evicted\":1,\"kept\":0}"},
			    after = {.text = "{\"evicted\":2,\"kept\":0}"};
	int out[2], err[2], stop[2];
	struct watcher watcher = {.run = {.verb = verb_find("reset"), .request = "{}", .as_json = 1}};
	FILE *lines, *complaints;
	pthread_t thread;

	cr_assert(pipe(out) == 0 && pipe(err) == 0 && pipe(stop) == 0);
	cr_assert_eq(fake_manager_start(&before), 0);
	watcher.run.places.given = before.path;
	watcher.run.stop_fd = stop[0];
	watcher.out = fdopen(out[1], "w");
	watcher.err = fdopen(err[1], "w");
	setvbuf(watcher.err, NULL, _IOLBF, 0);
	lines = fdopen(out[0], "r");
	complaints = fdopen(err[0], "r");
	cr_assert_eq(pthread_create(&thread, NULL, watch, &watcher), 0);
	expect_line(lines, "{\"evicted\":1,\"kept\":0}");
	fake_manager_stop(&before);
	expect_line(complaints, "(trying on)");
	mkdir(before.directory, 0700);
	memcpy(after.path, before.path, sizeof after.path);
	memcpy(after.directory, before.directory, sizeof after.directory);
	cr_assert_eq(fake_manager_start(&after), 0);
	for (char line[256]; fgets(line, sizeof line, lines) != NULL && strstr(line, "\"evicted\":2") == NULL;)
		;
	close(stop[1]);
	cr_assert_eq(pthread_join(thread, NULL), 0);
	cr_expect_eq(watcher.status, 0);
	fclose(watcher.out);
	fclose(watcher.err);
	fclose(lines);
	fclose(complaints);
	fake_manager_stop(&after);
}

Test(ctl_run, watch_fails_when_there_was_no_manager_at_the_start)
{
	struct watcher watcher = {
		.run = {.verb = verb_find("reset"), .request = "{}", .stop_fd = -1}, .out = stdout, .err = stderr};

	watcher.run.places.given = "/tmp/cnre-test-no-such-folder/managerd.sock";
	watch(&watcher);
	cr_expect_eq(watcher.status, -ENOENT);
	expect_contains(watcher.message, "start cnre-managerd");
}
