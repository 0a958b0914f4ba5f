/* SPDX-License-Identifier: Apache-2.0 */
/* Output of a verb; see captured.h. */
#include "tests/support/captured.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define WORDS_MAX 64

static int begin_capture(FILE *stream, int *ret_old)
{
	int fd = memfd_create("captured", MFD_CLOEXEC);

	cr_assert_geq(fd, 0);
	(void)fflush(stream);
	*ret_old = dup(fileno(stream));
	cr_assert_geq(*ret_old, 0);
	cr_assert_geq(dup2(fd, fileno(stream)), 0);
	return fd;
}

static char *end_capture(FILE *stream, int fd, int old)
{
	off_t bytes;
	char *text;

	(void)fflush(stream);
	cr_assert_geq(dup2(old, fileno(stream)), 0);
	(void)close(old);
	bytes = lseek(fd, 0, SEEK_END);
	text = calloc((size_t)bytes + 1, 1);
	cr_assert_not_null(text);
	cr_assert_eq(pread(fd, text, (size_t)bytes, 0), bytes);
	(void)close(fd);
	return text;
}

struct captured captured_run(int (*verb)(int argc, char **argv), const char *line)
{
	struct captured captured = {0};
	char *copy = strdup(line), *rest = copy, *argv[WORDS_MAX + 1] = {NULL};
	int argc = 0, out, error, old_out, old_error;

	cr_assert_not_null(copy);
	while (rest != NULL && argc < WORDS_MAX)
		argv[argc++] = strsep(&rest, " ");
	out = begin_capture(stdout, &old_out);
	error = begin_capture(stderr, &old_error);
	captured.status = verb(argc, argv);
	captured.error = end_capture(stderr, error, old_error);
	captured.out = end_capture(stdout, out, old_out);
	free(copy);
	return captured;
}

void captured_free(struct captured *captured)
{
	free(captured->out);
	free(captured->error);
}
