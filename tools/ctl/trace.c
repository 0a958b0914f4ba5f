/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cnrectl trace record FILE: what the manager's policy is told, into a file that cnre-sim reads. The file is opened here
 * and passed on, so it lies where the caller may write, and the manager needs no right to.
 */
#include "tools/ctl/verb.h"

#include "base/size.h"
#include "tools/ctl/answer.h"
#include "tools/ctl/format.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define STATUS_REQUEST "{\"verb\":\"trace\",\"action\":\"status\"}"

static int usage(char message[CTL_MESSAGE_BYTES])
{
	(void)snprintf(message, CTL_MESSAGE_BYTES, "is one of: record FILE [--max SIZE] [--model NAME], stop, status");
	return -EINVAL;
}

/* As the other verbs have them; the words alone are what this verb took first, and do as well. */
static const char *without_dashes(const char *word)
{
	return strncmp(word, "--", 2) == 0 ? word + 2 : word;
}

static int takes_option(int argc, char *const *argv, const char *name)
{
	return argc >= 3 && strcmp(argv[1], "record") == 0 && (strcmp(name, "--max") == 0 || strcmp(name, "--model") == 0);
}

/* The words behind the file. */
static int add_options(json_t *request, int argc, char *const *argv, char message[CTL_MESSAGE_BYTES])
{
	uint64_t bytes;

	for (int i = 0; i < argc; i += 2) {
		const char *name = without_dashes(argv[i]);

		if (i + 1 == argc)
			return usage(message);
		if (strcmp(name, "max") == 0) {
			if (cnre_size_parse(argv[i + 1], &bytes) < 0 || bytes == 0 || bytes > INT64_MAX) {
				(void)snprintf(message, CTL_MESSAGE_BYTES, "--max %.64s: not a size: write for example 1G",
					       argv[i + 1]);
				return -EINVAL;
			}
			(void)json_object_set_new(request, "bytes_max", json_integer((json_int_t)bytes));
		} else if (strcmp(name, "model") == 0) {
			(void)json_object_set_new(request, "model", json_string(argv[i + 1]));
		} else {
			return usage(message);
		}
	}
	return 0;
}

static int request(int argc, char *const *argv, json_t **ret_request, char message[CTL_MESSAGE_BYTES])
{
	int records = argc >= 3 && strcmp(argv[1], "record") == 0;
	json_t *made;
	int r;

	if (!records && (argc != 2 || (strcmp(argv[1], "stop") != 0 && strcmp(argv[1], "status") != 0)))
		return usage(message);
	made = json_pack("{s:s, s:s}", "verb", "trace", "action", argv[1]);
	if (made == NULL)
		return -ENOMEM;
	r = records ? add_options(made, argc - 3, argv + 3, message) : 0;
	if (r < 0) {
		json_decref(made);
		return r;
	}
	*ret_request = made;
	return 0;
}

static int file(int argc, char *const *argv, char message[CTL_MESSAGE_BYTES])
{
	int fd;

	if (argc < 3)
		return VERB_NO_FILE;
	fd = open(argv[2], O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0640);
	if (fd >= 0)
		return fd;
	fd = -errno;
	(void)snprintf(message, CTL_MESSAGE_BYTES, "%.300s: %s%s", argv[2], strerror(-fd),
		       fd == -EEXIST ? ": it is never written over; name another file or remove it" : "");
	return fd;
}

/* Created a moment ago, and empty unless the manager took it after all and its answer was lost. */
static void abandon_file(int argc, char *const *argv)
{
	struct stat status;

	if (argc >= 3 && stat(argv[2], &status) == 0 && status.st_size == 0)
		(void)unlink(argv[2]);
}

static int is_final(const json_t *answer)
{
	const char *state = json_string_value(json_object_get(answer, "state"));

	return state == NULL || strcmp(state, "ending") != 0;
}

static int is_order(int argc, char *const *argv)
{
	return argc < 2 || strcmp(argv[1], "status") != 0;
}

/* A file without its end is none that can be replayed: who stopped the recording must learn that from the exit status. */
static int check(const json_t *answer, char message[CTL_MESSAGE_BYTES])
{
	const char *error = json_string_value(json_object_get(answer, "error"));
	char reason[128];

	if (error == NULL || error[0] == '\0')
		return 0;
	(void)snprintf(reason, sizeof reason, "%s", error);
	answer_make_text_printable(reason);
	(void)snprintf(message, CTL_MESSAGE_BYTES,
		       "writing the file failed: %s: it lacks its end and cannot be replayed; record again where there is room",
		       reason);
	return -EIO;
}

static void print(FILE *out, struct fields *fields, const json_t *answer)
{
	const char *state = fields_string(fields, answer, "state"), *error = fields_string(fields, answer, "error");
	char records[FORMAT_BYTES], lost[FORMAT_BYTES], bytes[FORMAT_BYTES];

	fprintf(out, "trace: %s, %s records", state, format_count(fields_number(fields, answer, "records"), records));
	fprintf(out, strcmp(state, "recording") == 0 ? ", %s of them written so far" : " in %s",
		format_bytes(fields_number(fields, answer, "bytes"), bytes));
	if (fields_number(fields, answer, "lost") > 0)
		fprintf(out, ", %s lost: the file's drive is too slow",
			format_count(fields_number(fields, answer, "lost"), lost));
	if (fields_boolean(fields, answer, "full"))
		fprintf(out, ", as large as was asked for");
	if (error[0] != '\0')
		fprintf(out, ", ended by an error: %s", error);
	fputc('\n', out);
}

const struct verb verb_trace = {
	.name = "trace",
	.arguments = "record FILE [--max SIZE] [--model NAME] | stop | status",
	.summary = "record what the policy is told, for cnre-sim",
	.request = request,
	.takes_option = takes_option,
	.file = file,
	.abandon_file = abandon_file,
	.follow_request = STATUS_REQUEST,
	.is_final = is_final,
	.is_order = is_order,
	.check = check,
	.print = print,
};
