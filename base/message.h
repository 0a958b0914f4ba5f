/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one line of text beside an error code, for functions that can say more than the code: what is wrong with what,
 * and what to do. The text may quote names from files and peers, so control characters become '?'.
 */
#ifndef CNRE_BASE_MESSAGE_H
#define CNRE_BASE_MESSAGE_H

#include <stdarg.h>
#include <stddef.h>

/* Formats the line (cut at the end of text; text may be NULL) and returns error, so that it can stand after return. */
int cnre_message(char *text, size_t text_bytes, int error, const char *format, ...)
	__attribute__((format(printf, 4, 5)));
int cnre_message_list(char *text, size_t text_bytes, int error, const char *format, va_list arguments)
	__attribute__((format(printf, 4, 0)));

#endif
