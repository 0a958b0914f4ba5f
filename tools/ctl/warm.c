/* SPDX-License-Identifier: Apache-2.0 */
/* cnrectl warm FILE: loads what a file names before anybody asks for it; the file is opened here, as the caller. */
#include "tools/ctl/verb.h"

#include "base/file.h"
#include "base/size.h"
#include "tools/ctl/answer.h"
#include "tools/ctl/format.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#define STATUS_REQUEST "{\"verb\":\"warm\",\"action\":\"status\"}"
#define SECONDS_MAX 1000000000ull

struct words {
	const char *file, *bytes, *seconds, *model;
};

static const char **option_of(struct words *words, const char *name)
{
	if (strcmp(name, "--bytes") == 0)
		return &words->bytes;
	if (strcmp(name, "--seconds") == 0)
		return &words->seconds;
	return strcmp(name, "--model") == 0 ? &words->model : NULL;
}

static int is_stop(int argc, char *const *argv)
{
	return argc == 2 && strcmp(argv[1], "stop") == 0;
}

static int takes_option(int argc, char *const *argv, const char *name)
{
	struct words words;

	return argc > 1 && !is_stop(argc, argv) && option_of(&words, name) != NULL;
}

static int sort_words(int argc, char *const *argv, struct words *ret_words)
{
	struct words words = {0};

	for (int i = 1; i < argc; i++) {
		const char **option = option_of(&words, argv[i]);

		if (option != NULL && i + 1 < argc && *option == NULL)
			*option = argv[++i];
		else if (option == NULL && words.file == NULL)
			words.file = argv[i];
		else
			return -EINVAL;
	}
	if (words.file == NULL)
		return -EINVAL;
	*ret_words = words;
	return 0;
}

static int parse_seconds(const char *text, uint64_t *ret_seconds)
{
	char *end;

	errno = 0;
	*ret_seconds = strtoull(text, &end, 10);
	return *text >= '0' && *text <= '9' && *end == '\0' && errno == 0 && *ret_seconds > 0 && *ret_seconds <= SECONDS_MAX
		       ? 0
		       : -EINVAL;
}

static int add_limits(json_t *made, const struct words *words, char message[CTL_MESSAGE_BYTES])
{
	uint64_t bytes, seconds;

	if (words->bytes != NULL) {
		if (cnre_size_parse(words->bytes, &bytes) < 0 || bytes == 0 || bytes > INT64_MAX) {
			(void)snprintf(message, CTL_MESSAGE_BYTES, "--bytes %.64s: not a size: write for example 40G", words->bytes);
			return -EINVAL;
		}
		(void)json_object_set_new(made, "bytes_max", json_integer((json_int_t)bytes));
	}
	if (words->seconds != NULL) {
		if (parse_seconds(words->seconds, &seconds) < 0) {
			(void)snprintf(message, CTL_MESSAGE_BYTES, "--seconds %.64s: not a number from 1 to %llu", words->seconds,
				       SECONDS_MAX);
			return -EINVAL;
		}
		(void)json_object_set_new(made, "seconds_max", json_integer((json_int_t)seconds));
	}
	return 0;
}

static int request_start(int argc, char *const *argv, json_t **ret_request, char message[CTL_MESSAGE_BYTES])
{
	struct words words;
	json_t *made;
	int r;

	if (sort_words(argc, argv, &words) < 0) {
		(void)snprintf(message, CTL_MESSAGE_BYTES,
			       "takes nothing, or is one of: FILE [--bytes SIZE] [--seconds N] [--model NAME], stop");
		return -EINVAL;
	}
	made = json_pack("{s:s, s:s}", "verb", "warm", "action", "start");
	if (made == NULL)
		return -ENOMEM;
	(void)json_object_set_new(made, "file", json_string(words.file)); /* where it is no UTF-8 it has no name there */
	if (words.model != NULL)
		(void)json_object_set_new(made, "model", json_string(words.model));
	r = add_limits(made, &words, message);
	if (r < 0)
		json_decref(made);
	else
		*ret_request = made;
	return r;
}

static int request(int argc, char *const *argv, json_t **ret_request, char message[CTL_MESSAGE_BYTES])
{
	json_t *made;

	if (argc > 1 && !is_stop(argc, argv))
		return request_start(argc, argv, ret_request, message);
	made = json_pack("{s:s, s:s}", "verb", "warm", "action", argc > 1 ? "stop" : "status");
	if (made == NULL)
		return -ENOMEM;
	*ret_request = made;
	return 0;
}

static int is_order(int argc, char *const *argv)
{
	(void)argv;
	return argc > 1;
}

static int file(int argc, char *const *argv, char message[CTL_MESSAGE_BYTES])
{
	struct words words;
	uint64_t bytes;
	int fd;

	if (argc == 1 || is_stop(argc, argv) || sort_words(argc, argv, &words) < 0)
		return VERB_NO_FILE;
	fd = cnre_file_open(AT_FDCWD, words.file, &bytes);
	if (fd < 0)
		(void)snprintf(message, CTL_MESSAGE_BYTES, "%.300s: %s", words.file,
			       fd == -EINVAL ? "not a regular file" : strerror(-fd));
	return fd;
}

/* From then on it goes on by itself. */
static int is_final(const json_t *answer)
{
	const char *state = json_string_value(json_object_get(answer, "state"));

	return state == NULL || strcmp(state, "reading") != 0;
}

static int check(const json_t *answer, char message[CTL_MESSAGE_BYTES])
{
	const char *end = json_string_value(json_object_get(answer, "end")),
		   *error = json_string_value(json_object_get(answer, "error"));
	char reason[256];

	if (end == NULL || strcmp(end, "file") != 0)
		return 0;
	(void)snprintf(reason, sizeof reason, "%s", error == NULL ? "" : error);
	answer_make_text_printable(reason);
	(void)snprintf(message, CTL_MESSAGE_BYTES, "%s: nothing is loaded for it", reason);
	return -EBADMSG;
}

/* Why it is over, for a person. */
static const char *end_sentence(const char *end)
{
	static const struct {
		const char *end, *sentence;
	} sentences[] = {
		{"all", "to the end of the list"},
		{"bytes", "as many bytes as it may"},
		{"time", "its time was over"},
		{"full", "no room without evicting others"},
		{"stopped", "stopped"},
		{"file", "its file was refused"},
	};

	for (size_t i = 0; i < sizeof sentences / sizeof sentences[0]; i++)
		if (strcmp(sentences[i].end, end) == 0)
			return sentences[i].sentence;
	return "";
}

void warm_print(FILE *out, struct fields *fields, const json_t *answer)
{
	const char *state = fields_string(fields, answer, "state"), *writer = fields_string(fields, answer, "writer");
	uint64_t refused = fields_number(fields, answer, "refused"), failed = fields_number(fields, answer, "failed");
	char text[6][FORMAT_BYTES];

	if (strcmp(state, "none") == 0) {
		fprintf(out, "warm       none\n");
		return;
	}
	fprintf(out, "warm       %s%s%s: %s of %.200s\n", state, strcmp(state, "over") == 0 ? ", " : "",
		end_sentence(fields_string(fields, answer, "end")), fields_string(fields, answer, "model"),
		fields_string(fields, answer, "file"));
	fprintf(out, "           %s of %s experts looked at in %s: %s loaded (%s), %s were there",
		format_count(fields_number(fields, answer, "looked_at"), text[0]),
		format_count(fields_number(fields, answer, "listed"), text[1]),
		format_seconds(fields_real(fields, answer, "seconds"), text[2]),
		format_count(fields_number(fields, answer, "loaded"), text[3]),
		format_bytes(fields_number(fields, answer, "bytes_loaded"), text[4]),
		format_count(fields_number(fields, answer, "present"), text[5]));
	if (refused > 0)
		fprintf(out, ", %s in full layers", format_count(refused, text[0]));
	if (failed > 0)
		fprintf(out, ", %s FAILED", format_count(failed, text[0]));
	fputc('\n', out);
	if (writer[0] != '\0')
		fprintf(out, "           written by %s, not by this model's engine: taken since it was named\n", writer);
}

const struct verb verb_warm = {
	.name = "warm",
	.arguments = "[FILE [--bytes SIZE] [--seconds N] [--model NAME] | stop]",
	.summary = "load what a file names before anybody asks for it",
	.request = request,
	.takes_option = takes_option,
	.file = file,
	.follow_request = STATUS_REQUEST,
	.is_final = is_final,
	.is_order = is_order,
	.check = check,
	.print = warm_print,
};
