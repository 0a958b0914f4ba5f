/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cnrectl: asks a running cnre-managerd and tells an operator what it answered. This file owns standard output,
 * standard error and the exit status (0 done, 1 failed, 2 usage); everything else returns.
 */
#include "tools/ctl/options.h"
#include "tools/ctl/run.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

enum { EXIT_DONE = 0, EXIT_FAILED = 1, EXIT_USAGE = 2 };

/* The usage text is two columns; a verb with more words has its sentence on a line of its own. */
static void print_verb(FILE *out, const struct verb *verb)
{
	if (strlen(verb->arguments) > 10)
		fprintf(out, "  %-8s%s\n  %-18s %s\n", verb->name, verb->arguments, "", verb->summary);
	else
		fprintf(out, "  %-8s%-10s %s\n", verb->name, verb->arguments, verb->summary);
}

static void print_usage(FILE *out)
{
	fputs("usage: cnrectl [--socket PATH] [--json] [--watch [SECONDS]] VERB\n\n", out);
	for (size_t i = 0; verb_table[i] != NULL; i++)
		print_verb(out, verb_table[i]);
	fputs("\n"
	      "  --socket PATH      the manager to ask; default $CNRE_SOCKET, " SEARCH_SYSTEM_SOCKET ",\n"
	      "                     else the one manager of this user\n"
	      "  --json             the manager's answer as one line of JSON\n"
	      "  --watch [SECONDS]  again every 2 seconds, across restarts of the manager; ends on ^C\n"
	      "  --version, --help\n"
	      "\nExit status: 0 done, 1 failed, 2 wrong usage. See cnrectl(1).\n",
	      out);
}

/* From here on ^C and SIGTERM are something to read, so that no wait has a gap in which one is missed. */
static int open_stop_signals(void)
{
	sigset_t signals;
	int fd;

	sigemptyset(&signals);
	sigaddset(&signals, SIGINT);
	sigaddset(&signals, SIGTERM);
	if (sigprocmask(SIG_BLOCK, &signals, NULL) < 0)
		return -errno;
	fd = signalfd(-1, &signals, SFD_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

/* Frees the output. */
static int print_output(char *output, char message[CTL_MESSAGE_BYTES])
{
	int r = 0;

	(void)fputs(output, stdout);
	free(output);
	if (fflush(stdout) != 0) {
		r = -errno;
		(void)snprintf(message, CTL_MESSAGE_BYTES, "standard output: %s", strerror(-r));
	}
	return r;
}

static int show_once(const struct run *run, char message[CTL_MESSAGE_BYTES])
{
	char *output = NULL;
	int r = run_once(run, &output, message);

	return r < 0 ? r : print_output(output, message);
}

/* What needs no manager. */
static int show_local(const struct run *run, const struct options *options, char message[CTL_MESSAGE_BYTES])
{
	json_t *answer = NULL;
	char *output = NULL;
	int r = run->verb->answer_here(options->word_count, options->word, &answer, message);

	if (r == 0)
		r = run_render(run, answer, &output, message);
	return r < 0 ? r : print_output(output, message);
}

static int show(struct run *run, const struct options *options, char message[CTL_MESSAGE_BYTES])
{
	if (run->verb->is_local != NULL && run->verb->is_local(options->word_count, options->word))
		return show_local(run, options, message);
	if (!options->watches && (!run->verb->watches || options->as_json || !isatty(STDOUT_FILENO)))
		return show_once(run, message);
	run->stop_fd = open_stop_signals();
	if (run->stop_fd < 0) {
		(void)snprintf(message, CTL_MESSAGE_BYTES, "signalfd: %s", strerror(-run->stop_fd));
		return run->stop_fd;
	}
	return run_watch(run, options->interval_s, stdout, stderr, message);
}

static int execute(const struct options *options, const struct verb *verb)
{
	struct run run = {.verb = verb, .argc = options->word_count, .argv = options->word, .as_json = options->as_json, .stop_fd = -1};
	char message[CTL_MESSAGE_BYTES] = "out of memory";
	json_t *request = NULL;
	int file = VERB_NO_FILE, r;
	char *text;

	r = verb->request(options->word_count, options->word, &request, message);
	if (r < 0) {
		fprintf(stderr, "cnrectl: %s: %s\n", verb->name, message);
		return r == -EINVAL ? EXIT_USAGE : EXIT_FAILED;
	}
	run.is_order = verb->is_order != NULL && verb->is_order(options->word_count, options->word);
	if (run.is_order && options->watches) {
		json_decref(request);
		fprintf(stderr, "cnrectl: %s: --watch is for what only asks\n", verb->name);
		return EXIT_USAGE;
	}
	text = json_dumps(request, JSON_COMPACT);
	json_decref(request);
	run.request = text;
	search_fill(&run.places, options->socket);
	if (verb->file != NULL)
		file = verb->file(options->word_count, options->word, message);
	if (file >= 0)
		run.file = &file;
	r = text == NULL ? -ENOMEM : file < 0 && file != VERB_NO_FILE ? file : show(&run, options, message);
	free(text);
	if (file >= 0 && r < 0 && verb->abandon_file != NULL)
		verb->abandon_file(options->word_count, options->word);
	if (file >= 0)
		(void)close(file);
	if (r < 0)
		fprintf(stderr, "cnrectl: %s: %s\n", verb->name, message);
	return r < 0 ? EXIT_FAILED : EXIT_DONE;
}

int main(int argc, char **argv)
{
	char message[CTL_MESSAGE_BYTES];
	const struct verb *verb;
	struct options options;

	if (options_parse(argc, argv, &options, message) < 0) {
		fprintf(stderr, "cnrectl: %s\n", message);
		return EXIT_USAGE;
	}
	if (options.wants_help) {
		print_usage(stdout);
		return EXIT_DONE;
	}
	if (options.wants_version) {
		printf("cnrectl %s\n", CNRE_VERSION);
		return EXIT_DONE;
	}
	if (options.word_count == 0) {
		print_usage(stderr);
		return EXIT_USAGE;
	}
	verb = verb_find(options.word[0]);
	if (verb == NULL) {
		fprintf(stderr, "cnrectl: %.64s: no such verb: see cnrectl --help\n", options.word[0]);
		return EXIT_USAGE;
	}
	return execute(&options, verb);
}
