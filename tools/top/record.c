/* SPDX-License-Identifier: Apache-2.0 */
/* See record.h. */
#include "tools/top/record.h"

#include "tools/ctl/answer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FIRST_LINE "{\"cnre-top\":1}"

static int say(char *message, int error, const char *path, const char *what)
{
	(void)snprintf(message, TOP_MESSAGE_BYTES, "%.300s: %s", path, what);
	return error;
}

static int write_line(struct top_record *record, const char *text)
{
	if (fprintf(record->file, "%s\n", text) < 0 || fflush(record->file) != 0)
		return errno > 0 ? -errno : -EIO;
	record->bytes += strlen(text) + 1;
	return 0;
}

int top_record_create(struct top_record *record, const char *path, char message[TOP_MESSAGE_BYTES])
{
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0640), r;

	*record = (struct top_record){.bytes_max = TOP_RECORD_BYTES_MAX};
	if (fd < 0)
		return say(message, -errno, path,
			   errno == EEXIST ? "is there already, and is never written over: name another file" : strerror(errno));
	record->file = fdopen(fd, "w");
	if (record->file == NULL) {
		r = -errno;
		(void)close(fd);
		return say(message, r, path, strerror(-r));
	}
	r = write_line(record, FIRST_LINE);
	return r < 0 ? say(message, r, path, strerror(-r)) : 0;
}

int top_record_put(struct top_record *record, const json_t *sample, char message[TOP_MESSAGE_BYTES])
{
	char *text;
	int r = 0;

	if (record->is_full)
		return 0;
	text = answer_line(sample);
	if (text == NULL)
		return say(message, -ENOMEM, "the recording", "out of memory");
	if (strlen(text) > TOP_RECORD_LINE_MAX || record->bytes + strlen(text) + 1 > record->bytes_max)
		record->is_full = 1;
	else
		r = write_line(record, text);
	free(text);
	return r < 0 ? say(message, r, "the recording", strerror(-r)) : 0;
}

/* One line without its end into record->line: its length, or -ENODATA at the end, -E2BIG. */
static int read_line(struct top_record *record)
{
	int length = 0, c;

	while ((c = getc_unlocked(record->file)) != EOF && c != '\n') {
		if (length == (int)TOP_RECORD_LINE_MAX)
			return -E2BIG;
		record->line[length++] = (char)c;
	}
	if (c == EOF && length == 0)
		return ferror(record->file) ? -EIO : -ENODATA;
	record->line[length] = '\0';
	record->line_number++;
	return length;
}

int top_record_open(struct top_record *record, const char *path, char message[TOP_MESSAGE_BYTES])
{
	int r;

	*record = (struct top_record){.file = fopen(path, "re")};
	if (record->file == NULL)
		return say(message, -errno, path, strerror(errno));
	record->line = malloc(TOP_RECORD_LINE_MAX + 1);
	r = record->line == NULL ? -ENOMEM : read_line(record);
	if (r >= 0 && strcmp(record->line, FIRST_LINE) != 0)
		r = -EBADMSG;
	if (r >= 0)
		return 0;
	(void)top_record_close(record);
	return say(message, r == -ENOMEM ? r : -EBADMSG, path, r == -ENOMEM ? "out of memory" : "is no recording of cnre-top");
}

int top_record_next(struct top_record *record, json_t **ret_sample, char message[TOP_MESSAGE_BYTES])
{
	int r = read_line(record);

	if (r == -ENODATA)
		return 0;
	if (r >= 0)
		r = answer_parse(record->line, (size_t)r, ret_sample);
	if (r == 0)
		return 1;
	(void)snprintf(message, TOP_MESSAGE_BYTES, "line %llu of the recording: %s", (unsigned long long)record->line_number,
		       r == -E2BIG ? "longer than a sample is" : r == -EBADMSG ? "no sample" : strerror(-r));
	return r;
}

int top_record_close(struct top_record *record)
{
	int r = 0;

	if (record->file != NULL && fclose(record->file) != 0)
		r = -errno;
	free(record->line);
	*record = (struct top_record){.file = NULL};
	return r;
}
