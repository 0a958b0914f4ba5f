/* SPDX-License-Identifier: Apache-2.0 */
/* Daemon messages; see log.h. */
#include "base/log.h"

#include "base/clock.h"

#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *log_program = "cnre";
static enum cnre_log_level log_highest = CNRE_LOG_INFO;
static int log_to_journal;

void cnre_log_open(const char *program, enum cnre_log_level highest)
{
	log_program = program;
	log_highest = highest;
	log_to_journal = getenv("JOURNAL_STREAM") != NULL;
}

static void hide_control_characters(char *text)
{
	for (; *text != '\0'; text++)
		if ((unsigned char)*text < 0x20 || *text == 0x7f)
			*text = '?';
}

void cnre_log(enum cnre_log_level level, const char *format, ...)
{
	char text[CNRE_LOG_LINE_MAX - 64];
	char line[CNRE_LOG_LINE_MAX];
	va_list arguments;
	int length;

	if (level > log_highest)
		return;
	va_start(arguments, format);
	(void)vsnprintf(text, sizeof text, format, arguments);
	va_end(arguments);
	hide_control_characters(text);
	if (log_to_journal)
		length = snprintf(line, sizeof line, "<%d>%s\n", (int)level, text);
	else
		length = snprintf(line, sizeof line, "%.40s: %s\n", log_program, text);
	/* A log that nobody reads must not stop the daemon: a full pipe loses the line. */
	if (length > 0 && poll(&(struct pollfd){.fd = STDERR_FILENO, .events = POLLOUT}, 1, 0) == 1)
		(void)!write(STDERR_FILENO, line, strnlen(line, sizeof line));
}

int cnre_log_allowed(struct cnre_log_limit *limit, int64_t now_ns)
{
	if (now_ns - limit->window_start_ns > 10 * CNRE_NS_PER_S) {
		if (limit->dropped > 0)
			cnre_log(CNRE_LOG_NOTICE, "%u similar messages were not written", limit->dropped);
		limit->window_start_ns = now_ns;
		limit->used = 0;
		limit->dropped = 0;
	}
	if (limit->used >= limit->burst) {
		limit->dropped++;
		return 0;
	}
	limit->used++;
	return 1;
}
