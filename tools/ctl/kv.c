/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cnrectl kv: the store of KV prefixes, and prefixes as files. A file is opened here and passed on, so it lies where the
 * caller may write or read, and the manager needs no right to. It is the caller's alone: it holds a conversation.
 */
#include "tools/ctl/verb.h"

#include "base/file.h"
#include "kvstore/prefix_file.h"
#include "tools/ctl/answer.h"
#include "tools/ctl/format.h"
#include "tools/ctl/kv_words.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#define PRIVATE_MODE 0600

/* ---- request ---- */

static json_t *make_request(const struct kv_words *words)
{
	const char *name = words->option[KV_OPTION_NAMESPACE];

	switch (words->action) {
	case KV_EXPORT:
		return json_pack("{s:s, s:s, s:s}", "verb", "kv", "action", "export", "key", words->plain[0]);
	case KV_IMPORT:
		if (name == NULL)
			return json_pack("{s:s, s:s}", "verb", "kv", "action", "import");
		return json_pack("{s:s, s:s, s:s}", "verb", "kv", "action", "import", "namespace", name);
	case KV_CONVERT: /* nobody is asked */
	case KV_SHOW:
		break;
	}
	return json_pack("{s:s}", "verb", "kv");
}

static int request(int argc, char *const *argv, json_t **ret_request, char message[CTL_MESSAGE_BYTES])
{
	struct kv_words words;
	json_t *made;
	int r = kv_words_parse(argc, argv, &words, message);

	if (r < 0)
		return r;
	made = make_request(&words);
	if (made == NULL) { /* a name that is no UTF-8, if not for want of memory */
		(void)snprintf(message, CTL_MESSAGE_BYTES, "a word cannot be sent: write it in UTF-8");
		return -EINVAL;
	}
	*ret_request = made;
	return 0;
}

static int is_order(int argc, char *const *argv)
{
	struct kv_words words;
	char message[CTL_MESSAGE_BYTES];

	return kv_words_parse(argc, argv, &words, message) == 0 && words.action != KV_SHOW;
}

static int is_local(int argc, char *const *argv)
{
	struct kv_words words;
	char message[CTL_MESSAGE_BYTES];

	return kv_words_parse(argc, argv, &words, message) == 0 && words.action == KV_CONVERT;
}

static int answer_here(int argc, char *const *argv, json_t **ret_answer, char message[CTL_MESSAGE_BYTES])
{
	struct kv_words words;
	int r = kv_words_parse(argc, argv, &words, message);

	return r < 0 ? r : kv_convert(&words, ret_answer, message);
}

/* ---- file ---- */

static int create(const char *path, char message[CTL_MESSAGE_BYTES])
{
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, PRIVATE_MODE);

	if (fd >= 0)
		return fd;
	fd = -errno;
	(void)snprintf(message, CTL_MESSAGE_BYTES, "%.300s: %s%s", path, strerror(-fd),
		       fd == -EEXIST ? ": it is never written over; name another file or remove it" : "");
	return fd;
}

/* The manager believes nothing of it, but has fewer words for what is wrong. */
static int open_prefix(const char *path, char message[CTL_MESSAGE_BYTES])
{
	char reason[KV_PREFIX_MESSAGE_BYTES];
	struct kv_prefix_reader reader;
	uint64_t bytes;
	int fd = cnre_file_open(AT_FDCWD, path, &bytes), r;

	if (fd < 0) {
		(void)snprintf(message, CTL_MESSAGE_BYTES, "%.300s: %s", path,
			       fd == -EINVAL ? "not a regular file" : strerror(-fd));
		return fd;
	}
	r = kv_prefix_open(&reader, fd, reason);
	if (r == 0)
		return fd;
	(void)close(fd);
	(void)snprintf(message, CTL_MESSAGE_BYTES, "%.300s: %s", path, reason);
	return r;
}

static int file(int argc, char *const *argv, char message[CTL_MESSAGE_BYTES])
{
	struct kv_words words;
	int r = kv_words_parse(argc, argv, &words, message);

	if (r < 0)
		return r;
	if (words.action == KV_EXPORT)
		return create(words.plain[1], message);
	return words.action == KV_IMPORT ? open_prefix(words.plain[0], message) : VERB_NO_FILE;
}

/* Created a moment ago. What a failed export left of it is no prefix. */
static void abandon_file(int argc, char *const *argv)
{
	struct kv_words words;
	char message[CTL_MESSAGE_BYTES];

	if (kv_words_parse(argc, argv, &words, message) == 0 && words.action == KV_EXPORT)
		(void)unlink(words.plain[1]);
}

/* ---- answer ---- */

static void print_disk(FILE *out, struct fields *fields, const json_t *disk)
{
	const char *error = fields_string(fields, disk, "last_error");
	uint64_t limit = fields_number(fields, disk, "limit_bytes"), written = fields_number(fields, disk, "written"),
		 read = fields_number(fields, disk, "read"), calls = fields_number(fields, disk, "syscalls"),
		 errors = fields_number(fields, disk, "errors"),
		 quarantined = fields_number(fields, disk, "quarantined");
	char count[3][FORMAT_BYTES], bytes[2][FORMAT_BYTES];

	fprintf(out, "files      %s: %s, %s", fields_string(fields, disk, "directory"),
		format_count(fields_number(fields, disk, "files"), count[0]),
		format_bytes(fields_number(fields, disk, "bytes"), bytes[0]));
	if (limit > 0)
		fprintf(out, " of %s", format_bytes(limit, bytes[1]));
	fprintf(out, "; %s written, %s read", format_count(written, count[1]), format_count(read, count[2]));
	if (written + read > 0)
		fprintf(out, ", %.2f system calls each", (double)calls / (double)(written + read));
	fputc('\n', out);
	if (errors > 0)
		fprintf(out, "FAILED     %s times, %s files in quarantine; last: %s\n", format_count(errors, count[0]),
			format_count(quarantined, count[1]), error[0] != '\0' ? error : "-");
	else if (quarantined > 0)
		fprintf(out, "DAMAGED    %s files, now in quarantine; last: %s\n", format_count(quarantined, count[1]),
			error[0] != '\0' ? error : "-");
}

static void print_prefix(FILE *out, struct fields *fields, const json_t *prefix)
{
	char count[2][FORMAT_BYTES], bytes[FORMAT_BYTES], avoided[FORMAT_BYTES];

	fprintf(out, "  %-64.64s %10s %10s %9s %12s\n", fields_string(fields, prefix, "key"),
		format_count(fields_number(fields, prefix, "tokens"), count[0]),
		format_bytes(fields_number(fields, prefix, "bytes"), bytes),
		format_count(fields_number(fields, prefix, "uses"), count[1]),
		format_seconds(fields_real(fields, prefix, "time_avoided_s"), avoided));
}

static void print_prefixes(FILE *out, struct fields *fields, const json_t *prefixes)
{
	const json_t *prefix;
	size_t index;

	if (json_array_size(prefixes) == 0)
		return;
	fprintf(out, "  %-64s %10s %10s %9s %12s\n", "PREFIX", "TOKENS", "SIZE", "USES", "TIME AVOIDED");
	json_array_foreach (prefixes, index, prefix)
		print_prefix(out, fields, prefix);
}

static void print_namespace(FILE *out, struct fields *fields, const json_t *space)
{
	uint64_t failed = fields_number(fields, space, "publish_failed");
	char count[6][FORMAT_BYTES], bytes[FORMAT_BYTES], avoided[FORMAT_BYTES];

	fprintf(out, "\n%.95s: %s clients; %s blocks: %s (%s) in memory, %s of them pinned, %s in files\n",
		fields_string(fields, space, "name"), format_count(fields_number(fields, space, "clients"), count[0]),
		format_count(fields_number(fields, space, "blocks"), count[1]),
		format_count(fields_number(fields, space, "resident_blocks"), count[2]),
		format_bytes(fields_number(fields, space, "resident_bytes"), bytes),
		format_count(fields_number(fields, space, "pinned_blocks"), count[3]),
		format_count(fields_number(fields, space, "disk_blocks"), count[4]));
	fprintf(out, "  %s matches, %s tokens not computed again, %s avoided; ",
		format_count(fields_number(fields, space, "matches"), count[0]),
		format_count(fields_number(fields, space, "hit_tokens"), count[1]),
		format_seconds(fields_real(fields, space, "time_avoided_s"), avoided));
	fprintf(out, "%s published, %s evicted", format_count(fields_number(fields, space, "published"), count[2]),
		format_count(fields_number(fields, space, "evictions"), count[3]));
	if (failed > 0)
		fprintf(out, ", %s FAILED to be published", format_count(failed, count[4]));
	fputc('\n', out);
	print_prefixes(out, fields, fields_array(fields, space, "prefixes"));
}

static void print_store(FILE *out, struct fields *fields, const json_t *answer)
{
	const json_t *disk = json_object_get(answer, "disk"), *spaces = fields_array(fields, answer, "namespaces"),
		     *space;
	char budget[FORMAT_BYTES], resident[FORMAT_BYTES], pool[FORMAT_BYTES];
	size_t index;

	fprintf(out, "memory     %s resident of %s; pool %s\n",
		format_bytes(fields_number(fields, answer, "resident_bytes"), resident),
		format_bytes(fields_number(fields, answer, "budget_bytes"), budget),
		format_bytes(fields_number(fields, answer, "pool_bytes"), pool));
	if (json_is_null(disk))
		fprintf(out, "files      none: what memory does not hold is gone; --kv-dir DIRECTORY keeps it\n");
	else
		print_disk(out, fields, fields_object(fields, answer, "disk"));
	if (json_array_size(spaces) == 0)
		fprintf(out, "no namespaces yet\n");
	json_array_foreach (spaces, index, space)
		print_namespace(out, fields, space);
}

static void print_moved(FILE *out, struct fields *fields, const json_t *answer, const char *what)
{
	char blocks[FORMAT_BYTES], tokens[FORMAT_BYTES];

	fprintf(out, "%s %s blocks, %s tokens", what, format_count(fields_number(fields, answer, "blocks"), blocks),
		format_count(fields_number(fields, answer, "tokens"), tokens));
}

static void print_converted(FILE *out, struct fields *fields, const json_t *answer)
{
	uint64_t dropped = fields_number(fields, answer, "dropped");
	char text[FORMAT_BYTES];

	print_moved(out, fields, answer, "converted");
	fprintf(out, ", %s\nkey %s\n", format_bytes(fields_number(fields, answer, "bytes"), text),
		fields_string(fields, answer, "key"));
	if (dropped > 0)
		fprintf(out, "%s records dropped: torn, or not counted by the file's header\n",
			format_count(dropped, text));
}

static int is_final(const json_t *answer)
{
	const char *state = json_string_value(json_object_get(answer, "state"));

	return state == NULL || strcmp(state, "running") != 0;
}

static int is_export(const json_t *answer)
{
	const char *kind = json_string_value(json_object_get(answer, "kind"));

	return kind == NULL ? json_object_get(answer, "present") == NULL : strcmp(kind, "export") == 0;
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
	if (is_export(answer))
		(void)snprintf(message, CTL_MESSAGE_BYTES, "%s: what there is of the file is no prefix", reason);
	else
		(void)snprintf(message, CTL_MESSAGE_BYTES, "%s: the %" JSON_INTEGER_FORMAT " blocks before it are stored",
			       reason, json_integer_value(json_object_get(answer, "blocks")));
	return -EIO;
}

/* What was asked shows in what is answered. */
static void print(FILE *out, struct fields *fields, const json_t *answer)
{
	char text[FORMAT_BYTES];

	if (json_is_false(json_object_get(answer, "enabled"))) {
		fprintf(out, "no store of KV prefixes: start cnre-managerd with --kv-ram SIZE\n");
	} else if (json_object_get(answer, "dropped") != NULL) {
		print_converted(out, fields, answer);
	} else if (json_object_get(answer, "blocks") != NULL && !is_export(answer)) {
		print_moved(out, fields, answer, "imported");
		fprintf(out, "; %s blocks were there already\n",
			format_count(fields_number(fields, answer, "present"), text));
	} else if (json_object_get(answer, "blocks") != NULL) {
		print_moved(out, fields, answer, "exported");
		fprintf(out, ", %s\n", format_bytes(fields_number(fields, answer, "bytes"), text));
	} else {
		print_store(out, fields, answer);
	}
}

const struct verb verb_kv = {
	.name = "kv",
	.arguments = "[export KEY FILE | import FILE [--namespace NAME] | convert COLI_FILE OUT --model DIR ...]",
	.summary = "stored KV prefixes; one as a file, and from another engine's",
	.request = request,
	.takes_option = kv_words_take_option,
	.is_local = is_local,
	.answer_here = answer_here,
	.file = file,
	.abandon_file = abandon_file,
	.file_ns = VERB_FILE_NS,
	.follow_request = "{\"verb\":\"kv\",\"action\":\"transfer\"}",
	.is_final = is_final,
	.check = check,
	.is_order = is_order,
	.print = print,
};
