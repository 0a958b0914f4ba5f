/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/standin/fakecuda/rules.h"

#include "tests/standin/fakecuda/world.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define RULE_TEXT(id, name, is_note) {name, is_note},
static const struct {
	const char *name;
	int is_note;
} rules[RULE_COUNT] = {FAKECUDA_RULES(RULE_TEXT)};

int rule_of(const char *name)
{
	for (int rule = 0; rule < RULE_COUNT; rule++)
		if (!strcmp(rules[rule].name, name))
			return rule;
	return -1;
}

int rule_is_note(enum rule rule)
{
	return rules[rule].is_note;
}

static void write_line(const char *line, size_t bytes)
{
	const char *path = getenv("FAKECUDA_REPORT");
	int fd = path && *path ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666) : STDERR_FILENO;
	if (fd < 0)
		fd = STDERR_FILENO;
	if (write(fd, line, bytes) < 0 && fd != STDERR_FILENO)
		(void)!write(STDERR_FILENO, line, bytes);
	if (fd != STDERR_FILENO)
		(void)close(fd);
}

void rule_broken(enum rule rule, const char *format, ...)
{
	char words[SAID_BYTES - 64], line[SAID_BYTES];
	va_list arguments;
	va_start(arguments, format);
	(void)vsnprintf(words, sizeof words, format, arguments);
	va_end(arguments);
	int bytes = snprintf(line, sizeof line, "fakecuda: %s%s: %s (pid %d, thread %ld)\n",
			     rules[rule].is_note ? "note: " : "", rules[rule].name, words, getpid(),
			     (long)syscall(SYS_gettid));
	if (world) {
		atomic_fetch_add(&world->broken[rule], 1);
		if (!rules[rule].is_note) {
			uint64_t turn = atomic_fetch_add(&world->said_count, 1);
			memcpy(world->said[turn % SAID_MAX], line, sizeof line);
		}
	}
	write_line(line, (size_t)bytes < sizeof line ? (size_t)bytes : sizeof line - 1);
	if (!rules[rule].is_note && getenv("FAKECUDA_ABORT"))
		abort();
}
