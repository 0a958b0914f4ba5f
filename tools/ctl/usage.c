/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cnrectl usage: the history of expert uses, as a file of Colibri's engines (`.coli_usage`) and from one. Files are opened
 * and written here, as the caller: they lie where the caller may read or write, and the manager needs no right to.
 */
#include "tools/ctl/verb.h"

#include "base/file.h"
#include "tools/ctl/answer.h"
#include "tools/ctl/format.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#define STATUS_REQUEST "{\"verb\":\"usage\",\"action\":\"status\"}"
#define FILE_MODE 0666u /* less the umask, as engines write theirs */

enum action { SHOW, EXPORT, IMPORT, NO_ACTION };

static enum action action_of(int argc, char *const *argv)
{
	if (argc == 1)
		return SHOW;
	if (strcmp(argv[1], "export") == 0)
		return EXPORT;
	return strcmp(argv[1], "import") == 0 ? IMPORT : NO_ACTION;
}

static int takes_option(int argc, char *const *argv, const char *name)
{
	enum action action = action_of(argc, argv);

	return (action == EXPORT || action == IMPORT) && strcmp(name, "--model") == 0;
}

/* The words behind the action: one file, and perhaps a model. 0 or -EINVAL. */
static int sort_words(int argc, char *const *argv, const char **ret_file, const char **ret_model)
{
	const char *file = NULL, *model = NULL;

	for (int i = 2; i < argc; i++) {
		if (strcmp(argv[i], "--model") == 0 && i + 1 < argc && model == NULL)
			model = argv[++i];
		else if (file == NULL)
			file = argv[i];
		else
			return -EINVAL;
	}
	if (file == NULL)
		return -EINVAL;
	*ret_file = file;
	*ret_model = model;
	return 0;
}

static int request(int argc, char *const *argv, json_t **ret_request, char message[CTL_MESSAGE_BYTES])
{
	static const char *const names[] = {"status", "export", "import"};
	enum action action = action_of(argc, argv);
	const char *file = NULL, *model = NULL;
	json_t *made;

	if (action == NO_ACTION || (action != SHOW && sort_words(argc, argv, &file, &model) < 0)) {
		(void)snprintf(message, CTL_MESSAGE_BYTES,
			       "takes nothing, or is one of: export FILE [--model NAME], import FILE [--model NAME]");
		return -EINVAL;
	}
	made = json_pack("{s:s, s:s}", "verb", "usage", "action", names[action]);
	if (made == NULL)
		return -ENOMEM;
	if (model != NULL)
		(void)json_object_set_new(made, "model", json_string(model));
	if (action == IMPORT)
		(void)json_object_set_new(made, "file", json_string(file)); /* where it is no UTF-8 it has no name there */
	*ret_request = made;
	return 0;
}

static int is_order(int argc, char *const *argv)
{
	return action_of(argc, argv) != SHOW;
}

static int file(int argc, char *const *argv, char message[CTL_MESSAGE_BYTES])
{
	const char *path, *model;
	uint64_t bytes;
	int fd;

	if (action_of(argc, argv) != IMPORT || sort_words(argc, argv, &path, &model) < 0)
		return VERB_NO_FILE;
	fd = cnre_file_open(AT_FDCWD, path, &bytes);
	if (fd < 0)
		(void)snprintf(message, CTL_MESSAGE_BYTES, "%.300s: %s", path,
			       fd == -EINVAL ? "not a regular file" : strerror(-fd));
	return fd;
}

/* umask cannot be asked without being set; nobody else makes files in this process. */
static mode_t get_umask(void)
{
	mode_t mask = umask(077);

	(void)umask(mask);
	return mask;
}

/* Whole or not at all, beside whoever else writes it: the name that it is written under is nobody else's. */
static int keep(int argc, char *const *argv, json_t *answer, char message[CTL_MESSAGE_BYTES])
{
	const char *text = json_string_value(json_object_get(answer, "text")), *path, *model;
	int r;

	if (action_of(argc, argv) != EXPORT || sort_words(argc, argv, &path, &model) < 0)
		return 0;
	if (text == NULL) {
		(void)snprintf(message, CTL_MESSAGE_BYTES, "the answer has no text: cnrectl and the manager are of different releases");
		return -EBADMSG;
	}
	r = cnre_file_replace_as(path, text, strlen(text), FILE_MODE & ~get_umask());
	if (r < 0)
		(void)snprintf(message, CTL_MESSAGE_BYTES, "%.300s: %s: it is as it was", path, strerror(-r));
	(void)json_object_del(answer, "text");
	return r;
}

static int is_final(const json_t *answer)
{
	const char *state = json_string_value(json_object_get(answer, "state"));

	return state == NULL || strcmp(state, "reading") != 0;
}

static int check(const json_t *answer, char message[CTL_MESSAGE_BYTES])
{
	const char *state = json_string_value(json_object_get(answer, "state")),
		   *error = json_string_value(json_object_get(answer, "error"));
	char reason[256];

	if (state == NULL || strcmp(state, "failed") != 0)
		return 0;
	(void)snprintf(reason, sizeof reason, "%s", error == NULL ? "" : error);
	answer_make_text_printable(reason);
	(void)snprintf(message, CTL_MESSAGE_BYTES, "%s: nothing was added", reason);
	return -EBADMSG;
}

static void print_import(FILE *out, struct fields *fields, const json_t *answer)
{
	const char *state = fields_string(fields, answer, "state"), *writer = fields_string(fields, answer, "writer");
	char uses[FORMAT_BYTES], experts[FORMAT_BYTES];

	if (strcmp(state, "done") != 0) {
		fprintf(out, "import     %s%s%s%s%s\n", state, strcmp(state, "none") == 0 ? "" : ": ",
			fields_string(fields, answer, "file"), strcmp(state, "failed") == 0 ? ": " : "",
			fields_string(fields, answer, "error"));
		return;
	}
	fprintf(out, "import     %s %s: %s uses of %s experts added to the history of %s\n", fields_string(fields, answer, "kind"),
		fields_string(fields, answer, "file"), format_count(fields_number(fields, answer, "uses"), uses),
		format_count(fields_number(fields, answer, "experts"), experts), fields_string(fields, answer, "model"));
	if (writer[0] != '\0')
		fprintf(out, "           written by %s, not by this model's engine: taken since it was named\n", writer);
	if (!fields_boolean(fields, answer, "kept"))
		fprintf(out, "           kept in memory only: start the manager with --usage DIR\n");
}

static void print(FILE *out, struct fields *fields, const json_t *answer)
{
	char uses[FORMAT_BYTES], experts[FORMAT_BYTES];

	if (json_object_get(answer, "engine") == NULL) {
		print_import(out, fields, answer);
		return;
	}
	fprintf(out, "exported %s uses of %s experts of %s, for the engine %s\n",
		format_count(fields_number(fields, answer, "uses"), uses),
		format_count(fields_number(fields, answer, "experts"), experts), fields_string(fields, answer, "model"),
		fields_string(fields, answer, "engine"));
}

const struct verb verb_usage = {
	.name = "usage",
	.arguments = "[export FILE | import FILE] [--model NAME]",
	.summary = "the history of uses as a file of an engine, and from one",
	.request = request,
	.takes_option = takes_option,
	.file = file,
	.keep = keep,
	.follow_request = STATUS_REQUEST,
	.is_final = is_final,
	.is_order = is_order,
	.check = check,
	.print = print,
};
