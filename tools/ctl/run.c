/* SPDX-License-Identifier: Apache-2.0 */
/* Asking once and repeatedly; see run.h. */
#include "tools/ctl/run.h"

#include "base/clock.h"
#include "tools/ctl/answer.h"
#include "tools/ctl/connection.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static int ask(const struct run *run, const char *request, const int *file, char **ret_text, size_t *ret_bytes,
	       char message[CTL_MESSAGE_BYTES])
{
	struct connection_question question = {
		.text = request,
		.bytes = strlen(request),
		.file = file,
		.stop_fd = run->stop_fd,
		.timeout_ns = file != NULL && run->verb->file_ns > 0 ? run->verb->file_ns : CONNECTION_TIMEOUT_NS,
	};
	char path[SEARCH_PATH_BYTES], reason[CTL_MESSAGE_BYTES];
	int connected, r;

	connected = search_connect(&run->places, path, message);
	if (connected < 0)
		return connected;
	r = connection_ask(connected, &question, ret_text, ret_bytes, reason);
	(void)close(connected);
	if (r < 0)
		(void)snprintf(message, CTL_MESSAGE_BYTES, "%s: %.800s", path, reason);
	return r;
}

/* "%s\n" of the whole answer. */
static int render_json(const json_t *answer, char **ret_output)
{
	char *line = answer_line(answer);
	int length;

	if (line == NULL)
		return -ENOMEM;
	length = asprintf(ret_output, "%s\n", line);
	free(line);
	return length < 0 ? -ENOMEM : 0;
}

static int render_plain(const struct verb *verb, json_t *answer, char **ret_output, char message[CTL_MESSAGE_BYTES])
{
	struct fields fields = {.missing = NULL};
	char *text = NULL;
	size_t bytes = 0;
	FILE *out = open_memstream(&text, &bytes);

	if (out == NULL)
		return -ENOMEM;
	answer_make_printable(answer);
	verb->print(out, &fields, answer);
	if (fclose(out) != 0) {
		free(text);
		return -ENOMEM;
	}
	if (fields.missing != NULL) {
		free(text);
		(void)snprintf(message, CTL_MESSAGE_BYTES,
			       "the answer has no usable field \"%s\": cnrectl and the manager are of "
			       "different releases; --json shows what was sent",
			       fields.missing);
		return -EBADMSG;
	}
	*ret_output = text;
	return 0;
}

static int ask_json(const struct run *run, const char *request, const int *file, json_t **ret_answer,
		    char message[CTL_MESSAGE_BYTES])
{
	char *text = NULL;
	size_t bytes = 0;
	int r = ask(run, request, file, &text, &bytes, message);

	if (r < 0)
		return r;
	r = answer_parse(text, bytes, ret_answer);
	free(text);
	if (r < 0)
		(void)snprintf(message, CTL_MESSAGE_BYTES,
			       "the answer is not the JSON that was agreed: install cnrectl and "
			       "cnre-managerd of one release");
	return r;
}

/*
 * Asks on until the answer is final, or time is up: then the last answer says how far it came. A file takes as long as its
 * drive does.
 */
static int follow(const struct run *run, json_t **answer, char message[CTL_MESSAGE_BYTES])
{
	int64_t deadline_ns = cnre_clock_deadline_ns(run->file != NULL && run->verb->file_ns > 0 ? run->verb->file_ns : VERB_FOLLOW_NS);

	while (run->verb->follow_request != NULL && !run->verb->is_final(*answer) &&
	       cnre_clock_left_ns(deadline_ns) > 0) {
		const struct timespec pause = {.tv_nsec = VERB_FOLLOW_EVERY_NS};
		json_t *next = NULL;
		int r;

		(void)nanosleep(&pause, NULL);
		r = ask_json(run, run->verb->follow_request, NULL, &next, message);
		if (r < 0)
			return r;
		json_decref(*answer);
		*answer = next;
	}
	return 0;
}

int run_render(const struct run *run, json_t *answer, char **ret_output, char message[CTL_MESSAGE_BYTES])
{
	int r = run->as_json ? render_json(answer, ret_output) : render_plain(run->verb, answer, ret_output, message);

	json_decref(answer);
	if (r == -ENOMEM)
		(void)snprintf(message, CTL_MESSAGE_BYTES, "out of memory");
	return r;
}

/* 1 when it is time to stop. */
static int sleep_until(int64_t deadline_ns, int stop_fd)
{
	struct pollfd stop = {.fd = stop_fd, .events = POLLIN};
	int64_t left_ns;

	while ((left_ns = cnre_clock_left_ns(deadline_ns)) > 0) {
		int64_t left_ms = left_ns / CNRE_NS_PER_MS + 1;

		if (poll(&stop, 1, left_ms > 60000 ? 60000 : (int)left_ms) > 0)
			return 1;
	}
	return poll(&stop, 1, 0) > 0;
}

static int ask_for_verb(void *context, const char *request, json_t **ret_answer, char message[CTL_MESSAGE_BYTES])
{
	return ask_json(context, request, NULL, ret_answer, message);
}

static int pause_for_verb(void *context, double seconds)
{
	const struct run *run = context;

	return sleep_until(cnre_clock_deadline_ns((int64_t)(seconds * (double)CNRE_NS_PER_S)), run->stop_fd) ? -EINTR : 0;
}

static int ask_all(const struct run *run, json_t **ret_answer, char message[CTL_MESSAGE_BYTES])
{
	const struct verb_asker asker = {.context = (void *)run, .ask = ask_for_verb, .pause = pause_for_verb};

	if (run->verb->gather != NULL)
		return run->verb->gather(run->argc, run->argv, &asker, ret_answer, message);
	return ask_json(run, run->request, run->file, ret_answer, message);
}

int run_once(const struct run *run, char **ret_output, char message[CTL_MESSAGE_BYTES])
{
	json_t *answer = NULL;
	int r = ask_all(run, &answer, message);

	if (r < 0)
		return r;
	r = follow(run, &answer, message);
	if (r < 0) {
		json_decref(answer);
		return r;
	}
	if (run->is_order && run->verb->check != NULL && (r = run->verb->check(answer, message)) < 0) {
		json_decref(answer);
		return r;
	}
	if (run->verb->keep != NULL && (r = run->verb->keep(run->argc, run->argv, answer, message)) < 0) {
		json_decref(answer);
		return r;
	}
	return run_render(run, answer, ret_output, message);
}

static int show(const struct run *run, const char *output, FILE *out)
{
	if (!run->as_json && isatty(fileno(out)))
		(void)fputs("\033[H\033[J", out); /* home, and clear from there: less flicker than clearing all */
	(void)fputs(output, out);
	return fflush(out) == 0 ? 0 : -errno;
}

int run_watch(const struct run *run, double interval_s, FILE *out, FILE *err, char message[CTL_MESSAGE_BYTES])
{
	int64_t interval_ns = (int64_t)(interval_s * (double)CNRE_NS_PER_S);
	int is_first = 1, is_lost = 0;

	for (;;) {
		int64_t next_ns = cnre_clock_deadline_ns(interval_ns);
		char *output = NULL;
		int r = run_once(run, &output, message);

		if (r == -EINTR)
			return 0;
		if (r < 0 && is_first)
			return r;
		if (r < 0 && !is_lost)
			fprintf(err, "cnrectl: %s: %s (trying on)\n", run->verb->name, message);
		is_lost = r < 0;
		is_first = 0;
		if (r == 0) {
			r = show(run, output, out);
			free(output);
			if (r < 0) {
				(void)snprintf(message, CTL_MESSAGE_BYTES, "standard output: %s", strerror(-r));
				return r;
			}
		}
		if (sleep_until(next_ns, run->stop_fd))
			return 0;
	}
}
