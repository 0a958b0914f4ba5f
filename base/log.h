/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One-line messages of the daemon, on standard error with the syslog priority prefix that journald understands
 * ("<4>text") when standard error is a journal stream, plain otherwise. Only manager/ and tools/ log; a library never does.
 * A line is at most CNRE_LOG_LINE_MAX bytes and is written with one write(2), so lines of several processes do not mix.
 */
#ifndef CNRE_BASE_LOG_H
#define CNRE_BASE_LOG_H

#include <stdint.h>

#define CNRE_LOG_LINE_MAX 1024

enum cnre_log_level { CNRE_LOG_ERROR = 3, CNRE_LOG_WARNING = 4, CNRE_LOG_NOTICE = 5, CNRE_LOG_INFO = 6, CNRE_LOG_DEBUG = 7 };

/* Sets the program name in front of each line and the highest level written. Call once, before threads. */
void cnre_log_open(const char *program, enum cnre_log_level highest);

/* Writes one line; a newline is added. Control characters in the text become '?', so a client's name cannot forge lines. */
void cnre_log(enum cnre_log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

/*
 * A token bucket for messages that a client can provoke: at most `burst` lines per 10 s; the first line after a
 * silence says how many were dropped. Initialise with zeros and set burst.
 */
struct cnre_log_limit {
	uint32_t burst;
	uint32_t used;
	uint32_t dropped;
	int64_t window_start_ns;
};
int cnre_log_allowed(struct cnre_log_limit *limit, int64_t now_ns); /* 1 write it, 0 drop it */

#endif
