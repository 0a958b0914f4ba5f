/* SPDX-License-Identifier: Apache-2.0 */
/* See lines.h. The buffer grows to one line and a piece; it never moves while the caller has a line. */
#include "engine/lines.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PIECE_BYTES 4096u

void lines_init(struct lines *lines, size_t line_bytes_max)
{
	*lines = (struct lines){.line_bytes_max = line_bytes_max};
}

void lines_done(struct lines *lines)
{
	free(lines->buffer);
	*lines = (struct lines){0};
}

/* Room for a piece behind the end. At most a line and a piece are kept, as lines_take discards longer ones. */
static int make_room(struct lines *lines)
{
	size_t room = lines->room ? 2 * lines->room : 2 * PIECE_BYTES;
	char *buffer;

	if (lines->first > 0)
		memmove(lines->buffer, lines->buffer + lines->first, lines->end - lines->first);
	lines->end -= lines->first;
	lines->first = 0;
	if (lines->room - lines->end > PIECE_BYTES)
		return 0;
	buffer = realloc(lines->buffer, room);
	if (!buffer)
		return -ENOMEM;
	lines->buffer = buffer;
	lines->room = room;
	return 0;
}

int lines_read(struct lines *lines, int fd)
{
	ssize_t got;

	if (make_room(lines) < 0)
		return -ENOMEM;
	got = read(fd, lines->buffer + lines->end, PIECE_BYTES);
	if (got < 0)
		return -errno;
	if (got == 0 && lines->end > lines->first && lines->buffer[lines->end - 1] != '\n')
		lines->buffer[lines->end++] = '\n'; /* a piece is never all of the room */
	lines->end += (size_t)got;
	return (int)got;
}

/* The newline that ends the first line, or NULL. */
static char *find_end(const struct lines *lines)
{
	return lines->end > lines->first ? memchr(lines->buffer + lines->first, '\n', lines->end - lines->first) : NULL;
}

int lines_take(struct lines *lines, char **ret_line)
{
	char *newline = find_end(lines), *line = newline ? lines->buffer + lines->first : NULL;
	size_t length = newline ? (size_t)(newline - line) : lines->end - lines->first;
	bool is_skipping = lines->is_skipping;

	if (newline)
		lines->first += length + 1;
	else if (is_skipping || length > lines->line_bytes_max)
		lines->first = lines->end;
	else
		return 0;
	lines->is_skipping = !newline;
	if (is_skipping)
		return newline ? lines_take(lines, ret_line) : 0;
	if (length > lines->line_bytes_max)
		return -E2BIG;
	while ((newline = memchr(line, '\0', length)) != NULL)
		*newline = '?'; /* no text has one, and it shall not hide what follows */
	line[length] = '\0';
	*ret_line = line;
	return 1;
}
