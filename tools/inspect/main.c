/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cnre-inspect: looks at a running manager and its clients from outside, with programs in the kernel, and joins what their probes
 * tell with what the block layer reads. This file owns the exit status (0 done, 1 failed, 2 usage).
 */
#include "base/clock.h"
#include "tools/inspect/inspect.h"
#include "tools/inspect/watch.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

enum { EXIT_DONE = 0, EXIT_FAILED = 1, EXIT_USAGE = 2 };

static const struct inspect_verb *const verbs[] = {&inspect_io, &inspect_waits, &inspect_loads, &inspect_leases, NULL};

static volatile sig_atomic_t is_stopped;

static void stop(int signal_number)
{
	(void)signal_number;
	is_stopped = 1;
}

static void print_usage(FILE *out)
{
	fputs("usage: cnre-inspect [option...] VERB\n\n", out);
	for (size_t i = 0; verbs[i] != NULL; i++)
		fprintf(out, "  %-8s %s\n", verbs[i]->name, verbs[i]->summary);
	fputs("\n"
	      "  --socket PATH      the manager to look at; default as for cnrectl\n"
	      "  --manager PID      the same by its process\n"
	      "  --library PATH     the libcnre whose probes are used; default what clients have mapped\n"
	      "  --seconds N        ends after so long; default on ^C\n"
	      "  --interval N       a report every N seconds, each since the start; default one at the end\n"
	      "  --top N            lines of a list; default 20\n"
	      "  --threshold N      seconds from which on a lease is long; default 1\n"
	      "  --json             reports as a line of JSON\n"
	      "  --help, --version\n"
	      "\nNeeds CAP_BPF and CAP_PERFMON; without them it says what the manager itself counts.\n"
	      "Exit status: 0 done, 1 failed, 2 wrong usage. See cnre-inspect(8).\n",
	      out);
}

static const struct inspect_verb *find_verb(const char *name)
{
	for (size_t i = 0; verbs[i] != NULL; i++)
		if (strcmp(verbs[i]->name, name) == 0)
			return verbs[i];
	return NULL;
}

/* Takes the reference. */
static int print_json(json_t *report)
{
	char *text = json_dumps(report, JSON_COMPACT | JSON_SORT_KEYS | JSON_ENSURE_ASCII | JSON_REAL_PRECISION(15));

	json_decref(report);
	if (text == NULL)
		return -ENOMEM;
	(void)puts(text);
	free(text);
	return fflush(stdout) == 0 ? 0 : -errno;
}

static int print_report(struct inspect *inspect)
{
	json_t *report = inspect->verb->report(inspect);

	if (report == NULL)
		return -ENOMEM;
	if (inspect->options.json)
		return print_json(report);
	inspect->verb->print(stdout, report);
	json_decref(report);
	return fflush(stdout) == 0 ? 0 : -errno;
}

static int look(struct inspect *inspect, struct watch *watch)
{
	const struct options *options = &inspect->options;
	int64_t end_ns = options->seconds > 0 ? inspect->started_ns + (int64_t)(options->seconds * 1e9) : CNRE_NEVER;
	int64_t interval_ns = (int64_t)(options->interval * 1e9), next_ns = inspect->started_ns;
	int r, stopped;

	(void)fprintf(stderr, "cnre-inspect: %s: looking at manager %u\n", inspect->verb->name, inspect->subject.manager[0]);
	do {
		next_ns = interval_ns > 0 && next_ns + interval_ns < end_ns ? next_ns + interval_ns : end_ns;
		stopped = watch_until(watch, next_ns);
		r = print_report(inspect);
		if (r == 0 && interval_ns > 0 && !inspect->options.json && !stopped && next_ns < end_ns)
			(void)fputc('\n', stdout);
	} while (r == 0 && !stopped && next_ns < end_ns);
	if (r < 0)
		(void)fprintf(stderr, "cnre-inspect: standard output: %s\n", strerror(-r));
	return r < 0 ? EXIT_FAILED : EXIT_DONE;
}

/* What can be said without looking into the kernel: still, it failed. */
static int fall_back(const struct inspect *inspect)
{
	char message[INSPECT_MESSAGE_BYTES];
	json_t *report = NULL;

	if (inspect_counters(inspect, &report, message) < 0) {
		(void)fprintf(stderr, "cnre-inspect: %s: %s\n", inspect->verb->name, message);
		return EXIT_FAILED;
	}
	if (inspect->options.json) {
		(void)print_json(report);
		return EXIT_FAILED;
	}
	inspect_print_counters(stdout, inspect->verb->name, report);
	json_decref(report);
	return EXIT_FAILED;
}

static int run(struct inspect *inspect)
{
	char message[INSPECT_MESSAGE_BYTES];
	struct watch watch;
	int status;

	if (subject_open(&inspect->subject, inspect->options.socket, inspect->options.manager, message) < 0) {
		(void)fprintf(stderr, "cnre-inspect: %s: %s\n", inspect->verb->name, message);
		return EXIT_FAILED;
	}
	if (watch_open(&watch, inspect, &is_stopped, message) == 0) {
		status = look(inspect, &watch);
	} else {
		inspect_make_printable(message);
		(void)fprintf(stderr, "cnre-inspect: %s: %s\n", inspect->verb->name, message);
		status = fall_back(inspect);
	}
	watch_close(&watch);
	return status;
}

int main(int argc, char **argv)
{
	static struct inspect inspect;
	const struct sigaction action = {.sa_handler = stop};
	char message[OPTIONS_MESSAGE_BYTES];
	int status;

	if (inspect_options_parse(argc, argv, &inspect.options, message) < 0) {
		(void)fprintf(stderr, "cnre-inspect: %s\n", message);
		return EXIT_USAGE;
	}
	if (inspect.options.help) {
		print_usage(stdout);
		return EXIT_DONE;
	}
	if (inspect.options.version) {
		(void)printf("cnre-inspect %s\n", CNRE_VERSION);
		return EXIT_DONE;
	}
	if (inspect.options.verb == NULL) {
		print_usage(stderr);
		return EXIT_USAGE;
	}
	inspect.verb = find_verb(inspect.options.verb);
	if (inspect.verb == NULL) {
		(void)fprintf(stderr, "cnre-inspect: %.64s: no such verb: see cnre-inspect --help\n", inspect.options.verb);
		return EXIT_USAGE;
	}
	inspect.preflight = (struct preflight){
		.root = "", .btf = getenv(PREFLIGHT_BTF_VARIABLE), .capabilities = preflight_capabilities()};
	(void)sigaction(SIGINT, &action, NULL);
	(void)sigaction(SIGTERM, &action, NULL);
	status = run(&inspect);
	subject_close(&inspect.subject);
	return status;
}
