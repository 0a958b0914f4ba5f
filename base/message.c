/* SPDX-License-Identifier: Apache-2.0 */
/* The line beside an error code; see message.h. */
#include "base/message.h"

#include <stdio.h>

int cnre_message_list(char *text, size_t text_bytes, int error, const char *format, va_list arguments)
{
	char *c;

	if (text == NULL || text_bytes == 0)
		return error;
	if (vsnprintf(text, text_bytes, format, arguments) < 0)
		text[0] = '\0';
	for (c = text; *c != '\0'; c++)
		if ((unsigned char)*c < 0x20 || *c == 0x7f)
			*c = '?';
	return error;
}

int cnre_message(char *text, size_t text_bytes, int error, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	(void)cnre_message_list(text, text_bytes, error, format, arguments);
	va_end(arguments);
	return error;
}
