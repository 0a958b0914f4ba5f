/* SPDX-License-Identifier: Apache-2.0 */
/* The only place where the engine formats a reason. */
#include "engine/message.h"

#include <stdarg.h>
#include <stdio.h>

int engine_fail(char message[ENGINE_MESSAGE_BYTES], int error, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	(void)vsnprintf(message, ENGINE_MESSAGE_BYTES, format, arguments); /* a cut message is still a message */
	va_end(arguments);
	return error;
}
